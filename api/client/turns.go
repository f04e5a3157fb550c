package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/counterd/counterd/api/wire"
)

// giveBackTimeout is how long a hit that does not wait for its turn takes at most to give it back.
const giveBackTimeout = 2 * time.Second

// awaitTurn returns when the turn of an admitted hit has come, or why it does not wait for it: it would be after the end.
func awaitTurn(ctx context.Context, turns wire.Turns, d wire.Decision, end time.Time) error {
	if !d.Allowed || d.Wait <= 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	const longest = 1e12 // milliseconds that a time.Duration holds
	if err := turns.Await(ctx, time.Duration(math.Ceil(min(d.Wait*1000, longest)))*time.Millisecond); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
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
