package hierarchy

import (
	"sync"
	"time"

	"github.com/counterd/counterd/algorithm"
	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// session decides the hits of one batch on one counter: it says which round trip is next.
type session struct {
	windows
	counters *Counters
	counter  events.Counter
	moment   engine.Moment

	step  phase
	began time.Time // when the round trip did
	added int64     // by Add
	stays int64     // of that
	most  int64     // what may be weighed
	alone bool      // on a store that others do not share: nothing is cached of it
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
	s.step, s.added, s.stays, s.most, s.alone = reading, 0, 0, 0, false
	s.counters, s.counter, s.moment = c, counter, moment
	s.finest, s.coarsest = levels(counter)
	s.stamp, s.closed = moment.Stamp, moment.Stamp-c.open
	return s
}

// End gives the session back.
func (s *session) End() {
	s.leave()
	s.windows.end()
	s.counters, s.counter, s.moment = nil, events.Counter{}, engine.Moment{}
	sessions.Put(s)
}

// Limit adds a limit.
func (s *session) Limit(limit events.Limit, ceiling int64) {
	a, _ := algorithm.Of(limit.Algorithm)
	span := s.counters.spanOf(a, s.stamp, limit.Window, s.finest, s.counters.ahead)
	s.all = append(s.all, limitWindow{algorithm: a, length: limit.Window, ceiling: ceiling, span: span})
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
	s.values.Clear()
}

// Next returns the step's next round trip.
func (s *session) Next(now time.Time) *store.Op {
	s.began = now
	for {
		s.plan(now)
		if s.due() > 0 || len(s.reads) > 0 {
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
		s.searches.end()
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
		s.wantCovers()
	case adding:
		if s.values.Len() > 0 { // by a look
			s.forgetOpen(now)
		}
		s.useCache(now)
		if len(s.adds) == 0 {
			for l := s.finest; l <= s.coarsest; l++ {
				bucket := BucketAt(l, s.stamp)
				s.add(bucket, bucket.Expires(retention(s.counter), s.counters.grace))
			}
		}
		s.wantRows()
	case narrowing:
		s.wantOpenEdges(s.most)
	case searching:
		s.searches.advance(&s.known)
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
	if s.cache == nil && !s.alone {
		s.remember(s.counters.cache, now, s.closed, s.moment.First)
		s.asks = s.moment.Check && s.counters.replicated // as a count does
	}
}

// Stay notes what stays.
func (s *session) Stay(cost int64) { s.stays = cost }

// Follow rolls back what does not stay, or repeats what does where it was not acknowledged.
func (s *session) Follow(op *store.Op, kind store.Kind, receipt store.Receipt) {
	if kind == store.Hint {
		op.Hint(s.id, s.adds, receipt, s.stays)
	} else {
		op.RollBack(s.id, s.adds, receipt, s.added-s.stays)
	}
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
		s.raise(s.stays) // for what is read from here on holds it
	}
	return s.beginSearch(limit, ahead, cost)
}
