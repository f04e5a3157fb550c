package hierarchy

import (
	"sync"
	"time"

	"github.com/counterd/counterd/algorithm"
	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// session decides the hits of one batch on one counter. Its reader knows the values of buckets
// without what the batch added.
type session struct {
	reader
	counters *Counters
	counter  events.Counter
	finest   Level
	moment   engine.Moment
	windows  []limitWindow
	searches []search
	tiles    Cover // memory for a cover

	step  phase
	began time.Time // when the round trip did
	added int64     // what Add has the next round trip add
	most  int64     // what may be weighed
	alone bool      // on a store that others do not share: nothing is cached of it
}

// limitWindow is one limit of a counter, and what its window holds.
type limitWindow struct {
	algorithm algorithm.Algorithm
	length    time.Duration
	ceiling   int64
	span      span
	lo, hi    int64 // what others hold of the window: at least, and at most
}

// phase is what a session's next round trip is for.
type phase uint8

const (
	reading   phase = iota // what is wanted
	looking                // exact sums
	adding                 // the adds, and what bounds the limits
	narrowing              // the buckets at the edges of windows whose bounds leave a limit open
	searching              // when limits have room
)

var sessions = sync.Pool{New: func() any { return new(session) }}

// Begin returns a session on the counter.
func (c *Counters) Begin(counter events.Counter, id string, moment engine.Moment) engine.Session {
	c.use(id, counter, moment.Now)
	s := sessions.Get().(*session)
	s.begin(id)
	s.counters, s.counter, s.moment = c, counter, moment
	s.finest, _ = levels(counter)
	return s
}

// End gives the session back.
func (s *session) End() {
	s.leave()
	clear(s.searches)
	*s = session{reader: s.reader, windows: s.windows[:0], searches: s.searches[:0], tiles: s.tiles}
	sessions.Put(s)
}

// Limit adds a limit.
func (s *session) Limit(limit events.Limit, ceiling int64) int {
	a, _ := algorithm.Of(limit.Algorithm)
	s.windows = append(s.windows, limitWindow{
		algorithm: a, length: limit.Window, ceiling: ceiling,
		span: s.counters.spanOf(a, s.moment.Stamp, limit.Window, s.finest, s.counters.ahead),
	})
	return len(s.windows) - 1
}

// Look wants the buckets that the exact sums of the limits need.
func (s *session) Look() { s.step = looking }

// Add adds the cost to the counter's buckets, the finest level first, and reads after the adds
// what bounds its limits; where the bounds leave a limit open, also the finer buckets at the
// window's edge.
func (s *session) Add(cost, most int64) {
	s.step, s.added, s.most = adding, cost, most
}

// Restart forgets what the store before has said of buckets that hits may still change.
func (s *session) Restart() {
	s.alone = true
	s.leaveCache()
	s.known.Clear()
}

// Next returns the step's next round trip.
func (s *session) Next(now time.Time) *store.Op {
	s.began = now
	for {
		s.plan(now)
		if s.due() > 0 || len(s.op.Reads) > 0 {
			return s.pack(s.due())
		}
		if !s.proceed() {
			return nil
		}
	}
}

// Absorb takes in what the round trip has found.
func (s *session) Absorb() error {
	if err := s.unpack(s.due(), s.began); err != nil {
		for i := range s.searches {
			s.searches[i].over = true
		}
		s.step = reading
		return err
	}
	s.proceed()
	return nil
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
		for i := range s.windows {
			s.tiles = s.windows[i].span.cover(s.tiles[:0], s.finest)
			s.wantAll(s.tiles)
		}
	case adding:
		if s.cache != nil || s.alone {
			s.forgetOpen(now)
		} else {
			s.useCache(now)
		}
		s.nameAdds()
		for i := range s.windows {
			for bucket := range s.windows[i].span.others {
				s.want(bucket)
			}
		}
	case narrowing:
		s.wantOpenEdges()
	case searching:
		for i := range s.searches {
			s.searches[i].advance()
		}
		for i := range s.searches {
			for _, bucket := range s.searches[i].wanted {
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
		if s.isOpen() {
			s.step = narrowing
			return true
		}
		s.step = reading
	}
	return false
}

// useCache has the session know what is remembered of closed buckets.
func (s *session) useCache(now time.Time) {
	if s.cache == nil && !s.alone {
		s.remember(s.counters.cache, now, s.closed(), s.moment.First)
		s.asks = s.moment.Check && s.counters.replicated // as a count does
	}
}

// closed returns the second before which buckets have to end to be closed.
func (s *session) closed() int64 { return s.moment.Stamp - s.counters.open }

// nameAdds names the buckets that the counter's hits add to.
func (s *session) nameAdds() {
	if len(s.adds) > 0 {
		return
	}
	for bucket := range BucketsOf(s.counter, s.moment.Stamp) {
		s.add(bucket, bucket.Expires(retention(s.counter), s.counters.grace))
	}
}

// isOpen reports whether some limit leaves open which hits of the batch fit.
func (s *session) isOpen() bool {
	for i := range s.windows {
		if s.windows[i].isOpen(s.most) {
			return true
		}
	}
	return false
}

// isOpen reports whether some hits of so much cost together may fit and may not.
func (w *limitWindow) isOpen(most int64) bool {
	return w.lo < w.ceiling && w.hi+most > w.ceiling && w.lo != w.hi
}

// wantOpenEdges wants the buckets at the edges of the windows that are open.
func (s *session) wantOpenEdges() {
	for i := range s.windows {
		if w := &s.windows[i]; w.isOpen(s.most) {
			s.tiles = w.span.split(s.tiles[:0], s.finest)
			s.wantAll(s.tiles)
		}
	}
}

// bound sets the bounds of all limits: the sum over the row, which is no less than what is in
// the window, and the sum without the oldest bucket where only a part of it is in the window,
// which is no more. They are equal where the sum is exact.
func (s *session) bound() {
	for i := range s.windows {
		w := &s.windows[i]
		w.hi = 0
		for n := w.span.row.First; n <= w.span.row.Last; n++ {
			w.hi += s.value(Bucket{w.span.rank, n})
		}
		w.lo = w.hi
		if !w.span.whole {
			w.lo -= s.value(Bucket{w.span.rank, w.span.row.First})
		}
	}
}

// sum makes the sums of those limits exact whose edges are known.
func (s *session) sum() {
	for i := range s.windows {
		w := &s.windows[i]
		s.tiles = w.span.cover(s.tiles[:0], s.finest)
		if sum, known := s.exact(s.tiles); known {
			w.lo, w.hi = sum, sum
		}
	}
}

// Standing returns whether the limit has room.
func (s *session) Standing(limit int, ahead, cost int64) engine.Standing {
	w := &s.windows[limit]
	count := w.hi + ahead
	return engine.Standing{Outcome: engine.OutcomeOf(count, cost, w.ceiling), Count: count, Exact: w.lo == w.hi}
}

// Order returns the rank level: the adds to it put hits in one order.
func (s *session) Order(limit int) int { return int(s.windows[limit].span.rank) }

// First returns the first second of the window, rounded down to the counter's precision.
func (s *session) First(limit int) int64 { return s.windows[limit].span.edge.First }

// WantFinal wants the closed buckets of the window.
func (s *session) WantFinal(limit int) {
	s.step = reading
	s.wantAll(s.closedTiles(limit))
}

// Final returns what closed buckets hold: transient adds exist in open ones only.
func (s *session) Final(limit int) int64 {
	sum, _ := s.exact(s.closedTiles(limit))
	return sum
}

func (s *session) closedTiles(limit int) Cover {
	s.tiles = s.windows[limit].span.closed(s.tiles[:0], s.finest, s.closed())
	return s.tiles
}

// Stay has the buckets hold what stays, for what is read from here on holds it.
func (s *session) Stay(cost int64) {
	for i := range s.adds {
		if value, known := s.known.Get(s.adds[i].Item); known {
			s.known.Put(s.adds[i].Item, value+cost)
		}
	}
}

// RollBack subtracts the cost from the buckets.
func (s *session) RollBack(op *store.Op, receipt store.Receipt, cost int64) {
	op.RollBack(s.id, s.adds, receipt, cost)
}

// Hint repeats the adds of the cost where they were not acknowledged.
func (s *session) Hint(op *store.Op, receipt store.Receipt, cost int64) {
	op.Hint(s.id, s.adds, receipt, cost)
}
