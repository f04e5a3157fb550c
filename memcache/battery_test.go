package memcache_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// everyStore opens the stores of the battery, by name: real servers, servers in this process and the embedded store.
var everyStore = map[string]func(t *testing.T) store.Store{
	"embedded": func(*testing.T) store.Store { return memcache.NewEmbedded(memcache.EmbeddedConfig{}) },
	"embedded, together": func(*testing.T) store.Store {
		return togetherStore{memcache.NewEmbedded(memcache.EmbeddedConfig{})}
	},
	"in memory, meta": func(t *testing.T) store.Store {
		return openFleetOf(t, memcache.Meta, memcachedtest.StartMemory(t).Addr)
	},
	"in memory, two replicas, classic": func(t *testing.T) store.Store {
		return openReplicas(t, 2, memcache.Classic, slices.Collect(maps.Keys(memories(t, 3)))...)
	},
	"meta, together": func(t *testing.T) store.Store {
		return togetherStore{openFleetOf(t, memcache.Meta, memcachedtest.Start(t).Addr)}
	},
	"classic":     func(t *testing.T) store.Store { return openFleetOf(t, memcache.Classic, memcachedtest.Start(t).Addr) },
	"unix socket": func(t *testing.T) store.Store { return openFleet(t, memcachedtest.StartUnix(t).Addr) },
	"three replicas, classic, together": func(t *testing.T) store.Store {
		return togetherStore{openReplicas(t, 3, memcache.Classic, memcachedtest.StartMany(t, 3)...)}
	},
	"two replicas, key secret": func(t *testing.T) store.Store {
		return openConfig(t, memcache.Config{Servers: memcachedtest.StartMany(t, 3), KeySecret: aSecret, Replicas: 2})
	},
	"meta, mutual TLS, password": func(t *testing.T) store.Store {
		demands := securities(t)["mutual, password"]
		return openConfig(t, secured(t, demands, memcache.Config{Servers: []string{startServer(t, demands).Addr}, Protocol: memcache.Meta}))
	},
	"classic, TLS": func(t *testing.T) store.Store {
		demands := securities(t)["TLS"]
		return openConfig(t, secured(t, demands, memcache.Config{Servers: []string{startServer(t, demands).Addr}, Protocol: memcache.Classic}))
	},
}

// togetherStore makes each round trip together with another one.
type togetherStore struct{ store.Store }

func (s togetherStore) Do(ctx context.Context, ops ...*store.Op) {
	s.Store.Do(ctx, append(ops, &store.Op{Counter: "company", Reads: []store.Read{{Item: 1}}})...)
}

// TestStores is the battery: what every store does, each part on counters of its own.
func TestStores(t *testing.T) {
	for name, open := range everyStore {
		t.Run(name, func(t *testing.T) {
			kept := open(t)
			for part, test := range map[string]func(t *testing.T, kept store.Store, c string){
				"trips": tripsAddAndRead, "delete": deletes, "rollback": rollsBack, "many reads": manyReadsInOneTrip,
				"large numbers": largeNumbers, "races to create": racesToCreate, "canceled": canceled,
				"many trips": manyTripsOfOneCaller, "expiry under adds": expiresUnderAdds,
				"data": func(t *testing.T, kept store.Store, _ string) { storetest.Data(t, kept) },
			} {
				t.Run(part, func(t *testing.T) { test(t, kept, part) })
			}
		})
	}
}

// TestStoresExpire runs the part of the battery that waits, in bubbles.
func TestStoresExpire(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"embedded": everyStore["embedded"], "meta": everyStore["in memory, meta"], "two replicas, classic": everyStore["in memory, two replicas, classic"],
	} {
		inBubble(t, name, func(t *testing.T) { storetest.DataExpires(t, open(t)) })
	}
}

func tripsAddAndRead(t *testing.T, kept store.Store, c string) {
	assert.Equal(t, []int64{0, 0}, read(t, kept, c, 1, 2), "what is not there is zero")
	assert.Equal(t, []int64{3, 3}, add(t, kept, c, 3, 1, 2))
	assert.Equal(t, []int64{5}, add(t, kept, c, 2, 2))
	assert.Equal(t, []int64{5, 0, 3}, read(t, kept, c, 2, 3, 1))
	assert.Equal(t, []int64{0}, read(t, kept, "another", 1), "counters are apart")

	values := make([]int64, 3)
	landed, err := storetest.Trip(t.Context(), kept, c, 10, []uint64{1}, []int64{later()}, []uint64{2, 1}, values)
	require.NoError(t, err)
	assert.NotZero(t, landed)
	assert.Equal(t, []int64{13, 5, 13}, values, "the reads see the adds")
}

func deletes(t *testing.T, kept store.Store, c string) {
	add(t, kept, c, 1, 1, 2, 3)
	add(t, kept, c+" 2", 1, 1)
	require.NoError(t, storetest.Delete(t.Context(), kept, c, []uint64{1, 3, 4}))
	assert.Equal(t, []int64{0, 1, 0, 0}, read(t, kept, c, 1, 2, 3, 4))
	assert.Equal(t, []int64{1}, read(t, kept, c+" 2", 1))
	require.NoError(t, storetest.Delete(t.Context(), kept, "never seen", []uint64{1}))
}

func rollsBack(t *testing.T, kept store.Store, c string) {
	add(t, kept, c, 9, 1, 2)
	landed := landedOf(t, kept, c, 91, 1, 3)
	require.NoError(t, storetest.Delete(t.Context(), kept, c, []uint64{3}))
	require.NoError(t, storetest.RollBack(t.Context(), kept, c, 91, []uint64{1, 3}, landed))
	assert.Equal(t, []int64{9, 9, 0}, read(t, kept, c, 1, 2, 3), "nothing is created")
	landed = landedOf(t, kept, c, 1, 1)
	require.NoError(t, storetest.RollBack(t.Context(), kept, c, 11, []uint64{1}, landed))
	assert.Equal(t, []int64{0}, read(t, kept, c, 1), "nothing goes below zero")
	assert.Equal(t, []int64{2}, add(t, kept, c, 2, 3))
	require.NoError(t, storetest.RollBack(t.Context(), kept, c, 1, []uint64{3}, store.Acknowledged(0)))
	assert.Equal(t, []int64{2}, read(t, kept, c, 3), "nothing landed")
}

func manyReadsInOneTrip(t *testing.T, kept store.Store, c string) {
	buckets, want := make([]uint64, 1000), make([]int64, 1000)
	for i := range buckets {
		buckets[i] = uint64(i) << 20
		if i%70 == 0 {
			want[i] = int64(i + 1)
			add(t, kept, c, want[i], buckets[i])
		}
	}
	assert.Equal(t, want, read(t, kept, c, buckets...))
}

func largeNumbers(t *testing.T, kept store.Store, c string) {
	const most = 1<<40 - 1
	add(t, kept, c, 1_000_000, most, 0)
	for range 11 {
		add(t, kept, c, 1_000_000_000, most)
	}
	assert.Equal(t, []int64{11_001_000_000, 1_000_000}, read(t, kept, c, most, 0))
}

// copied reports whether the store keeps several copies.
func copied(kept store.Store) bool { return kept.Capabilities().Replicated() }

// A bucket that many create at once loses nothing, and gives each a sum of its own; if it has several copies, no lower
// one.
func racesToCreate(t *testing.T, kept store.Store, c string) {
	const goroutines, rounds = 32, 50
	values := make([][goroutines]int64, rounds)
	var running sync.WaitGroup
	for g := range goroutines {
		running.Go(func() {
			value := make([]int64, 1)
			for round := range rounds {
				landed, err := storetest.Trip(t.Context(), kept, c, 1, []uint64{uint64(round)}, []int64{later()}, nil, value)
				if err != nil || landed.None() {
					t.Errorf("round %d: %v landed: %v", round, landed, err)
					return
				}
				values[round][g] = value[0]
			}
		})
	}
	running.Wait()
	for round := range rounds {
		slices.Sort(values[round][:])
		for i, value := range values[round] {
			own := int64(i) + 1
			require.True(t, value == own || copied(kept) && value > own && value <= goroutines, "round %d: %v", round, values[round])
		}
	}
	require.Equal(t, []int64{goroutines, goroutines}, read(t, kept, c, 0, rounds-1))
}

// Trips of a canceled context change nothing, and fail, each of them.
func canceled(t *testing.T, kept store.Store, c string) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ops := []*store.Op{storetest.Op(c, 1, []uint64{1}, []int64{later()}, nil), storetest.Op(c+" 2", 1, []uint64{1}, []int64{later()}, nil)}
	kept.Do(ctx, ops...)
	for _, op := range ops {
		assert.True(t, op.Receipt.None())
		assert.ErrorIs(t, op.Err, context.Canceled)
		assert.Equal(t, []int64{0}, read(t, kept, op.Counter, 1))
	}
	require.ErrorIs(t, storetest.Delete(ctx, kept, c, []uint64{1}), context.Canceled)
}

// One caller may have many trips under way, more than there are connections.
func manyTripsOfOneCaller(t *testing.T, kept store.Store, c string) {
	const trips, rounds = 300, 2
	for round := range int64(rounds) {
		ops := make([]*store.Op, trips)
		for i := range ops {
			ops[i] = storetest.Op(fmt.Sprint(c, i), int64(i), []uint64{1}, []int64{later()}, []uint64{2})
		}
		kept.Do(t.Context(), ops...)
		for i, op := range ops {
			require.NoError(t, op.Err)
			require.False(t, op.Receipt.None())
			require.Equal(t, int64(i)*(round+1), op.Writes[0].Result)
			require.Zero(t, op.Reads[0].Value)
			op.RollBack(op.Counter, op.Writes, op.Receipt, 0)
		}
		kept.Do(t.Context(), ops...)
		for _, op := range ops {
			require.NoError(t, op.Err)
		}
	}
}

// A bucket expires between the increment that found it and the one after, again and again: the adds go on and none fails.
func expiresUnderAdds(t *testing.T, kept store.Store, c string) {
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			value := make([]int64, 1)
			for range 100 {
				// The least time to live: a second, and often less.
				_, err := storetest.Trip(t.Context(), kept, c, 1, []uint64{1}, []int64{time.Now().Unix()}, nil, value)
				if !assert.NoError(t, err) || !assert.Positive(t, value[0]) {
					return
				}
			}
		})
	}
	running.Wait()
}
