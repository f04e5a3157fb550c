package arrival_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/loadtest/arrival"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms = time.Millisecond
	s  = time.Second
)

func dues(p arrival.Profile, n int64) (all []time.Duration) {
	for i := range n {
		all = append(all, p.Due(i))
	}
	return all
}

func TestDue(t *testing.T) {
	assert.Equal(t, []time.Duration{0, 250 * ms, 500 * ms, 750 * ms, s}, dues(arrival.Constant(4), 5))
	// The integral of 2t is i at the root of i.
	assert.Equal(t, []time.Duration{0, s, 1414213562, 1732050808, 2 * s}, dues(arrival.Ramp{To: 8, Over: 4 * s}, 5))
	// 4 - 2t: at 2 s there have been four, and no more come.
	down := dues(arrival.Ramp{From: 4, Over: 2 * s}, 5)
	assert.Equal(t, []time.Duration{0, 267949192, 585786438, s, arrival.Never}, down)
	assert.Equal(t, []time.Duration{0, 500 * ms, 3 * s, 3250 * ms, 3500 * ms, 3750 * ms, 4 * s},
		dues(arrival.Steps{{2, s}, {0, 2 * s}, {4, s}}, 7))
	assert.Equal(t, []time.Duration{0, arrival.Never}, dues(arrival.Steps{{1, s}, {0, s}}, 2))
	assert.Equal(t, []time.Duration{0, 500 * ms, s, s, s, s, 1500 * ms, 2 * s},
		dues(arrival.Burst{Base: 2, Size: 3, Every: 2 * s}, 8))
	assert.Equal(t, []time.Duration{s, s, s, 3 * s, 3 * s, 3 * s, 5 * s}, dues(arrival.Burst{Size: 3, Every: 2 * s}, 7))
	assert.Equal(t, arrival.Never, arrival.Burst{Size: 1, Every: time.Hour}.Due(1<<40))
}

// rateOf returns the rate of a profile at a moment.
func rateOf(p arrival.Profile, at time.Duration) float64 {
	switch p := p.(type) {
	case arrival.Constant:
		return float64(p)
	case arrival.Ramp:
		return p.From + (p.To-p.From)*min(at.Seconds()/p.Over.Seconds(), 1)
	case arrival.Steps:
		for _, step := range p {
			if at < step.Length {
				return step.Rate
			}
			at -= step.Length
		}
		return p[len(p)-1].Rate
	}
	panic("a profile without a rate")
}

// However a profile is chosen, its moments do not go back, and as many come as the
// integral of its rate says.
func TestArrivalsAreTheIntegralOfTheRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		rate := func() float64 { return math.Floor(rng.Float64()*10_000) / 10 }
		over := time.Duration(1+rng.IntN(20_000)) * ms
		steps := arrival.Steps{{rate(), over}, {0, over}, {rate(), over}, {1 + rate(), over}}
		for _, p := range []arrival.Profile{
			arrival.Constant(1 + rate()), arrival.Ramp{From: rate(), To: 1 + rate(), Over: over}, arrival.Ramp{From: 1 + rate(), To: 0, Over: over}, steps,
		} {
			during := time.Duration(rng.Int64N(int64(2 * over)))
			const pieces = 10_000
			var integral float64
			for k := range pieces {
				integral += rateOf(p, during*time.Duration(2*k+1)/(2*pieces)) * during.Seconds() / pieces
			}
			n := arrival.Count(p, during)
			require.InDelta(t, integral, n, 2+integral/1000, "%v over %s in %s", p, over, during)
			before := time.Duration(0)
			for i := max(n-100, 0); i < n+100; i++ {
				due := p.Due(i)
				require.GreaterOrEqual(t, due, before, "%v: %d", p, i)
				require.Equal(t, i < n, due < during, "%v: %d is due at %s", p, i, due)
				before = due
			}
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]arrival.Profile{
		"1000":                      arrival.Constant(1000),
		"0.5":                       arrival.Constant(0.5),
		"ramp:100-2000":             arrival.Ramp{From: 100, To: 2000, Over: 10 * s},
		"ramp:0-2000":               arrival.Ramp{From: 0, To: 2000, Over: 10 * s},
		"step:100x10s,0x1m0s,5x1ms": arrival.Steps{{100, 10 * s}, {0, time.Minute}, {5, ms}},
		"burst:100+2000/10s":        arrival.Burst{Base: 100, Size: 2000, Every: 10 * s},
		"burst:0+1/1m":              arrival.Burst{Size: 1, Every: time.Minute},
	} {
		got, err := arrival.Parse(text, 10*s)
		require.NoError(t, err, text)
		assert.Equal(t, want, got)
	}
	assert.Equal(t, 70*s+ms, arrival.Steps{{100, 10 * s}, {0, time.Minute}, {5, ms}}.Length())
	for _, text := range []string{
		"", "0", "-1", "NaN", "Inf", "x", "10000001", "slope:1-2", "ramp:1", "ramp:1-x", "ramp:0-0", "step:", "step:100", "step:100x0s", "step:0x1s",
		"step:x1s", "burst:", "burst:1", "burst:1+2", "burst:1+0/1s", "burst:1+x/1s", "burst:1+2/x", "burst:1+2@5/1s", "burst:1+100000000/1s",
	} {
		_, err := arrival.Parse(text, 10*s)
		require.ErrorIs(t, err, arrival.ErrProfile, text)
	}
	_, err := arrival.Parse("ramp:1-2", 0)
	require.ErrorIs(t, err, arrival.ErrProfile)
}
