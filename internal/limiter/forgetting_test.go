package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
)

// forgetfulStore knows since when it has lost nothing.
type forgetfulStore struct {
	*storetest.Solo
	since int64
	of    string // the counter asked for
}

func (s *forgetfulStore) Capabilities() store.Capabilities {
	return store.Capabilities{Since: func(counter string) int64 {
		s.of = counter
		return s.since
	}}
}

// After a loss each limit is incomplete until its window, and the grace, have passed.
func TestALimitIsIncompleteAfterALoss(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	store := &forgetfulStore{Solo: storetest.NewSolo(clock.Now)}
	l := newTestLimiter(t, store, clock.Now)
	grace := int64(hierarchy.DefaultGrace / time.Second)
	event := testkit.Event(t, "[{per: ip, rate: [900/s, 900/10s, 900/m]}, {per: user, rate: 900/2m, precision: minute}]")
	features := events.Features{"ip": "192.0.2.1", "user": "a"}
	hit := func() []events.LimitState {
		d, err := l.Hit(t.Context(), limiter.Hit{event, features, 1, 0, nil})
		require.NoError(t, err)
		check, err := l.Check(t.Context(), limiter.Hit{event, features, 1, 0, nil})
		require.NoError(t, err)
		require.Len(t, d.Limits, 4)
		for i := range d.Limits {
			require.Equal(t, d.Limits[i].Incomplete, check.Limits[i].Incomplete)
		}
		return d.Limits
	}
	for _, state := range hit() {
		assert.False(t, state.Incomplete, state.Name)
	}
	store.since = clock.Now().Unix()
	var ended [4]int
	for range 200 {
		stamp := clock.Now().Unix()
		for i, state := range hit() {
			first := stamp - int64(state.Window/time.Second) + 1
			if i == 3 { // it is rounded outward
				first -= first % 60
			}
			require.Equal(t, first <= store.since+grace, state.Incomplete, "%s, %d seconds after", state.Name, stamp-store.since)
			if !state.Incomplete {
				ended[i]++
			}
		}
		clock.Advance(time.Second)
	}
	for i, seconds := range ended {
		assert.Positive(t, seconds, i)
	}
	user, err := event.Counter(events.Features{"user": "a"})
	require.NoError(t, err)
	assert.Equal(t, user.ID(), store.of)
}

// A decision of this process's own counters, or of none, says nothing of the store's loss.
func TestALossIsNoneOfTheLocalStore(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	store := &forgetfulStore{Solo: storetest.NewSolo(clock.Now), since: clock.Now().Unix()}
	l, err := limiter.New(limiter.Config{Timeout: time.Second, Local: localEngines(storetest.NewSolo(clock.Now), clock.Now)}, newCounters(store, clock.Now))
	require.NoError(t, err)
	hit := func(limits string) events.LimitState {
		d, err := l.Hit(t.Context(), limiter.Hit{testkit.Event(t, limits), events.Features{"ip": "192.0.2.1"}, 1, 0, nil})
		require.NoError(t, err)
		return d.Limits[0]
	}
	for _, limits := range []string{"[{per: ip, rate: 9/m, on_error: local}]", "[{per: ip, rate: 9/m, on_error: allow}]", "[{per: ip, rate: 9/m, deny: [192.0.2.1]}]"} {
		store.Before = nil
		deny := hit(limits)
		assert.Equal(t, deny.Listing != events.Denied, deny.Incomplete, limits)
		store.Before = func() error { return errDown }
		assert.False(t, hit(limits).Incomplete, limits)
	}
}
