package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/service"
)

// lease is what a request has taken, until it is served.
type lease struct {
	length time.Duration // of the shortest

	mu          sync.Mutex
	reservation string // the last one; empty: it was released, or has ended
	renewal     *time.Timer
}

// leaseOf returns the leases that a decided hit on the event has taken; nil: none.
func leaseOf(event service.Event, d *limiter.Decision) *lease {
	var shortest time.Duration
	for _, r := range d.Reserved {
		if r.Lease > 0 && (shortest == 0 || r.Lease < shortest) {
			shortest = r.Lease
		}
	}
	if shortest == 0 {
		return nil
	}
	return &lease{length: shortest, reservation: event.ReservationOf(d)}
}

// keep renews the leases again and again, before they end. One whose process ends does so by itself.
func (l *lease) keep(m *middleware, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewal = time.AfterFunc(l.length/2, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.reservation == "" {
			return
		}
		renewed, err := m.Service.Renew(context.WithoutCancel(r.Context()), l.reservation, l.length)
		switch {
		case err == nil:
			l.reservation = renewed
			l.renewal.Reset(l.length / 2)
		case errors.Is(err, engine.ErrEnded):
			l.reservation = ""
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
	if l.reservation == "" {
		return
	}
	err := m.Service.Settle(context.WithoutCancel(r.Context()), l.reservation, 0)
	l.reservation = ""
	if err != nil && !errors.Is(err, engine.ErrEnded) {
		m.logError(w, r, http.StatusServiceUnavailable, err)
	}
}
