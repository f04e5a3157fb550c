package hierarchy

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coocood/freecache"

	"github.com/counterd/counterd/internal/limiter/engine"
)

const (
	// DefaultCacheBytes bounds what is remembered of closed buckets where nothing else is set. The
	// buckets of one counter may take a thousandth of it, enough for 680.
	DefaultCacheBytes = 16 << 20

	// closedLife is how long a closed bucket is remembered, from the beginning of the
	// trip that read it.
	closedLife = time.Second
)

// bucketCache remembers what closed buckets hold, for at most a second. A bucket is
// closed when it ended more than twice the grace ago: no hit changes it any more.
// Late increments and resets do, and those of other processes are seen a second
// later; those of this process at once.
//
// It is bounded in bytes, and safe for concurrent use. It belongs to one store.
type bucketCache struct {
	entries *freecache.Cache // of the records of each counter, by its entry's key
	first   sync.Once
	epoch   time.Time
	seed    maphash.Seed
	// changes count the resets and settlements of this process, and what else it has changed in
	// closed buckets. The count is in the key of the counter's entry: so what was read before a
	// change is not found after it, also where the change names the counter by its alias.
	changes engine.Changes
	// asked has when a counter was last asked about, in milliseconds since the epoch and one, by
	// the hash in its key. Most counters of many are not asked about again while what was
	// read is remembered: there the cache would only cost time.
	asked [1 << 18]atomic.Uint32

	_            [64]byte // what all callers write is on no cache line that others read
	hits, misses atomic.Int64
}

// CacheStats is what was asked of closed buckets that are remembered, so far.
type CacheStats struct {
	Hits   int64 // closed buckets that were wanted and known, and so not read
	Misses int64 // closed buckets that were read
}

// stats returns what was asked of the cache so far.
func (c *bucketCache) stats() CacheStats { return CacheStats{c.hits.Load(), c.misses.Load()} }

// count adds to the stats.
func (c *bucketCache) count(hits, misses int) {
	if hits > 0 {
		c.hits.Add(int64(hits))
	}
	if misses > 0 {
		c.misses.Add(int64(misses))
	}
}

// newBucketCache returns a cache of so many bytes, at least half a megabyte; 0:
// DefaultCacheBytes. It takes them at once, so that no hit has to wait for that.
func newBucketCache(maxBytes int) *bucketCache {
	if maxBytes <= 0 {
		maxBytes = DefaultCacheBytes
	}
	return &bucketCache{entries: freecache.NewCache(maxBytes), seed: maphash.MakeSeed()}
}

// record is a closed bucket, its value, and when the trip began that read it, in
// nanoseconds since the epoch. Each is eight bytes of the counter's entry.
type record struct {
	bucket uint64
	value  int64
	read   int64
}

const recordBytes = 24

func appendRecord(b []byte, r record) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.bucket)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.value))
	return binary.LittleEndian.AppendUint64(b, uint64(r.read))
}

func recordAt(b []byte) record {
	return record{
		bucket: binary.LittleEndian.Uint64(b),
		value:  int64(binary.LittleEndian.Uint64(b[8:])),
		read:   int64(binary.LittleEndian.Uint64(b[16:])),
	}
}

// since returns the moment as nanoseconds since the cache's epoch, the first moment
// that it was asked about; on the monotonic clock, where the moments have it.
func (c *bucketCache) since(now time.Time) int64 {
	c.first.Do(func() { c.epoch = now })
	return int64(now.Sub(c.epoch))
}

// wasAsked reports whether the counter was asked about in the second before, and notes that it is
// now. If not, no record of it is young enough. Another counter in the same place may make it true.
func (c *bucketCache) wasAsked(key []byte, at int64) bool {
	now := uint32(at / int64(time.Millisecond))
	last := c.asked[hashIn(key)%uint64(len(c.asked))].Swap(now + 1)
	return last != 0 && now-(last-1) <= uint32(closedLife/time.Millisecond)
}

// recall puts the records of the counter in b, of which it keeps the memory, and
// returns them.
func (c *bucketCache) recall(b []byte, key []byte) []byte {
	found, err := c.entries.GetWithBuf(key, b[:cap(b)])
	if err != nil {
		return b[:0] // there are none
	}
	return found
}

// appendKey appends the key of the counter's entry: a hash with this process's own seed, how often
// the counter was changed, and its ID. The table finds its places by a hash that is the same in every
// process. A caller that chooses features could choose some whose places are one, and the table grows
// with its fullest place, whatever it may hold: to sixty times its size and more.
func (c *bucketCache) appendKey(b []byte, id string) []byte {
	b = binary.LittleEndian.AppendUint64(b, maphash.String(c.seed, id))
	b = binary.LittleEndian.AppendUint32(b, c.changes.Of(id).Load())
	return append(b, id...)
}

// keep remembers the records instead of those there were. Where they are too many for their share
// those there were stay.
func (c *bucketCache) keep(key, records []byte) {
	// It expires by the cache's own clock, in whole seconds: no sooner than it is too
	// old. The one error is that it is too large.
	_ = c.entries.Set(key, records, int(closedLife/time.Second)+1)
}

// forget has nothing be found that was read before of the counter with that ID or alias.
func (c *bucketCache) forget(id string) {
	if c != nil {
		c.changes.Of(id).Add(1)
	}
}

// hashIn returns the hash in an entry's key.
func hashIn(key []byte) uint64 { return binary.LittleEndian.Uint64(key) }
