package hierarchy

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// session decides the hits of one batch on one counter: it says which round trip is next.
type session struct {
	windows
	counters *Counters
	counter  events.Counter
	moment   engine.Moment

	step  phase
	began time.Time // when the round trip did
	hits  []engine.Hit
	added int64 // their cost
	most  int64 // what may be weighed

	receipt store.Receipt // of the adds
	whole   bool          // their round trip was made
	after   store.Op      // what follows them: a rollback, a hint
	follows [1]*store.Op

	open         openRead
	explanations []explanation
}

// phase is what a session's next round trip is for.
type phase uint8

const (
	reading    phase = iota // what is wanted
	looking                 // exact sums
	adding                  // the adds, and what bounds the limits
	narrowing               // the buckets at the edges of windows whose bounds leave a limit open
	searching               // when limits have room
	explaining              // what limits count, and when that leaves
)

var sessions = sync.Pool{New: func() any { return new(session) }}

// Base returns what the counters share with other engines.
func (c *Counters) Base() engine.Base { return c.base }

// Keeps reports whether the algorithm counts by windows: all of these do with buckets.
func (c *Counters) Keeps(name string) bool {
	a, known := events.AlgorithmByName(name)
	return known && !a.Log
}

// Tick returns a second: windows are of whole seconds.
func (c *Counters) Tick() time.Duration { return time.Second }

// Begin returns a session on the counter.
func (c *Counters) Begin(counter events.Counter, id string, moment engine.Moment) engine.Session {
	if !moment.Alone {
		c.use(id, counter, moment.Now)
	}
	s := sessions.Get().(*session)
	s.begin(id)
	s.step, s.hits, s.added, s.most, s.receipt, s.whole = reading, nil, 0, 0, store.Receipt{}, false
	s.counters, s.counter, s.moment, s.follows[0] = c, counter, moment, &s.after
	s.finest, s.coarsest = levels(counter)
	s.stamp, s.closed = moment.Stamp, moment.Stamp-openSeconds(c.grace)
	return s
}

// End gives the session back.
func (s *session) End() {
	s.leave()
	s.windows.end()
	clear(s.explanations)
	s.explanations = s.explanations[:0]
	s.open = openRead{op: store.Op{Reads: s.open.op.Reads[:0]}}
	s.counters, s.counter, s.moment, s.hits, s.after.Counter = nil, events.Counter{}, engine.Moment{}, nil, ""
	sessions.Put(s)
}

// Limit adds a limit.
func (s *session) Limit(limit engine.Limit) {
	of := limit.Windows()
	ahead := max(engine.CeilSeconds(s.counters.grace), s.moment.Latest-s.stamp) // other clocks, or this one before it was set back
	s.all = append(s.all, limitWindow{of: of, ceiling: limit.Ceiling, span: spanOf(of, s.stamp, s.finest, ahead)})
}

// Look wants the buckets that the exact sums of the limits need.
func (s *session) Look() { s.step = looking }

// Add adds the hits' cost to the counter's buckets, the finest level first, and reads after the
// adds what bounds its limits; where the bounds leave a limit open, also the finer buckets at the
// window's edge.
func (s *session) Add(hits []engine.Hit, most int64) {
	s.step, s.hits, s.most, s.added = adding, hits, most, 0
	for i := range hits {
		h := &hits[i]
		if h.Ends != 0 && !s.counters.reserving.Load() {
			s.counters.reserving.Store(true)
		}
		if s.added += h.Cost; h.Ends != 0 || h.Waits != 0 {
			h.Reserved = engine.Reserved{Counter: s.id, ID: rand.Uint64() >> (64 - engine.IDBits), Time: s.stamp * 1000, Ends: h.Ends, Cost: h.Cost}
		}
	}
}

// Next returns the step's next round trip.
func (s *session) Next(now time.Time) []*store.Op {
	s.began = now
	for {
		s.plan(now)
		wantsOpen := s.prepareOpenRead()
		if s.due() > 0 || len(s.reads) > 0 {
			ops := s.pack(s.due())
			if wantsOpen {
				ops = append(ops, &s.open.op)
			}
			return ops
		}
		if wantsOpen {
			s.op.Writes, s.op.Reads, s.op.Err = nil, nil, nil
			return []*store.Op{&s.open.op}
		}
		if !s.proceed() {
			return nil
		}
	}
}

// Absorb takes in what the round trip has found.
func (s *session) Absorb() error {
	if s.due() > 0 {
		s.receipt, s.whole = s.op.Receipt, s.op.Err == nil
	}
	if err := s.unpack(s.due(), s.began); err != nil {
		s.searches.end()
		s.step = reading
		return err
	}
	s.reserve()
	s.proceed()
	return nil
}

// reserves reports whether a hit of the batch reserves.
func (s *session) reserves() bool {
	return slices.ContainsFunc(s.hits, func(h engine.Hit) bool { return h.Reserved.ID != 0 })
}

// reserve has the reservations name the epoch that was read after the adds.
func (s *session) reserve() {
	if epoch, known := s.told(epochItem); known && s.step == adding {
		for i := range s.hits {
			if r := &s.hits[i].Reserved; r.ID != 0 {
				r.ID = inEpoch(r.ID, epoch)
			}
		}
	}
}

// due returns what the next round trip adds.
func (s *session) due() int64 {
	if s.step == adding {
		return s.added
	}
	return 0
}

// plan wants what the step needs.
func (s *session) plan(now time.Time) {
	switch s.step {
	case looking:
		s.useCache(now)
		s.wantCovers()
	case adding:
		if s.values.Len() > 0 { // by a look
			s.forgetOpen(now)
		}
		s.useCache(now)
		if len(s.adds) == 0 {
			for l := s.finest; l <= s.coarsest; l++ {
				bucket := BucketAt(l, s.stamp)
				s.add(bucket, bucket.Expires(s.counter.Remembered(), s.counters.grace))
			}
		}
		s.wantRows()
		if s.reserves() {
			s.wantItem(epochItem)
		}
	case narrowing:
		s.wantOpenEdges(s.most)
	case searching:
		s.searches.advance(&s.known)
	case explaining:
		for i := range s.explanations { // before any wants, as what is wanted is taken for known
			s.explanations[i].advance()
		}
		for i := range s.explanations {
			for _, bucket := range s.explanations[i].wanted {
				s.want(bucket)
			}
		}
	}
}

// proceed goes on to the step that follows when all that was wanted is known, and reports
// whether there is one.
func (s *session) proceed() bool {
	switch s.step {
	case looking, narrowing:
		s.sum()
		s.step = reading
	case adding:
		s.bound()
		if s.isOpen(s.most) {
			s.step = narrowing
			return true
		}
		s.step = reading
	}
	return false
}

// useCache has the session know what is remembered of closed buckets.
func (s *session) useCache(now time.Time) {
	if s.cache == nil && !s.moment.Alone {
		s.remember(s.counters.cache, now, s.closed, s.moment.First)
		s.asks = s.moment.Check && s.counters.replicated // as a count does
	}
}

// RollBack returns what subtracts the cost that does not stay.
func (s *session) RollBack() []*store.Op {
	over := s.added - stays(s.hits)
	if over == 0 || s.receipt.None() {
		return nil
	}
	s.after.RollBack(s.id, s.adds, s.receipt, over)
	return s.follows[:]
}

// Hint returns what repeats the cost that stays where it was not acknowledged.
func (s *session) Hint() []*store.Op {
	cost := stays(s.hits)
	if cost == 0 || !s.whole || s.moment.Alone || !s.counters.replicated {
		return nil
	}
	s.after.Hint(s.id, s.adds, s.receipt, cost)
	return s.follows[:]
}

// stays returns the cost of the hits that stay.
func stays(hits []engine.Hit) (cost int64) {
	for i := range hits {
		if hits[i].Stays {
			cost += hits[i].Cost
		}
	}
	return cost
}

// WantFinal wants the closed buckets of the window.
func (s *session) WantFinal(limit int) {
	s.step = reading
	s.wantAll(s.closedTiles(limit))
}

// Search starts a search on what is known of the counter.
func (s *session) Search(limit int, ahead, cost int64) (int, bool) {
	if s.step != searching {
		s.step = searching
		s.raise(stays(s.hits)) // for what is read from here on holds it
	}
	return s.beginSearch(limit, ahead, cost)
}

// windows are the limits of a counter, and what is known of their windows: the values of buckets
// without what the batch added.
type windows struct {
	reader
	all      []limitWindow
	searches searches
	finest   Level
	coarsest Level
	stamp    int64
	tiles    Cover // memory for a cover
}

// limitWindow is one limit of a counter, and what its window holds.
type limitWindow struct {
	of      events.Windows
	ceiling int64
	span    span
	lo, hi  int64 // what others hold of the window: at least, and at most
}

func (w *windows) end() {
	clear(w.searches)
	w.all, w.searches = w.all[:0], w.searches[:0]
}

// wantCovers wants the buckets that the exact sums of the limits need.
func (w *windows) wantCovers() {
	for i := range w.all {
		w.wantAll(w.cover(i))
	}
}

// cover returns the buckets that tile the limit's window exactly, until the next use of tiles.
func (w *windows) cover(limit int) Cover {
	w.tiles = w.all[limit].span.cover(w.tiles[:0], w.finest)
	return w.tiles
}

// wantRows wants what bounds the limits, beside what the adds return.
func (w *windows) wantRows() {
	for i := range w.all {
		for bucket := range w.all[i].span.others {
			w.want(bucket)
		}
	}
}

// isOpen reports whether some limit leaves open which hits of so much cost together fit.
func (w *windows) isOpen(most int64) bool {
	for i := range w.all {
		if w.all[i].isOpen(most) {
			return true
		}
	}
	return false
}

// isOpen reports whether some hits of so much cost together may fit and may not.
func (l *limitWindow) isOpen(most int64) bool {
	return l.lo < l.ceiling && l.hi+most > l.ceiling && l.lo != l.hi
}

// wantOpenEdges wants the buckets at the edges of the windows that are open.
func (w *windows) wantOpenEdges(most int64) {
	for i := range w.all {
		if l := &w.all[i]; l.isOpen(most) {
			w.tiles = l.span.split(w.tiles[:0], w.finest)
			w.wantAll(w.tiles)
		}
	}
}

// bound sets the bounds of all limits: the sum over the row, which is no less than what is in
// the window, and the sum without the oldest bucket where only a part of it is in the window,
// which is no more. They are equal where the sum is exact.
func (w *windows) bound() {
	for i := range w.all {
		l := &w.all[i]
		l.hi = 0
		for bucket := range l.span.row().Buckets() {
			l.hi += w.value(bucket)
		}
		l.lo = l.hi
		if !l.span.whole {
			l.lo -= w.value(Bucket{l.span.rank, l.span.tiles[0].First})
		}
	}
}

// sum makes the sums of those limits exact whose edges are known.
func (w *windows) sum() {
	for i := range w.all {
		if sum, known := w.exact(w.cover(i)); known {
			w.all[i].lo, w.all[i].hi = sum, sum
		}
	}
}

// Standing returns whether the limit has room.
func (w *windows) Standing(limit, _ int, ahead, cost int64) engine.Standing {
	l := &w.all[limit]
	count := l.hi + ahead
	return engine.Standing{Outcome: engine.OutcomeOf(count, cost, l.ceiling), Count: count, Exact: l.lo == l.hi}
}

// Span returns the first second of the window, rounded down to the counter's precision, and the
// rank level: the adds to it put hits in one order.
func (w *windows) Span(limit int) engine.Span {
	span := &w.all[limit].span
	return engine.Span{First: span.edge.First, Order: int(span.rank)}
}

// closedTiles returns the closed buckets that tile the limit's window.
func (w *windows) closedTiles(limit int) Cover {
	w.tiles = w.all[limit].span.closed(w.tiles[:0], w.finest, w.closed)
	return w.tiles
}

// Final returns what closed buckets hold: transient adds exist in open ones only.
func (w *windows) Final(limit int) int64 {
	sum, _ := w.exact(w.closedTiles(limit))
	return sum
}
