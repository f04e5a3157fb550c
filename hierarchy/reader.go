package hierarchy

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kamstrup/intmap"
)

// reader makes the trips for one counter, and keeps what they find: the values of
// buckets. It is used again for others.
type reader struct {
	id     string                     // the counter's
	known  *intmap.Map[uint64, int64] // or asked; see fromCache
	adds   []uint64
	expire []int64
	reads  []uint64
	values []int64
	adding int // how many of the adds are in the trip: all, or none

	cache    *BucketCache // nil: none
	asks     bool         // it uses what is remembered, and adds nothing to it
	key      []byte       // the ID
	closed   int64        // buckets that end before this second are closed
	records  []byte       // of closed buckets that are known
	recalled int          // bytes of these that the cache had; the others were read
	own      int64        // since when records are of what was read for this decision
	before   uint32       // what the cache wants for what the trip reads
	touched  uint32       // the cache's count of this process's changes, from before the trip
	found    int          // closed buckets that were wanted and had been remembered
	missed   int          // those that were read
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
	r.id = ""
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
	if r.known == nil {
		r.known = intmap.New[uint64, int64](fewBuckets)
	}
	r.known.Clear()
	r.adds, r.expire = r.adds[:0], r.expire[:0]
	r.reads = r.reads[:0]
}

// remember has the reader use the cache: it knows the buckets that were read less
// than a second before now, and what it reads of those that end before the second
// closed is remembered. What was read since the moment own, where there is one, was read
// for the same decision: that is no hit.
func (r *reader) remember(cache *BucketCache, now time.Time, closed int64, own time.Time) {
	if cache == nil {
		return // in tests
	}
	at := cache.since(now)
	r.cache, r.closed, r.own = cache, closed, math.MaxInt64
	if !own.IsZero() {
		r.own = cache.since(own)
	}
	r.key = cache.appendKey(r.key[:0], r.id)
	r.before = cache.changed(r.key)
	r.touched = cache.touchesOf(r.id).Load()
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
		r.known.Put(rec.bucket, rec.value)
	}
	r.records, r.recalled = r.records[:alive], recalled
}

// forgetOpen forgets what is known of buckets that hits may still change.
func (r *reader) forgetOpen(now time.Time) {
	r.known.Clear()
	if r.cache != nil {
		r.recall(r.cache.since(now))
	}
}

// add has the next trip add to a bucket.
func (r *reader) add(b Bucket, expires int64) {
	r.adds = append(r.adds, b.ID())
	r.expire = append(r.expire, expires)
}

// want has the next trip read a bucket, unless it is known or wanted already.
func (r *reader) want(b Bucket) {
	id := b.ID()
	known, added := r.known.PutIfNotExists(id, asked)
	switch {
	case added:
		r.reads = append(r.reads, id)
	case isFromCache(known):
		r.found++
	}
}

// unwant has the next trip read nothing of what was wanted.
func (r *reader) unwant() {
	for _, bucket := range r.reads {
		r.known.Del(bucket)
	}
	r.reads = r.reads[:0]
}

// wantAll wants all buckets of the cover.
func (r *reader) wantAll(cover Cover) {
	for bucket := range cover.Buckets() {
		r.want(bucket)
	}
}

// value returns what the bucket holds, 0 where that is not known.
func (r *reader) value(b Bucket) int64 {
	value, _ := r.told(b.ID())
	return value
}

// told returns what the bucket of that ID holds, if that is known.
func (r *reader) told(id uint64) (value int64, known bool) {
	value, known = r.known.Get(id)
	if isFromCache(value) {
		value -= fromCache
	}
	return value, known
}

// knows reports whether it is known.
func (r *reader) knows(b Bucket) bool { return r.known.Has(b.ID()) }

// trip adds by to the buckets that add named, where it is not 0, and reads those
// that want named. What is known of the former is without by. It returns how many
// adds were acknowledged; with an error nothing more is known than before.
func (r *reader) trip(ctx context.Context, store Store, by int64, began time.Time) (landed int, err error) {
	r.pack(by)
	landed, err = store.Trip(ctx, r.id, by, r.adds[:r.adding], r.expire[:r.adding], r.reads, r.values)
	return landed, r.unpack(by, began, err)
}

// start begins a trip. The function that it returns ends it.
func (r *reader) start(ctx context.Context, store Starter, by int64) (wait func() (int, error)) {
	r.pack(by)
	return store.Start(ctx, r.id, by, r.adds[:r.adding], r.expire[:r.adding], r.reads, r.values)
}

// pack prepares a trip.
func (r *reader) pack(by int64) {
	r.adding = len(r.adds)
	if by == 0 {
		r.adding = 0
	}
	n := r.adding + len(r.reads)
	r.values = slices.Grow(r.values[:0], n)[:n]
}

// unpack takes in what a trip has found that began at the moment.
func (r *reader) unpack(by int64, began time.Time, err error) error {
	if err != nil {
		r.unwant()
		return storeError(err)
	}
	for i, bucket := range r.adds[:r.adding] {
		r.known.Put(bucket, r.values[i]-by)
	}
	remembered := len(r.records)
	for i, bucket := range r.reads {
		value := r.values[r.adding+i]
		r.known.Put(bucket, value)
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
