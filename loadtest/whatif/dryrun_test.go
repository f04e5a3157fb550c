package whatif_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/insight/dryrun"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/loadtest/whatif"
	"github.com/counterd/counterd/memcache"
)

// histories are those of counters without denied hits.
type histories struct{ *counting.Counters }

func (histories) DeniedHistory(context.Context, events.Counter, engine.Level, time.Time, time.Time) (h engine.History, err error) {
	return h, nil
}

// What other rules would have denied of the traffic of each feature is, from its counters, what it is from the log of
// the same traffic: to the last hit if seconds are known.
func TestADryRunEqualsAReplay(t *testing.T) {
	for name, limits := range map[string]string{
		"sliding windows": "[{per: ip, rate: [3/m, 20/h, 60/d]}]",
		"count all":       "[{per: ip, rate: [3/m, 20/h], count: all}]",
		"soft":            "[{per: ip, rate: [3/m, 20/h], throttle: soft 50%}]",
		"token bucket":    "[{per: ip, rate: 2/m, burst: 5}]",
		"fixed window":    "[{per: ip, rate: [3/m, 20/h], algorithm: fixed-window}]",
		"calendar":        "[{per: ip, rate: [4/h, 9/d], algorithm: fixed-window, calendar: Asia/Kolkata}]",
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 8))
			begin := time.Date(2026, 3, 14, 9, 30, 0, 0, time.UTC)
			clock := testkit.NewClock(begin)
			counters := counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{
				Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now}), Clock: clock.Now,
			}))
			was := parsed(t, "[{per: ip, rate: 100000/d}]")
			var log strings.Builder
			for range 700 {
				clock.Advance(time.Duration(rng.IntN(90)) * time.Second)
				ip := fmt.Sprintf("192.0.2.%d", min(rng.IntN(9), rng.IntN(9)))
				for range 1 + rng.IntN(3)*rng.IntN(3) {
					fmt.Fprintf(&log, "%s - - [%s] \"GET / HTTP/1.1\" 200 5\n", ip, clock.Now().Format("02/Jan/2006:15:04:05 -0700"))
					counter, err := was.Counter(events.Features{"ip": ip})
					require.NoError(t, err)
					_, err = counters.Increment(t.Context(), 1, time.Time{}, counter)
					require.NoError(t, err)
				}
			}
			event := parsed(t, limits)
			report, err := whatif.Run(t.Context(), whatif.Config{Event: event, Log: readLog(t, log.String(), "ip=host"), Top: 100})
			require.NoError(t, err)
			exact := 0
			for _, want := range report.All.MostDenied {
				features, err := events.ParseFeatures([]string{want.Feature})
				require.NoError(t, err)
				counter, err := was.Counter(features)
				require.NoError(t, err)
				past, err := dryrun.PastOf(t.Context(), histories{counters}, counter, begin, clock.Now())
				require.NoError(t, err)
				got, err := dryrun.Decide(t.Context(), event, features, past)
				require.NoError(t, err)
				assert.Equal(t, want.Hits, got.Hits, want.Feature)
				assert.True(t, slices.IsSortedFunc(past.Hits, func(a, b dryrun.Hits) int { return int(a.Second - b.Second) }))
				if !past.ByMinute {
					exact++
					assert.Equal(t, want.Denied, got.Denied, want.Feature)
				}
			}
			assert.Positive(t, exact)
			assert.Less(t, exact, len(report.All.MostDenied), "of busy features only minutes are read")
		})
	}
}
