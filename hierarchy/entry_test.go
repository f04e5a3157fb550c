package hierarchy

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
)

// chosen returns IDs that freecache, left alone, keeps in one place.
func chosen(n int) (ids []string) {
	id := []byte("feature ")
	for i := int64(0); len(ids) < n; i++ {
		if id = strconv.AppendInt(id[:8], i, 10); xxhash.Sum64(id)&0xffff == 0x1234 {
			ids = append(ids, string(id))
		}
	}
	return ids
}

// grown returns by how many bytes the heap grows meanwhile.
func grown(do func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// Features that were chosen to lie in one place of a table with a known hash make the cache grow no more than others.
func TestChosenFeaturesTakeNoMoreMemory(t *testing.T) {
	const n = 600
	ids, cache := chosen(n), newClosedCache(0, time.Unix(0, 0))
	assert.Less(t, grown(func() {
		for _, id := range ids {
			var v closedView
			v.begin(cache, id, time.Unix(1, 0))
			v.add(1, 1)
			v.put(false)
		}
	}), int64(1<<20))
	assert.Equal(t, n, cache.len())
	runtime.KeepAlive(cache)
}
