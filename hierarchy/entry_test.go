package hierarchy

import (
	"runtime"
	"strconv"
	"testing"

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

// Features that were chosen to lie in one place of the cache's table make it grow no more
// than others.
func TestChosenFeaturesTakeNoMoreMemory(t *testing.T) {
	const n = 600 // would be four megabytes: a place for 1,024, and the 255 others of its kind
	ids := chosen(n)
	cache := newBucketCache(0)
	assert.Less(t, grown(func() {
		for _, id := range ids {
			cache.keep(cache.appendKey(nil, id), make([]byte, recordBytes))
		}
	}), int64(1<<20), "the cache of buckets")
	assert.Equal(t, int64(n), cache.entries.EntryCount())
	runtime.KeepAlive(cache)
}
