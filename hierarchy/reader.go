package hierarchy

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/store"
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
	key      []byte       // the ID
	closed   int64        // buckets that end before this second are closed
	records  []byte       // of closed buckets that are known
	recalled int          // bytes of these that the cache had; the others were read
	own      int64        // since when records are of what was read for this decision
	before   uint32       // what the cache wants for what the trip reads
	missed   int          // closed buckets that were read
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
	r.before = cache.changed(r.key)
	r.records = cache.recall(r.records, r.key)
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
	r.one[0] = r.pack(by)
	st.Do(ctx, r.one[:]...)
	return r.unpack(by, began)
}

// pack prepares a round trip.
func (r *reader) pack(by int64) *store.Op {
	r.op.Reads = r.reads
	r.op.Counter, r.op.Writes, r.op.Receipt, r.op.Err = r.id, nil, store.Receipt{}, nil
	if by != 0 {
		r.op.Writes = r.adds
		for i := range r.adds {
			r.adds[i].By = by
		}
	}
	return &r.op
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
		if r.cache == nil || bucketOf(bucket).Last() >= r.closed {
			continue
		}
		r.missed++
		if !r.asks {
			r.records = appendRecord(r.records, record{bucket, value, r.cache.since(began)})
		}
	}
	r.reads = r.reads[:0]
	if len(r.records) > remembered {
		r.cache.keep(r.key, r.records, r.before)
	}
	return nil
}
