package events_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/oracle"
	"github.com/counterd/counterd/memcache"
)

// Windows tile the time, before 1970 too, and each second is in its own.
func TestWindowsTileTheTime(t *testing.T) {
	for _, length := range []int64{1, 7, 60, 90, 3600, 86400, 7 * 86400} {
		next := int64(-3 * length)
		for next < 3*length {
			first, last := events.FixedWindowAround(next, length, nil)
			require.Equal(t, next, first)
			require.Equal(t, next+length-1, last)
			for _, second := range []int64{first, (first + last) / 2, last} {
				f, l := events.FixedWindowAround(second, length, nil)
				require.Equal(t, [2]int64{first, last}, [2]int64{f, l})
			}
			next = last + 1
		}
	}
}

func newLimiter(t *testing.T, st store.Store, clock func() time.Time) *limiter.Limiter {
	t.Helper()
	counters := hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock, CacheBytes: 1 << 20})
	engines := []limiter.Engine{counters}
	if st.Capabilities().Writes.Has(store.Append) {
		logs, err := eventlog.New(counters.Base())
		require.NoError(t, err)
		engines = append(engines, logs)
	}
	l, err := limiter.New(limiter.Config{Timeout: time.Second}, engines...)
	require.NoError(t, err)
	return l
}

// In a random history, with clocks that differ, each window admits exactly its limit, each denied
// hit fits at the turn and no second before, and sliding windows on the same counter keep to
// theirs.
func TestDecisionsEqualAnExactLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, test := range []struct {
		limits  string
		n, long int64
		zone    string
	}{
		{"[{per: ip, rate: 5/10s, algorithm: fixed-window}]", 5, 10, ""},
		{"[{per: ip, rate: 7/90s, algorithm: fixed-window}]", 7, 90, ""},
		{"[{per: ip, rate: 6/h, algorithm: fixed-window}]", 6, 3600, ""},
		{"[{per: ip, rate: 9/d, algorithm: fixed-window}]", 9, 86400, ""},
		{"[{per: ip, rate: 4/61m, algorithm: fixed-window}, {per: ip, rate: 100000/m}]", 4, 61 * 60, ""},
		{"[{per: ip, rate: 7/3599s, algorithm: fixed-window}]", 7, 3599, ""},
		{"[{per: ip, rate: 6/h, calendar: Australia/Lord_Howe}]", 6, events.HourSeconds, "Australia/Lord_Howe"},
		{"[{per: ip, rate: 9/d, calendar: Asia/Kathmandu, precision: minute}, {per: ip, rate: [100/m, 900/d], precision: minute}]", 9, events.DaySeconds, "Asia/Kathmandu"},
		{"[{per: ip, rate: 9/week, calendar: America/Havana}]", 9, events.WeekSeconds, "America/Havana"},
		{"[{per: ip, rate: [9/month, 100/h], calendar: Europe/Berlin, precision: hour}]", 9, events.MonthSeconds, "Europe/Berlin"},
	} {
		event := testkit.Event(t, test.limits)
		var zone *time.Location
		if test.zone != "" {
			var err error
			zone, err = time.LoadLocation(test.zone)
			require.NoError(t, err)
		}
		for range testkit.Times(8) {
			clock := testkit.NewClock(time.Time{})
			embedded := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now})
			var fleet []*limiter.Limiter
			for i := range 2 {
				fleet = append(fleet, newLimiter(t, embedded, func() time.Time { return clock.Now().Add(time.Duration(i) * 400 * time.Millisecond) }))
			}
			log := oracle.NewLog()
			for range 80 {
				clock.Advance(time.Duration(rng.Int64N(test.long * int64(time.Second) / 3)))
				h := limiter.Hit{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1 + rng.Int64N(2)}
				i := rng.IntN(len(fleet))
				d, err := fleet[i].Hit(t.Context(), h)
				require.NoError(t, err)
				now := d.At.Unix()
				turn, last := events.FixedWindowAround(now, test.long, zone)
				held := log.Sum("", turn, last)
				state := d.Limits[0]
				require.Equal(t, event.Rules[0].Limits[0].Algorithm, state.Algorithm)
				require.Equal(t, held+h.Cost <= test.n, d.Allowed, "%+v, the window holds %d", state, held)
				if d.Allowed {
					if state.Exact {
						require.Equal(t, held+h.Cost, state.Count)
					}
					require.GreaterOrEqual(t, state.Count, held+h.Cost)
					log.Add("", now, h.Cost)
				} else {
					want, delta := time.Duration(last+1-now)*time.Second, 0.
					if event.Rules[0].InLog() { // it knows milliseconds
						local := clock.Now().Add(time.Duration(i) * 400 * time.Millisecond)
						want, delta = time.Duration(time.Unix(last+1, 0).Sub(local)), float64(time.Millisecond)
					}
					require.InDelta(t, float64(want), float64(d.RetryAfter), delta, "the turn of the window")
				}
			}
		}
	}
}

// A cached denial is not that of another calendar, which a reload has brought.
func TestADenialOfAnotherCalendar(t *testing.T) {
	clock := testkit.NewClock(time.Date(2026, 1, 15, 22, 30, 0, 0, time.UTC))
	l := newLimiter(t, storetest.NewSolo(clock.Now), clock.Now)
	allows := func(zone string) bool {
		event := testkit.Event(t, "[{per: ip, rate: 1/d, calendar: "+zone+"}]")
		d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
		require.NoError(t, err)
		return d.Allowed
	}
	require.True(t, allows("UTC"))
	clock.Advance(time.Hour)
	require.False(t, allows("UTC"))
	require.True(t, allows("Europe/Berlin"), "it is the 16th there")
}

func TestFaults(t *testing.T) {
	assert.Empty(t, events.FixedWindowFault(86399, 1, nil))
	assert.NotEmpty(t, events.FixedWindowFault(86399, 60, nil))
	_, err := rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: 5/3599s, algorithm: fixed-window}]}}"))
	assert.NoError(t, err)
	_, err = rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: 5/90s, precision: minute, algorithm: fixed-window}]}}"))
	assert.ErrorContains(t, err, "multiple of the precision")
	_, err = rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: 5/90m, precision: minute, algorithm: fixed-window}]}}"))
	assert.NoError(t, err)
	_, err = rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: 5/m, precision: hour, algorithm: fixed-window}]}}"))
	assert.ErrorContains(t, err, "longer than the window")
	assert.NotContains(t, err.Error(), "multiple")
}
