package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/store"
	"github.com/counterd/counterd/store/storetest"
)

func TestCountedStore(t *testing.T) {
	s := &countedStore{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}
	expires := time.Now().Add(time.Hour).Unix()
	values := make([]int64, 5)
	landed, err := storetest.Trip(t.Context(), s, "c", 2, []uint64{1, 2}, []int64{expires, expires}, []uint64{1, 2, 3}, values)
	require.NoError(t, err)
	assert.Equal(t, 2, landed.On(0))
	assert.Equal(t, []int64{2, 2, 2, 2, 0}, values, "it changes nothing")
	landed, err = storetest.Trip(t.Context(), s, "d", 1, nil, nil, []uint64{4}, values[:1])
	require.NoError(t, err)
	assert.True(t, landed.None())
	require.NoError(t, storetest.RollBack(t.Context(), s, "c", 2, []uint64{1}, store.Acknowledged(1)))
	require.NoError(t, storetest.Delete(t.Context(), s, "c", []uint64{1, 2}))
	assert.EqualValues(t, 4, s.counts.trips.Load())
	assert.EqualValues(t, 2, s.counts.adds.Load())
	assert.EqualValues(t, 4, s.counts.reads.Load())
}
