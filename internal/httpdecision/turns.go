package httpdecision

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/counterd/counterd/internal/limiter/engine"
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
		m.LogError(w, r, http.StatusServiceUnavailable, err)
	}
}
