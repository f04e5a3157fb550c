package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

// countingStore counts trips and the buckets that they read.
type countingStore struct {
	store.Store
	trips, reads int
}

// notesMoment is the moment at which the cover of a day is longest.
var notesMoment = time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC)

func (s *countingStore) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		s.trips++
		s.reads += len(op.Reads)
	}
	s.Store.Do(ctx, ops...)
}

// BenchmarkHit has one caller, so that trips and reads can be counted. Its clock stays at
// the moment of the published figures; denials are not cached from one hit to the next in
// "denied by the store", and are in "denied from memory".
func BenchmarkHit(b *testing.B) {
	for _, store := range []string{"embedded", "memcached"} {
		for _, limits := range []struct{ name, rates string }{
			{"one", "%d/d"},
			{"four", "[100000000000/s, 100000000001/m, 100000000002/h, %d/d]"},
		} {
			for _, state := range []string{"far", "near", "denied by the store", "denied from memory"} {
				b.Run(fmt.Sprintf("%s/%s/%s", store, limits.name, state), func(b *testing.B) {
					benchHit(b, store, limits.rates, state)
				})
			}
		}
	}
}

func benchHit(b *testing.B, store, rates, state string) {
	b.ReportAllocs()
	now := notesMoment
	clock := func() time.Time { return now }
	counted := &countingStore{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})}
	if store == "memcached" {
		counted.Store = storestest.OpenFleet(b, clock, memcachedtest.Start(b).Addr)
	}
	open := func() *limiter.Limiter {
		l, err := limiter.New(limiter.Config{Timeout: time.Second}, hierarchy.NewCounters(hierarchy.Config{Store: counted, Clock: clock}))
		require.NoError(b, err)
		return l
	}
	limiter := open()
	far := testkit.Event(b, fmt.Sprintf("[{per: ip, rate: "+rates+"}]", 100_000_000_003))
	who := events.Features{"ip": "192.168.0.1"}

	// A thousand events, a tenth of them older than a day, in the bucket of
	// yesterday that is partly in the window.
	counters := hierarchy.NewCounters(hierarchy.Config{Store: counted.Store, Clock: clock})
	counter, err := far.Counter(who)
	require.NoError(b, err)
	now = notesMoment.Add(-23 * time.Hour)
	for i := range 1000 {
		at := now.Add(-time.Hour - time.Minute + time.Duration(i)*600*time.Millisecond)
		_, err := counters.Increment(b.Context(), 1, at, counter)
		require.NoError(b, err)
	}
	now = notesMoment
	event := far
	switch state {
	case "near":
		event = testkit.Event(b, fmt.Sprintf("[{per: ip, rate: "+rates+"}]", 950))
	case "denied by the store", "denied from memory":
		full, err := counters.Count(b.Context(), counter, 24*time.Hour, now)
		require.NoError(b, err)
		event = testkit.Event(b, fmt.Sprintf("[{per: ip, rate: "+rates+"}]", full.Count))
	}
	counted.trips, counted.reads = 0, 0
	denied, hits := 0, 0
	for b.Loop() {
		if state == "denied by the store" {
			b.StopTimer()
			limiter = open() // remembers nothing
			b.StartTimer()
		}
		d, err := limiter.Hit(b.Context(), hitOf(event, 1, who))
		if err != nil {
			b.Fatal(err)
		}
		hits++
		if !d.Allowed {
			denied++
		}
		if state == "near" {
			b.StopTimer()
			rollBackOne(b, counted.Store, counter, now)
			b.StartTimer()
		}
	}
	require.Equal(b, state != "far" && state != "near", denied > 0)
	b.ReportMetric(float64(counted.trips)/float64(hits), "trips/op")
	b.ReportMetric(float64(counted.reads)/float64(hits), "reads/op")
}

// rollBackOne undoes an admitted hit, so that the next one finds what it found.
func rollBackOne(b *testing.B, store store.Store, counter events.Counter, now time.Time) {
	var buckets []uint64
	for bucket := range hierarchy.BucketsOf(counter, now.Unix()) {
		buckets = append(buckets, bucket.ID())
	}
	require.NoError(b, storetest.RollBack(b.Context(), store, counter.ID(), 1, buckets, acknowledged))
}
