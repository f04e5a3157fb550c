package memcache

import (
	"container/heap"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// What a counter and a bucket are reckoned to take of memory: the structs, their
// share of the maps, and what a map holds in reserve.
const (
	counterBytes = 480
	bucketBytes  = 64
)

// minPurge is the number of buckets below which a counter is left alone until it
// goes as a whole.
const minPurge = 64

// shard holds the counters of one part of an Embedded store's hash space. Its
// methods want mu held.
type shard struct {
	mu       sync.Mutex
	counters map[string]*counter
	ring     counter  // behind it in the ring the most recently used, before it the least
	expiry   byExpiry // all counters

	// For readers without mu; math.MaxInt64 where there is no counter.
	oldestUse atomic.Int64 // Unix nanoseconds
	soonest   atomic.Int64 // Unix second in which the first counter expires
	_         [64]byte     // keeps neighbours off each other's cache line
}

// counter is the buckets of one counter, and its places in the shard.
type counter struct {
	id      string
	buckets map[uint64]bucket
	data    map[uint64]*data // items of bytes; nil: there was none
	kept    int64            // what data is reckoned to take
	room    int              // most buckets since the map was made: what it has memory for
	purgeAt int              // number of buckets at which to look for expired ones
	expires int64            // when the last of the buckets does

	lost         int64 // Unix second up to which one of this name may have been evicted
	used         int64 // Unix nanoseconds of the last use
	newer, older *counter
	heapAt       int
	heapExpires  int64 // expires, as the heap has it
}

type bucket struct {
	value   int64
	expires int64 // Unix second
}

func (s *shard) init() {
	s.counters = map[string]*counter{}
	s.ring.newer, s.ring.older = &s.ring, &s.ring
	s.publish()
}

// publish says outside the lock how old the shard's counters are.
func (s *shard) publish() {
	used, soonest := int64(math.MaxInt64), int64(math.MaxInt64)
	if c := s.oldest(); c != nil {
		used, soonest = c.used, s.expiry[0].heapExpires
	}
	s.oldestUse.Store(used)
	s.soonest.Store(soonest)
}

// oldest returns the least recently used counter, or nil.
func (s *shard) oldest() *counter {
	if c := s.ring.newer; c != &s.ring {
		return c
	}
	return nil
}

func (s *shard) create(id string) *counter {
	c := &counter{id: id, buckets: map[uint64]bucket{}, purgeAt: minPurge}
	c.newer, c.older = c, c
	s.counters[id] = c
	heap.Push(&s.expiry, c)
	return c
}

func (s *shard) remove(c *counter) {
	delete(s.counters, c.id)
	c.unlink()
	heap.Remove(&s.expiry, c.heapAt)
	s.publish()
}

// use makes c the most recently used counter.
func (s *shard) use(c *counter, now time.Time) {
	c.used = now.UnixNano()
	c.unlink()
	c.newer, c.older = &s.ring, s.ring.older
	c.newer.older, c.older.newer = c, c
}

func (c *counter) unlink() {
	c.newer.older, c.older.newer = c.older, c.newer
}

// keepOrder puts c where it belongs after its use and its adds.
func (s *shard) keepOrder(c *counter) {
	if c.heapExpires != c.expires {
		c.heapExpires = c.expires
		heap.Fix(&s.expiry, c.heapAt)
	}
	s.publish()
}

// dropExpired drops up to n counters all of whose buckets have expired, and
// returns the memory that they took.
func (s *shard) dropExpired(now time.Time, n int) (bytes int64) {
	for ; n > 0 && len(s.expiry) > 0 && s.expiry[0].heapExpires <= now.Unix(); n-- {
		bytes += s.expiry[0].bytes()
		s.remove(s.expiry[0])
	}
	return bytes
}

// add returns what it makes of the bucket.
func (c *counter) add(id uint64, by, expires int64, now time.Time) int64 {
	b := c.buckets[id]
	if b.expires > now.Unix() {
		b.value += by
	} else {
		b = bucket{by, expires}
		c.expires = max(c.expires, expires)
	}
	c.buckets[id] = b
	return b.value
}

func (c *counter) read(id uint64, now time.Time) int64 {
	if b := c.buckets[id]; b.expires > now.Unix() {
		return b.value
	}
	return 0
}

// purge drops the expired buckets. The next purge comes when the number has
// doubled, so that its cost is a constant one for each bucket.
func (c *counter) purge(now time.Time) {
	for id, b := range c.buckets {
		if b.expires <= now.Unix() {
			delete(c.buckets, id)
		}
	}
	for id, d := range c.data {
		if d.expires <= now.Unix() {
			c.drop(id)
		}
	}
	c.purgeAt = max(minPurge, 2*(len(c.buckets)+len(c.data)))
}

// bytes returns what the counter is reckoned to take.
func (c *counter) bytes() int64 {
	return counterBytes + int64(len(c.id)) + bucketBytes*int64(c.room) + c.kept
}

// reckon takes note of how many buckets there is memory for. A map that had things
// deleted keeps their memory: it is made anew when less than half of it is in use.
func (c *counter) reckon() {
	c.room = max(c.room, len(c.buckets))
	if c.room > minPurge && len(c.buckets) < c.room/2 {
		buckets := make(map[uint64]bucket, len(c.buckets))
		for id, b := range c.buckets {
			buckets[id] = b
		}
		c.buckets, c.room = buckets, len(buckets)
	}
}

// byExpiry is a heap of counters, the one that expires first at the top.
type byExpiry []*counter

func (h byExpiry) Len() int           { return len(h) }
func (h byExpiry) Less(i, j int) bool { return h[i].heapExpires < h[j].heapExpires }

func (h byExpiry) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i, j
}

// Push and Pop are what package container/heap wants.
func (h *byExpiry) Push(x any) {
	c := x.(*counter)
	c.heapAt = len(*h)
	*h = append(*h, c)
}

func (h *byExpiry) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return c
}
