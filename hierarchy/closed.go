package hierarchy

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/limiter/engine"
)

const (
	// DefaultCacheBytes bounds the cache of closed buckets if the config does not.
	DefaultCacheBytes = 16 << 20

	closedLife   = time.Second // how long a count is cached, from the beginning of the batch that read it
	closedShards = 64
	// bytesForAsked is the bytes of the cache for each of closedCache.asked.
	bytesForAsked = 512
)

// CacheStats counts the uses of the cache of closed buckets so far.
type CacheStats struct {
	Hits   int64 // closed buckets that did not have to be read
	Misses int64 // closed buckets that were read
}

// A closedCache caches the counts of closed buckets, for a second at most. No hit changes a closed bucket. Late
// increments, settlements, refunds and resets do: those of this process drop the counter from the cache, and those of
// other processes are seen a second later.
type closedCache struct {
	shardBytes int // if 0, nothing is cached
	epoch      time.Time
	seed       maphash.Seed
	drops      engine.Changes
	shards     [closedShards]closedShard
	// asked is when a counter was last asked for, by its hash. Most of many counters are not asked for again within a
	// second: to cache the few buckets that their hits read would only cost time.
	asked        []atomic.Int64
	hits, misses atomic.Int64
}

// A closedShard is the entries of counters, by their IDs. Old ones stay until the shard is full, and is emptied.
type closedShard struct {
	mu      sync.Mutex
	entries map[string]closedEntry
	bytes   int
}

// A closedEntry is the closed buckets of a counter, in the order of their items. The counts do not change.
type closedEntry struct {
	drops  uint32 // of the counter, before they were read
	counts []closedCount
}

type closedCount struct {
	item  uint64
	value int64
	read  time.Duration // when the batch began, since the epoch
}

func (c closedCount) compare(other closedCount) int { return cmp.Compare(c.item, other.item) }

// bytes returns about how much memory the entry takes.
func (e closedEntry) bytes(id string) int { return 160 + len(id) + 24*len(e.counts) }

func newClosedCache(bytes int, epoch time.Time) *closedCache {
	bytes = max(cmp.Or(bytes, DefaultCacheBytes), 0)
	return &closedCache{
		shardBytes: bytes / closedShards, epoch: epoch.Add(-1 << 60), seed: maphash.MakeSeed(),
		asked: make([]atomic.Int64, bytes/bytesForAsked+1),
	}
}

// drop drops the counter with that ID or alias.
func (c *closedCache) drop(id string) { c.drops.Of(id).Add(1) }

// A closedView is the closed buckets of one counter in one batch.
type closedView struct {
	cache        *closedCache
	shard        *closedShard
	id           string
	at           time.Duration // when the batch began
	asked        bool          // the counter was asked for within the second before
	entry        closedEntry
	reads        []closedCount // to be cached
	hits, misses int64
}

// begin looks up the counter.
func (v *closedView) begin(c *closedCache, id string, now time.Time) {
	hash := maphash.String(c.seed, id)
	*v = closedView{cache: c, shard: &c.shards[hash%closedShards], id: id, at: now.Sub(c.epoch), reads: v.reads[:0]}
	v.entry.drops = c.drops.Of(id).Load()
	last := c.asked[hash/closedShards%uint64(len(c.asked))].Swap(int64(v.at))
	if v.asked = v.isFresh(closedCount{read: time.Duration(last)}); !v.asked {
		return
	}
	v.shard.mu.Lock()
	defer v.shard.mu.Unlock()
	if entry := v.shard.entries[id]; entry.drops == v.entry.drops {
		v.entry = entry
	}
}

func (v *closedView) isFresh(c closedCount) bool { return c.read <= v.at && v.at-c.read < closedLife }

// find returns the count of a closed bucket, if it is cached.
func (v *closedView) find(item uint64) (value int64, ok bool) {
	i, ok := slices.BinarySearchFunc(v.entry.counts, closedCount{item: item}, closedCount.compare)
	if !ok || !v.isFresh(v.entry.counts[i]) {
		v.misses++
		return 0, false
	}
	v.hits++
	return v.entry.counts[i].value, true
}

// add adds the count of a closed bucket that was read, for put.
func (v *closedView) add(item uint64, value int64) {
	v.reads = append(v.reads, closedCount{item, value, v.at})
}

// put caches the counts that were added since the last put. Those of a hit, few, are worth it only if hits follow one
// another.
func (v *closedView) put(ofHit bool) {
	if v.hits+v.misses > 0 {
		v.cache.hits.Add(v.hits)
		v.cache.misses.Add(v.misses)
		v.hits, v.misses = 0, 0
	}
	if len(v.reads) == 0 || ofHit && !v.asked {
		return
	}
	s := v.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	before, counts := s.entries[v.id], v.reads
	if before.drops == v.entry.drops {
		counts = append(counts, before.counts...)
	}
	slices.SortFunc(counts, func(a, b closedCount) int { return cmp.Or(a.compare(b), cmp.Compare(b.read, a.read)) })
	counts = slices.CompactFunc(counts, func(a, b closedCount) bool { return a.item == b.item })
	counts = slices.DeleteFunc(counts, func(c closedCount) bool { return !v.isFresh(c) })
	v.reads = counts[:0]
	entry := closedEntry{v.entry.drops, slices.Clone(counts)}
	size := entry.bytes(v.id)
	if size > v.cache.shardBytes {
		return
	}
	if before.counts != nil {
		s.bytes -= before.bytes(v.id)
	}
	if s.entries == nil || s.bytes+size > v.cache.shardBytes {
		s.entries, s.bytes = map[string]closedEntry{}, 0
	}
	s.entries[v.id] = entry
	s.bytes += size
}
