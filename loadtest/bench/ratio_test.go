package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/loadtest/memcached"
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

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for part, want := range map[float64]time.Duration{0.5: 50, 0.99: 99, 0.999: 100, 1: 100, 0.001: 1, 0.291: 30} {
		assert.Equal(t, want, percentile(hundred, part), "%g", part)
	}
	assert.EqualValues(t, 7, percentile([]time.Duration{7}, 0.5))
	assert.EqualValues(t, 7, percentile([]time.Duration{7}, 0.999))
}

func TestUsageIsADifference(t *testing.T) {
	before := reading{usage{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, memcached.Stats{Adds: 3, Gets: 4, Bytes: 5, CPU: 6}}
	took := usage{10, 20, 30, 40, 50, 60, 70, 80, 90, 100}
	after := before
	after.usage.add(took)
	after.stats = memcached.Stats{Adds: 23, Gets: 34, Bytes: 105, CPU: 96}
	assert.Equal(t, took, after.since(before, &subject{asked: &asked{}}))
	took[adds], took[reads] = 20, 30
	assert.Equal(t, took, after.since(before, &subject{}), "what Memcached counts")
	assert.Equal(t, 2.0, took.each(adds))
	assert.Equal(t, 5.0, (&usage{ops: 10, elapsedTime: int64(2 * time.Second)}).rate())
}
