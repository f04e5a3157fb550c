package oracle_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/oracle"
)

// The windows that are found are those that are found by summing every one, and the
// Counter, which forgets, finds a fault where there is one.
func TestOverfullWindows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	found := 0
	for range 2000 {
		l := oracle.Limit{N: 1 + rng.Int64N(12), Window: time.Duration(1+rng.IntN(8)) * time.Second, Step: rng.Int64N(2) * 3}
		counter := oracle.NewCounter(l)
		var log []oracle.Added
		for range rng.IntN(14) {
			added := oracle.Added{Second: 1000 + rng.Int64N(20), By: 1 + rng.Int64N(3)}
			log = append(log, added)
			counter.Admit(added.Second, added.By)
		}
		slices.SortFunc(log, func(a, b oracle.Added) int { return int(a.Second - b.Second) })
		var slow, quick []int64
		for to := int64(1000); to < 1020; to++ {
			sum, ends := int64(0), false
			from := to - int64(l.Window/time.Second) + 1
			if l.Step > 0 {
				from -= from % l.Step
			}
			for _, a := range log {
				if a.Second <= to && a.Second >= from {
					sum += a.By
				}
				ends = ends || a.Second == to
			}
			if sum > l.N && ends {
				slow = append(slow, to, sum)
			}
		}
		for w := range oracle.Overfull(log, l) {
			quick = append(quick, w.To, w.Sum)
			sum := int64(0)
			for _, a := range log[w.First:w.Last] {
				require.True(t, w.From <= a.Second && a.Second <= w.To)
				sum += a.By
			}
			require.Equal(t, w.Sum, sum)
		}
		require.Equal(t, slow, quick, "%v %v", l, log)
		if l.Step == 0 {
			require.Equal(t, len(slow) > 0, counter.Fault() != nil)
		}
		found += len(slow)
	}
	assert.Greater(t, found, 500)
}

func TestTheFirstOverfullWindowWillDo(t *testing.T) {
	log := []oracle.Added{{1, 2}, {2, 2}, {3, 2}}
	for w := range oracle.Overfull(log, oracle.Limit{N: 3, Window: 2 * time.Second}) {
		assert.Equal(t, oracle.Window{From: 1, To: 2, Sum: 4, First: 0, Last: 2}, w)
		assert.Equal(t, "00:00:01 to 00:00:02", w.String())
		break
	}
}
