package run

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

// searched runs a search whose trials fail as the function says, and returns it.
func searched(start float64, fails func(rate float64) bool) *search {
	s := newSearch(start)
	for s.rate > 0 {
		s.tried(fails(s.rate))
	}
	return s
}

// Each trial fails with a probability whatever its rate is, or passes with another one. The
// knee is found all the same, where a search that believes one trial misses it in most seeds.
func TestTheKneeIsFoundAmongTrialsThatFailAtRandom(t *testing.T) {
	const seeds = 2000
	for _, c := range []struct {
		knee, fails, passes float64
		wrong               float64 // part of the searches that may miss it
		mean                float64 // trials
	}{
		{8100, 0, 0, 0, 27},
		{8100, 0.1, 0, 0.003, 35},
		{8100, 0.2, 0, 0.02, 45},
		{8100, 0.2, 0.1, 0.06, 50},
		{8100, 0.3, 0, 0.1, 60},
		{150, 0.2, 0, 0.02, 40},
		{7, 0.2, 0, 0.02, 45}, // from above
	} {
		wrong, trials, most := 0, 0, 0
		for seed := range uint64(seeds) {
			rng := rand.New(rand.NewPCG(seed, 1))
			s := searched(100, func(rate float64) bool {
				if rate > c.knee {
					return rng.Float64() >= c.passes
				}
				return rng.Float64() < c.fails
			})
			if low, high := bound(s.borne), bound(s.tooHigh); !s.settled() || math.Abs(low/c.knee-1) > 0.1 || high <= low || high > low*1.05 {
				wrong++
			}
			trials, most = trials+s.trials, max(most, s.trials)
		}
		part, mean := float64(wrong)/seeds, float64(trials)/seeds
		t.Logf("knee %v, fails %v, passes %v: %.2f%% wrong, %.1f trials, %d at most", c.knee, c.fails, c.passes, part*100, mean, most)
		assert.LessOrEqual(t, part, c.wrong, "%+v", c)
		assert.LessOrEqual(t, mean, c.mean, "%+v", c)
		assert.LessOrEqual(t, most, maxTrials)
	}
}
