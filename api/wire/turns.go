package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// DefaultMaxWaiting is how many hits wait for their turns at a time, where nothing else is set.
const DefaultMaxWaiting = 10_000

// ErrTooManyWait is the error of a hit that finds as many waiting for their turns as may do.
var ErrTooManyWait = errors.New("too many hits wait for their turns")

// Turns has a place for each admitted hit that waits for its turn in a leaky bucket. Hits do not wait in nil
// Turns.
type Turns chan struct{}

// NewTurns returns Turns with so many places; 0: DefaultMaxWaiting, below 0: nil.
func NewTurns(most int) Turns {
	if most < 0 {
		return nil
	}
	return make(Turns, cmp.Or(most, DefaultMaxWaiting))
}

// Await returns when the turn has come. It returns an error at once if too many hits wait, or if the context
// ends before the turn, and else as soon as the context ends.
func (t Turns) Await(ctx context.Context, wait time.Duration) error {
	if t == nil || wait <= 0 {
		return nil
	}
	if end, ends := ctx.Deadline(); ends && time.Until(end) < wait {
		return fmt.Errorf("its turn is in %s: %w", wait, context.DeadlineExceeded)
	}
	select {
	case t <- struct{}{}:
		defer func() { <-t }()
	default:
		return ErrTooManyWait
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
