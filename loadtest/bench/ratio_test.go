package bench

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/loadtest/process"
)

func TestSpread(t *testing.T) {
	assert.Equal(t, Spread{2, 1, 9}, spreadOf([]float64{9, 1, 2}))
	assert.Equal(t, Spread{2.5, 1, 9}, spreadOf([]float64{9, 3, 1, 2}))
	assert.Equal(t, Spread{7, 7, 7}, spreadOf([]float64{7}))
	figures := []float64{3, 1, 2}
	spreadOf(figures)
	assert.Equal(t, []float64{3, 1, 2}, figures, "the rounds stay in their order")
}

// A machine that is twice as fast in one round is so for both: the ratio of their
// medians would be 1.
func TestRatiosAreThoseOfOneRound(t *testing.T) {
	of, to := []float64{20, 10, 40}, []float64{10, 5, 20}
	assert.Equal(t, Spread{2, 2, 2}, ratios(of, to))
	assert.Equal(t, Spread{1, 0.5, 4}, ratios([]float64{10, 10, 10}, []float64{20, 10, 2.5}))
}

func TestCostsAreADifference(t *testing.T) {
	before := reading{1, 2, 3000, 4000, memcached.Stats{Adds: 3, Gets: 4, Bytes: 5, CPU: 6}}
	after := reading{31, 42, 53000, 64000, memcached.Stats{Adds: 23, Gets: 34, Bytes: 105, CPU: 90006}}
	own := func(costs costs) costs {
		if !process.Known {
			delete(costs, "client_cpu_us")
			delete(costs, "server_cpu_us")
		}
		return costs
	}
	assert.Equal(t, own(costs{"client_cpu_us": 50, "allocs": 40}), after.since(before, &subject{}), "what is not there costs nothing")
	assert.Equal(t, own(costs{"client_cpu_us": 50, "allocs": 40, "trips": 30, "adds": 20, "reads": 30, "bytes": 100, "memcached_cpu_us": 90}),
		after.since(before, &subject{trips: new(atomic.Int64), memcached: "addr"}))
	assert.Equal(t, own(costs{"client_cpu_us": 50, "server_cpu_us": 60}), after.since(before, &subject{server: &child.Child{}}))
}
