package events

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRemembered(t *testing.T) {
	limits := []Rule{{Limits: []Limit{{Window: time.Minute}, {Window: time.Hour}}}, {Limits: []Limit{{Window: time.Second}}}}
	assert.Equal(t, DefaultRetention, (&Event{}).Remembered())
	assert.Equal(t, time.Hour, (&Event{Rules: limits}).Remembered())
	assert.Equal(t, time.Hour, (&Event{Rules: limits, Retention: time.Minute}).Remembered())
	assert.Equal(t, 2*time.Hour, (&Event{Rules: limits, Retention: 2 * time.Hour}).Remembered())
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
