package service_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// slowStore takes a while for each round trip.
type slowStore struct {
	store.Store
	takes time.Duration
}

func (s slowStore) Do(ctx context.Context, ops ...*store.Op) {
	time.Sleep(s.takes)
	s.Store.Do(ctx, ops...)
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
				c := newService(t, slowStore{newStore(), test.takes}, "events: {e: {limits: [{per: ip, rate: 2/m}]}}")
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
