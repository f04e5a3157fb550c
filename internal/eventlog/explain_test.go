package eventlog_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

// Of random histories on both engines an explanation is the decision of a check; its parts sum to the count of each
// limit; and each limit holds so much less, from the moments on that it names, and no less before.
func TestExplanationsEqualChecks(t *testing.T) {
	for algorithm, rates := range map[string]string{
		"sliding-window": "[12/10s, 40/m, 90/h, 200/3h, 500/d]",
		"fixed-window":   "[12/10s, 40/m, 90/h, 500/d]",
		"sliding-log":    "[12/10s, 40/m, 90/h]",
		"token-bucket":   "8/m, burst: 30",
		"leaky-bucket":   "8/m, queue: 30",
	} {
		t.Run(algorithm, func(t *testing.T) {
			for seed := range testkit.Seeds(200) {
				rng := rand.New(rand.NewPCG(seed, 7))
				clock := testkit.NewClock(time.Time{})
				counters, logs := besideBuckets(t, memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now}), clock.Now)
				l, err := limiter.New(limiter.Config{Timeout: grace / 2}, counters, logs)
				require.NoError(t, err)
				event := testkit.Event(t, "[{per: ip, algorithm: "+algorithm+", rate: "+rates+"}]")
				hit := func(cost int64) limiter.Hit { return limiter.Hit{Event: event, Features: someUser, Cost: cost} }
				longest := []time.Duration{5 * time.Second, time.Minute, 20 * time.Minute, 3 * time.Hour}[rng.IntN(4)]
				for range 60 {
					_, err := l.Hit(t.Context(), hit(1+rng.Int64N(3)))
					require.NoError(t, err)
					clock.Advance(time.Duration(rng.Int64N(int64(longest))))
				}
				check, err := l.Check(t.Context(), hit(1))
				require.NoError(t, err)
				explained, explanations, err := l.Explain(t.Context(), hit(1), 10)
				require.NoError(t, err)
				assert.Equal(t, check, explained)
				require.Len(t, explanations, len(check.Limits))
				from := clock.Now()
				for i, e := range explanations {
					sum := int64(0)
					for n, part := range e.Sum {
						sum += part.Count
						assert.LessOrEqual(t, part.First, part.Last)
						assert.NotZero(t, part.Count)
						assert.True(t, n == 0 || part.First > e.Sum[n-1].Last, "in the order of time: %+v", e.Sum)
					}
					assert.Equal(t, check.Limits[i].Count, sum, "%s: %+v", check.Limits[i].Name, e)
					assert.Equal(t, min(len(e.Frees), 1), min(int(sum), 1), "something leaves if there is something")
					left := sum
					for _, freed := range e.Frees {
						at := time.UnixMilli(freed.At)
						assert.True(t, at.After(from.Add(-time.Millisecond)), "%v", at)
						for _, moment := range []struct {
							at   time.Time
							want int64
						}{{at.Add(-time.Millisecond), left}, {at, left - freed.Count}} {
							clock.Set(moment.at)
							then, err := l.Check(t.Context(), hit(1))
							require.NoError(t, err)
							require.Equal(t, moment.want, then.Limits[i].Count, "%s at %v, seed %d: %+v", check.Limits[i].Name, moment.at, seed, e)
						}
						left -= freed.Count
					}
					clock.Set(from)
				}
			}
		})
	}
}

// On real servers and their replicas, too, limits of all engines on one hit are explained at once, those of leases
// among them, and nothing is added.
func TestExplanationsOfServers(t *testing.T) {
	for name, replicas := range map[string]int{"servers": 1, "replicas": 2} {
		t.Run(name, func(t *testing.T) {
			clock := testkit.NewClock(time.Time{})
			st := storestest.Open(t, memcache.Config{
				Servers: memcachedtest.StartMany(t, 3), Replicas: replicas, Clock: func() time.Time { return clock.Now().Add(-time.Hour) },
			})
			counters, logs := besideBuckets(t, st, clock.Now)
			leases, err := eventlog.NewLeases(counters.Base())
			require.NoError(t, err)
			l, err := limiter.New(limiter.Config{Timeout: grace / 2}, counters, logs, leases)
			require.NoError(t, err)
			event := testkit.Event(t, `[{per: ip, rate: [5/m, 50/h]}, {per: ip, rate: 9/m, algorithm: sliding-log},
				{per: user, rate: 9/m, burst: 9}, {per: ip, concurrent: 4, lease: 1m}, {per: user, rate: 90/h}]`)
			hit := limiter.Hit{Event: event, Features: someUser, Cost: 1}
			for range 7 {
				_, err := l.Hit(t.Context(), hit)
				require.NoError(t, err)
			}
			check, err := l.Check(t.Context(), hit)
			require.NoError(t, err)
			explained, explanations, err := l.Explain(t.Context(), hit, 9)
			require.NoError(t, err)
			assert.Equal(t, check, explained)
			require.Len(t, explanations, 6)
			for i, e := range explanations {
				sum, freed := int64(0), int64(0)
				for _, part := range e.Sum {
					sum += part.Count
				}
				for _, some := range e.Frees {
					freed += some.Count
				}
				assert.Equal(t, check.Limits[i].Count, sum, check.Limits[i].Name)
				assert.EqualValues(t, 4, sum, check.Limits[i].Name)
				assert.Equal(t, sum, freed, check.Limits[i].Name)
			}
			again, err := l.Check(t.Context(), hit)
			require.NoError(t, err)
			assert.Equal(t, check, again)
		})
	}
}
