package memcache

import (
	"cmp"
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxBytes is the memory that an Embedded store takes at the most where
// nothing else is set.
const DefaultMaxBytes = 256 << 20

// EmbeddedConfig sets up an Embedded store. Its zero value is good.
type EmbeddedConfig struct {
	// MaxBytes bounds the memory of the counters, reckoned from above. Beyond it
	// the least recently used counters go. The process takes more, up to twice as
	// much, since the garbage collector needs room. 0: DefaultMaxBytes.
	MaxBytes int64
	Clock    func() time.Time // nil: time.Now
	// Report is told whenever counters were dropped for want of memory, and how
	// many have been so far. It is called by those whose adds made it necessary;
	// nil: nobody is told.
	OnEvict func(evicted int64)
}

// Embedded keeps buckets in the memory of this process, with the semantics of a
// Fleet: what is counted is seen by this process alone and lost with it. It has
// no goroutine and needs no Close. It is safe for concurrent use.
type Embedded struct {
	now      func() time.Time
	report   func(evicted int64)
	maxBytes int64
	seed     maphash.Seed
	shards   []shard // a power of two of them
	bytes    atomic.Int64
	evicted  atomic.Int64
	evicting sync.Mutex
}

// NewEmbedded returns an empty store.
func NewEmbedded(config EmbeddedConfig) *Embedded {
	e := &Embedded{
		now:      config.Clock,
		report:   config.OnEvict,
		maxBytes: cmp.Or(config.MaxBytes, DefaultMaxBytes),
		seed:     maphash.MakeSeed(),
		// Enough shards that callers on all cores seldom meet.
		shards: make([]shard, 1<<bits.Len(uint(8*runtime.GOMAXPROCS(0)-1))),
	}
	if e.now == nil {
		e.now = time.Now
	}
	for i := range e.shards {
		e.shards[i].init()
	}
	return e
}

// Trip adds to and reads buckets of one counter: see the Store of package
// hierarchy. All of it happens at once, and none of it if the context has ended.
func (e *Embedded) Trip(ctx context.Context, id string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	e.trip(id, e.now(), by, adds, expires, reads, values)
	if e.bytes.Load() > e.maxBytes {
		e.evict()
	}
	return len(adds), nil
}

// Start makes a Trip: there is nothing to wait for.
func (e *Embedded) Start(ctx context.Context, id string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (wait func() (landed int, err error)) {
	landed, err := e.Trip(ctx, id, by, adds, expires, reads, values)
	return func() (int, error) { return landed, err }
}

func (e *Embedded) trip(id string, now time.Time, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) {
	s := e.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[id]
	if c == nil {
		if len(adds) == 0 {
			clear(values)
			return
		}
		// As it grows the store drops what has expired: two for each that is new.
		e.bytes.Add(-s.dropExpired(now, 2))
		c = s.create(id)
		e.bytes.Add(c.bytes())
	}
	s.use(c, now)
	for i, bucket := range adds {
		values[i] = c.add(bucket, by, max(expires[i], now.Unix()+1), now)
	}
	s.keepOrder(c)
	for i, bucket := range reads {
		values[len(adds)+i] = c.read(bucket, now)
	}
	if len(c.buckets) >= c.purgeAt {
		c.purge(now)
	}
	e.bytes.Add(c.reckon())
}

// RollBack subtracts from the buckets of the first adds of a trip, as many as landed,
// where they are there, all at once.
func (e *Embedded) RollBack(ctx context.Context, id string, by int64, adds []uint64, landed int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := e.now().Unix()
	s := e.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counters[id]; c != nil {
		for _, bucket := range adds[:landed] {
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
	for _, bucket := range buckets {
		delete(c.buckets, bucket)
	}
	if len(c.buckets) == 0 {
		e.bytes.Add(-c.bytes())
		s.remove(c)
	} else {
		e.bytes.Add(c.reckon())
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

// evict makes room: what has expired goes first, in all shards, and then the least
// recently used counters of all, until there is a little room to spare. Only one
// caller does it at a time; the others go on.
func (e *Embedded) evict() {
	if !e.evicting.TryLock() {
		return
	}
	defer e.evicting.Unlock()
	now := e.now()
	for i := range e.shards {
		if s := &e.shards[i]; s.soonest.Load() <= now.Unix() {
			s.mu.Lock()
			e.bytes.Add(-s.dropExpired(now, len(s.counters)))
			s.mu.Unlock()
		}
	}
	before := e.evicted.Load()
	for e.bytes.Load() > e.maxBytes-e.maxBytes/spare && e.evictOne() {
		e.evicted.Add(1)
	}
	if evicted := e.evicted.Load(); evicted > before && e.report != nil {
		e.report(evicted)
	}
}

// spare is the part of the bound that an eviction leaves free, so that not every
// new bucket needs one.
const spare = 64

// evictOne drops the counter that was not used for longest. It reports false
// where there is none to drop: the last one left is in use.
func (e *Embedded) evictOne() bool {
	var oldest *shard
	used, shardsInUse := int64(math.MaxInt64), 0
	for i := range e.shards {
		s := &e.shards[i]
		at := s.oldestUse.Load()
		if at == math.MaxInt64 {
			continue
		}
		shardsInUse++
		if at < used {
			oldest, used = s, at
		}
	}
	if oldest == nil {
		return false
	}
	oldest.mu.Lock()
	defer oldest.mu.Unlock()
	c := oldest.oldest()
	if c == nil || shardsInUse == 1 && len(oldest.counters) == 1 {
		return false
	}
	e.bytes.Add(-c.bytes())
	oldest.remove(c)
	return true
}
