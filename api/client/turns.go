package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/counterd/counterd/api/wire"
)

var errCrowded = errors.New("too many hits wait for their turn")

// turns has a place for each hit that waits for its turn; nil: none waits.
type turns chan struct{}

func newTurns(most int) turns {
	if most < 0 {
		return nil
	}
	return make(turns, cmp.Or(most, DefaultMaxWaiting))
}

// await returns when the turn of an admitted hit has come, or why it does not wait for it.
//
// A hit that it fails has taken its turn: this is where a refund gives it back.
func (t turns) await(ctx context.Context, d wire.Decision) error {
	if t == nil || !d.Allowed || d.Wait <= 0 {
		return nil
	}
	wait := time.Duration(math.Ceil(d.Wait*1000)) * time.Millisecond
	if end, ends := ctx.Deadline(); ends && time.Until(end) < wait {
		return fmt.Errorf("%w: its turn is in %s: %w", ErrUnavailable, wait, context.DeadlineExceeded)
	}
	select {
	case t <- struct{}{}:
		defer func() { <-t }()
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, errCrowded)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}
