package memcache

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// BenchmarkTrips makes trips of four adds and three reads on 10,000 counters, on
// both paths.
func BenchmarkTrips(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		for _, protocol := range []Protocol{Meta, Classic} {
			b.Run(fmt.Sprintf("%s/callers=%d", protocol, callers), func(b *testing.B) {
				benchmarkTrips(b, Config{Protocol: protocol}, callers)
			})
		}
	}
}

// BenchmarkPipes measures how many connections the callers of the meta path should
// share.
func BenchmarkPipes(b *testing.B) {
	for _, callers := range []int{16, 64} {
		for _, conns := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("conns=%d/callers=%d", conns, callers), func(b *testing.B) {
				benchmarkTrips(b, Config{Protocol: Meta, Conns: conns}, callers)
			})
		}
	}
}

func benchmarkTrips(b *testing.B, config Config, callers int) {
	server := memcachedtest.Start(b)
	config.Servers, config.Timeout = []string{server.Addr}, 10*time.Second
	fleet, err := NewFleet(b.Context(), config)
	require.NoError(b, err)
	defer fleet.Close()
	for _, s := range fleet.servers { // also beyond the bound that it measures
		if config.Protocol == Meta && config.Conns > memproto.MaxPipelined {
			s.pipeline = memproto.NewPipeline(s.dialMeta, config.Conns, config.Timeout)
		}
	}
	counters := make([]string, 10_000)
	for i := range counters {
		counters[i] = "counter " + strconv.Itoa(i)
	}
	expires := time.Now().Add(time.Hour).Unix()
	var next atomic.Int64
	trips := func(n int64) {
		var running sync.WaitGroup
		var left atomic.Int64
		left.Store(n)
		for range callers {
			running.Go(func() {
				adds, reads := []uint64{1, 2, 3, 4}, []uint64{5, 6, 3}
				until, values := []int64{expires, expires, expires, expires}, make([]int64, 7)
				for left.Add(-1) >= 0 {
					counter := counters[next.Add(1)%int64(len(counters))]
					if _, err := storetest.Trip(context.Background(), fleet, counter, 1, adds, until, reads, values); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		running.Wait()
	}
	trips(20_000) // every counter is there, every connection open
	b.ReportAllocs()
	b.ResetTimer()
	trips(int64(b.N))
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "trips/s")
}
