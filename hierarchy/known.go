package hierarchy

import (
	"math"

	"github.com/kamstrup/intmap"

	"github.com/counterd/counterd/store"
)

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
func (k *known) want(b Bucket) {
	id := b.ID()
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
