package hierarchy_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

// These benchmarks back the figures in docs/performance.md.

// notesMoment is the moment at which the cover of a day is longest.
var notesMoment = time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC)

func BenchmarkCoverOfADay(b *testing.B) {
	b.ReportAllocs()
	w := hierarchy.WindowAt(notesMoment, 24*time.Hour)
	n := 0
	for b.Loop() {
		n = hierarchy.CoverOf(w, hierarchy.Second, hierarchy.Day).Len()
	}
	require.Equal(b, 142, n)
}

// benchStores runs a benchmark on the embedded store and on one Memcached
// server, each with one goroutine and with many.
func benchStores(b *testing.B, bench func(b *testing.B, counters *hierarchy.Counters, run func(func(i int)))) {
	clock := func() time.Time { return notesMoment }
	for _, store := range []struct {
		name string
		open func(b *testing.B) store.Store
	}{
		{"embedded", func(*testing.B) store.Store { return memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}) }},
		{"memcached", func(b *testing.B) store.Store { return storestest.OpenFleet(b, clock, memcachedtest.Start(b).Addr) }},
	} {
		counters := func(b *testing.B) *hierarchy.Counters {
			return hierarchy.NewCounters(hierarchy.Config{Store: store.open(b), Clock: clock})
		}
		b.Run(store.name+"/one", func(b *testing.B) {
			b.ReportAllocs()
			bench(b, counters(b), func(f func(i int)) {
				for i := 0; b.Loop(); i++ {
					f(i)
				}
			})
		})
		b.Run(store.name+"/many", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(8) // goroutines for each core
			bench(b, counters(b), func(f func(i int)) {
				var next atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						f(int(next.Add(1)))
					}
				})
			})
		})
	}
}

// benchCounters are a thousand counters of addresses.
func benchCounters(b *testing.B) []events.Counter {
	event := &events.Event{Name: "url_shorten"}
	list := make([]events.Counter, 1000)
	for i := range list {
		var err error
		list[i], err = event.Counter(events.Features{"ip": fmt.Sprintf("10.0.%d.%d", i/250, i%250)})
		require.NoError(b, err)
	}
	return list
}

func BenchmarkIncrement(b *testing.B) {
	list := benchCounters(b)
	benchStores(b, func(b *testing.B, counters *hierarchy.Counters, run func(func(int))) {
		run(func(i int) {
			if _, err := counters.Increment(b.Context(), 1, notesMoment, list[i%len(list)]); err != nil {
				b.Error(err)
			}
		})
	})
}

// fill adds one event to each bucket of the day's cover of the counter.
func fill(b *testing.B, counters *hierarchy.Counters, counter events.Counter) {
	cover := hierarchy.CoverOf(hierarchy.WindowAt(notesMoment, 24*time.Hour), hierarchy.Second, hierarchy.Day)
	for bucket := range cover.Buckets() {
		_, err := counters.Increment(b.Context(), 1, time.Unix(bucket.First(), 0), counter)
		require.NoError(b, err)
	}
}

func BenchmarkCountOfADay(b *testing.B) {
	counter := benchCounters(b)[0]
	for _, present := range []bool{true, false} {
		name, want := "absent", int64(0)
		if present {
			name, want = "present", 142
		}
		b.Run(name, func(b *testing.B) {
			benchStores(b, func(b *testing.B, counters *hierarchy.Counters, run func(func(int))) {
				if present {
					fill(b, counters, counter)
				}
				run(func(int) {
					count, err := counters.Count(b.Context(), counter, 24*time.Hour, notesMoment)
					if err != nil || count.Count != want {
						b.Errorf("counted %d: %v", count.Count, err)
					}
				})
			})
		})
	}
}

// BenchmarkCountAgainstGetMulti takes turns between a count of a day and
// gomemcache's bare GetMulti of the same 142 keys, and reports the ratio of
// their times.
func BenchmarkCountAgainstGetMulti(b *testing.B) {
	clock := func() time.Time { return notesMoment }
	counter := benchCounters(b)[0]
	for _, present := range []bool{true, false} {
		name := map[bool]string{true: "present", false: "absent"}[present]
		b.Run(name, func(b *testing.B) {
			server := memcachedtest.Start(b)
			counters := hierarchy.NewCounters(hierarchy.Config{Store: storestest.OpenFleet(b, clock, server.Addr), Clock: clock})
			if present {
				fill(b, counters, counter)
			}
			var buckets []uint64
			cover := hierarchy.CoverOf(hierarchy.WindowAt(notesMoment, 24*time.Hour), hierarchy.Second, hierarchy.Day)
			for bucket := range cover.Buckets() {
				buckets = append(buckets, bucket.ID())
			}
			keys := memcache.Keys(counter.ID(), buckets)
			bare := gomemcache.New(server.Addr)
			bare.Timeout = 20 * time.Second
			defer bare.Close()

			var ours, theirs time.Duration
			count := func() {
				start := time.Now()
				if _, err := counters.Count(b.Context(), counter, 24*time.Hour, notesMoment); err != nil {
					b.Fatal(err)
				}
				ours += time.Since(start)
			}
			getMulti := func() {
				start := time.Now()
				if _, err := bare.GetMulti(keys); err != nil {
					b.Fatal(err)
				}
				theirs += time.Since(start)
			}
			for i := 0; b.Loop(); i++ {
				if i%2 == 0 { // neither has the other's wake always
					count()
					getMulti()
				} else {
					getMulti()
					count()
				}
			}
			b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "µs/count")
			b.ReportMetric(float64(theirs.Microseconds())/float64(b.N), "µs/GetMulti")
			b.ReportMetric(float64(ours)/float64(theirs), "ratio")
		})
	}
}
