package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/limiter"
)

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
