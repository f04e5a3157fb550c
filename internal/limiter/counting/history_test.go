package counting_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// slowStore takes a second for each round trip.
type slowStore struct{ store.Store }

func (s slowStore) Do(ctx context.Context, ops ...*store.Op) {
	time.Sleep(time.Second)
	s.Store.Do(ctx, ops...)
}

// A history is charged by its buckets: many long ones at once would take the store from everybody else. Other calls
// take no room from histories, nor histories from them.
func TestHistoriesAreChargedByTheirBuckets(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newProcess(t, slowStore{storestest.Embedded(time.Now)}, time.Now, hierarchy.DefaultGrace)
		counter := counterOf(t, newEvent(t, "[{per: ip, rate: 9/d}]", ""), "ip", "192.0.2.1")
		history := func(buckets int64) error {
			_, err := p.History(t.Context(), counter, engine.Second, time.Now().Add(-time.Duration(buckets-1)*time.Second), time.Time{})
			return err
		}
		var running sync.WaitGroup
		for _, buckets := range []int64{6000, 4000} {
			running.Go(func() { assert.NoError(t, history(buckets)) })
		}
		synctest.Wait()
		require.ErrorIs(t, history(1), engine.ErrOverload)
		require.EqualValues(t, 1, p.QueueStats().Refused)
		_, err := p.Increment(t.Context(), 1, time.Time{}, counter)
		require.NoError(t, err)
		running.Wait()
		require.NoError(t, history(engine.MaxHistory))
		require.Zero(t, p.QueueStats().Pending)
	})
}
