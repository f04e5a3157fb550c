package memcache

import (
	"cmp"
	"context"
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxBytes is the memory that an Embedded store takes at the most where
// nothing else is set.
const DefaultMaxBytes = 256 << 20

// What a counter and a bucket are reckoned to take of memory: the structs, their
// share of the maps, and what a map holds in reserve.
const (
	counterBytes = 448
	bucketBytes  = 64
)

// EmbeddedConfig sets up an Embedded store. Its zero value is good.
type EmbeddedConfig struct {
	// MaxBytes bounds the memory of the counters, reckoned from above. Beyond it
	// the least recently used counters go. 0: DefaultMaxBytes.
	MaxBytes int64
	Clock    func() time.Time // nil: time.Now
}

// Embedded keeps buckets in the memory of this process, with the semantics of a
// Fleet: what is counted is seen by this process alone and lost with it. It has
// no goroutine and needs no Close. It is safe for concurrent use.
type Embedded struct {
	now      func() time.Time
	maxBytes int64
	seed     maphash.Seed
	shards   []shard // a power of two of them
	bytes    atomic.Int64
	evicted  atomic.Int64
	evicting sync.Mutex
}

// shard holds the counters of one part of the hash space. Its list runs from the
// most to the least recently used, in a ring through root.
type shard struct {
	mu       sync.Mutex
	counters map[string]*counter
	root     counter
	_        [64]byte // keeps neighbours off each other's cache line
}

type counter struct {
	id           string
	buckets      map[uint64]bucket
	purgeAt      int   // number of buckets at which to look for expired ones
	expires      int64 // when the last of the buckets does
	used         int64 // Unix nanoseconds of the last use
	newer, older *counter
}

type bucket struct {
	value   int64
	expires int64 // Unix second
}

// NewEmbedded returns an empty store.
func NewEmbedded(config EmbeddedConfig) *Embedded {
	e := &Embedded{
		now:      config.Clock,
		maxBytes: cmp.Or(config.MaxBytes, DefaultMaxBytes),
		seed:     maphash.MakeSeed(),
		// Enough shards that callers on all cores seldom meet.
		shards: make([]shard, 1<<bits.Len(uint(8*runtime.GOMAXPROCS(0)-1))),
	}
	if e.now == nil {
		e.now = time.Now
	}
	for i := range e.shards {
		s := &e.shards[i]
		s.counters = map[string]*counter{}
		s.root.newer, s.root.older = &s.root, &s.root
	}
	return e
}

// Trip adds to and reads buckets of one counter: see the Store of package
// hierarchy. All of it happens at once, and none of it if the context has ended.
func (e *Embedded) Trip(ctx context.Context, id string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	now := e.now()
	grown := e.trip(id, now, by, adds, expires, reads, values)
	if grown && e.bytes.Load() > e.maxBytes {
		e.evict()
	}
	return len(adds), nil
}

// trip reports whether the store has grown.
func (e *Embedded) trip(id string, now time.Time, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (grown bool) {
	s := e.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[id]
	if c == nil {
		if len(adds) == 0 {
			clear(values)
			return false
		}
		c = e.create(s, id, now)
	}
	s.use(c, now)
	for i, bucket := range adds {
		value, created := c.add(bucket, by, max(expires[i], now.Unix()+1), now)
		values[i] = value
		if created {
			grown = true
			e.bytes.Add(bucketBytes)
		}
	}
	for i, bucket := range reads {
		values[len(adds)+i] = c.read(bucket, now)
	}
	if len(c.buckets) >= c.purgeAt {
		e.bytes.Add(-bucketBytes * int64(c.purge(now)))
	}
	return grown
}

// TakeBack subtracts from buckets of one counter, where they are there, all at
// once.
func (e *Embedded) TakeBack(ctx context.Context, id string, by int64, buckets []uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := e.now().Unix()
	s := e.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counters[id]; c != nil {
		for _, bucket := range buckets {
			if b, found := c.buckets[bucket]; found && b.expires > now {
				b.value = max(b.value-by, 0)
				c.buckets[bucket] = b
			}
		}
	}
	return nil
}

// Delete removes buckets of one counter, all at once.
func (e *Embedded) Delete(ctx context.Context, id string, buckets []uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := e.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[id]
	if c == nil {
		return nil
	}
	before := len(c.buckets)
	for _, bucket := range buckets {
		delete(c.buckets, bucket)
	}
	e.bytes.Add(-bucketBytes * int64(before-len(c.buckets)))
	if len(c.buckets) == 0 {
		e.remove(s, c)
	}
	return nil
}

// Bytes returns the memory that the store reckons to take, a bound from above.
func (e *Embedded) Bytes() int64 { return e.bytes.Load() }

// Evicted returns how many counters have been dropped before their time, for
// want of memory. Their counts have begun again from zero.
func (e *Embedded) Evicted() int64 { return e.evicted.Load() }

func (e *Embedded) shard(id string) *shard {
	return &e.shards[maphash.String(e.seed, id)&uint64(len(e.shards)-1)]
}

// create puts a counter into the shard, and takes out those at the old end of
// its list that have expired: so the store shrinks as it is used.
func (e *Embedded) create(s *shard, id string, now time.Time) *counter {
	for range 2 {
		if last := s.root.newer; last != &s.root && last.expires <= now.Unix() {
			e.remove(s, last)
		}
	}
	c := &counter{id: id, buckets: map[uint64]bucket{}, purgeAt: minPurge}
	c.newer, c.older = c, c
	s.counters[id] = c
	e.bytes.Add(counterBytes + int64(len(id)))
	return c
}

func (e *Embedded) remove(s *shard, c *counter) {
	delete(s.counters, c.id)
	c.unlink()
	e.bytes.Add(-counterBytes - int64(len(c.id)) - bucketBytes*int64(len(c.buckets)))
}

// use makes c the shard's most recently used counter. The list is a ring in which
// root.older is the newest of all and root.newer the oldest.
func (s *shard) use(c *counter, now time.Time) {
	c.used = now.UnixNano()
	c.unlink()
	c.newer, c.older = &s.root, s.root.older
	c.newer.older, c.older.newer = c, c
}

func (c *counter) unlink() {
	c.newer.older, c.older.newer = c.older, c.newer
}

// evict drops the least recently used counters of all shards until the store
// keeps its bound. Only the newest of all is never dropped: it is in use.
func (e *Embedded) evict() {
	e.evicting.Lock()
	defer e.evicting.Unlock()
	for e.bytes.Load() > e.maxBytes {
		var oldest *shard
		var used int64
		n := 0
		for i := range e.shards {
			s := &e.shards[i]
			s.mu.Lock()
			n += len(s.counters)
			if last := s.root.newer; last != &s.root && (oldest == nil || last.used < used) {
				oldest, used = s, last.used
			}
			s.mu.Unlock()
		}
		if n <= 1 {
			return
		}
		oldest.mu.Lock()
		if last := oldest.root.newer; last != &oldest.root && last.used == used {
			e.remove(oldest, last)
			e.evicted.Add(1)
		}
		oldest.mu.Unlock()
	}
}

// minPurge is the number of buckets below which a counter is left alone until it
// goes as a whole.
const minPurge = 64

func (c *counter) add(id uint64, by, expires int64, now time.Time) (value int64, created bool) {
	b, found := c.buckets[id]
	if found && b.expires > now.Unix() {
		b.value += by
	} else {
		b = bucket{by, expires}
		c.expires = max(c.expires, expires)
	}
	c.buckets[id] = b
	return b.value, !found
}

func (c *counter) read(id uint64, now time.Time) int64 {
	if b := c.buckets[id]; b.expires > now.Unix() {
		return b.value
	}
	return 0
}

// purge drops the expired buckets and returns how many they were. The next purge
// comes when the number has doubled, so that its cost is a constant one for each
// bucket.
func (c *counter) purge(now time.Time) (dropped int) {
	live := make(map[uint64]bucket)
	for id, b := range c.buckets {
		if b.expires > now.Unix() {
			live[id] = b
		}
	}
	dropped = len(c.buckets) - len(live)
	if dropped > 0 {
		c.buckets = live // a map that had things deleted would keep their memory
	}
	c.purgeAt = max(minPurge, 2*len(c.buckets))
	return dropped
}
