package memcache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/store"
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
	// OnEvict is called whenever counters were dropped because memory was full, with how
	// many have been so far. The adds that made it necessary call it; nil: it is not
	// called.
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
	lost     atomic.Int64  // Unix second up to which evicted counters may have held events; 0: none was evicted
	change   atomic.Uint64 // the version of the last change of an item of bytes
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

// Do makes the round trips, one after the other: see package store. All of an op happens at
// once, and none of it if the context has ended.
func (e *Embedded) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Err = ctx.Err(); op.Err == nil {
			op.Err = e.do(op)
		}
	}
}

// Capabilities returns what the store can do besides round trips.
func (e *Embedded) Capabilities() store.Capabilities {
	return store.Capabilities{
		Writes: store.KindsOf(store.Add, store.Subtract, store.Hint, store.Delete, store.Append),
		Alias:  nameOf, Since: e.since,
	}
}

// since returns the Unix second up to which the counter may have lost events: it was evicted before it was made again.
func (e *Embedded) since(id string) int64 {
	lost := e.lost.Load()
	if lost == 0 {
		return 0
	}
	name := nameOf(id)
	s := e.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counters[name]; c != nil {
		return c.lost
	}
	return lost
}

// Lost returns the Unix second up to which counters may have lost events, because memory was full; 0: none has.
func (e *Embedded) Lost() int64 { return e.lost.Load() }

// longID is the length from which on a counter is kept by an alias: reservations, which name counters, stay
// short.
const longID = 128

// nameOf returns what the store keeps a counter by: its ID, or the alias of a long one.
func nameOf(counter string) string {
	if len(counter) < longID {
		return counter
	}
	hash := sha256.Sum256([]byte(counter))
	return store.NewAlias(counter, hash[:])
}

func (e *Embedded) do(op *store.Op) error {
	kind := op.Kind()
	switch {
	case op.Data:
		op.Receipt = store.Receipt{}
		if err := store.Check(op); err != nil {
			return err
		}
		return e.exchange(op)
	case kind == 0, kind == store.Add:
		return e.exchange(op)
	case kind == store.Subtract:
		e.subtract(op)
	case kind == store.Hint:
	case kind == store.Delete:
		e.delete(op)
	default:
		return fmt.Errorf("%w of kind %d in the embedded store", store.ErrUnsupported, kind)
	}
	return nil
}

// exchange makes the writes and reads of an op that counts, or of one with data, and then evicts
// if memory is full.
func (e *Embedded) exchange(op *store.Op) error {
	err := e.writeAndRead(op, e.now())
	if e.bytes.Load() > e.maxBytes {
		e.evict()
	}
	return err
}

func (e *Embedded) writeAndRead(op *store.Op, now time.Time) (err error) {
	name := nameOf(op.Counter)
	s := e.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	c, before := s.counters[name], int64(0)
	switch {
	case c != nil:
		before = c.bytes()
	case len(op.Writes) == 0:
		op.Receipt = store.Receipt{}
		for i := range op.Reads {
			op.Reads[i].Value, op.Reads[i].Version, op.Reads[i].Data = 0, 0, op.Reads[i].Data[:0]
		}
		return nil
	default:
		// As it grows the store drops what has expired: two for each that is new.
		e.bytes.Add(-s.dropExpired(now, 2))
		c = s.create(name)
		c.lost = e.lost.Load()
	}
	s.use(c, now)
	if op.Data {
		err = e.keep(c, op, now.Unix())
	} else {
		err = c.count(op, now)
	}
	s.keepOrder(c)
	if len(c.buckets)+len(c.data) >= c.purgeAt {
		c.purge(now)
	}
	e.settle(s, c, before)
	return err
}

// count makes the adds and reads of an op that counts.
func (c *counter) count(op *store.Op, now time.Time) error {
	op.Receipt = store.Receipt{}
	if c.isData(op, now.Unix()) {
		return store.ErrNoCount
	}
	op.Receipt = store.Acknowledged(len(op.Writes))
	for i := range op.Writes {
		w := &op.Writes[i]
		w.Result = c.add(w.Item, w.By, max(w.Expires, now.Unix()+1), now)
	}
	for i := range op.Reads {
		op.Reads[i].Value = c.read(op.Reads[i].Item, now)
	}
	return nil
}

// subtract rolls back the adds that were acknowledged.
func (e *Embedded) subtract(op *store.Op) {
	now := e.now().Unix()
	name := nameOf(op.Counter)
	s := e.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[name]
	if c == nil {
		return
	}
	for _, w := range op.Writes[max(len(op.Writes)-op.Receipt.On(0), 0):] {
		if b, found := c.buckets[w.Item]; found && b.expires > now {
			b.value = max(b.value-w.By, 0)
			c.buckets[w.Item] = b
		}
	}
}

func (e *Embedded) delete(op *store.Op) {
	name := nameOf(op.Counter)
	s := e.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[name]
	if c == nil {
		return
	}
	before := c.bytes()
	for _, w := range op.Writes {
		delete(c.buckets, w.Item)
		c.drop(w.Item)
	}
	e.settle(s, c, before)
}

// settle takes note of what the counter takes now, and removes one that holds nothing.
func (e *Embedded) settle(s *shard, c *counter, before int64) {
	if len(c.buckets)+len(c.data) == 0 {
		e.bytes.Add(-before)
		s.remove(c)
		return
	}
	c.reckon()
	e.bytes.Add(c.bytes() - before)
}

// Bytes returns the memory that the store reckons to take, a bound from above.
func (e *Embedded) Bytes() int64 { return e.bytes.Load() }

// Evicted returns how many counters have been dropped before their time, because
// memory was full. Their counts have begun again from zero.
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
	e.lost.Store(max(e.lost.Load(), c.used/int64(time.Second))) // before it can be made again: the shard is locked
	oldest.remove(c)
	return true
}
