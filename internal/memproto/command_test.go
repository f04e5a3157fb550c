package memproto

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExpirations(t *testing.T) {
	const day = 24 * 60 * 60
	now := time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)
	for left, want := range map[int64]int64{
		-1: 1, 0: 1, 1: 1, 2: 2, 30 * day: 30 * day,
		30*day + 1: now.Unix() + 30*day + 1, 61 * day: now.Unix() + 61*day,
	} {
		assert.Equal(t, int32(want), expiration(now.Unix()+left, now), "%d seconds left", left)
	}
	end := time.Unix(math.MaxInt32, 0)
	assert.Equal(t, int32(math.MaxInt32), expiration(math.MaxInt32, end.Add(-40*day*time.Second)))
	assert.Equal(t, int32(30*day), expiration(math.MaxInt32+1, end.Add(-40*day*time.Second)), "the last second that Memcached knows")
	assert.Equal(t, int32(day), expiration(math.MaxInt32+2*day, end.Add(day*time.Second)))
}
