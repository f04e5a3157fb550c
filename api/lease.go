package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/limiter"
)

// lease is the leases that a request has taken, until it is served.
type lease struct {
	length time.Duration // of the shortest

	mu       sync.Mutex
	reserved []engine.Reserved // the last ones; nil: they were released, or have ended
	renewal  *time.Timer
}

// leaseOf returns the leases that a decided hit has taken; nil: none.
func leaseOf(d *limiter.Decision) *lease {
	var l *lease
	for _, r := range d.Reserved {
		switch {
		case r.Lease == 0:
			continue
		case l == nil:
			l = &lease{length: r.Lease}
		}
		l.length, l.reserved = min(l.length, r.Lease), append(l.reserved, r)
	}
	return l
}

// keep renews the leases again and again, before they end. One whose process ends does so by itself.
func (l *lease) keep(m *middleware, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewal = time.AfterFunc(l.length/2, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.reserved == nil {
			return
		}
		renewed, err := m.Service.Extend(context.WithoutCancel(r.Context()), l.reserved, l.length)
		switch {
		case err == nil:
			l.reserved = renewed
			l.renewal.Reset(l.length / 2)
		case errors.Is(err, engine.ErrEnded):
			l.reserved = nil
		default: // it is as it was, as far as is known
			l.renewal.Reset(l.length / 8)
		}
	})
}

// release releases the leases. Ended leases are free.
func (l *lease) release(m *middleware, w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewal.Stop()
	m.release(w, r, l.reserved)
	l.reserved = nil
}
