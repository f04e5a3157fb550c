package rls_test

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// BenchmarkShouldRateLimit is a call without gRPC around it: with one or four descriptors, each of one of 10,000 values with
// a counter of its own, 64 calls at a time.
func BenchmarkShouldRateLimit(b *testing.B) {
	stores := map[string]func(*testing.B) store.Store{
		"embedded": func(*testing.B) store.Store { return memcache.NewEmbedded(memcache.EmbeddedConfig{}) },
		"memcached": func(b *testing.B) store.Store {
			fleet, err := memcache.NewFleet(b.Context(), memcache.Config{Servers: []string{memcachedtest.Start(b).Addr}, Timeout: 20 * time.Second})
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, fleet.Close()) })
			return fleet
		},
	}
	config, err := rlsconfig.Parse([]rlsconfig.File{{Name: "limits.yaml", Text: []byte(`
domain: bench
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: c, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: d, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
`)}})
	require.NoError(b, err)
	for name, open := range stores {
		for _, keys := range [][]string{{"a"}, {"a", "b", "c", "d"}} {
			b.Run(fmt.Sprintf("%s/%d", name, len(keys)), func(b *testing.B) {
				limits := func() *rlsconfig.Config { return config }
				server := newServer(b, open(b), nil, setting{timeout: 20 * time.Second}, limits, io.Discard)
				requests := make([]*request, 10_000)
				for i := range requests {
					requests[i] = &request{Domain: "bench"}
					for _, key := range keys {
						requests[i].Descriptors = append(requests[i].Descriptors, of(key, fmt.Sprint("10.0.0.", i)))
					}
				}
				var next atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(32)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						answer, err := server.ShouldRateLimit(b.Context(), requests[next.Add(7919)%10_000])
						if err != nil || answer.OverallCode != ok || answer.Statuses[0].CurrentLimit == nil {
							b.Fatal(answer, err)
						}
					}
				})
			})
		}
	}
}
