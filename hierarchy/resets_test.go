package hierarchy_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// distantStore is as a server far away with the usual timeout: a trip takes the longer the
// more it reads, and one that takes too long fails when its time is over.
type distantStore struct {
	store.Store
	trip     time.Duration // for one that reads nothing
	perRead  time.Duration
	lose     uint64   // of so many buckets, the first trip that begins with one gets no answer; 0: none
	lost     sync.Map // by bucket
	underway atomic.Int64
	most     atomic.Int64
}

const (
	distantTimeout = 100 * time.Millisecond
	day            = 24 * time.Hour
)

func (s *distantStore) travel(ctx context.Context, first uint64, reads int) error {
	now := s.underway.Add(1)
	defer s.underway.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	took := s.trip + time.Duration(reads)*s.perRead
	if s.lose > 0 && first%s.lose == 0 {
		if _, again := s.lost.LoadOrStore(first, true); !again {
			took = time.Hour
		}
	}
	left := distantTimeout
	if end, bounded := ctx.Deadline(); bounded {
		left = min(left, time.Until(end))
	}
	time.Sleep(min(took, left))
	if took > left {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (s *distantStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		first := uint64(1)
		switch {
		case op.Kind() == store.Delete:
			first = op.Writes[0].Item
		case op.Kind() == store.Subtract:
			s.Store.Do(ctx, op)
			return
		case len(op.Reads) > 0:
			first = op.Reads[0].Item
		}
		if op.Err = s.travel(ctx, first, len(op.Reads)); op.Err == nil {
			s.Store.Do(ctx, op)
		}
	})
}

// A reset of 30 days reads 44,000 buckets, 250 in a trip: each trip has the store's time,
// and one of many that gets no answer is repeated.
func TestResetsOfThirtyDaysOnADistantStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		clock := testkit.NewClock(time.Time{})
		store := &distantStore{Store: storestest.Embedded(clock.Now), trip: 40 * time.Millisecond, perRead: 100 * time.Microsecond}
		counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock.Now})
		event := &events.Event{Name: "e", Retention: 30 * day, Rules: []events.Rule{{Per: []string{"user"}}}}
		var all []events.Counter
		for i := range 6 {
			counter, err := event.Counter(events.Features{"user": fmt.Sprint(i)})
			require.NoError(t, err)
			all = append(all, counter)
			for ago := range 30 {
				_, err := counters.Increment(t.Context(), 1, clock.Now().Add(-time.Duration(ago)*day), counter)
				require.NoError(t, err)
			}
		}
		store.lose = 5
		store.most.Store(0)
		var resets sync.WaitGroup
		for _, counter := range all {
			resets.Go(func() { assert.NoError(t, counters.Reset(t.Context(), counter)) })
		}
		resets.Wait()
		require.LessOrEqual(t, store.most.Load(), int64(4*16), "hits need the store too")
		store.lose = 0
		for _, counter := range all {
			count, err := counters.Count(t.Context(), counter, 29*day, time.Time{})
			require.NoError(t, err)
			require.Zero(t, count.Count)
		}
		_, err := counters.History(t.Context(), all[0], hierarchy.Minute, clock.Now().Add(-5*day), clock.Now())
		require.NoError(t, err, "a history of many buckets goes in such trips, too")
	})
}

// A reset takes no longer than its time, whatever the store does, and waits for its turn no
// longer than its caller.
func TestAResetIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		clock := testkit.NewClock(time.Time{})
		store := &distantStore{Store: storestest.Embedded(clock.Now), trip: 90 * time.Millisecond}
		counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock.Now})
		counter := testCounters(t)[0]
		counter.Retention = 30 * day
		near := hierarchy.NewCounters(hierarchy.Config{Store: store.Store, Clock: clock.Now})
		for minute := range 7 * 1440 { // too many to be deleted in time
			_, err := near.Increment(t.Context(), 1, clock.Now().Add(-time.Duration(minute)*time.Minute), counter)
			require.NoError(t, err)
		}
		began := time.Now()
		var resets sync.WaitGroup
		for range 4 {
			resets.Go(func() {
				assert.ErrorIs(t, counters.Reset(t.Context(), counter), engine.ErrStore)
				assert.LessOrEqual(t, time.Since(began), 8*time.Second+distantTimeout)
			})
		}
		time.Sleep(time.Millisecond)
		impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, counters.Reset(impatient, counter), context.DeadlineExceeded)
		require.Equal(t, 51*time.Millisecond, time.Since(began))
		resets.Wait()
		for range 10 { // each goes on where the one before was cut short
			if counters.Reset(t.Context(), counter) == nil {
				return
			}
		}
		require.Fail(t, "repeating it does not help")
	})
}
