package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Ask returns what a process answers, over a connection of its own.
func Ask(addr, path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s is answered with %s: %s", path, answer.Status, text)
	}
	return string(text), err
}

// Until tries until it succeeds, for so long at the most.
func Until(ctx context.Context, long time.Duration, try func() error) error {
	late, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-late.Done():
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			return fmt.Errorf("after %s: %w", long, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Sleep waits for so long, or until the context ends.
func Sleep(ctx context.Context, long time.Duration) {
	if long <= 0 {
		return
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
