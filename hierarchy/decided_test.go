package hierarchy

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
)

type callerKey struct{}

// decisions keeps what a limiter tells of its decisions.
type decisions struct {
	mu    sync.Mutex
	lines []string
}

func (d *decisions) decided(ctx context.Context, h Hit, decision *Decision, call Call) {
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
	synctest.Test(t, func(t *testing.T) {
		told := &decisions{}
		event := parsed(t, "[{per: ip, rate: [2/m, 3/d], deny: [192.0.2.4]}]")
		l, err := NewLimiter(LimiterConfig{Store: newSoloStore(time.Now), Cache: NewBucketCache(smallCache), Decided: told.decided})
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
		_, err = l.Hits(ctx, []Hit{hitOn(event, 2), {event, events.Features{}, 1}, hitOn(event, 1)})
		require.NoError(t, err)
		require.Equal(t, []string{"hit of 192.0.2.2 by me: true, 2 limits", "hit of 192.0.2.1 by me: false, 2 limits"}, told.take(),
			"what is at fault is not decided")
		_, err = l.Hit(ctx, hitOn(event, 4))
		require.NoError(t, err)
		require.Equal(t, []string{"hit of 192.0.2.4 by me: false, 2 limits"}, told.take())
		require.EqualValues(t, 2, l.Stats().Recalled, "that was the list")
		_, err = l.Hit(ctx, Hit{event, events.Features{"ip": "192.0.2.1"}, 0})
		require.Error(t, err)
		_, err = l.Check(ctx, Hit{event, events.Features{"ip": "192.0.2.1"}, 0})
		require.Error(t, err)
		require.Empty(t, told.take())
		assert.Equal(t, "Call(0)", Call(0).String())
	})
}

// Hits that are decided by another caller are told to by their own, and those that find
// too much waiting are, too.
func TestDecisionsOfOthersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &decisions{}
		o := newOverloaded(t)
		o.l.decided = told.decided
		o.fill()
		_, err := o.l.Hit(t.Context(), hitOn(parsed(t, "[{per: ip, rate: 2/m, on_error: deny}]"), 9))
		require.NoError(t, err)
		require.Equal(t, []string{"hit of 192.0.2.9 by <nil>: false, 1 limits"}, told.take())
		o.release()
		require.ElementsMatch(t, []string{
			"hit of 192.0.2.0 by <nil>: true, 1 limits", "hit of 192.0.2.1 by <nil>: true, 1 limits", "hit of 192.0.2.1 by <nil>: true, 1 limits",
		}, told.take())
	})
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOverloaded(t)
		event := parsed(t, "[{per: ip, rate: 2/m}]")
		hit := func(i int) {
			_, err := o.l.Hit(t.Context(), hitOn(event, i))
			require.NoError(t, err)
		}
		hit(5)
		hit(5)
		require.Equal(t, LimiterStats{2, 2, 0}, o.l.Stats())
		hit(5)
		require.Equal(t, LimiterStats{3, 3, 0}, o.l.Stats(), "the first denial is the store's")
		hit(5)
		hit(5)
		require.Equal(t, LimiterStats{3, 3, 2}, o.l.Stats())
		_, err := o.l.Hits(t.Context(), []Hit{hitOn(event, 6), hitOn(event, 7), hitOn(event, 5), {event, events.Features{}, 1}})
		require.NoError(t, err)
		require.Equal(t, LimiterStats{4, 5, 3}, o.l.Stats())
		_, err = o.l.Check(t.Context(), hitOn(event, 5))
		require.NoError(t, err)
		require.Equal(t, LimiterStats{4, 5, 3}, o.l.Stats(), "a check is no hit")

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
		require.Equal(t, LimiterStats{6, 8, 3}, o.l.Stats())
	})
}

// What is known of closed buckets is a hit of the cache, what is read of them is not.
func TestTheStatsOfTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := NewBucketCache(smallCache)
		counters := NewCounters(Config{Store: newSoloStore(time.Now), Cache: cache})
		counter, err := parsed(t, "[{per: ip, rate: 9/d}]").Counter(events.Features{"ip": "192.0.2.1"})
		require.NoError(t, err)
		count := func() {
			_, err := counters.Count(t.Context(), counter, 10*time.Second, time.Time{})
			require.NoError(t, err)
		}
		require.Equal(t, CacheStats{}, cache.Stats())
		count() // ten seconds, of which the last five are open: the grace is two
		require.Equal(t, CacheStats{0, 5}, cache.Stats())
		count()
		require.Equal(t, CacheStats{5, 5}, cache.Stats())
		time.Sleep(closedLife)
		count()
		require.Equal(t, CacheStats{5, 10}, cache.Stats(), "it is too old")
	})
}
