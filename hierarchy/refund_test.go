package hierarchy_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// Refunds take the latest events away, to the second: counts of windows of any length and age are then those of an
// oracle without these events.
func TestRefundsEqualAnOracle(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	storestest.OnEveryStore(t, clock.Now, func(t *testing.T, open func() store.Store) {
		counters := hierarchy.NewCounters(hierarchy.Config{Store: open(), Clock: clock.Now, CacheBytes: -1})
		rng := rand.New(rand.NewPCG(7, 8))
		for _, counter := range testCounters(t)[:6] { // the others forget some of it
			var seconds []int64 // of the events, in order
			beyond := 0
			for range 12 {
				clock.Advance(time.Duration(rng.Int64N(int64(10 * time.Minute))))
				for range rng.IntN(4) {
					at := clock.Now().Add(-time.Duration(rng.Int64N(int64(time.Hour))))
					by := 1 + rng.Int64N(5)
					_, err := counters.Increment(t.Context(), by, at, counter)
					require.NoError(t, err)
					seconds = append(seconds, slices.Repeat([]int64{at.Unix()}, int(by))...)
				}
				slices.Sort(seconds)
				by := 1 + rng.Int64N(12)
				refunded, err := counters.Refund(t.Context(), by, counter)
				require.NoError(t, err)
				require.Equal(t, min(by, int64(len(seconds))), refunded)
				if refunded < by {
					beyond++
				}
				seconds = seconds[:len(seconds)-int(refunded)]
				for range 5 {
					window := time.Duration(1+rng.Int64N(3*3600)) * time.Second
					count, err := counters.Count(t.Context(), counter, window, time.Time{})
					require.NoError(t, err)
					want := 0
					for _, second := range seconds {
						if second >= count.From.Unix() && second <= count.To.Unix() {
							want++
						}
					}
					require.EqualValues(t, want, count.Count, "%s of %s", window, counter.Feature)
				}
			}
			assert.Positive(t, beyond, "no refund was beyond what there was")
		}
	})
}

// Concurrent refunds of all that was counted leave nothing in the coarsest bucket, and no less than the truth anywhere.
func TestConcurrentRefunds(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	st := storetest.NewSolo(clock.Now)
	event := testkit.Event(t, "[{per: user, rate: 100/h}]")
	counter, err := event.Counter(events.Features{"user": "ada"})
	require.NoError(t, err)
	counters := hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock.Now})
	for range 40 {
		_, err := counters.Increment(t.Context(), 2, clock.Now(), counter)
		require.NoError(t, err)
		clock.Advance(time.Second)
	}
	var refunded atomic.Int64
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			own := hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock.Now, CacheBytes: -1})
			for range 5 {
				n, err := own.Refund(t.Context(), 1, counter)
				assert.NoError(t, err)
				refunded.Add(n)
			}
		})
	}
	running.Wait()
	assert.EqualValues(t, 40, refunded.Load())
	hours, err := counters.History(t.Context(), counter, hierarchy.Hour, clock.Now().Add(-time.Hour), clock.Now())
	require.NoError(t, err)
	left := int64(0)
	for _, hour := range hours.Intervals {
		left += hour.Count
	}
	assert.EqualValues(t, 80-40, left)
	seconds, err := counters.Count(t.Context(), counter, time.Minute, time.Time{})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, seconds.Count, int64(40))
}

// A refund from an empty counter creates nothing.
func TestARefundOfNothing(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	st := storetest.NewSolo(clock.Now)
	counter, err := testkit.Event(t, "[{per: user, rate: 100/h}]").Counter(events.Features{"user": "ada"})
	require.NoError(t, err)
	counters := hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock.Now})
	refunded, err := counters.Refund(t.Context(), 5, counter)
	require.NoError(t, err)
	assert.Zero(t, refunded)
	assert.Empty(t, st.Of)
}
