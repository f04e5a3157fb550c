package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

// A server that stalls for a second, with one connection to it, at ten requests a
// second: requests that come due meanwhile have waited, whenever they were sent.
func TestLatencyIsFromWhenARequestWasDue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := 0
		target := func() (int, error) {
			n++
			if n == 3 {
				time.Sleep(time.Second)
			}
			return 1, nil
		}
		a, err := open(t.Context(), []step{target}, 10, 15, time.Sleep)
		require.NoError(t, err)
		const ms = time.Millisecond
		assert.Equal(t, []time.Duration{
			0, 0, 1000 * ms, 900 * ms, 800 * ms, 700 * ms, 600 * ms, 500 * ms, 400 * ms, 300 * ms, 200 * ms, 100 * ms, 0, 0, 0,
		}, a.latencies)
		assert.Equal(t, []time.Duration{
			0, 0, 0, 900 * ms, 800 * ms, 700 * ms, 600 * ms, 500 * ms, 400 * ms, 300 * ms, 200 * ms, 100 * ms, 0, 0, 0,
		}, a.late)
		assert.Equal(t, 1400*ms, a.elapsed)
	})
}

// A waiting request does not delay requests with a connection.
func TestArrivalsDoNotWaitForAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		slow := func() (int, error) {
			time.Sleep(350 * time.Millisecond)
			return 1, nil
		}
		a, err := open(t.Context(), []step{slow, slow, slow, slow}, 10, 40, time.Sleep)
		require.NoError(t, err)
		for i, latency := range a.latencies {
			assert.Equal(t, 350*time.Millisecond, latency, "request %d", i)
		}
		l := latencyOf(10, []arrivals{a, a})
		same := Spread{350, 350, 350}
		assert.Equal(t, Latency{10, 80, same, same, same, Spread{}}, l)
	})
}

func TestOpenModelEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		_, err := open(t.Context(), []step{func() (int, error) { return 0, broken }}, 10, 1000, time.Sleep)
		assert.ErrorIs(t, err, broken)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err = open(ctx, []step{func() (int, error) { return 1, nil }}, 10, 1000, time.Sleep)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(began), 1100*time.Millisecond)
	})
}

// A stall shows in the slice in which it was, and not in the median of all.
func TestLatencyIsOfSlices(t *testing.T) {
	turn := func(worst time.Duration) arrivals {
		a := arrivals{latencies: make([]time.Duration, 100), late: make([]time.Duration, 100)}
		a.latencies[7], a.latencies[8] = worst, worst
		return a
	}
	l := latencyOf(1, []arrivals{turn(time.Millisecond), turn(time.Second), turn(2 * time.Millisecond)})
	assert.Equal(t, Latency{1, 300, Spread{}, Spread{2, 1, 1000}, Spread{2, 1, 1000}, Spread{}}, l)
}
