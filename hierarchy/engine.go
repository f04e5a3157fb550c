package hierarchy

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// DefaultGrace is the allowance for clocks that differ and trips that are late.
const DefaultGrace = events.DefaultGrace

// A Config sets up Counters. Only Store is needed.
type Config struct {
	Store store.Store
	Clock func() time.Time // if nil, time.Now
	Grace time.Duration    // if 0, DefaultGrace; processes that share a store need the same
	// CacheBytes bounds the cache of closed buckets. If 0, DefaultCacheBytes is used. If less, nothing is cached.
	CacheBytes int
	// OnUse, if not nil, is called with each counter that is used, and its ID, in the caller's goroutine. Callers call
	// it concurrently.
	OnUse func(id string, counter events.Counter, now time.Time)
}

// Counters counts events in buckets. It is the engine of a limiter and of package counting, which decide and count on
// the same counts. It is safe for concurrent use. Any number of Counters in any number of processes may share a store.
type Counters struct {
	base       engine.Base
	replicated bool // the store keeps several replicas of a counter
	appends    bool // the store can append, so that open reservations are listed
	closed     *closedCache
	resets     chan struct{} // one for each Reset under way
}

// NewCounters returns Counters on the store of the config.
func NewCounters(config Config) *Counters {
	c := &Counters{
		base:       engine.Base{Store: config.Store, Clock: config.Clock, Grace: config.Grace, Changes: new(engine.Changes), OnUse: config.OnUse},
		replicated: config.Store.Capabilities().Replicated(), appends: config.Store.Capabilities().Writes.Has(store.Append),
		resets: make(chan struct{}, resetsAtOnce),
	}
	if c.base.Clock == nil {
		c.base.Clock = time.Now
	}
	if c.base.Grace <= 0 {
		c.base.Grace = DefaultGrace
	}
	if c.base.OnUse == nil {
		c.base.OnUse = func(string, events.Counter, time.Time) {}
	}
	c.closed = newClosedCache(config.CacheBytes, c.base.Clock())
	return c
}

// Base implements [limiter.Engine].
func (c *Counters) Base() engine.Base { return c.base }

// Keeps implements [limiter.Engine].
func (c *Counters) Keeps(algorithm string) bool {
	a, known := events.AlgorithmByName(algorithm)
	return known && !a.Log
}

// CacheStats returns the uses of the cache of closed buckets so far.
func (c *Counters) CacheStats() CacheStats {
	return CacheStats{c.closed.hits.Load(), c.closed.misses.Load()}
}

// NewSession implements [limiter.Engine].
func (c *Counters) NewSession() limiter.Session { return &session{engine: c} }

// A session implements [limiter.Session].
type session struct {
	engine   *Counters
	counters []counter
	ops      []*store.Op
}

// Add adds the hits and reads the buckets that bound the counts. Most hits are far from their limits, so that the
// bounds decide them. Otherwise a second round trip reads the edges of the windows.
func (s *session) Add(ctx context.Context, at limiter.Moment, tallies []*limiter.Tally) {
	s.use(at, tallies)
	s.begin(at, tallies)
	s.trip(ctx, (*counter).planAdd)
	s.trip(ctx, (*counter).planOpenEdges)
	s.each((*counter).measure)
}

// Check reads exact counts.
func (s *session) Check(ctx context.Context, at limiter.Moment, tallies []*limiter.Tally) {
	s.use(at, tallies)
	s.begin(at, tallies)
	s.trip(ctx, (*counter).planCheck)
	s.each((*counter).measure)
}

// Undo subtracts the hits that are not kept, also those of round trips that failed. Then it tells replicas of those that
// are kept, and lists their reservations, and waits for neither.
func (s *session) Undo(ctx context.Context) error {
	s.each((*counter).retry)
	s.trip(ctx, (*counter).planUndo)
	err := s.err()
	s.each((*counter).retry)
	s.trip(ctx, (*counter).planHint)
	s.each((*counter).listReservations)
	return err
}

// Search descends from the buckets that tile a window to the second that has to leave it, in at most one round trip for
// each level.
func (s *session) Search(ctx context.Context) error {
	s.each((*counter).retry)
	s.trip(ctx, (*counter).planEdges)
	s.each((*counter).beginSearches)
	for s.trip(ctx, (*counter).planSearches) {
	}
	s.each((*counter).endSearches)
	return s.err()
}

// use reports the use of the counters.
func (s *session) use(at limiter.Moment, tallies []*limiter.Tally) {
	for _, t := range tallies {
		s.engine.base.OnUse(t.ID, t.Counter, at.Time)
	}
}

// begin begins a batch. It reuses the memory of earlier batches.
func (s *session) begin(at limiter.Moment, tallies []*limiter.Tally) {
	s.counters = slices.Grow(s.counters[:0], len(tallies))[:len(tallies)]
	for i, t := range tallies {
		s.counters[i].begin(s.engine, at, t)
	}
}

// trip makes one round trip for each counter that plans one, side by side. It reports whether any did. A counter that
// the store has failed plans none.
func (s *session) trip(ctx context.Context, plan func(*counter)) bool {
	s.ops = s.ops[:0]
	for i := range s.counters {
		c := &s.counters[i]
		c.planned = false
		c.op = store.Op{Counter: c.tally.ID, Writes: c.op.Writes[:0], Reads: c.op.Reads[:0]}
		if c.err == nil {
			plan(c)
		}
		if len(c.op.Writes)+len(c.op.Reads) > 0 {
			s.ops = append(s.ops, &c.op)
		}
		if c.planned {
			s.ops = append(s.ops, &c.list)
		}
	}
	if len(s.ops) == 0 {
		return false
	}
	s.engine.base.Store.Do(ctx, s.ops...)
	s.each((*counter).absorb)
	return true
}

func (s *session) each(do func(*counter)) {
	for i := range s.counters {
		do(&s.counters[i])
	}
}

// err returns the first error of the round trips.
func (s *session) err() (err error) {
	s.each(func(c *counter) { err = cmp.Or(err, c.err) })
	return err
}
