package hierarchy

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/kamstrup/intmap"

	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// reader makes the trips for one counter, and keeps what they find: the values of
// buckets. It is used again for others.
type reader struct {
	known
	id   string // the counter's
	adds []store.Write
	op   store.Op // the next round trip, or the last one
	one  [1]*store.Op

	cache    *bucketCache // nil: none
	asks     bool         // it uses what is remembered, and adds nothing to it
	key      []byte       // of the counter's entry there
	closed   int64        // buckets that end before this second are closed
	records  []byte       // of closed buckets that are known
	recalled int          // bytes of these that the cache had; the others were read
	own      int64        // since when records are of what was read for this decision
	missed   int          // closed buckets that were read
	again    bool         // the cache was asked about the counter in the second before
}

var readers = sync.Pool{New: func() any { return new(reader) }}

func newReader(id string) *reader {
	r := readers.Get().(*reader)
	r.begin(id)
	return r
}

func (r *reader) free() {
	r.leave()
	readers.Put(r)
}

// leave forgets whose reader it was.
func (r *reader) leave() {
	r.leaveCache()
	r.id, r.op.Counter = "", ""
}

// leaveCache has the reader do without the cache, and tells that what it did for it.
func (r *reader) leaveCache() {
	if r.cache != nil {
		r.cache.count(r.found, r.missed)
	}
	r.cache, r.found, r.missed = nil, 0, 0
}

// begin forgets the counter before.
func (r *reader) begin(id string) {
	r.id, r.cache, r.asks, r.records = id, nil, false, r.records[:0]
	r.known.begin()
	r.adds = r.adds[:0]
}

// remember has the reader use the cache: it knows the buckets that were read less than a
// second before now, and the read buckets that end before the second closed are put there.
// What was read since the moment own, where there is one, was read for the same decision:
// that is no hit.
func (r *reader) remember(cache *bucketCache, now time.Time, closed int64, own time.Time) {
	if cache == nil {
		return
	}
	at := cache.since(now)
	r.cache, r.closed, r.own = cache, closed, math.MaxInt64
	if !own.IsZero() {
		r.own = cache.since(own)
	}
	r.key = cache.appendKey(r.key[:0], r.id)
	if r.again = cache.wasAsked(r.key, at); r.again {
		r.records = cache.recall(r.records, r.key)
	}
	r.recalled = len(r.records)
	r.recall(at)
}

// recall makes known what the records that are young enough say, and forgets others.
func (r *reader) recall(at int64) {
	alive, recalled := 0, 0
	for i := 0; i+recordBytes <= len(r.records); i += recordBytes {
		rec := recordAt(r.records[i:])
		if rec.read > at || at-rec.read >= int64(closedLife) || bucketOf(rec.bucket).Last() >= r.closed {
			continue
		}
		alive += copy(r.records[alive:], r.records[i:i+recordBytes])
		if i < r.recalled {
			recalled = alive
		}
		if i < r.recalled && rec.read < r.own && rec.value >= 0 && isFromCache(rec.value+fromCache) {
			rec.value += fromCache
		}
		r.values.Put(rec.bucket, rec.value)
	}
	r.records, r.recalled = r.records[:alive], recalled
}

// forgetOpen forgets what is known of buckets that hits may still change.
func (r *reader) forgetOpen(now time.Time) {
	r.values.Clear()
	if r.cache != nil {
		r.recall(r.cache.since(now))
	}
}

// add has the next trip add to a bucket.
func (r *reader) add(b Bucket, expires int64) {
	r.adds = append(r.adds, store.Write{Kind: store.Add, Item: b.ID(), Expires: expires})
}

// raise raises what is known of the buckets that add named.
func (r *reader) raise(by int64) {
	for i := range r.adds {
		if value, known := r.values.Get(r.adds[i].Item); known {
			r.values.Put(r.adds[i].Item, value+by)
		}
	}
}

// trip adds by to the buckets that add named, where it is not 0, and reads the ones
// that want named. What is known of the former is without by. With an error nothing more is
// known than before.
func (r *reader) trip(ctx context.Context, st store.Store, by int64, began time.Time) error {
	st.Do(ctx, r.pack(by)...)
	return r.unpack(by, began)
}

// pack prepares a round trip, the only one.
func (r *reader) pack(by int64) []*store.Op {
	r.op.Reads = r.reads
	r.op.Counter, r.op.Writes, r.op.Receipt, r.op.Err = r.id, nil, store.Receipt{}, nil
	if by != 0 {
		r.op.Writes = r.adds
		for i := range r.adds {
			r.adds[i].By = by
		}
	}
	r.one[0] = &r.op
	return r.one[:]
}

// unpack takes in what a round trip has found that began at the moment.
func (r *reader) unpack(by int64, began time.Time) error {
	if r.op.Err != nil {
		r.unwant()
		return engine.StoreError(r.op.Err)
	}
	for i := range r.op.Writes {
		r.values.Put(r.op.Writes[i].Item, r.op.Writes[i].Result-by)
	}
	remembered := len(r.records)
	for i := range r.op.Reads {
		bucket, value := r.op.Reads[i].Item, r.op.Reads[i].Value
		r.values.Put(bucket, value)
		if r.cache == nil || bucket == epochItem || bucketOf(bucket).Last() >= r.closed {
			continue
		}
		r.missed++
		if !r.asks {
			r.records = appendRecord(r.records, record{bucket, value, r.cache.since(began)})
		}
	}
	r.reads = r.reads[:0]
	// The few that a hit reads with its adds are worth it only where hits follow one another.
	if len(r.records) > remembered && (by == 0 || r.again) {
		r.cache.keep(r.key, r.records)
	}
	return nil
}

// known is what is known of the buckets of a counter, and which of them the next round trip
// reads.
type known struct {
	values *intmap.Map[uint64, int64] // or asked; see fromCache
	reads  []store.Read
	found  int // closed buckets that were wanted and had been remembered
}

// fewBuckets is enough for a hit far from its limits.
const fewBuckets = 16

// asked stands for the value of a bucket that is being read.
const asked = -1

// fromCache is added to a value that was remembered, to tell it from one that was read.
// No other value is below half of it: one that a hit added to is without the hit, and less
// than 0 by at most its cost where a copy has lost the bucket meanwhile.
const fromCache = math.MinInt64

func isFromCache(value int64) bool { return value < fromCache/2 }

// begin forgets all.
func (k *known) begin() {
	if k.values == nil {
		k.values = intmap.New[uint64, int64](fewBuckets)
	}
	k.values.Clear()
	k.reads = k.reads[:0]
}

// want has the next trip read a bucket, unless it is known or wanted already.
func (k *known) want(b Bucket) { k.wantItem(b.ID()) }

func (k *known) wantItem(id uint64) {
	known, added := k.values.PutIfNotExists(id, asked)
	switch {
	case added:
		k.reads = append(k.reads, store.Read{Item: id})
	case isFromCache(known):
		k.found++
	}
}

// unwant has the next trip read nothing of what was wanted.
func (k *known) unwant() {
	for i := range k.reads {
		k.values.Del(k.reads[i].Item)
	}
	k.reads = k.reads[:0]
}

// wantAll wants all buckets of the cover.
func (k *known) wantAll(cover Cover) {
	for bucket := range cover.Buckets() {
		k.want(bucket)
	}
}

// value returns what the bucket holds, 0 where that is not known.
func (k *known) value(b Bucket) int64 {
	value, _ := k.told(b.ID())
	return value
}

// told returns what the bucket of that ID holds, if that is known.
func (k *known) told(id uint64) (value int64, known bool) {
	value, known = k.values.Get(id)
	if isFromCache(value) {
		value -= fromCache
	}
	return value, known
}

// knows reports whether it is known.
func (k *known) knows(b Bucket) bool { return k.values.Has(b.ID()) }

// exact returns the sum over the cover, if all of its buckets are known.
func (k *known) exact(cover Cover) (sum int64, known bool) {
	for bucket := range cover.Buckets() {
		value, known := k.told(bucket.ID())
		if !known {
			return 0, false
		}
		sum += value
	}
	return sum, true
}
