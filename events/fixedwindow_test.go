package events_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
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
	engines := []engine.Engine{counters}
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
		{"[{per: ip, rate: 5/10s, algorithm: fixed-log}]", 5, 10, ""},
		{"[{per: ip, rate: 7/90s, algorithm: fixed-log}, {per: ip, rate: 100/10s, algorithm: sliding-log}]", 7, 90, ""},
		{"[{per: ip, rate: 6/h, calendar: Australia/Lord_Howe, algorithm: fixed-log}]", 6, events.HourSeconds, "Australia/Lord_Howe"},
		{"[{per: ip, rate: 9/d, calendar: Asia/Kathmandu, algorithm: fixed-log}, {per: ip, rate: 90/d, burst: 90}]", 9, events.DaySeconds, "Asia/Kathmandu"},
		{"[{per: ip, rate: 9/week, calendar: America/Havana, algorithm: fixed-log}]", 9, events.WeekSeconds, "America/Havana"},
		{"[{per: ip, rate: [9/month, 100/h], calendar: Europe/Berlin, algorithm: fixed-log}]", 9, events.MonthSeconds, "Europe/Berlin"},
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

// Hits that come at once at several processes admit the limit, and not one more.
func TestConcurrentHits(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	embedded := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now})
	for i := range 6 { // windows
		event := testkit.Event(t, "[{per: ip, rate: 10/15m, algorithm: "+[]string{"fixed-window", "fixed-log"}[i%2]+"}]")
		var admitted atomic.Int64
		var running sync.WaitGroup
		for range 4 {
			l := newLimiter(t, embedded, clock.Now)
			for range 25 {
				running.Go(func() {
					d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
					if assert.NoError(t, err) && d.Allowed {
						admitted.Add(1)
					}
				})
			}
		}
		running.Wait()
		assert.EqualValues(t, 10, admitted.Load())
		clock.Advance(15 * time.Minute)
	}
}

// At the turn of a calendar's window each hit counts in the window of its stamp: that of a process
// whose clock is behind in the one before, whatever others have counted in the next.
func TestClocksAtTheTurnOfACalendar(t *testing.T) {
	clock := testkit.NewClock(time.Date(2026, 1, 31, 18, 14, 59, 800e6, time.UTC)) // February begins in Kathmandu
	solo := storetest.NewSolo(clock.Now)
	behind := newLimiter(t, solo, clock.Now)
	ahead := newLimiter(t, solo, func() time.Time { return clock.Now().Add(400 * time.Millisecond) })
	event := testkit.Event(t, "[{per: ip, rate: 2/month, calendar: Asia/Kathmandu}]")
	var admitted [2]int
	for range 3 {
		for i, l := range []*limiter.Limiter{ahead, behind} {
			d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
			require.NoError(t, err)
			if d.Allowed {
				admitted[i]++
				require.EqualValues(t, admitted[i], d.Limits[0].Count)
			} else {
				require.Equal(t, []time.Duration{28 * 86400 * time.Second, 1 * time.Second}[i], d.RetryAfter)
			}
		}
	}
	assert.Equal(t, [2]int{2, 2}, admitted)
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

// between lets other hits in between the first add of an op, the finest, and the rest of it.
type between struct {
	store.Store
	do func()
}

func (s *between) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		do := s.do
		if s.do = nil; do == nil || op.Kind() != store.Add {
			s.Store.Do(ctx, op)
			continue
		}
		first := store.Op{Counter: op.Counter, Writes: op.Writes[:1]}
		s.Store.Do(ctx, &first)
		do()
		rest := store.Op{Counter: op.Counter, Writes: op.Writes[1:], Reads: op.Reads}
		s.Store.Do(ctx, &rest)
		op.Receipt, op.Err = store.Acknowledged(len(op.Writes)), rest.Err
	}
}

// A window that turns within a minute is counted in steps that turn with it, so that hits have
// one order there, too, and hits of the next window are none of its own.
func TestWindowsThatTurnWithinABucket(t *testing.T) {
	event := testkit.Event(t, "[{per: ip, rate: 1/90s, algorithm: fixed-window}]")
	clock := testkit.NewClock(time.Unix(1_700_000_010+5, 0)) // a window begins at 1,700,000,010, within a minute
	solo := storetest.NewSolo(clock.Now)
	admitted := 0
	hit := func(l *limiter.Limiter) {
		d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
		require.NoError(t, err)
		if d.Allowed {
			admitted++
		}
	}
	other := newLimiter(t, solo, clock.Now)
	hit(newLimiter(t, &between{solo, func() { hit(other) }}, clock.Now))
	assert.Equal(t, 1, admitted)

	clock.Set(time.Unix(1_700_000_010+90-1, 700e6))
	ahead := newLimiter(t, solo, func() time.Time { return clock.Now().Add(400 * time.Millisecond) })
	clock.Set(time.Unix(1_700_000_010+4*90-1, 700e6))
	admitted = 0
	hit(ahead) // in the next window
	hit(newLimiter(t, solo, clock.Now))
	assert.Equal(t, 2, admitted)
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
