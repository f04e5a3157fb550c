package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// asking has a connection of its own for each question, so that it leaves no goroutine behind in
// the process that is asked.
var asking = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Ask returns what a process answers at a path.
func Ask(addr, path string) (string, error) {
	answer, err := asking.Get("http://" + addr + path)
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
