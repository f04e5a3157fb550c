package hierarchy_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// lowReplicas is a store with copies, of which at times only one answers that has missed
// everything.
type lowReplicas struct {
	store.Store
	low bool
}

func (s *lowReplicas) Capabilities() store.Capabilities { return store.Capabilities{Replicas: 2} }

func (s *lowReplicas) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		s.Store.Do(ctx, op)
		for i := range op.Writes {
			if s.low {
				op.Writes[i].Result = 0
			}
		}
		for i := range op.Reads {
			if s.low {
				op.Reads[i].Value = 0
			}
		}
	})
}

// What a count or a check has read of a copy that missed something decides no hit: those
// may all have reached another copy.
func TestCountsAndChecksOfALowReplicaDecideNoHits(t *testing.T) {
	event := testkit.Event(t, "[{per: ip, rate: 10/m}]")
	who := events.Features{"ip": "203.0.113.9"}
	counter, err := event.Counter(who)
	require.NoError(t, err)
	for name, ask := range map[string]func(l *limiter.Limiter, c *hierarchy.Counters) error{
		"count": func(_ *limiter.Limiter, c *hierarchy.Counters) error {
			_, err := c.Count(t.Context(), counter, time.Minute, time.Time{})
			return err
		},
		"check": func(l *limiter.Limiter, _ *hierarchy.Counters) error {
			_, err := l.Check(t.Context(), limiter.Hit{Event: event, Cost: 1, Features: who})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testkit.NewClock(time.Time{})
			clock.Advance(7 * time.Second) // to the second 40 of a minute
			store := &lowReplicas{Store: storestest.Embedded(clock.Now)}
			counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock.Now})
			decider, err := limiter.New(limiter.Config{Timeout: hierarchy.DefaultGrace / 2}, counters)
			require.NoError(t, err)
			admitted := 0
			hits := func(n int) {
				for range n {
					d, err := decider.Hit(t.Context(), limiter.Hit{Event: event, Cost: 1, Features: who})
					require.NoError(t, err)
					if d.Allowed {
						admitted++
					}
				}
			}
			hits(10)
			clock.Advance(40 * time.Second)
			store.low = true
			require.NoError(t, ask(decider, counters))
			store.low = false
			hits(12)
			assert.Equal(t, 10, admitted)
		})
	}
}
