package memcache_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/memcache"
)

func TestEmbeddedBucketsExpire(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
		counters := hierarchy.NewCounters(hierarchy.Config{Store: store})
		for _, retention := range []time.Duration{10 * time.Second, 24 * time.Hour, events.MaxRetention} {
			counter := eventCounter(t, retention)
			at, err := counters.Increment(t.Context(), 1, time.Time{}, counter)
			require.NoError(t, err)
			for bucket := range hierarchy.BucketsOf(counter, at.Unix()) {
				expires := time.Unix(bucket.Expires(retention, hierarchy.DefaultGrace), 0)
				time.Sleep(time.Until(expires) - time.Nanosecond)
				require.Equal(t, []int64{1}, read(t, store, counter.ID(), bucket.ID()), "%s of %s: the moment before", bucket.Level, retention)
				time.Sleep(time.Nanosecond)
				require.Equal(t, []int64{0}, read(t, store, counter.ID(), bucket.ID()), "%s of %s: the moment after", bucket.Level, retention)
			}
		}
	})
}

// As on Memcached, a bucket keeps the expiry it was created with, and one that
// expired begins again.
func TestEmbeddedBucketsKeepTheirExpiry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
		value := make([]int64, 1)
		trip := func(life time.Duration) int64 {
			_, err := storetest.Trip(t.Context(), store, "a", 1, []uint64{1}, []int64{time.Now().Add(life).Unix()}, nil, value)
			require.NoError(t, err)
			return value[0]
		}
		assert.Equal(t, int64(1), trip(10*time.Second))
		assert.Equal(t, int64(2), trip(time.Hour))
		time.Sleep(10 * time.Second)
		assert.Equal(t, int64(1), trip(-time.Hour), "what should be gone already lives a second")
		assert.Equal(t, int64(2), trip(time.Hour))
		time.Sleep(time.Second)
		assert.Equal(t, []int64{0}, read(t, store, "a", 1))
	})
}

func TestEmbeddedForgetsTheLeastRecentlyUsed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var reported int64
		store := memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: 600 * 1000, OnEvict: func(n int64) { reported = n }})
		for i := range 1000 {
			time.Sleep(time.Millisecond)
			add(t, store, fmt.Sprint("old ", i), 1, 1)
			require.LessOrEqual(t, store.Bytes(), int64(600*1000))
		}
		require.Zero(t, store.Evicted(), "all of them fit")
		require.Zero(t, reported)
		for i := range 500 { // used again, by a read as well as by an add
			time.Sleep(time.Millisecond)
			if i%2 == 0 {
				read(t, store, fmt.Sprint("old ", i), 1)
			} else {
				add(t, store, fmt.Sprint("old ", i), 1, 1)
			}
		}
		for i := 0; store.Evicted() < 450; i++ {
			time.Sleep(time.Millisecond)
			add(t, store, fmt.Sprint("new ", i), 1, 1)
			require.LessOrEqual(t, store.Bytes(), int64(600*1000))
		}
		require.Equal(t, store.Evicted(), reported)
		var gone int64
		for i := range 1000 {
			value := read(t, store, fmt.Sprint("old ", i), 1)[0]
			if i < 500 {
				require.Equal(t, 1+int64(i%2), value, "old %d was used of late", i)
			} else if value == 0 {
				gone++
			}
		}
		require.Equal(t, store.Evicted(), gone, "the others went")
	})
}

// Memory that expired counters hold is no reason to evict a living one.
func TestEmbeddedPrefersTheExpired(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: 10 << 20})
		living := func(i int) string { return fmt.Sprint("living ", i) }
		for i := range 2000 {
			add(t, store, living(i), 1, 1)
		}
		for second := range 60 {
			for i := range 1000 {
				_, err := storetest.Trip(t.Context(), store, fmt.Sprint(second, " ", i), 1, []uint64{1}, []int64{time.Now().Unix() + 10}, nil, make([]int64, 1))
				require.NoError(t, err)
			}
			time.Sleep(time.Second)
		}
		assert.Zero(t, store.Evicted())
		for i := range 2000 {
			require.Equal(t, []int64{1}, read(t, store, living(i), 1))
		}
	})
}

// What a counter had room for is given back when little of it is left.
func TestEmbeddedGivesBackRoom(t *testing.T) {
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
	var all []uint64
	before := heap()
	for i := range uint64(200_000) {
		add(t, store, "a", 1, i)
		all = append(all, i)
	}
	assert.GreaterOrEqual(t, store.Bytes(), int64(200_000*64))
	require.NoError(t, storetest.Delete(t.Context(), store, "a", all[1:]))
	assert.LessOrEqual(t, store.Bytes(), int64(1000))
	assert.Less(t, heap()-before-int64(cap(all)*8), int64(1<<20))
	assert.Equal(t, []int64{1}, read(t, store, "a", 0))
	runtime.KeepAlive(all)
}

// One counter that is added to every second keeps no more buckets than are alive.
func TestEmbeddedPurgesABusyCounter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
		const life = 600
		var most int64
		for second := range uint64(20 * life) {
			_, err := storetest.Trip(t.Context(), store, "a", 1, []uint64{second}, []int64{time.Now().Unix() + life}, nil, make([]int64, 1))
			require.NoError(t, err)
			most = max(most, store.Bytes())
			time.Sleep(time.Second)
		}
		assert.Less(t, most, int64(3*life*64), "twice the living, at the most")
	})
}

// What the store reckons is a bound on what it takes.
func TestEmbeddedMemoryIsBounded(t *testing.T) {
	const maxBytes = 64 << 20
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: maxBytes})
	before := heap()
	for i := range 200_000 {
		add(t, store, fmt.Sprintf("a feature with a value of some length %d", i), 1, uint64(i), 1<<38, 2<<38, 3<<38)
	}
	after := heap()
	assert.Positive(t, store.Evicted())
	assert.LessOrEqual(t, store.Bytes(), int64(maxBytes))
	assert.LessOrEqual(t, after-before, store.Bytes(), "what the store reckons is no less than what it takes")
	runtime.KeepAlive(store)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Adds, reads, deletes and evictions of few counters on many goroutines: for the
// race detector, and for the reckoning, which must come out even.
func TestEmbeddedUnderConcurrency(t *testing.T) {
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: 40_000})
	var running sync.WaitGroup
	for g := range 16 {
		running.Go(func() {
			for i := range 3000 {
				name := fmt.Sprint((i*7 + g) % 100)
				switch i % 5 {
				case 0:
					read(t, store, name, 1, 2)
				case 1:
					assert.NoError(t, storetest.Delete(t.Context(), store, name, []uint64{1, 2, 3}))
				default:
					add(t, store, name, 1, uint64(i%3+1))
				}
			}
		})
	}
	running.Wait()
	assert.LessOrEqual(t, store.Bytes(), int64(40_000))
	for i := range 100 {
		require.NoError(t, storetest.Delete(t.Context(), store, fmt.Sprint(i), []uint64{1, 2, 3}))
	}
	assert.Zero(t, store.Bytes())
}

// A purge drops what has expired and nothing that has a second left.
func TestEmbeddedPurgeKeepsTheLiving(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
		now := time.Now().Unix()
		for i := range uint64(1000) { // every tenth lives one second more, the others not
			life := int64(1)
			if i%10 == 0 {
				life = 2
			}
			_, err := storetest.Trip(t.Context(), store, "a", 1, []uint64{i}, []int64{now + life}, nil, make([]int64, 1))
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		for i := range uint64(2000) { // purges on the way
			add(t, store, "a", 1, 1<<30+i)
		}
		for i := range uint64(1000) {
			want := int64(0)
			if i%10 == 0 {
				want = 1
			}
			require.Equal(t, []int64{want}, read(t, store, "a", i), "bucket %d", i)
		}
	})
}

// A counter is not expired before the last of its buckets is, whichever was made last.
func TestEmbeddedKeepsACounterUntilItsLastBucketExpires(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
		now := time.Now().Unix()
		_, err := storetest.Trip(t.Context(), store, "old", 1, []uint64{2, 1}, []int64{now + 3600, now + 1}, nil, make([]int64, 2))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		for i := range 10_000 { // passes through every shard
			add(t, store, fmt.Sprint("new", i), 1, 1)
		}
		assert.Equal(t, []int64{1}, read(t, store, "old", 2))
	})
}

// Items of bytes take of the same memory as counts, and go with their counter.
func TestEmbeddedDataIsBounded(t *testing.T) {
	const most = 4 << 20
	kept := memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: most})
	text := strings.Repeat("x", 10_000)
	for i := range 2000 {
		done(t, kept, dataOp(fmt.Sprint(i), []store.Write{create(storetest.DataItem(1), text), appended(storetest.DataItem(1), text)}))
		require.LessOrEqual(t, kept.Bytes(), int64(most))
	}
	require.Greater(t, kept.Evicted(), int64(1500))
	require.Equal(t, text+text, string(done(t, kept, dataOp("1999", nil, storetest.DataItem(1))).Reads[0].Data))
	require.Zero(t, done(t, kept, dataOp("0", nil, storetest.DataItem(1))).Reads[0].Version, "the least recently used went first")

	empty := memcache.NewEmbedded(memcache.EmbeddedConfig{})
	for range 3 {
		done(t, empty, dataOp("a", []store.Write{create(storetest.DataItem(1), text)}))
		add(t, empty, "a", 1, 1)
		version := done(t, empty, dataOp("a", nil, storetest.DataItem(1))).Reads[0].Version
		done(t, empty, dataOp("a", []store.Write{swapped(storetest.DataItem(1), version, "short")}))
		require.Less(t, empty.Bytes(), int64(len(text)))
		require.NoError(t, storetest.Delete(t.Context(), empty, "a", []uint64{storetest.DataItem(1), 1}))
		done(t, empty, dataOp("missing", nil, storetest.DataItem(1)))
		require.Zero(t, empty.Bytes(), "nothing is left")
	}
}

// What has expired of a counter takes no memory any more, also of bytes that an add finds.
func TestEmbeddedReckonsBytesThatExpired(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := memcache.NewEmbedded(memcache.EmbeddedConfig{})
		for i := range int64(10) {
			done(t, kept, dataOp("a", []store.Write{create(storetest.DataItem(i), strings.Repeat("x", 10_000))}))
		}
		time.Sleep(2 * time.Hour)
		items := make([]uint64, 100) // so many that it looks at what has expired
		for i := range items {
			items[i] = uint64(i + 1)
			add(t, kept, "a", 1, items[i])
		}
		require.Less(t, kept.Bytes(), int64(20_000))
		require.NoError(t, storetest.Delete(t.Context(), kept, "a", items))
		require.Zero(t, kept.Bytes())
	})
}

// A limit whose counter may have been evicted says so, as on a Memcached server that is full: until its window has
// passed. Counters that stayed have lost nothing.
func TestEmbeddedEvictionsAreIncomplete(t *testing.T) {
	for _, algorithm := range []string{"sliding-window", "sliding-log", "token-bucket, burst: 500"} {
		t.Run(algorithm, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				kept := memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: 200_000})
				buckets := hierarchy.NewCounters(hierarchy.Config{Store: kept})
				logs, err := eventlog.New(buckets.Base())
				require.NoError(t, err)
				decider, err := limiter.New(limiter.Config{}, buckets, logs)
				require.NoError(t, err)
				rules, err := rulesfile.Parse([]byte("events: {login: {limits: [{per: user, rate: 500/10m, algorithm: " + algorithm + "}]}}"))
				require.NoError(t, err)
				hit := func(user string) events.Decision { // of a user but the victim the limit holds 500
					t.Helper()
					cost := int64(1)
					if user == "victim" {
						cost = 100
					}
					d, err := decider.Hit(t.Context(), limiter.Hit{Event: rules.Events["login"], Features: events.Features{"user": user}, Cost: cost})
					require.NoError(t, err)
					return d
				}
				for range 5 {
					require.True(t, hit("victim").Allowed)
				}
				require.False(t, hit("victim").Allowed)
				time.Sleep(10 * time.Second)
				require.False(t, hit("stays").Limits[0].Incomplete, "nothing was evicted yet")
				for i := range 2000 {
					if i%20 == 0 {
						hit("stays")
					}
					hit(fmt.Sprint("other ", i))
					time.Sleep(time.Millisecond)
				}
				require.Positive(t, kept.Evicted())
				require.False(t, hit("stays").Limits[0].Incomplete, "it has lost nothing")
				d := hit("victim")
				require.True(t, d.Allowed, "it begins again")
				require.True(t, d.Limits[0].Incomplete)
				check, err := decider.Check(t.Context(), limiter.Hit{Event: rules.Events["login"], Features: events.Features{"user": "new"}, Cost: 1})
				require.NoError(t, err)
				require.True(t, check.Limits[0].Incomplete, "it may have been evicted")
				require.WithinDuration(t, time.Now(), time.Unix(kept.Lost(), 0), 10*time.Second)
				time.Sleep(11 * time.Minute)
				require.False(t, hit("victim").Limits[0].Incomplete)
			})
		})
	}
}
