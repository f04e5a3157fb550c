package limiter

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

const (
	denialShards = 64
	maxDenials   = 1 << 10 // in each shard
	// denialLife bounds the time for which a denial is cached, if the clock stops or is set back.
	denialLife = time.Second
)

// denials has an entry for each counter that has denied a hit. The entry answers hits of the same cost and limits
// instead of the store, until the counts change with time or by this process. After that it makes hits check before they
// add, until a check finds room.
type denials struct {
	enabled bool
	changes *engine.Changes
	seed    maphash.Seed
	shards  [denialShards]denialShard
}

type denialShard struct {
	mu      sync.RWMutex
	entries map[denialKey]*denial
}

// A denialKey identifies a counter.
type denialKey struct {
	counter string
	engine  int
}

// A denial is the state of one counter when it denied a hit. It does not change.
type denial struct {
	cost    int64 // of the hits that it answers
	least   int64 // the lowest cost that was denied since a check found room
	limits  []deniedLimit
	tick    time.Duration
	began   time.Time
	second  int64
	until   time.Time
	version uint32 // of the counter, before it was read
}

// A deniedLimit is one limit of the counter.
type deniedLimit struct {
	Limit
	reset  time.Duration // after began or its second
	mayFit bool
}

func (d *denials) init(enabled bool, changes *engine.Changes) {
	d.enabled, d.changes, d.seed = enabled, changes, maphash.MakeSeed()
	for i := range d.shards {
		d.shards[i].entries = map[denialKey]*denial{}
	}
}

func (d *denials) shard(key denialKey) *denialShard {
	return &d.shards[maphash.String(d.seed, key.counter)%denialShards]
}

func (d *denials) get(key denialKey) *denial {
	s := d.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries[key]
}

// denies reports whether the limits denied a hit of no greater cost, and no check has found room since.
func (d *denials) denies(key denialKey, u *use) bool {
	e := d.get(key)
	if e == nil || e.least > u.asks {
		return false
	}
	for i := range u.limits {
		if !slices.ContainsFunc(e.limits, func(l deniedLimit) bool { return l.Limit.Limit == u.limits[i] }) {
			return false
		}
	}
	return true
}

// mayAnswer reports whether all counters of the hit have denials that may still hold.
func (d *denials) mayAnswer(r *request, now func() time.Time) bool {
	if !d.enabled || slices.ContainsFunc(r.applied, countsAll) {
		return false
	}
	for i := range r.applied {
		if e := d.get(denialKey{r.applied[i].ID, r.uses[i].engine}); e == nil || !now().Before(e.until) {
			return false
		}
	}
	return len(r.applied) > 0
}

// answer answers the hit on one of its counters by a denial that still holds, and reports whether there is one.
func (d *denials) answer(h *hit, share int, at Moment) bool {
	s := &h.shares[share]
	e := d.get(denialKey{s.tally.ID, s.tally.Engine})
	if e == nil || s.tally.countAll || !e.holds(s, at) || !e.isOf(h, share) {
		return false
	}
	s.denial = e
	next := 0
	for i := range h.answers {
		if a := &h.answers[i]; a.share == share {
			a.denial, a.limit = e, &e.limits[next].Limit
			next++
		}
	}
	return true
}

// holds reports whether the denial answers hits of the cost at the moment.
func (e *denial) holds(s *share, at Moment) bool {
	return e.cost == s.asks && e.version == s.tally.version && at.Time.Before(e.until) && !at.Time.Before(e.began) &&
		(e.second == at.Second || e.tick < time.Second)
}

// isOf reports whether the denial has the hit's limits. They are compared by value, because hits may bring rules of
// their own.
func (e *denial) isOf(h *hit, share int) bool {
	next := 0
	for i := range h.answers {
		a := &h.answers[i]
		if a.share != share {
			continue
		}
		if next == len(e.limits) {
			return false
		}
		l := &e.limits[next]
		if l.Limit.Limit != a.limit.Limit || l.Ceiling != a.limit.Ceiling || l.Enforced != a.limit.Enforced {
			return false
		}
		next++
	}
	return next == len(e.limits)
}

// of returns the denied limit, which must be one of the denial.
func (e *denial) of(limit *Limit) *deniedLimit {
	return &e.limits[slices.IndexFunc(e.limits, func(l deniedLimit) bool { return l.Limit.Limit == limit.Limit })]
}

// remaining returns what remains of the reset of a limit.
func (e *denial) remaining(limit *Limit, now time.Time) time.Duration {
	reset := e.of(limit).reset
	if e.tick >= time.Second || reset == 0 || reset == events.Never {
		return reset
	}
	return max(reset-now.Sub(e.began), 1)
}

// remember caches the counts of the counters that deny the hit.
func (d *denials) remember(b *batch, h *hit) {
	if !d.enabled {
		return
	}
	for i := range h.shares {
		if t := h.shares[i].tally; h.shares[i].denial == nil && !t.failed && !t.countAll && t.Err == nil {
			d.rememberTally(b, h, i)
		}
	}
}

// rememberTally caches the counts of one counter of the hit, if it denies the hit.
func (d *denials) rememberTally(b *batch, h *hit, share int) {
	t := h.shares[share].tally
	e := &denial{
		cost: h.shares[share].asks, least: h.shares[share].asks, tick: t.Tick,
		began: b.at.Time, second: b.at.Second, until: b.at.Time.Add(denialLife), version: t.version,
	}
	if t.Tick < time.Second { // its resets count from the millisecond
		e.began = e.began.Add(-time.Duration(e.began.UnixNano()) % time.Millisecond)
	}
	if t.Until.Before(e.until) {
		e.until = t.Until
	}
	denies := false
	for i := range h.answers {
		a := &h.answers[i]
		if a.share != share {
			continue
		}
		l := deniedLimit{*a.limit, b.reset(a), a.mayFit()}
		if a.outcome == full && a.allowed { // nothing searched its reset
			l.reset = b.leaves(a)
		}
		if b.adds {
			l.Count += t.Taken
		}
		l.Exact = l.Exact && t.Tick >= time.Second // windows that slide by milliseconds move
		e.limits = append(e.limits, l)
		denies = denies || a.denies()
	}
	if denies {
		d.put(denialKey{t.ID, t.Engine}, e, b.at.Time)
	}
}

func (d *denials) put(key denialKey, e *denial, now time.Time) {
	s := d.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.entries[key]; old != nil {
		e.least = min(e.least, old.least)
	} else if len(s.entries) >= maxDenials {
		s.makeRoom(now)
	}
	s.entries[key] = e
}

// makeRoom drops the expired entries, or all if none has expired. The shard is locked.
func (s *denialShard) makeRoom(now time.Time) {
	for key, e := range s.entries {
		if !now.Before(e.until) {
			delete(s.entries, key)
		}
	}
	if len(s.entries) >= maxDenials {
		clear(s.entries)
	}
}

// forget forgets the denials of the hit's counters, in which a check has found room.
func (d *denials) forget(h *hit) {
	for i := range h.shares {
		t := h.shares[i].tally
		key := denialKey{t.ID, t.Engine}
		if e := d.get(key); t.failed || h.shares[i].denial != nil || e == nil || e.least > h.shares[i].asks {
			continue
		}
		s := d.shard(key)
		s.mu.Lock()
		delete(s.entries, key)
		s.mu.Unlock()
	}
}
