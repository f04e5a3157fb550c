package memcache

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// BenchmarkTrips makes trips of four adds and three reads on 10,000 counters, on
// both paths, and says what they cost each side.
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

// BenchmarkTLS measures what TLS costs a trip.
func BenchmarkTLS(b *testing.B) {
	authority := memcachedtest.NewAuthority(b)
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("plain/callers=%d", callers), func(b *testing.B) {
			benchmarkTrips(b, Config{Protocol: Meta}, callers)
		})
		b.Run(fmt.Sprintf("TLS/callers=%d", callers), func(b *testing.B) {
			server := memcachedtest.StartSecure(b, memcachedtest.Security{Authority: authority})
			config := Config{Protocol: Meta, TLS: func() (*tls.Config, error) { return authority.Client(), nil }}
			benchmarkTripsOn(b, server, config, callers)
		})
	}
}

func benchmarkTrips(b *testing.B, config Config, callers int) {
	benchmarkTripsOn(b, memcachedtest.Start(b), config, callers)
}

func benchmarkTripsOn(b *testing.B, server *memcachedtest.Server, config Config, callers int) {
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
	before, stats, calls := ownCPU(), server.Stats(""), systemCalls(b)
	b.ReportAllocs()
	b.ResetTimer()
	trips(int64(b.N))
	b.StopTimer()
	after, n := server.Stats(""), float64(b.N)
	b.ReportMetric(n/b.Elapsed().Seconds(), "trips/s")
	b.ReportMetric(float64((ownCPU()-before).Nanoseconds())/1e3/n, "us-client/op")
	b.ReportMetric((memcachedCPU(b, after)-memcachedCPU(b, stats))*1e6/n, "us-memcached/op")
	b.ReportMetric(float64(systemCalls(b)-calls)/n, "syscalls/op")
	bytes := func(name string) float64 { return statOf(b, after, name) - statOf(b, stats, name) }
	b.ReportMetric(bytes("bytes_read")/n, "B-sent/op")
	b.ReportMetric(bytes("bytes_written")/n, "B-received/op")
}

func ownCPU() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func memcachedCPU(b *testing.B, stats map[string]string) float64 {
	return statOf(b, stats, "rusage_user") + statOf(b, stats, "rusage_system")
}

func statOf(b *testing.B, stats map[string]string, name string) float64 {
	value, err := strconv.ParseFloat(stats[name], 64)
	require.NoError(b, err, name)
	return value
}

// systemCalls counts this process's reads and writes, where the system says so.
func systemCalls(b *testing.B) (calls int) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); name == "syscr" || name == "syscw" {
			n, err := strconv.Atoi(value)
			require.NoError(b, err)
			calls += n
		}
	}
	return calls
}
