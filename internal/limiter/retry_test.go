package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// hookedStore lets a test act before and after each trip, or have it fail.
type hookedStore struct {
	store.Store
	before, after func(counter string, adds []uint64) error
}

var errBroken = errors.New("broken")

func (s *hookedStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		adds := itemsOf(op)
		if s.before != nil && storetest.IsTrip(op) {
			if op.Err = s.before(op.Counter, adds); op.Err != nil {
				return
			}
		}
		s.Store.Do(ctx, op)
		if op.Err == nil && s.after != nil && storetest.IsTrip(op) {
			if op.Err = s.after(op.Counter, adds); op.Err != nil {
				op.Receipt = store.Receipt{}
			}
		}
	})
}

// acknowledged is the receipt of an embedded store for adds at all levels.
var acknowledged = store.Acknowledged(int(hierarchy.Levels))

// itemsOf returns the items that the op writes.
func itemsOf(op *store.Op) (items []uint64) {
	for _, w := range op.Writes {
		items = append(items, w.Item)
	}
	return items
}

// quietLimiter does not mind failures.
func quietLimiter(t *testing.T, store store.Store, clock *testkit.Clock) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock.Now, Grace: 40 * time.Second}))
	require.NoError(t, err)
	return l
}

// A store that fails when a denied hit looks again does not make it an admitted
// one, though the rule admits where the store fails.
func TestADenialOutlastsTheStore(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	store := &hookedStore{Store: storestest.Embedded(clock.Now)}
	event := testkit.Event(t, "[{per: ip, rate: [2/m, 2/h]}]")
	who := events.Features{"ip": "203.0.113.9"}
	l := quietLimiter(t, store, clock)
	d, err := l.Hit(t.Context(), hitOf(event, 2, who))
	require.NoError(t, err)
	require.True(t, d.Allowed)
	added := false
	store.before = func(_ string, adds []uint64) error {
		if added && len(adds) == 0 {
			return errBroken
		}
		added = true
		return nil
	}
	d, err = l.Hit(t.Context(), hitOf(event, 1, who))
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.False(t, d.Limits[0].Failed)
	assert.GreaterOrEqual(t, d.RetryAfter, 3600*time.Second, "no earlier than the truth")
}

// A check has found room, and then the store fails in the add: the hit may fit soon, not after the window that the add
// before counted.
func TestADenialAfterRoomWasFoundIsShort(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	embedded := storestest.Embedded(clock.Now)
	store := &hookedStore{Store: embedded}
	event, who := testkit.Event(t, "[{per: ip, rate: 2/h}]"), events.Features{"ip": "203.0.113.9"}
	counter, err := event.Counter(who)
	require.NoError(t, err)
	counters := hierarchy.NewCounters(hierarchy.Config{Store: embedded, Clock: clock.Now})
	var buckets []uint64
	for bucket := range hierarchy.BucketsOf(counter, clock.Now().Unix()) {
		buckets = append(buckets, bucket.ID())
	}
	adds := 0
	store.before = func(_ string, added []uint64) error {
		if len(added) == 0 {
			return nil
		}
		adds++
		if adds > 1 {
			return errBroken
		}
		_, err := counters.Increment(t.Context(), 5, time.Time{}, counter) // transient contention
		return err
	}
	store.after = func(_ string, added []uint64) error {
		if len(added) == 0 {
			return nil
		}
		return storetest.RollBack(t.Context(), embedded, counter.ID(), 5, buckets, acknowledged)
	}
	d, err := quietLimiter(t, store, clock).Hit(t.Context(), hitOf(event, 1, who))
	require.NoError(t, err)
	assert.Equal(t, 2, adds)
	assert.False(t, d.Allowed)
	assert.Equal(t, time.Second, d.RetryAfter)
}

// A hit that tries again does not repeat an add whose answer was lost.
func TestALostAddIsNotRepeatedByATry(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	embedded := storestest.Embedded(clock.Now)
	store := &hookedStore{Store: embedded}
	event := testkit.Event(t, "[{per: ip, rate: [2/m, 2/h]}, {per: user, rate: 1000/h}]")
	ip, err := event.Counter(events.Features{"ip": "203.0.113.9"})
	require.NoError(t, err)
	user, err := event.Counter(events.Features{"user": "42"})
	require.NoError(t, err)
	counters := hierarchy.NewCounters(hierarchy.Config{Store: embedded, Clock: clock.Now})
	var buckets []uint64
	for bucket := range hierarchy.BucketsOf(ip, clock.Now().Unix()) {
		buckets = append(buckets, bucket.ID())
	}
	store.before = func(counter string, adds []uint64) error { // transient contention
		if counter == ip.ID() && len(adds) > 0 {
			_, err := counters.Increment(t.Context(), 5, time.Time{}, ip)
			return err
		}
		return nil
	}
	store.after = func(counter string, adds []uint64) error {
		switch {
		case len(adds) == 0:
			return nil
		case counter == user.ID():
			return errBroken // the answer is lost
		}
		return storetest.RollBack(t.Context(), embedded, counter, 5, buckets, acknowledged)
	}
	_, err = quietLimiter(t, store, clock).Hit(t.Context(), hitOf(event, 1, events.Features{"ip": "203.0.113.9", "user": "42"}))
	require.NoError(t, err)
	assert.Equal(t, int64(1), total(t, counters, user, clock.Now()))
	assert.Zero(t, total(t, counters, ip, clock.Now()))
}

// An elastic limit lets in as soon as the whole event has room.
func TestElasticResets(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	event := testkit.Event(t, "[{per: [], rate: 20/m}, {per: user, rate: 10/h, throttle: elastic}]")
	who := events.Features{"user": "42"}
	l := quietLimiter(t, storestest.Embedded(clock.Now), clock)
	d, err := l.Hit(t.Context(), hitOf(event, 20, who))
	require.NoError(t, err)
	require.True(t, d.Allowed)
	assert.True(t, d.Limits[1].Over)
	for _, cost := range []int64{1, 15} { // 15 is more than the limit itself ever has
		d, err = l.Hit(t.Context(), hitOf(event, cost, who))
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		assert.Equal(t, time.Minute, d.RetryAfter, "cost %d", cost)
	}
	clock.Advance(59 * time.Second)
	d, err = l.Check(t.Context(), hitOf(event, 15, who))
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	clock.Advance(time.Second)
	d, err = l.Hit(t.Context(), hitOf(event, 15, who))
	require.NoError(t, err)
	assert.True(t, d.Allowed)
}

// A denied hit that is counted is a part of the count in its decision.
func TestCountAllCountsTheDenied(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	store := storestest.Embedded(clock.Now)
	event := testkit.Event(t, "[{per: ip, rate: 2/m, count: all}, {per: user, rate: 1/m}]")
	l := quietLimiter(t, store, clock)
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock.Now})
	ip, err := event.Counter(events.Features{"ip": "203.0.113.9"})
	require.NoError(t, err)
	stands := int64(0)
	for i, test := range []struct {
		cost     int64
		features events.Features
		allowed  bool
	}{
		{1, events.Features{"ip": "203.0.113.9", "user": "1"}, true},
		{1, events.Features{"ip": "203.0.113.9", "user": "1"}, false}, // by the other rule
		{1, events.Features{"ip": "203.0.113.9"}, false},
		{5, events.Features{"ip": "203.0.113.9"}, false}, // more than ever fits
		{1, events.Features{"ip": "203.0.113.9"}, false},
	} {
		stands += test.cost
		d, err := l.Hit(t.Context(), hitOf(event, test.cost, test.features))
		require.NoError(t, err)
		assert.Equal(t, test.allowed, d.Allowed, "%d", i)
		assert.Equal(t, stands, d.Limits[0].Count, "%d", i)
		assert.Equal(t, stands, total(t, counters, ip, clock.Now()), "%d", i)
	}
}

// A hit that one limit denies is charged by another, which counts all and had room for it: that
// may have none when it comes again, and says for how long.
func TestADeniedHitIsInItsOwnWay(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	event := testkit.Event(t, "[{per: ip, rate: 2/m, count: all}, {per: user, rate: 1/10s}]")
	l := quietLimiter(t, storestest.Embedded(clock.Now), clock)
	hit := hitOf(event, 1, events.Features{"ip": "203.0.113.9", "user": "42"})
	d, err := l.Hit(t.Context(), hit)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	assert.Zero(t, d.Limits[0].Reset)
	d, err = l.Hit(t.Context(), hit)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	assert.True(t, d.Limits[0].Allowed)
	assert.Equal(t, time.Minute, d.Limits[0].Reset)
	assert.Equal(t, 10*time.Second, d.Limits[1].Reset)
	assert.Equal(t, time.Minute, d.RetryAfter)
}

// total returns what the counter holds of the second.
func total(t *testing.T, counters *hierarchy.Counters, counter events.Counter, now time.Time) int64 {
	t.Helper()
	count, err := counters.Count(t.Context(), counter, time.Second, now)
	require.NoError(t, err)
	return count.Count
}
