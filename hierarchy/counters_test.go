package hierarchy_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

var errBroken = errors.New("broken")

// brokenStore fails its deletes from the n-th call on, or all of its trips.
type brokenStore struct {
	store.Store
	trips   bool
	deletes atomic.Int64
}

func (s *brokenStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if op.Kind() != store.Subtract && (op.Kind() == store.Delete && s.deletes.Add(-1) < 0 || op.Kind() != store.Delete && s.trips) {
			op.Err = errBroken
			return
		}
		s.Store.Do(ctx, op)
	})
}

// recordingStore keeps the number of reads of each trip.
type recordingStore struct {
	store.Store
	reads []int
}

func (s *recordingStore) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if !storetest.IsTrip(op) {
			continue
		}
		s.reads = append(s.reads, len(op.Reads))
	}
	s.Store.Do(ctx, ops...)
}

func TestACountIsOneTripOfItsCover(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	recorder := &recordingStore{Store: storestest.Embedded(clock.Now)}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: recorder, Clock: clock.Now})
	count, err := counters.Count(t.Context(), testCounters(t)[0], 24*time.Hour, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, []int{142}, recorder.reads)
	assert.Equal(t, [hierarchy.Levels]int{60, 59, 23, 0}, count.Buckets)
	assert.Equal(t, clock.Now().Unix(), count.To.Unix())
	assert.Equal(t, 86399*time.Second, count.To.Sub(count.From))
	assert.True(t, count.Exact)
}

// testCounters are counters of different features, retentions and precisions.
func testCounters(t *testing.T) []events.Counter {
	t.Helper()
	counter := func(retention time.Duration, precision events.Precision, features events.Features) events.Counter {
		event := &events.Event{Name: "url_shorten", Retention: retention}
		c, err := event.Counter(features)
		require.NoError(t, err)
		c.Precision = precision
		return c
	}
	return []events.Counter{
		counter(0, events.Second, events.Features{"ip": "192.168.0.1"}),
		counter(0, events.Second, events.Features{"ip": "2001:db8::1"}),
		counter(0, events.Second, events.Features{"ip": "192.168.0.1", "user": "42"}),
		counter(48*time.Hour, events.Second, events.Features{"user": "a b\r\nc\x00"}),
		counter(0, events.Minute, events.Features{"user": "minute"}),
		counter(7*24*time.Hour, events.Hour, events.Features{"user": "hour"}),
		counter(90*time.Minute, events.Second, events.Features{"user": "short"}),
		counter(10*time.Second, events.Second, events.Features{"user": "seconds"}),
	}
}

func kept(counter events.Counter) time.Duration {
	if counter.Retention == 0 {
		return events.DefaultRetention
	}
	return counter.Retention
}

// A reset forgets all of its counter and nothing of the others.
func TestResetForgetsOneCounterOnly(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	storestest.OnEveryStore(t, clock.Now, func(t *testing.T, open func() store.Store) {
		counters := hierarchy.NewCounters(hierarchy.Config{Store: open(), Clock: clock.Now})
		all := testCounters(t)
		rng := rand.New(rand.NewPCG(7, 8))
		const adds = 30
		for range adds {
			for _, counter := range all {
				_, err := counters.Increment(t.Context(), 1, clock.Now().Add(-time.Duration(rng.Int64N(int64(kept(counter))))), counter)
				require.NoError(t, err)
			}
		}
		for i, counter := range all {
			if i%2 == 0 {
				require.NoError(t, counters.Reset(t.Context(), counter))
			}
		}
		for i, counter := range all {
			require.EqualValues(t, i%2*adds, total(t, counters, counter, clock.Now()), "%d", i)
		}
	})
}

// total sums the counter's finest buckets, the coarse ones aside, as far back as
// it is remembered and up to the grace ahead.
func total(t *testing.T, counters *hierarchy.Counters, counter events.Counter, now time.Time) (sum int64) {
	t.Helper()
	level := hierarchy.Level(counter.Precision)
	to := now.Add(hierarchy.DefaultGrace)
	for oldest := now.Add(-kept(counter)); ; {
		from := to.Add(-(engine.MaxHistory - 1) * time.Duration(level.Seconds()) * time.Second)
		if from.Before(oldest) {
			from = oldest
		}
		history, err := counters.History(t.Context(), counter, level, from, to)
		require.NoError(t, err)
		for _, interval := range history.Intervals {
			sum += interval.Count
		}
		to = time.Unix(history.Intervals[0].First-1, 0)
		if to.Before(oldest) {
			return sum
		}
	}
}

func TestAResetThatWasCutShortCanBeRepeated(t *testing.T) {
	for _, complete := range []int64{0, 1, 2, 3, 4} {
		clock := testkit.NewClock(time.Time{})
		broken := &brokenStore{Store: storestest.Embedded(clock.Now)}
		counters := hierarchy.NewCounters(hierarchy.Config{Store: broken, Clock: clock.Now})
		counter := testCounters(t)[0]
		for back := range 200 {
			_, err := counters.Increment(t.Context(), 1, clock.Now().Add(-time.Duration(back)*time.Minute), counter)
			require.NoError(t, err)
		}
		broken.deletes.Store(complete)
		err := counters.Reset(t.Context(), counter)
		require.ErrorIs(t, err, engine.ErrStore)
		require.ErrorIs(t, err, errBroken)

		broken.deletes.Store(1 << 30)
		require.NoError(t, counters.Reset(t.Context(), counter))
		require.Zero(t, total(t, counters, counter, clock.Now()), "after %d deletes", complete)
	}
}

func TestAStoreThatFailsIsAnError(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	counters := hierarchy.NewCounters(hierarchy.Config{Store: &brokenStore{Store: storestest.Embedded(clock.Now), trips: true}, Clock: clock.Now})
	all := testCounters(t)
	_, err := counters.Increment(t.Context(), 1, time.Time{}, all...)
	require.ErrorIs(t, err, engine.ErrStore)
	require.ErrorIs(t, err, errBroken)
	_, err = counters.Count(t.Context(), all[0], time.Minute, time.Time{})
	require.ErrorIs(t, err, engine.ErrStore)
	_, err = counters.History(t.Context(), all[0], hierarchy.Hour, clock.Now(), clock.Now())
	require.ErrorIs(t, err, engine.ErrStore)
	require.ErrorIs(t, counters.Reset(t.Context(), all[0]), engine.ErrStore)
}

// cutStore is cut short after its first add: acknowledged or, if the answer is
// lost, not.
type cutStore struct {
	store.Store
	cut, lost bool
}

func (s *cutStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if !s.cut || op.Kind() != store.Add || len(op.Writes) < 2 {
			s.Store.Do(ctx, op)
			return
		}
		cut := store.Op{Counter: op.Counter, Writes: op.Writes[:1]}
		s.Store.Do(ctx, &cut)
		op.Receipt, op.Err = cut.Receipt, errors.Join(cut.Err, errBroken)
		if s.lost {
			op.Receipt = store.Receipt{}
		}
	})
}

func TestAnIncrementThatWasCutShort(t *testing.T) {
	for _, lost := range []bool{false, true} {
		clock := testkit.NewClock(time.Time{})
		store := &cutStore{Store: storestest.Embedded(clock.Now), cut: true, lost: lost}
		counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock.Now})
		counter := testCounters(t)[0]
		_, err := counters.Increment(t.Context(), 9, time.Time{}, counter)
		require.ErrorIs(t, err, errBroken)
		if !lost {
			require.Zero(t, total(t, counters, counter, clock.Now()), "what landed is rolled back")
			continue
		}
		require.Equal(t, int64(9), total(t, counters, counter, clock.Now()), "what may have landed stays")
		require.NoError(t, counters.Reset(t.Context(), counter))
		require.Zero(t, total(t, counters, counter, clock.Now()), "a reset finds a second without its minute")
	}
}

// A parent that was evicted hides nothing from a reset.
func TestAResetFindsWhatHasLostItsParents(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	store := storestest.Embedded(clock.Now)
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock.Now})
	counter := testCounters(t)[0]
	at, err := counters.Increment(t.Context(), 1, clock.Now().Add(-5*time.Hour), counter)
	require.NoError(t, err)
	for _, l := range []hierarchy.Level{hierarchy.Hour, hierarchy.Day} {
		require.NoError(t, storetest.Delete(t.Context(), store, counter.ID(), []uint64{hierarchy.BucketAt(l, at.Unix()).ID()}))
	}
	require.NoError(t, counters.Reset(t.Context(), counter))
	require.Zero(t, total(t, counters, counter, clock.Now()))
}

func TestResetReachesWhatACountReaches(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	clock.Set(time.Date(2026, 3, 14, 23, 59, 59, 0, time.UTC))
	c := hierarchy.NewCounters(hierarchy.Config{Store: storestest.Embedded(clock.Now), Clock: clock.Now})
	counter := testCounters(t)[0]
	_, err := c.Increment(t.Context(), 1, time.Time{}, counter)
	require.NoError(t, err)
	clock.Advance(24*time.Hour + hierarchy.DefaultGrace)
	oldest := func() int64 {
		n, err := c.Count(t.Context(), counter, 24*time.Hour, clock.Now().Add(-hierarchy.DefaultGrace-time.Second))
		require.NoError(t, err)
		return n.Count
	}
	require.Equal(t, int64(1), oldest())
	require.NoError(t, c.Reset(t.Context(), counter))
	require.Zero(t, oldest())
}

// failsOn fails for one counter.
type failsOn struct {
	store.Store
	id string
}

func (s failsOn) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if storetest.IsTrip(op) && op.Counter == s.id {
			op.Err = errBroken
			return
		}
		s.Store.Do(ctx, op)
	})
}

func TestAnyFaultOfSeveralTripsIsReturned(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	all := testCounters(t)[:3]
	for _, counter := range all {
		c := hierarchy.NewCounters(hierarchy.Config{Store: failsOn{storestest.Embedded(clock.Now), counter.ID()}, Clock: clock.Now})
		_, err := c.Increment(t.Context(), 1, time.Time{}, all...)
		require.ErrorIs(t, err, errBroken)
	}
}
