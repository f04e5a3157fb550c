package eventlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/memcache"
)

// A clock that is set back by more than the grace is taken over at once, with every algorithm: hits are
// decided, in the second that it shows now, and what the process has admitted ahead of it counts.
func TestAClockIsSetBack(t *testing.T) {
	const off = 2*grace + 5*time.Second
	for name, limits := range map[string]string{
		"sliding window": "[{per: ip, rate: 5/50s}]",
		"fixed window":   "[{per: ip, rate: 5/m, algorithm: fixed-window}]",
		"calendar":       "[{per: ip, rate: 5/month, calendar: Europe/Berlin}]",
		"sliding log":    "[{per: ip, rate: 5/m, algorithm: sliding-log}]",
		"token bucket":   "[{per: ip, rate: 1/m, burst: 5}]",
		"leaky bucket":   "[{per: ip, rate: 1/m, queue: 4}]",
	} {
		t.Run(name, func(t *testing.T) {
			clock := testkit.NewClock(time.Date(2026, 11, 21, 10, 0, 5, 0, time.UTC))
			shared := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now})
			ahead := off
			event := testkit.Event(t, limits)
			hits := func(l *limiter.Limiter) (admitted int) {
				p := &process{Limiter: l, tb: t}
				for range 10 {
					d := p.hit(event, someUser)
					require.False(t, d.Unavailable)
					require.False(t, d.Limits[0].Failed)
					if d.Allowed {
						admitted++
					}
				}
				return admitted
			}
			var all []*limiter.Limiter
			for i := range 3 {
				buckets, logs := besideBuckets(t, shared, func() time.Time {
					if i == 0 {
						return clock.Now().Add(ahead)
					}
					return clock.Now()
				})
				l, err := limiter.New(limiter.Config{Timeout: grace / 2, OnStoreError: func(err error) { t.Error(err) }}, buckets, logs)
				require.NoError(t, err)
				all = append(all, l)
			}
			assert.Equal(t, 5, hits(all[0]))
			ahead = 0
			assert.Zero(t, hits(all[0]), "what it admitted counts")
			d, err := all[0].Hit(t.Context(), limiter.Hit{Event: event, Features: someUser, Cost: 1})
			require.NoError(t, err)
			assert.Equal(t, clock.Now().Truncate(time.Second), d.At)
			assert.LessOrEqual(t, hits(all[1])+hits(all[2]), 5, "others may not see what is so far ahead")
			assert.Zero(t, hits(all[0]), "it does")
			clock.Advance(40 * 24 * time.Hour)
			assert.Equal(t, 5, hits(all[0])+hits(all[1]))
		})
	}
}
