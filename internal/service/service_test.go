package service_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC)

func clock() time.Time { return now }

// reloaded is a service whose rules a test reloads.
type reloaded struct {
	*service.Service
	rules atomic.Pointer[events.Rules]
}

func newService(tb testing.TB, on store.Store, rules string) *reloaded {
	tb.Helper()
	c := &reloaded{}
	c.reload(tb, rules)
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{Store: on, Clock: clock, Grace: 40 * time.Second})) // the machine may be busy

	require.NoError(tb, err)
	c.Service, err = service.New(service.Config{
		Rules: c.rules.Load, Limiter: decider, Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: on, Clock: clock})),
	})
	require.NoError(tb, err)
	return c
}

func (c *reloaded) reload(tb testing.TB, rules string) {
	tb.Helper()
	parsed, err := rulesfile.Parse([]byte(rules))
	require.NoError(tb, err)
	c.rules.Store(parsed)
}

func newStore() *memcache.Embedded {
	return memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
}

var ip = events.Features{"ip": "203.0.113.9"}

// A service without what it needs is an error that names all of it.
func TestNewNamesWhatIsMissing(t *testing.T) {
	_, err := service.New(service.Config{})
	for _, field := range []string{"Rules", "Limiter", "Counters"} {
		assert.ErrorContains(t, err, field+" is missing")
	}
}

func TestHitAndCheck(t *testing.T) {
	c := newService(t, newStore(), "events: {e: {limits: [{per: ip, rate: 2/m}]}}")
	event, err := c.Event("e")
	require.NoError(t, err)
	for i, want := range []service.Outcome{service.Allowed, service.Allowed, service.Denied} {
		check, err := c.Check(t.Context(), event, ip, 1)
		require.NoError(t, err)
		d, err := c.Hit(t.Context(), event, ip, 1)
		require.NoError(t, err)
		assert.Equal(t, want, service.OutcomeOf(&d), i)
		assert.Equal(t, want, service.OutcomeOf(&check), i)
	}
	_, err = c.Hit(t.Context(), event, ip, -1)
	assert.ErrorIs(t, err, engine.ErrOutOfRange)
	_, err = c.Event("none")
	assert.ErrorIs(t, err, events.ErrUnknownEvent)
}

// What was looked up once stays as it was, whatever is reloaded.
func TestAnEventKeepsItsRules(t *testing.T) {
	c := newService(t, newStore(), "events: {e: {limits: [{per: ip, rate: 1/m}]}}")
	event, err := c.Event("e")
	require.NoError(t, err)
	c.reload(t, "events: {e: {limits: [{per: ip, rate: 9/m}]}}")
	d, err := c.Hit(t.Context(), event, ip, 1)
	require.NoError(t, err)
	assert.Equal(t, int64(1), d.Limits[0].Limit)
	assert.NotSame(t, c.Rules(), event.Rules)
	event, err = c.Event("e")
	require.NoError(t, err)
	assert.Same(t, c.Rules(), event.Rules)
}

// Each hit of a batch has its result at its place, those without an event an error.
func TestHits(t *testing.T) {
	c := newService(t, newStore(), "events: {e: {limits: [{per: ip, rate: 2/m}]}, f: {limits: [{per: user, rate: 1/m}]}}")
	user := events.Features{"user": "42"}
	e, f := c.Rules().Events["e"], c.Rules().Events["f"]
	for range 2 {
		results, err := c.Hits(t.Context(), []limiter.Hit{
			{Features: ip, Cost: 1}, {Event: e, Features: ip, Cost: 1}, {Event: f, Features: user, Cost: 1},
			{Event: e, Features: user, Cost: 1}, {Features: ip, Cost: 1}, {Event: f, Features: user, Cost: 1},
		})
		require.NoError(t, err)
		require.Len(t, results, 6)
		assert.ErrorIs(t, results[0].Err, events.ErrUnknownEvent)
		assert.Equal(t, "ip-2-per-1m", results[1].Decision.Limits[0].Name)
		assert.Equal(t, "user-1-per-1m", results[2].Decision.Limits[0].Name)
		assert.ErrorIs(t, results[3].Err, events.ErrInvalid)
		assert.ErrorIs(t, results[4].Err, events.ErrUnknownEvent)
		assert.Equal(t, service.Denied, service.OutcomeOf(&results[5].Decision))
	}
	results, err := c.Hits(t.Context(), []limiter.Hit{{Event: e, Features: ip, Cost: 1}})
	require.NoError(t, err)
	assert.Equal(t, service.Denied, service.OutcomeOf(&results[0].Decision), "two were admitted before")
	results, err = c.Hits(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, results)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = c.Hits(ended, []limiter.Hit{{}})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestCounting(t *testing.T) {
	c := newService(t, newStore(), "events: {e: {limits: [{per: [ip, user], rate: 9/m}]}}")
	event, err := c.Event("e")
	require.NoError(t, err)
	done, err := c.Increment(t.Context(), event, events.Features{"ip": "203.0.113.9", "user": "42"}, 3, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, now, done.At)
	assert.Len(t, done.Counters, 3)
	_, err = c.Increment(t.Context(), event, events.Features{"ip": "x"}, 0, time.Time{})
	assert.ErrorIs(t, err, events.ErrInvalid, "all faults are told")
	assert.ErrorIs(t, err, engine.ErrOutOfRange)

	counter, err := event.Counter(ip)
	require.NoError(t, err)
	count, err := c.Count(t.Context(), counter, time.Minute, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, int64(3), count.Count)
	history, err := c.History(t.Context(), counter, engine.Minute, now, now)
	require.NoError(t, err)
	assert.Equal(t, int64(3), history.Intervals[0].Count)
	require.NoError(t, c.Reset(t.Context(), counter))
	count, err = c.Count(t.Context(), counter, time.Minute, time.Time{})
	require.NoError(t, err)
	assert.Zero(t, count.Count)
}

// Denied hits have a history of minutes, hours and days, as far back as they are remembered. A reset does not forget them.
func TestDeniedHistory(t *testing.T) {
	st := newStore()
	c := newService(t, st, "events: {e: {limits: [{per: ip, rate: 9/m}]}}")
	event, err := c.Event("e")
	require.NoError(t, err)
	counter, err := event.Counter(ip)
	require.NoError(t, err)
	counters := counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock}))
	_, err = counters.Increment(t.Context(), 3, time.Time{}, denied.CounterOf(event.Event, counter.Feature))
	require.NoError(t, err)
	require.NoError(t, c.Reset(t.Context(), counter))
	for level, buckets := range map[engine.Level]int{engine.Minute: 24*60 + 1, engine.Hour: 25, engine.Day: 2} {
		history, err := c.DeniedHistory(t.Context(), counter, level, time.Time{}, time.Time{})
		require.NoError(t, err)
		assert.Len(t, history.Intervals, buckets, "%s", level)
		assert.Equal(t, int64(3), history.Intervals[len(history.Intervals)-1].Count, "%s", level)
	}
	_, err = c.DeniedHistory(t.Context(), counter, engine.Second, time.Time{}, time.Time{})
	require.ErrorIs(t, err, engine.ErrOutOfRange)
	assert.ErrorContains(t, err, "minute, hour and day")
	_, err = c.DeniedHistory(t.Context(), counter, engine.Hour, now.Add(-25*time.Hour), time.Time{})
	assert.ErrorIs(t, err, engine.ErrOutOfRange)
	_, err = c.DeniedHistory(t.Context(), events.Counter{Event: "other"}, engine.Hour, time.Time{}, time.Time{})
	assert.ErrorIs(t, err, events.ErrUnknownEvent)
	history, err := c.History(t.Context(), counter, engine.Minute, now, now)
	require.NoError(t, err)
	assert.Zero(t, history.Intervals[0].Count)
}

// failing is a store that does not answer.
type failing struct{}

var errAway = errors.New("no connection")

func (failing) Do(_ context.Context, ops ...*store.Op) {
	for _, op := range ops {
		op.Err = errAway
	}
}

func (failing) Capabilities() store.Capabilities { return store.Capabilities{} }

// A reset that the store has begun may have forgotten a part.
func TestAResetThatFails(t *testing.T) {
	c := newService(t, failing{}, "events: {e: {limits: [{per: ip, rate: 9/m}]}}")
	event, err := c.Event("e")
	require.NoError(t, err)
	counter, err := event.Counter(ip)
	require.NoError(t, err)
	err = c.Reset(t.Context(), counter)
	assert.ErrorIs(t, err, service.ErrNotReset)
	assert.ErrorIs(t, err, engine.ErrStore)
	assert.ErrorIs(t, err, errAway)
	assert.NotErrorIs(t, err, service.ErrOverload)
}

// What a limit says counts by what is known of it.
func TestDenies(t *testing.T) {
	for _, test := range []struct {
		limit      events.LimitState
		denies     bool
		unanswered bool
	}{
		{events.LimitState{Allowed: true}, false, false},
		{events.LimitState{}, true, false},
		{events.LimitState{Shadow: true}, false, false},
		{events.LimitState{Unknown: true, Reset: events.Never}, true, false}, // a deny list
		{events.LimitState{Failed: true, Unknown: true}, false, true},        // on_error: deny
		{events.LimitState{Failed: true, Unknown: true, Reset: events.Never}, true, true},
		{events.LimitState{Failed: true}, true, false}, // on_error: local
		{events.LimitState{Failed: true, Exact: true, Allowed: true}, false, false},
	} {
		assert.Equal(t, test.denies, service.Denies(&test.limit), fmt.Sprintf("%+v", test.limit))
		assert.Equal(t, test.unanswered, service.Unanswered(&test.limit), fmt.Sprintf("%+v", test.limit))
	}
}

func TestOutcomes(t *testing.T) {
	for want, d := range map[string]events.Decision{
		"allowed": {Allowed: true}, "denied": {}, "unavailable": {Unavailable: true},
	} {
		assert.Equal(t, want, service.OutcomeOf(&d).String())
	}
}
