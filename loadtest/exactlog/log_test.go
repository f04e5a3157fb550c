package exactlog_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/loadtest/exactlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type event struct{ time, by int64 }

func sumOf(events []event, first, last int64) (sum int64) {
	for _, e := range events {
		if first <= e.time && e.time <= last {
			sum += e.by
		}
	}
	return sum
}

// All answers are those of going through every event, and every window.
func TestAnswersAgreeWithEveryEvent(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	found := 0
	for range 2000 {
		n, length, step := 1+rng.Int64N(12), 1+rng.Int64N(8), 1+rng.Int64N(2)*2
		var events []event
		var log exactlog.Log
		for at := int64(0); at < 20; at++ {
			for rng.IntN(3) == 0 {
				e := event{at - 3, 1 + rng.Int64N(3)}
				events = append(events, e)
				log.Add(e.time, e.by)
			}
		}
		assert.Equal(t, len(events), log.Len())
		assert.Equal(t, sumOf(events, -10, 30), log.Total())
		most, above := int64(0), map[int64]int64{}
		for to := int64(-5); to < 20; to++ {
			most = max(most, sumOf(events, to-length+1, to))
			from := to - length + 1
			for from%step != 0 {
				from--
			}
			if sum := sumOf(events, from, to); sum > n && sumOf(events, to, to) > 0 {
				above[to] = sum
			}
			last := to + rng.Int64N(20) - 5
			require.Equal(t, sumOf(events, to, last), log.Sum(to, last), "%v from %d to %d", events, to, last)
		}
		require.Equal(t, most, log.Largest(length), "%v", events)
		found += len(above)
		begins := func(to int64) int64 {
			from := to - length + 1
			return from - (from%step+step)%step
		}
		for w := range log.Overfull(n, begins) {
			require.Equal(t, above[w.To], w.Sum, "%v %v", events, w)
			require.Equal(t, w.Sum, sumOf(events[w.First:w.Last], w.From, w.To))
			delete(above, w.To)
		}
		require.Empty(t, above, "%v", events)
	}
	assert.Greater(t, found, 500)
}
