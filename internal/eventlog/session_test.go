package eventlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// A driver drives sessions as a limiter does.
type driver struct {
	limiter.Session
	tb    testing.TB
	event *events.Event
	clock *testkit.Clock
}

func newDriver(tb testing.TB, e *eventlog.Engine, event *events.Event, clock *testkit.Clock) *driver {
	tb.Helper()
	return &driver{e.NewSession(), tb, event, clock}
}

// tally returns a tally of the counter of someUser's address with all limits on it.
func (d *driver) tally(costs ...int64) *limiter.Tally {
	d.tb.Helper()
	counter := ipOf(d.tb, d.event)
	t := &limiter.Tally{ID: counter.ID(), Counter: counter}
	for rule, limit := range counter.Limits() {
		t.Limits = append(t.Limits, limiter.Limit{Limit: limit, Rule: rule, Ceiling: rule.Throttle.Ceiling(limit.Most()), Enforced: !rule.Shadow})
	}
	for _, cost := range costs {
		t.Adds = append(t.Adds, limiter.Addition{Cost: cost})
		t.Demand += cost
	}
	return t
}

func (d *driver) moment() limiter.Moment {
	now := d.clock.Now()
	return limiter.Moment{Time: now, Second: now.Unix(), Latest: now.Unix()}
}

// add adds the tally, and keeps the hits that its limits have room for. It returns which these are.
func (d *driver) add(t *limiter.Tally) (kept []bool) {
	d.tb.Helper()
	d.Add(d.tb.Context(), d.moment(), []*limiter.Tally{t})
	require.NoError(d.tb, t.Err)
	for i := range t.Adds {
		a := &t.Adds[i]
		a.Kept = !a.Refused
		for _, limit := range t.Limits {
			a.Kept = a.Kept && limit.Count+t.Taken+a.Cost <= limit.Ceiling
		}
		if a.Kept {
			t.Taken += a.Cost
		}
		kept = append(kept, a.Kept)
	}
	require.NoError(d.tb, d.Undo(d.tb.Context()))
	return kept
}

// A batch counts what the log held before it; hits that are not kept leave it; a search finds when others do.
func TestASessionOfABatch(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	st := &watched{Store: storestest.Embedded(clock.Now), background: func(func(context.Context)) {}}
	d := newDriver(t, newEngine(t, st, clock.Now), newEvent(t, 1, "[{per: ip, rate: 5/m}]"), clock)
	require.Equal(t, []bool{true, true}, d.add(d.tally(1, 2)))
	clock.Advance(20 * time.Second)
	tally := d.tally(2, 1, 1)
	st.trips.Store(0)
	require.Equal(t, []bool{true, false, false}, d.add(tally))
	require.EqualValues(t, 1, st.trips.Load(), "the log has not admitted what is not kept")
	require.EqualValues(t, 3, tally.Limits[0].Count)
	require.True(t, tally.Settled)

	tally.Searches = []limiter.Search{{Limit: 0, Most: 4}, {Limit: 0, Most: 1, Moments: 3}, {Limit: 0, Most: 5}, {Limit: 0, Most: -1}}
	require.NoError(t, d.Search(t.Context()))
	var resets []time.Duration
	for _, s := range tally.Searches {
		resets = append(resets, s.Reset)
	}
	require.Equal(t, []time.Duration{40 * time.Second, time.Minute, 0, events.Never}, resets)
	require.True(t, tally.Searches[1].Explanation.Whole)
	require.Len(t, tally.Searches[1].Explanation.Frees, 2)
	require.Equal(t, clock.Now().Add(40*time.Second), tally.Until)

	clock.Advance(40 * time.Second)
	tally = d.tally()
	d.Check(t.Context(), d.moment(), []*limiter.Tally{tally})
	require.NoError(t, tally.Err)
	require.EqualValues(t, 2, tally.Limits[0].Count)
	require.True(t, tally.Limits[0].Exact)
}

// While hits of others may be undone, a batch is not settled. Hits that are undone do not count.
func TestASharedHitIsNotSettled(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	logs, event := newEngine(t, storestest.Embedded(clock.Now), clock.Now), newEvent(t, 1, "[{per: ip, rate: 1/m}]")
	first, second := newDriver(t, logs, event, clock), newDriver(t, logs, event, clock)
	shared := first.tally(1)
	shared.Adds[0].Shared = true
	first.Add(t.Context(), first.moment(), []*limiter.Tally{shared})
	require.NoError(t, shared.Err)

	tally := second.tally(1)
	require.Equal(t, []bool{false}, second.add(tally))
	require.False(t, tally.Settled)
	require.NoError(t, first.Undo(t.Context()))
	require.Equal(t, []bool{true}, second.add(second.tally(1)))
}

// A process with older rules counts as strictly as the newer limits of the log.
func TestOlderRulesAreHeldToNewerLimits(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	logs := newEngine(t, storestest.Embedded(clock.Now), clock.Now)
	newer := newDriver(t, logs, newEvent(t, 2, "[{per: ip, rate: 2/m}]"), clock)
	older := newDriver(t, logs, newEvent(t, 1, "[{per: ip, rate: 9/m}]"), clock)
	require.Equal(t, []bool{true}, newer.add(newer.tally(1)))
	tally := older.tally(1, 1)
	require.Equal(t, []bool{true, false}, older.add(tally))
	require.False(t, tally.Settled)
	tally = older.tally()
	older.Check(t.Context(), older.moment(), []*limiter.Tally{tally})
	require.EqualValues(t, 9, tally.Limits[0].Count)
	require.False(t, tally.Limits[0].Exact)
}
