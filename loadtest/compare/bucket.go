package compare

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// bucket is the token bucket of golang.org/x/time/rate: it holds as many tokens as the limit
// allows, is full at first, and is filled evenly, whole in a window.
type bucket struct {
	limit
	cells[*rate.Limiter]
}

func newBucket(l limit) *bucket { return &bucket{l, newCells[*rate.Limiter]()} }

func (b *bucket) decide(_ context.Context, feature string, now, cost int64) (bool, error) {
	s := b.read(feature)
	if s == nil {
		s = rate.NewLimiter(rate.Limit(float64(b.n)/time.Duration(b.window).Seconds()), int(b.n))
	}
	if !s.AllowN(time.Unix(0, now), int(cost)) {
		return false, nil
	}
	b.write(feature, s)
	return true, nil
}

// items are one of two numbers: the tokens, and when they were counted.
func (b *bucket) items(feature string) (n, value int) { return b.numbers(feature, 2) }
