package api

import (
	"context"
	"fmt"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/service"
)

// turns has admitted requests wait for their turn in a leaky bucket.
type turns struct{ waiting *engine.Pending }

// errWaiting says that as many requests as may do wait for their turns.
var errWaiting = fmt.Errorf("%w: too many requests wait for their turns", service.ErrOverload)

// await returns when the turn has come. It returns an error at once if too many wait, or if the
// context ends before the turn, and else as soon as the context ends.
func (t turns) await(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	if end, ends := ctx.Deadline(); ends && time.Until(end) < wait {
		return context.DeadlineExceeded
	}
	if !t.waiting.Enter(1) {
		return errWaiting
	}
	defer t.waiting.Leave(1)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
