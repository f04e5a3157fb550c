package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/limiter"
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

// releaseTimeout is for how long a request that is over waits for the store.
const releaseTimeout = 5 * time.Second

// release gives back what a request has reserved, although its context may have ended. What has ended is free,
// or used.
func (m *middleware) release(w http.ResponseWriter, r *http.Request, reserved []engine.Reserved) {
	if len(reserved) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), releaseTimeout)
	defer cancel()
	if err := m.Service.Release(ctx, reserved); err != nil && !errors.Is(err, engine.ErrEnded) {
		m.logError(w, r, http.StatusServiceUnavailable, err)
	}
}

// waitingOf returns what a decided hit that waits for its turn counts, besides its leases.
func waitingOf(d *limiter.Decision) (reserved []engine.Reserved) {
	for _, r := range d.Reserved {
		if r.Turn {
			reserved = append(reserved, r)
		}
	}
	return reserved
}
