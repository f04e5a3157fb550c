package memcache_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

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
