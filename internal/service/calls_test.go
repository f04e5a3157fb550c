package service_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/memcache"
)

// slowStore takes a while for each round trip, and may be closed meanwhile.
type slowStore struct {
	store.Store
	takes  time.Duration
	closed *atomic.Bool
}

func (s slowStore) Do(ctx context.Context, ops ...*store.Op) {
	time.Sleep(s.takes)
	if !s.closed.Load() {
		s.Store.Do(ctx, ops...)
		return
	}
	for _, op := range ops {
		op.Err = memcache.ErrClosed
	}
}

// Close waits for a call under way, at most for its time, and refuses later ones.
func TestCloseWaitsForCalls(t *testing.T) {
	for name, test := range map[string]struct{ takes, waits time.Duration }{
		"a call":      {3 * time.Second, 3 * time.Second},
		"a slow call": {8 * time.Second, 5 * time.Second},
		"none":        {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c := newService(t, slowStore{newStore(), test.takes, new(atomic.Bool)}, "events: {e: {limits: [{per: ip, rate: 2/m}]}}")
				event, err := c.Event("e")
				require.NoError(t, err)
				var running sync.WaitGroup
				for range 3 {
					running.Go(func() {
						d, err := c.Hit(t.Context(), event, ip, 1)
						assert.NoError(t, err)
						assert.False(t, d.Limits[0].Failed)
					})
				}
				synctest.Wait()
				began := time.Now()
				for range 2 {
					running.Go(func() { c.Close(5 * time.Second) })
				}
				synctest.Wait()
				_, err = c.Hit(t.Context(), event, ip, 1)
				assert.ErrorIs(t, err, service.ErrClosed)
				c.Close(5 * time.Second)
				assert.LessOrEqual(t, time.Since(began), 5*time.Second)
				assert.GreaterOrEqual(t, time.Since(began), test.waits)
				running.Wait()
				c.Close(5 * time.Second)
			})
		})
	}
}

// A call that takes longer than Close waits, and whose store is closed then, is not admitted by on_error.
func TestACallThatIsLateIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		closed := new(atomic.Bool)
		c := newService(t, slowStore{newStore(), 8 * time.Second, closed}, "events: {e: {limits: [{per: ip, rate: 2/m, on_error: allow}]}}")
		event, err := c.Event("e")
		require.NoError(t, err)
		var running sync.WaitGroup
		running.Go(func() {
			_, err := c.Hit(t.Context(), event, ip, 1)
			assert.ErrorIs(t, err, service.ErrClosed)
		})
		running.Go(func() {
			results, err := c.Hits(t.Context(), []limiter.Hit{{Event: event.Event, Features: ip, Cost: 1}})
			assert.NoError(t, err)
			assert.ErrorIs(t, results[0].Err, service.ErrClosed)
		})
		synctest.Wait()
		c.Close(5 * time.Second)
		closed.Store(true)
		running.Wait()
	})
}
