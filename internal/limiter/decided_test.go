package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"

	"github.com/counterd/counterd/internal/limiter"
)

type callerKey struct{}

// decisions keeps what a limiter tells of its decisions.
type decisions struct {
	mu    sync.Mutex
	lines []string
}

func (d *decisions) decided(ctx context.Context, h limiter.Hit, decision *events.Decision, call limiter.Call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%s of %v by %v: %t, %d limits", call, h.Features["ip"], ctx.Value(callerKey{}), decision.Allowed, len(decision.Limits)))
}

func (d *decisions) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func TestDecisionsAreTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		told := &decisions{}
		event := testkit.Event(t, "[{per: ip, rate: [2/m, 3/d], deny: [192.0.2.4]}]")
		l, err := limiter.New(limiter.Config{OnDecision: told.decided}, hierarchy.NewCounters(hierarchy.Config{Store: storetest.NewSolo(time.Now)}))
		require.NoError(t, err)
		ctx := context.WithValue(t.Context(), callerKey{}, "me")
		for i, want := range []string{
			"hit of 192.0.2.1 by me: true, 2 limits",
			"hit of 192.0.2.1 by me: true, 2 limits",
			"hit of 192.0.2.1 by me: false, 2 limits",
			"hit of 192.0.2.1 by me: false, 2 limits", // from memory
		} {
			_, err := l.Hit(ctx, hitOn(event, 1))
			require.NoError(t, err)
			require.Equal(t, []string{want}, told.take(), i)
		}
		_, err = l.Check(ctx, hitOn(event, 1))
		require.NoError(t, err)
		require.Equal(t, []string{"check of 192.0.2.1 by me: false, 2 limits"}, told.take())
		_, err = l.Hits(ctx, []limiter.Hit{hitOn(event, 2), {event, events.Features{}, 1, 0, nil}, hitOn(event, 1)})
		require.NoError(t, err)
		require.Equal(t, []string{"hit of 192.0.2.2 by me: true, 2 limits", "hit of 192.0.2.1 by me: false, 2 limits"}, told.take(),
			"what is at fault is not decided")
		_, err = l.Hit(ctx, hitOn(event, 4))
		require.NoError(t, err)
		require.Equal(t, []string{"hit of 192.0.2.4 by me: false, 2 limits"}, told.take())
		require.EqualValues(t, 2, l.Stats().CachedDenials, "that was the list")
		_, err = l.Hit(ctx, limiter.Hit{event, events.Features{"ip": "192.0.2.1"}, -1, 0, nil})
		require.Error(t, err)
		_, err = l.Check(ctx, limiter.Hit{event, events.Features{"ip": "192.0.2.1"}, -1, 0, nil})
		require.Error(t, err)
		require.Empty(t, told.take())
		assert.Equal(t, "Call(0)", limiter.Call(0).String())
	})
}

// OnDecision gets the decisions of hits that another caller decides, with their own
// context, and the denials for too much waiting.
func TestDecisionsOfOthersAreTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		told := &decisions{}
		o := newOverloaded(t)
		o.onDecision = told.decided
		o.fill()
		_, err := o.l.Hit(t.Context(), hitOn(testkit.Event(t, "[{per: ip, rate: 2/m, on_error: deny}]"), 9))
		require.NoError(t, err)
		require.Equal(t, []string{"hit of 192.0.2.9 by <nil>: false, 1 limits"}, told.take())
		o.release()
		require.ElementsMatch(t, []string{
			"hit of 192.0.2.0 by <nil>: true, 1 limits", "hit of 192.0.2.1 by <nil>: true, 1 limits", "hit of 192.0.2.1 by <nil>: true, 1 limits",
		}, told.take())
	})
}

func TestStats(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverloaded(t)
		event := testkit.Event(t, "[{per: ip, rate: 2/m}]")
		hit := func(i int) {
			_, err := o.l.Hit(t.Context(), hitOn(event, i))
			require.NoError(t, err)
		}
		hit(5)
		hit(5)
		require.Equal(t, limiter.Stats{2, 2, 0}, o.l.Stats())
		hit(5)
		require.Equal(t, limiter.Stats{3, 3, 0}, o.l.Stats(), "the first denial is the store's")
		hit(5)
		hit(5)
		require.Equal(t, limiter.Stats{3, 3, 2}, o.l.Stats())
		_, err := o.l.Hits(t.Context(), []limiter.Hit{hitOn(event, 6), hitOn(event, 7), hitOn(event, 5), {event, events.Features{}, 1, 0, nil}})
		require.NoError(t, err)
		require.Equal(t, limiter.Stats{4, 5, 3}, o.l.Stats())
		_, err = o.l.Check(t.Context(), hitOn(event, 5))
		require.NoError(t, err)
		require.Equal(t, limiter.Stats{4, 5, 3}, o.l.Stats(), "a check is no hit")

		// One waits for the store, one in line, and two go together when that is over.
		o.store.stuck.Store(true)
		var waiting sync.WaitGroup
		for range testPending {
			waiting.Go(func() { hit(8) })
			synctest.Wait()
		}
		hit(9) // too much waits: that makes no trip
		close(o.store.released)
		waiting.Wait()
		require.Equal(t, limiter.Stats{6, 8, 3}, o.l.Stats())
	})
}

// What a decision has read itself is no hit of the cache when it wants it again: to search
// for the reset, to try again, or to add after it has looked.
func TestWhatADecisionHasReadIsNoHitOfTheCache(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	store := storetest.NewSolo(clock.Now)
	h := limiter.Hit{testkit.Event(t, "[{per: ip, rate: [10/m, 40/h, 60/d]}]"), events.Features{"ip": "192.0.2.1"}, 1, 0, nil}
	for range 10 {
		_, err := newTestLimiter(t, store, clock.Now).Hit(t.Context(), h)
		require.NoError(t, err)
		clock.Advance(5 * time.Second)
	}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock.Now})
	hit := func() bool {
		l, err := limiter.New(limiter.Config{}, counters)
		require.NoError(t, err)
		d, err := l.Hit(t.Context(), h)
		require.NoError(t, err)
		return d.Allowed
	}
	require.False(t, hit())
	cold := counters.CacheStats()
	require.Positive(t, cold.Misses)
	clock.Advance(time.Millisecond)
	require.False(t, hit())
	require.GreaterOrEqual(t, counters.CacheStats().Hits, cold.Misses, "all of that is known to another limiter")

	l, err := limiter.New(limiter.Config{}, counters)
	require.NoError(t, err)
	_, err = l.Hit(t.Context(), h)
	require.NoError(t, err)
	for range 3 { // it looks first, since it was denied
		clock.Advance(5 * time.Second)
		before := counters.CacheStats()
		_, err := l.Hit(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, before.Hits, counters.CacheStats().Hits, "what is remembered is too old")
		require.Greater(t, counters.CacheStats().Misses, before.Misses)
	}
}
