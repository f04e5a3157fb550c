package arrival_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/arrival"
)

// sent is what was seen of a request.
type sent struct {
	late, latency time.Duration // since it was due
	waited        bool
}

// log keeps what is seen of requests, by number.
type log struct {
	mu  sync.Mutex
	all map[int64]sent
}

func (l *log) around(do func(a arrival.Arrival)) func(arrival.Arrival) {
	l.all = map[int64]sent{}
	return func(a arrival.Arrival) {
		late := time.Since(a.Due)
		do(a)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all[a.N] = sent{late, time.Since(a.Due), a.Waited}
	}
}

// A run at 1,000 a second for 10 s sends 10,000, each when it is due, whatever happens
// to those before.
func TestArrivalsDoNotWaitForAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var seen log
		const n = 10_000
		tally := arrival.Open{Due: arrival.Constant(1000).Due, Arrivals: n, InFlight: 2000, Do: seen.around(func(arrival.Arrival) {
			time.Sleep(1900 * ms)
		})}.Run(t.Context())
		assert.Equal(t, int64(n), tally.Arrived)
		assert.Equal(t, 9999*ms+1900*ms, tally.Elapsed)
		require.Len(t, seen.all, n)
		for i, got := range seen.all {
			require.Equal(t, sent{0, 1900 * ms, false}, got, i)
		}
	})
}
