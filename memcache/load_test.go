package memcache_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// Many callers on few connections: each gets its own answers, and at the end nothing
// is missing.
func TestEachCallerGetsItsOwnAnswers(t *testing.T) {
	onEveryServer(t, func(t *testing.T, _ *memcachedtest.Server, config memcache.Config) {
		config.Conns = 1
		fleet := openConfig(t, config)
		const callers, trips = 32, 50
		var running sync.WaitGroup
		for caller := range callers {
			running.Go(func() {
				counter, by := fmt.Sprint(caller), int64(caller+1)
				values := make([]int64, 5)
				for n := int64(1); n <= trips; n++ {
					landed, err := storetest.Trip(t.Context(), fleet, counter, by, []uint64{1, 2}, []int64{later(), later()}, []uint64{2, 3, 1}, values)
					if err != nil || landed.On(0) != 2 || [5]int64(values) != [5]int64{n * by, n * by, n * by, 0, n * by} {
						t.Errorf("caller %d, trip %d: %v landed, %v: %v", caller, n, landed, values, err)
						return
					}
				}
			})
		}
		running.Wait()
	})
}

// A trip that is larger than what both sockets hold, on its own and behind others.
func TestATripBeyondAllBuffers(t *testing.T) {
	fleet := openConfig(t, memcache.Config{Servers: []string{memcachedtest.StartUnix(t).Addr}, Protocol: memcache.Meta, Conns: 1})
	const size = 20_000
	buckets := make([]uint64, size)
	for i := range buckets {
		buckets[i] = uint64(i)
	}
	bounded(t, "a trip", func() {
		var running sync.WaitGroup
		for caller := range 4 {
			running.Go(func() {
				counter := fmt.Sprint(caller)
				for _, value := range add(t, fleet, counter, 5, buckets...) {
					assert.Equal(t, int64(5), value)
				}
				for _, value := range read(t, fleet, counter, buckets...) {
					assert.Equal(t, int64(5), value)
				}
				assert.NoError(t, storetest.RollBack(t.Context(), fleet, counter, 2, buckets, store.Acknowledged(len(buckets))))
				assert.NoError(t, storetest.Delete(t.Context(), fleet, counter, buckets[1:]))
				assert.Equal(t, []int64{3, 0, 0}, read(t, fleet, counter, 0, 1, size-1))
			})
		}
		running.Wait()
	})
}

// A server that is killed and comes back empty, under load: no count is higher than
// what was sent, none lower than what was acknowledged since it is back.
func TestAServerThatIsKilledUnderLoad(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := memcachedtest.StartMemory(t)
		fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, Protocol: memcache.Meta})
		const callers = 32
		var sent [callers]int64
		var kept [callers]atomic.Int64
		var back, over atomic.Bool
		var running sync.WaitGroup
		for caller := range callers {
			running.Go(func() {
				values := make([]int64, 2)
				for !over.Load() {
					fresh := back.Load()
					sent[caller]++
					landed, err := storetest.Trip(context.Background(), fleet, fmt.Sprint(caller), 1, []uint64{1}, []int64{later()}, []uint64{1}, values)
					if fresh && landed.On(0) == 1 {
						kept[caller].Add(1)
					}
					time.Sleep(time.Millisecond)
					if err == nil && (values[0] > sent[caller] || values[1] > sent[caller]) {
						t.Errorf("%v after %d adds", values, sent[caller])
					}
				}
			})
		}
		for range 3 {
			time.Sleep(50 * time.Millisecond)
			server.Stop()
			time.Sleep(20 * time.Millisecond)
			server.Restart()
		}
		require.Eventually(t, func() bool { // a probe has found it
			_, err := storetest.Trip(context.Background(), fleet, "back", 0, nil, nil, []uint64{1}, make([]int64, 1))
			return err == nil
		}, maxWait, time.Millisecond)
		back.Store(true)
		assert.Eventually(t, func() bool { // connecting anew may take a while
			for caller := range kept {
				if kept[caller].Load() == 0 {
					return false
				}
			}
			return true
		}, maxWait, 10*time.Millisecond)
		over.Store(true)
		bounded(t, "a trip", running.Wait)
		for caller := range callers {
			value := read(t, fleet, fmt.Sprint(caller), 1)[0]
			assert.GreaterOrEqual(t, value, kept[caller].Load())
			assert.LessOrEqual(t, value, sent[caller])
		}
	})
}
