package eventlog_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// Windows below a minute that are no limit which the log enforces slide by milliseconds, or are not exact: those of
// limits in shadow, and of counts.
func TestShortWindowsAfterARewrite(t *testing.T) {
	for _, rules := range []string{
		"[{per: ip, rate: 9/7s, algorithm: sliding-log}]",
		"[{per: ip, rate: 9/7s, algorithm: sliding-log, shadow: true}]",
		"[{per: ip, rate: 900/h, algorithm: sliding-log}, {per: ip, rate: 9/7s, algorithm: sliding-log, shadow: true}]",
	} {
		for _, replicas := range []int{1, 2} {
			t.Run(fmt.Sprint(rules, " ", replicas), func(t *testing.T) {
				clock, hits := testkit.NewClock(time.Now()), 600/(replicas*replicas)
				var kept store.Store = &watched{Store: storestest.Embedded(clock.Now)}
				if replicas > 1 {
					kept = openReplicas(t, memcachedtest.StartMany(t, replicas))
				}
				e, err := eventlog.New(engine.Base{Store: kept, Clock: clock.Now, Grace: events.DefaultGrace, Changes: new(engine.Changes)})
				require.NoError(t, err)
				l, err := limiter.New(limiter.Config{Timeout: events.DefaultGrace / 2, NoCachedDenials: true}, e)
				require.NoError(t, err)
				event := testkit.Event(t, rules)
				ip, random := ipOf(t, event), rand.New(rand.NewPCG(1, 2))
				var times []int64
				within := func(first, last int64) (n int64) {
					for _, at := range times {
						if at >= first && at <= last {
							n++
						}
					}
					return n
				}
				exact, exactCounts := 0, 0
				for range hits {
					clock.Advance(time.Duration(random.Int64N(1500)) * time.Millisecond)
					now := clock.Now().UnixMilli()
					d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: events.Features{"ip": someUser["ip"]}, Cost: 1})
					require.NoError(t, err)
					if d.Allowed {
						times = append(times, now)
					}
					limit := d.Limits[len(d.Limits)-1]
					if slides := limit.Algorithm == events.SlidingLog && limit.Window < time.Minute; slides && limit.Exact {
						want := within(now-limit.Window.Milliseconds()+1, now)
						require.Equal(t, want, limit.Count)
						require.Equal(t, limit.Allowed, !limit.Shadow && d.Allowed || want <= limit.Limit && limit.Shadow)
						exact++
					} else if !slides {
						exact++
					}
					remembered := min(event.Remembered(), 40*time.Second)
					length := time.Duration(1+random.Int64N(int64(remembered/time.Second))) * time.Second
					at, last := time.Time{}, now
					if random.IntN(2) == 0 && remembered > length {
						last -= random.Int64N((remembered - length).Milliseconds())
						at = time.UnixMilli(last)
					}
					if last%1000 == 0 && !at.IsZero() {
						last += 999
					}
					count, err := e.Count(t.Context(), ip, length, at)
					require.NoError(t, err)
					if count.Exact {
						require.Equal(t, within(last-length.Milliseconds()+1, last), count.Count, "%s until %d ms ago", length, now-last)
						exactCounts++
					}
				}
				require.GreaterOrEqual(t, exact, hits*9/10)
				require.GreaterOrEqual(t, exactCounts, hits/4)
			})
		}
	}
}
