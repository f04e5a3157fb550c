package events

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseThrottle(t *testing.T) {
	for s, want := range map[string]Throttle{
		"hard": {}, "elastic": {Kind: Elastic}, "soft 10%": {Soft, 10}, "soft 1%": {Soft, 1}, "soft 1000%": {Soft, 1000},
	} {
		throttle, reason := parseThrottle(s)
		require.Empty(t, reason, s)
		assert.Equal(t, want, throttle)
		assert.Equal(t, s, throttle.String())
	}
	throttle, reason := parseThrottle("soft 10")
	assert.Empty(t, reason)
	assert.Equal(t, "soft 10%", throttle.String(), "the sign may be left out")
	for _, s := range []string{"", "soft", "soft10%", "soft 10 %", "soft %", "soft 0%", "soft 1001%", "soft +1%", "soft 2.5%", "soft 1%%", "hard 1%", "elastic 1%", "Soft 1%"} {
		_, reason := parseThrottle(s)
		assert.NotEmpty(t, reason, "%q", s)
	}
}

func TestCeilingIsFloorOfNAndItsPercentage(t *testing.T) {
	for _, c := range []struct {
		n, percent, want int64
	}{
		{0, 10, 0}, {1, 10, 1}, {9, 10, 9}, {10, 10, 11}, {19, 10, 20}, {100, 10, 110}, {3, 33, 3}, {4, 33, 5},
		// In floating point the product is a hair below the whole number.
		{100, 29, 129}, {50, 58, 79}, {MaxN, 1000, 11 * MaxN}, {MaxN - 1, 1, MaxN - 1 + MaxN/100 - 1},
	} {
		assert.Equal(t, c.want, Throttle{Soft, c.percent}.Ceiling(c.n), "%d and %d%%", c.n, c.percent)
	}
	for range 10_000 {
		n, percent := rand.Int64N(MaxN+1), 1+rand.Int64N(MaxSoftPercent)
		more := new(big.Int).Mul(big.NewInt(n), big.NewInt(percent))
		more.Div(more, big.NewInt(100))
		require.Equal(t, n+more.Int64(), Throttle{Soft, percent}.Ceiling(n), "%d and %d%%", n, percent)
	}
	assert.Equal(t, int64(100), Throttle{}.Ceiling(100))
	assert.Equal(t, int64(100), Throttle{Kind: Elastic}.Ceiling(100))
}
