package repair

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
)

// Features that were chosen to lie in one place of the list's table make it grow no more than
// others.
func TestChosenFeaturesTakeNoMoreMemory(t *testing.T) {
	const n = 300 // would be two megabytes: a place for 512, and the 255 others of its kind
	var ids []string
	id := []byte("feature ")
	for i := 0; len(ids) < n; i++ { // freecache, left alone, keeps them in one place
		id = strconv.AppendInt(id[:len("feature ")], int64(i), 10)
		if xxhash.Sum64(id)&0xffff == 0x1234 {
			ids = append(ids, string(id))
		}
	}
	list := newCensus(DefaultMaxBytes, time.Now)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, id := range ids {
		assert.True(t, list.note(Counter{id, 0, 3, time.Hour}, time.Now()))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(1<<20))
	assert.Equal(t, n, list.len())
}
