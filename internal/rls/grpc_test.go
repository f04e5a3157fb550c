package rls_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// serve starts a process, as it were, on a memcached server, and returns a client of it.
func serve(t *testing.T, memcached string, timeout time.Duration) rlsv3.RateLimitServiceClient {
	t.Helper()
	fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{memcached}, Timeout: timeout})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, fleet.Close()) })
	config, err := rlsconfig.Parse([]rlsconfig.File{{Name: "limits.yaml", Text: []byte(`
domain: ten
descriptors:
  - {key: k, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 1000}}
`)}})
	require.NoError(t, err)
	limits := func() *rlsconfig.Config { return config }
	server := newServer(t, fleet, nil, setting{timeout: timeout}, limits, io.Discard).NewGRPC(nil)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := connections.NewListener(inner, 0)
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, server.Serve(listener)) })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		server.GracefulStop()
		serving.Wait()
	})
	return rlsv3.NewRateLimitServiceClient(conn)
}

// Three processes and 200 calls at once on ten an hour: exactly ten are admitted, and a call that is denied takes nothing
// of a limit that all share.
func TestThreeProcessesAdmitExactlyTheLimit(t *testing.T) {
	leaktest.Check(t)
	memcached := memcachedtest.Start(t)
	var clients []rlsv3.RateLimitServiceClient
	for range 3 {
		clients = append(clients, serve(t, memcached.Addr, 20*time.Second))
	}
	ask := func(process int, descriptors ...*descriptor) *response {
		answer, err := clients[process].ShouldRateLimit(t.Context(), &request{Domain: "ten", Descriptors: descriptors})
		if !assert.NoError(t, err) {
			return &response{}
		}
		return answer
	}
	atOnce := func(descriptors ...*descriptor) int64 {
		var admitted atomic.Int64
		var calls sync.WaitGroup
		for i := range 200 {
			calls.Go(func() {
				if ask(i%3, descriptors...).OverallCode == ok {
					admitted.Add(1)
				}
			})
		}
		calls.Wait()
		return admitted.Load()
	}
	for round := range 3 {
		assert.EqualValues(t, 10, atOnce(of("k", fmt.Sprint("alone ", round))))
		both := []*descriptor{of("k", fmt.Sprint("both ", round)), of("all", "")}
		admitted := atOnce(both...)
		assert.LessOrEqual(t, admitted, int64(10))
		for ; admitted < 10; admitted++ { // contention on two counters may have denied what fits
			require.Equal(t, ok, ask(0, both...).OverallCode)
		}
		assert.Equal(t, over, ask(0, both...).OverallCode)
		assert.EqualValues(t, 1000-10*(round+1), ask(1, costing(0, of("all", ""))).Statuses[0].LimitRemaining)
	}
}
