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

// OnCoalesced is called for each of the hits that share a trip, with the trip's owner,
// before the hit's call returns. A hit alone, and a call with several hits, shares no trip.
func TestSharedTripsAreReported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[string]string{}
		take := func() map[string]string {
			mu.Lock()
			defer mu.Unlock()
			taken := told
			told = map[string]string{}
			return taken
		}
		store := storetest.NewSolo(time.Now)
		store.Delay = time.Millisecond
		l, err := limiter.New(limiter.Config{OnCoalesced: func(hit, trips context.Context, hits int) {
			mu.Lock()
			defer mu.Unlock()
			told[fmt.Sprint(hit.Value(callerKey{}))] = fmt.Sprint(hits, " by ", trips.Value(callerKey{}))
		}}, hierarchy.NewCounters(hierarchy.Config{Store: store}))
		require.NoError(t, err)
		event := testkit.Event(t, "[{per: ip, rate: [100/m, 100/d]}]")
		hit := func(caller int) {
			ctx := context.WithValue(t.Context(), callerKey{}, caller)
			_, err := l.Hit(ctx, hitOn(event, 1))
			assert.NoError(t, err)
			if caller > 0 {
				mu.Lock()
				defer mu.Unlock()
				assert.NotEmpty(t, told[fmt.Sprint(caller)], "it is told before")
			}
		}
		var running sync.WaitGroup
		for caller := range 4 {
			running.Go(func() { hit(caller) })
			synctest.Wait()
		}
		running.Wait()
		require.Equal(t, map[string]string{"1": "3 by 1", "2": "3 by 1", "3": "3 by 1"}, take(), "the first goes alone")
		_, err = l.Hits(t.Context(), []limiter.Hit{hitOn(event, 1), hitOn(event, 2)})
		require.NoError(t, err)
		_, err = l.Hit(t.Context(), limiter.Hit{event, events.Features{"ip": "192.0.2.1"}, 1, 0, nil})
		require.NoError(t, err)
		_, err = l.Check(t.Context(), hitOn(event, 1))
		require.NoError(t, err)
		require.Empty(t, take())
		requireEmptyQueue(t, l)
	})
}

// Where the callback panics, each waiting hit is released once: a second token would be
// taken for that of a later hit.
func TestACallbackThatPanics(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		told := 0
		store := storetest.NewSolo(time.Now)
		store.Delay = time.Millisecond
		l, err := limiter.New(limiter.Config{OnCoalesced: func(context.Context, context.Context, int) {
			if told++; told == 3 {
				panic("told too much")
			}
		}}, hierarchy.NewCounters(hierarchy.Config{Store: store}))
		require.NoError(t, err)
		event := testkit.Event(t, "[{per: ip, rate: [100/m, 100/d]}]")
		var running sync.WaitGroup
		for range 5 {
			running.Go(func() {
				defer func() { _ = recover() }()
				_, _ = l.Hit(t.Context(), hitOn(event, 1))
			})
			synctest.Wait()
		}
		running.Wait()
		require.Equal(t, 3, told)
		requireEmptyQueue(t, l)
		for range 20 {
			running.Go(func() {
				d, err := l.Hit(t.Context(), hitOn(event, 1))
				assert.NoError(t, err)
				assert.NotEmpty(t, d.Limits, "a decision that is none")
			})
		}
		running.Wait()
	})
}
