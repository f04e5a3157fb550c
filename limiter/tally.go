package limiter

import "sync/atomic"

// Stats is what a Limiter has done so far.
type Stats struct {
	// Batches is how many batches of hits were decided with the store, and BatchedHits how
	// many hits were in them. A retry is not counted again.
	Batches, BatchedHits int64
	// CachedDenials is how many hits a cached denial denied, without a round trip.
	CachedDenials int64
}

// Stats returns what the limiter has done so far.
func (l *Limiter) Stats() Stats {
	return Stats{l.tally.batches.Load(), l.tally.hits.Load(), l.tally.recalled.Load()}
}

// tally counts the batches.
type tally struct {
	_                       [64]byte // what all callers write is on no cache line that others read
	batches, hits, recalled atomic.Int64
	_                       [64]byte
}

// add counts the batch, which is decided.
func (t *tally) add(f *batch) {
	var asked, recalled int64
	for _, h := range f.hits.handedOut() {
		switch {
		case h.path == faulty || h.path == listed || len(h.limits) == 0:
		case h.needsNoStore():
			recalled++
		case !f.overloaded && !f.again():
			asked++
		}
	}
	if asked > 0 {
		t.batches.Add(1)
		t.hits.Add(asked)
	}
	if recalled > 0 {
		t.recalled.Add(recalled)
	}
}
