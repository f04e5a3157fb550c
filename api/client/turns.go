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

// giveBackTimeout is how long a hit that does not wait for its turn takes at most to give it back.
const giveBackTimeout = 2 * time.Second

var errCrowded = errors.New("too many hits wait for their turns")

// turns has a place for each hit that waits for its turn; nil: none waits.
type turns chan struct{}

func newTurns(most int) turns {
	if most < 0 {
		return nil
	}
	return make(turns, cmp.Or(most, DefaultMaxWaiting))
}

// await returns when the turn of an admitted hit has come, or why it does not wait for it.
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

// giveBack gives the turn of a hit back, and what it has reserved, although its context may have ended. A turn
// that has come by then is used.
func giveBack(ctx context.Context, s server, reservation string) error {
	if reservation == "" { // the server does not take it back
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if _, err := settle(ctx, s, wire.Settle{Reservation: reservation, Cost: new(int64)}); err != nil && !errors.Is(err, ErrEnded) {
		return fmt.Errorf("its turn was not given back: %w", err)
	}
	return nil
}
