package counting_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// slow is a store as a process has it that is far from the server of one counter.
type slow struct {
	store.Store
	counter string
}

func (s slow) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Counter == s.counter {
			time.Sleep(10 * time.Millisecond)
		}
	}
	s.Store.Do(ctx, ops...)
}

// Of two calls at once that settle a reservation on several counters with different costs, one decides on all
// of them, whichever counter each of the two reaches first.
func TestOneOfTwoSettlementsDecides(t *testing.T) {
	for name, of := range map[string][]string{"buckets": {"sliding-window"}, "logs": {"sliding-log"}, "both": {"sliding-window", "sliding-log"}} {
		for _, costs := range [][2]int64{{3, 5}, {12, 0}, {15, 12}, {4, 4}} {
			t.Run(name, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					kept := storestest.Embedded(time.Now)
					event := newEvent(t, "[{per: ip, rate: 100/m}, {per: user, rate: 100/m}]", of...)
					features := events.Features{"ip": "192.0.2.1", "user": "ada"}
					counters := []events.Counter{counterOf(t, event, "ip", features["ip"]), counterOf(t, event, "user", features["user"])}
					d := newProcess(t, kept, nil, 0).limiter.Decide(t.Context(), limiter.Hit{Event: event, Features: features, Cost: 10, Reserved: time.Minute}, limiter.CallHit)
					require.NoError(t, d.Err)
					require.Len(t, d.Reserved, 2)
					var calls sync.WaitGroup
					var faults [2]error
					for i, counter := range counters {
						p := newProcess(t, slow{kept, counter.ID()}, nil, 0)
						calls.Go(func() { faults[i] = p.Settle(t.Context(), d.Reserved, costs[i]) })
					}
					calls.Wait()
					winner := 0
					if faults[0] != nil {
						winner = 1
					}
					require.NoError(t, faults[winner], "%v", faults)
					if costs[0] != costs[1] {
						require.ErrorIs(t, faults[1-winner], engine.ErrSettled)
					}
					for _, counter := range counters {
						assert.Equal(t, costs[winner], total(t, newProcess(t, kept, nil, 0), counter))
					}
				})
			})
		}
	}
}

// failing is a store that does not answer for a counter.
type failing struct {
	store.Store
	counter string
}

func (f *failing) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Counter == f.counter {
			op.Err = errors.New("no answer")
		} else {
			f.Store.Do(ctx, op)
		}
	}
}

// newLeases returns a limiter and counters of leases on a store, and an event.
func newLeases(t *testing.T, clock *testkit.Clock, kept store.Store, limits string) (*limiter.Limiter, *counting.Counters, *events.Event) {
	leases, err := eventlog.NewLeases(engine.Base{Store: kept, Clock: clock.Now, Grace: 2 * time.Second, Changes: new(engine.Changes)})
	require.NoError(t, err)
	decider, err := limiter.New(limiter.Config{Timeout: time.Second}, leases)
	require.NoError(t, err)
	event := testkit.Event(t, limits)
	for i := range event.Rules {
		event.Rules[i].Revision = 1
	}
	return decider, counting.New(counting.Config{}, leases), event
}

// A renewal whose trip fails leaves the leases, with which it is repeated: each that the store answered for ends
// later. One of a lease that has ended releases the other leases.
func TestARenewalIsRepeated(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	kept := &failing{Store: storestest.Embedded(clock.Now)}
	decider, c, event := newLeases(t, clock, kept, "[{per: ip, concurrent: 1, lease: 1m}, {per: user, concurrent: 1, lease: 30s}]")
	features := events.Features{"ip": "192.0.2.1", "user": "ada"}
	hit := func(of events.Features) limiter.Result {
		result := decider.Decide(t.Context(), limiter.Hit{Event: event, Features: of, Cost: 1}, limiter.CallHit)
		require.NoError(t, result.Err)
		return result
	}
	held := hit(features).Reserved
	require.Len(t, held, 2)
	clock.Advance(15 * time.Second)
	for _, one := range held {
		kept.counter = one.Counter
		partly, err := c.Renew(t.Context(), held, 30*time.Second)
		require.ErrorIs(t, err, engine.ErrStore)
		require.NotErrorIs(t, err, engine.ErrEnded)
		kept.counter = ""
		for i := range held {
			require.False(t, hit(events.Features{[]string{"ip", "user"}[i]: features[[]string{"ip", "user"}[i]]}).Decision.Allowed, "its place is its own")
			require.Equal(t, held[i].Ends == partly[i].Ends, held[i].Counter == one.Counter || i == 0, "lease %d", i)
		}
	}
	renewed, err := c.Renew(t.Context(), held, 30*time.Second)
	require.NoError(t, err, "repeated")

	clock.Advance(20 * time.Second)
	first, err := c.Renew(t.Context(), renewed[:1], 30*time.Second)
	require.NoError(t, err)
	clock.Advance(10 * time.Second)
	_, err = c.Renew(t.Context(), []engine.Reserved{first[0], renewed[1]}, 30*time.Second)
	require.ErrorIs(t, err, engine.ErrEnded)
	require.True(t, hit(features).Decision.Allowed, "all are free")
}
