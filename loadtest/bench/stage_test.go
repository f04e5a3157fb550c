package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/memcached"
)

// onMemcached returns a stage on a real server.
func onMemcached(t *testing.T) *stage {
	t.Helper()
	s := newStage(Config{sizes: sizes{timeout: 30 * time.Second}})
	s.fleet = &fleet.Fleet{Servers: []*child.Child{{Addr: memcachedtest.Start(t).Addr}}}
	t.Cleanup(func() { assert.NoError(t, s.close()) })
	return s
}

// Each call of the store is a trip, also a rollback and a reset.
func TestCallsOfTheStoreAreCounted(t *testing.T) {
	kept, trips, err := onMemcached(t).store(t.Context(), time.Now, 30*time.Second)
	require.NoError(t, err)
	expires := time.Now().Add(time.Hour).Unix()
	values := make([]int64, 5)
	landed, err := storetest.Trip(t.Context(), kept, "c", 2, []uint64{1, 2}, []int64{expires, expires}, []uint64{1, 2, 3}, values)
	require.NoError(t, err)
	assert.Equal(t, 2, landed.On(0))
	_, err = storetest.Trip(t.Context(), kept, "d", 1, nil, nil, []uint64{4}, values[:1])
	require.NoError(t, err)
	require.NoError(t, storetest.RollBack(t.Context(), kept, "c", 2, []uint64{1}, store.Receipt{List: landed.List, Acknowledged: [store.MaxReplicas]uint32{1}}))
	require.NoError(t, storetest.Delete(t.Context(), kept, "c", []uint64{1, 2}))
	assert.EqualValues(t, 4, trips.Load())
}

// Each bucket of each counter is an item that holds one.
func TestFill(t *testing.T) {
	s := onMemcached(t)
	counters, err := countersOf("e", 3)
	require.NoError(t, err)
	require.NoError(t, s.fill(t.Context(), counters, dayOf(opened)))
	stats, err := memcached.Read(s.memcached())
	require.NoError(t, err)
	assert.EqualValues(t, 3*142+1, stats.Items, "and the instance marker")
	kept, _, err := s.store(t.Context(), frozen, s.config.sizes.timeout)
	require.NoError(t, err)
	values := make([]int64, 142)
	_, err = storetest.Trip(t.Context(), kept, counters[2].ID(), 0, nil, nil, dayOf(opened), values)
	require.NoError(t, err)
	for _, value := range values {
		assert.EqualValues(t, 1, value)
	}
}
