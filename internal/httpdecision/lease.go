package httpdecision

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

// lease is the leases that a request has taken, until it is served.
type lease struct {
	mu       sync.Mutex
	reserved []engine.Reserved // the last ones; nil: they were released, or have ended
	renewal  *time.Timer
}

// leaseOf returns the leases that a decided hit has taken; nil: none.
func leaseOf(reserved []engine.Reserved) *lease {
	var l lease
	for _, r := range reserved {
		if r.Lease != 0 {
			l.reserved = append(l.reserved, r)
		}
	}
	if l.reserved == nil {
		return nil
	}
	return &l
}

// withoutLeases returns what else was reserved.
func withoutLeases(reserved []engine.Reserved) (rest []engine.Reserved) {
	for _, r := range reserved {
		if r.Lease == 0 {
			rest = append(rest, r)
		}
	}
	return rest
}

// left returns for how long all leases have yet to live.
func (l *lease) left() time.Duration {
	first := l.reserved[0].Ends
	for _, r := range l.reserved {
		first = min(first, r.Ends)
	}
	return max(time.Until(time.UnixMilli(first)), 0)
}

// shortest returns how long the shortest lease is.
func (l *lease) shortest() time.Duration {
	length := l.reserved[0].Lease
	for _, r := range l.reserved {
		length = min(length, r.Lease)
	}
	return length
}

// leastPause is between two renewals that the store fails.
const leastPause = 50 * time.Millisecond

// keep renews the leases again and again, before they end. One whose process ends does so by itself. If one
// ends all the same, it calls lost with the reason.
func (l *lease) keep(m *middleware, r *http.Request, lost context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewal = time.AfterFunc(l.left()/2, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.reserved == nil {
			return
		}
		renewed, err := m.Service.Extend(context.WithoutCancel(r.Context()), l.reserved, l.shortest())
		switch {
		case errors.Is(err, engine.ErrEnded):
			l.reserved = nil
			lost(err)
			return
		case errors.Is(err, service.ErrClosed):
			if left := l.left(); left > 0 {
				l.renewal.Reset(left)
				return
			}
			l.reserved = nil
			lost(engine.ErrEnded)
			return
		case renewed != nil: // if the store has failed, these have the ends that are known
			l.reserved = renewed
		}
		if err == nil {
			l.renewal.Reset(l.left() / 2)
			return
		}
		l.renewal.Reset(max(l.left()/4, leastPause))
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
