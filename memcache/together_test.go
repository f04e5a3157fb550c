package memcache_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// Ops that go together are each answered with their own values, however many there are, beside other callers.
func TestOpsThatGoTogether(t *testing.T) {
	leaktest.Check(t)
	server := memcachedtest.Start(t)
	for _, conns := range []int{1, 2} {
		fleet, _ := openTold(t, memcache.Config{Servers: []string{server.Addr}, Protocol: memcache.Meta, Conns: conns, Timeout: maxWait})
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() {
				for round, n := range []int{1, 2, 63, 64, 65, 300, 1000} {
					var ops []*store.Op
					for i := range n {
						counter := fmt.Sprintf("counter %d of %d in %d, %d", i, caller, round, conns)
						ops = append(ops, storetest.Op(counter, int64(i+1), []uint64{1, 2}, []int64{later(), later()}, []uint64{1, 3}))
					}
					fleet.Do(t.Context(), ops...)
					for i, op := range ops {
						if !assert.NoError(t, op.Err) {
							return
						}
						assert.EqualValues(t, i+1, op.Writes[0].Result, i)
						assert.EqualValues(t, i+1, op.Reads[0].Value, i)
						assert.Zero(t, op.Reads[1].Value, i)
					}
				}
			})
		}
		callers.Wait()
		require.NoError(t, fleet.Ping(t.Context())[server.Addr])
	}
}
