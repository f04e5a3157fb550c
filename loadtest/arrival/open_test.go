package arrival_test

import (
	"context"
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

// A target that stalls for a second, with one connection to it, at ten requests a second:
// requests that come due meanwhile have waited, whenever they were sent.
func TestLatencyIsFromWhenARequestWasDue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var seen log
		arrival.Open{Due: arrival.Constant(10).Due, Arrivals: 15, InFlight: 1, Do: seen.around(func(a arrival.Arrival) {
			if a.N == 2 {
				time.Sleep(s)
			}
		})}.Run(t.Context())
		require.Len(t, seen.all, 15)
		for i := range int64(15) {
			want := sent{}
			switch {
			case i == 2:
				want = sent{0, s, false}
			case i > 2 && i < 12:
				wait := time.Duration(12-i) * 100 * ms
				want = sent{wait, wait, true}
			case i == 12:
				// It is due at the moment in which the stall is over.
				want = sent{0, 0, seen.all[i].waited}
			}
			assert.Equal(t, want, seen.all[i], i)
		}
	})
}

func TestArrivalsEndWithTheContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1050*ms)
		defer cancel()
		tally := arrival.Open{Due: arrival.Constant(10).Due, Arrivals: 1000, InFlight: 1, Do: func(arrival.Arrival) {
			<-ctx.Done()
		}}.Run(ctx)
		assert.Equal(t, int64(11), tally.Arrived)
		assert.Equal(t, int64(1), tally.Sent)
		assert.Equal(t, 1050*ms, tally.Stopped)
		assert.Equal(t, 1050*ms, tally.Elapsed)
	})
}

// ending is a context that ends between two questions.
type ending struct {
	context.Context
	asked, after int
}

func (e *ending) Err() error {
	if e.asked++; e.asked > e.after {
		return context.Canceled
	}
	return nil
}

// A request that arrives while the context ends is not sent, even if there is a place.
func TestARequestThatArrivesAtTheEnd(t *testing.T) {
	for after := range 2 {
		sent := 0
		tally := arrival.Open{Due: func(int64) time.Duration { return 0 }, Arrivals: 1, InFlight: 1, Do: func(arrival.Arrival) { sent++ }}.
			Run(&ending{t.Context(), 0, after})
		assert.EqualValues(t, 1, tally.Arrived)
		assert.EqualValues(t, after, tally.Sent)
		assert.Equal(t, after, sent)
	}
}

// A waiting request is sent, but not for ever.
func TestDrain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var seen log
		open := arrival.Open{Due: arrival.Constant(10).Due, Arrivals: 11, InFlight: 1, Do: seen.around(func(arrival.Arrival) {
			time.Sleep(s)
		})}
		tally := open.Run(t.Context())
		assert.EqualValues(t, 11, tally.Sent)
		assert.Len(t, seen.all, 11)
		assert.Equal(t, 11*s, tally.Elapsed)

		open.Do = seen.around(func(arrival.Arrival) { time.Sleep(s) })
		open.Drain = 2500 * ms
		tally = open.Run(t.Context())
		assert.Equal(t, arrival.Tally{Arrived: 11, Sent: 4, Stopped: s, Elapsed: 4 * s}, tally)
		assert.Len(t, seen.all, 4)
	})
}
