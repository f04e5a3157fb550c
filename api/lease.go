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

// lease is what a request has taken, until it is served.
type lease struct {
	length time.Duration // of the shortest; 0: there is none

	mu       sync.Mutex
	reserved []engine.Reserved // nil: it was released, or has ended
	renewal  *time.Timer
}

// releaseTimeout is for how long a request that is over waits for its release.
const releaseTimeout = 5 * time.Second

// leaseOf returns what a decided hit has taken.
func leaseOf(d *limiter.Decision) *lease {
	l := &lease{reserved: d.Reserved}
	for _, r := range d.Reserved {
		if r.Lease > 0 && (l.length == 0 || r.Lease < l.length) {
			l.length = r.Lease
		}
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

// release releases the leases, and gives back the turn of a request that has waited in vain, with all that
// the request counts. What has ended is free, or used.
func (l *lease) release(m *middleware, w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewal != nil {
		l.renewal.Stop()
	}
	if len(l.reserved) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), releaseTimeout)
	defer cancel()
	err := m.Service.GiveBack(ctx, l.reserved)
	l.reserved = nil
	if err != nil && !errors.Is(err, engine.ErrEnded) {
		m.logError(w, r, http.StatusServiceUnavailable, err)
	}
}
