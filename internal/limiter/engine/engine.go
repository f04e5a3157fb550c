package engine

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/store"
)

// Engine keeps counters in one layout of items. It is safe for concurrent use.
type Engine interface {
	// Base returns what it shares with the other engines of a limiter.
	Base() Base
	// Keeps reports whether it keeps the counters of limits with that algorithm.
	Keeps(algorithm string) bool
	// Tick returns what its waits are multiples of. If that is a second, a denial holds for the
	// second of its stamp, from which the wait counts. If it is finer, a denial holds until its
	// wait is over, which counts from the moment. 0: no denial holds, since what it rests on may be
	// released at any time.
	Tick() time.Duration
	// Begin returns a session on the counter with that ID.
	Begin(counter events.Counter, id string, moment Moment) Session
}

// Moment is when a batch of hits is decided.
type Moment struct {
	Now   time.Time
	Stamp int64 // the Unix second of its hits
	// Latest is the latest stamp of a batch so far. It is later than Stamp if the clock was set back:
	// what hits of this process count from then on may be as far ahead.
	Latest int64
	First  time.Time // when its hits were tried first; the zero time: they were not
	Check  bool      // nothing is added: it is a check
	Alone  bool      // the store is this process's own: nothing of it is cached
}

// Hit is one hit of a batch, as it adds to one counter.
type Hit struct {
	Cost int64
	// Pending is set if the hit is on other counters too, or under limits of another engine: they
	// may deny it.
	Pending bool
	// Counts is set if no limit of the counter takes the hit away from it: the hit is on an allow
	// list, or denied hits count too. It is an increment.
	Counts bool
	// Stays says whether what the hit added stays. It is set before RollBack and Hint.
	Stays bool
	// Ends is until when a Settle is to find what the hit added, in Unix milliseconds; 0: it need not.
	Ends int64
	// Waits is for how long the hit waits for its turn at the most; 0: it does not. For so long a Settle is
	// to find what it added, which counts as that of others does meanwhile.
	Waits time.Duration
	// Reserved is what a Settle finds, once the hits are decided. Without an ID there is nothing. Of a hit
	// that only waits it has no Ends.
	Reserved Reserved
}

// Session decides the hits of one batch on one counter, and is on one store. Its owner adds the
// limits, and then starts one step at a time: Look, Add, WantFinal, Search. In each step it makes
// the round trips that Next returns, until there are none. It is not safe for concurrent use.
type Session interface {
	// Limit has the session keep what a limit counts, whose number is how many were there before.
	Limit(limit Limit)
	// Look starts a step that adds nothing and finds exact counts.
	Look()
	// Add starts a step that adds the hits, in their order, and counts what was there before. The
	// counts are as exact as hits of their cost need, of which up to most may be weighed. The
	// session reads the hits until it ends.
	Add(hits []Hit, most int64)
	// Next returns the round trips that the step makes next, side by side: each is to a server of
	// its own if there are several. They begin no earlier than now. None: the step has ended.
	Next(now time.Time) []*store.Op
	// Absorb takes in what came of the round trips. With an error, which wraps ErrStore, the step
	// has ended, and the session knows no more than before, except what was acknowledged.
	Absorb() error

	// Standing returns whether the limit has room for a hit of that cost, behind hits of the batch
	// that cost ahead. What the batch added does not count otherwise. So many of the hits that were
	// added are decided: it is the next of them; if all are, any hit behind them.
	Standing(limit, decided int, ahead, cost int64) Standing
	// Span returns what the limit counts.
	Span(limit int) Span

	// WantFinal has the next round trip read what Final needs.
	WantFinal(limit int)
	// Final returns what of the limit's count no rollback can take away any more, at the least.
	Final(limit int) int64

	// RollBack returns the round trips that roll back what was acknowledged of hits that do not
	// stay. None: there is nothing to roll back.
	RollBack() []*store.Op
	// Hint returns the round trips that tell the store what stays of hits that not all replicas
	// acknowledged. They wait for no server. None: there is nothing to tell.
	Hint() []*store.Op
	// Later returns round trips of which the hits need nothing, to be made on the session's store
	// at any time, also after End, or never. They begin with what the session has read: the sooner,
	// the more likely they are of use. nil: there are none.
	Later() func(context.Context, store.Store)

	// Search starts a step that finds when the limit has room for a hit of that cost, behind
	// others of the batch that cost ahead, if nothing else comes. It returns the number of the
	// search; ok is false if the limit has room now. One step can have several searches.
	Search(limit int, ahead, cost int64) (search int, ok bool)
	// MayFit reports whether the hit of the search would fit if all open reservations and leases were given back. It is
	// false where that is not known.
	MayFit(search int) bool
	// Wait returns what the search has found so far, no earlier than the truth; events.Never: the limit never has room.
	Wait(search int) time.Duration

	// Explain starts a step that finds what the limit's count consists of, after a step that looks, and
	// the next moments at which it holds less, at most so many, if nothing else comes. One step can have
	// several limits.
	Explain(limit, moments int)
	// Explanation returns what the step has found so far.
	Explanation(limit int) Explanation

	// End gives the session back. It must not be used any more.
	End()
}

// Explanation is what a limit's count consists of, and how room returns.
type Explanation struct {
	Sum   []Part  // sum up to the count of the window, the oldest first; none is 0
	Frees []Freed // in the order of time
	Whole bool    // the step has ended; else the store failed before
}

// Part is what was counted in an interval.
type Part struct {
	Level Level // of the interval; those of several lengths have the finest one
	Interval
}

// Freed is by how much a limit holds less from a moment on, in Unix milliseconds.
type Freed struct{ At, Count int64 }

// Limit is a limit as a session keeps it.
type Limit struct {
	events.Limit
	// Ceiling is what a window never exceeds by hits that are admitted.
	Ceiling int64
	// Enforced: a hit that the limit has no room for is denied.
	Enforced bool
	// Revision is that of the rules that it is of: of two versions the newer one has the higher.
	Revision uint64
}

// Standing is what a limit answers to a hit.
type Standing struct {
	Outcome Outcome       // Fits, Full, or FullForNow if the session knows that hits fill it that may be rolled back
	Count   int64         // what the window holds without the hit
	Exact   bool          // that is exact; else it is no less
	Final   bool          // if it is Full, no hit that it counts is rolled back: to retry is of no use
	Wait    time.Duration // if it Fits, how long the hit waits for its turn in a leaky bucket
}

// Span is what a limit counts.
type Span struct {
	First int64 // the first Unix second of the window
	// Since is the last Unix second of which the engine knows that the counter may lack events; 0:
	// it knows of none.
	Since int64
	// Order tells the orders of hits apart: limits of one order count the same hits ahead of a
	// hit.
	Order int
}

// Outcome is how one limit answers one hit.
type Outcome uint8

const (
	Fits       Outcome = iota // the window has room for the hit's cost
	Full                      // it has none
	FullForNow                // it has none, and transient adds may be the reason
	Unknown                   // no store answered
)

// OutcomeOf weighs the cost of a hit against what the limit's window holds before it.
func OutcomeOf(held, cost, ceiling int64) Outcome {
	if held+cost <= ceiling {
		return Fits
	}
	return Full
}

// CeilSeconds returns the duration in whole seconds, rounded up.
func CeilSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}

// Base is what the engines of a limiter share.
type Base struct {
	Store store.Store
	Clock func() time.Time // nil: time.Now
	// Grace is the allowance for clocks that differ and round trips that are late.
	Grace time.Duration
	// Changes counts what this process has changed of the counters.
	Changes *Changes
	// OnUse is called with each counter that is used, by its ID too, in the caller's goroutine.
	// Callers call it concurrently. nil: it is not called.
	OnUse func(id string, counter events.Counter, now time.Time)
}

// changePlaces is how many counts of changes there are: so many that counters seldom share one,
// for each change of one would end the cached denials of the other, too.
const changePlaces = 1 << 16

// Changes counts what this process has changed, by counter: a denial from before a change must
// not be given after it. It is safe for concurrent use.
type Changes struct {
	// By a hash that is the same in each process, so that the same hits make the same trips.
	counts [changePlaces]atomic.Uint32
}

// Of returns how often the counter with that ID or alias was changed, or one that shares its place.
func (c *Changes) Of(id string) *atomic.Uint32 {
	return &c.counts[store.HashOf(id)%changePlaces]
}

// DefaultMaxPending bounds what may wait for the store at once, where nothing else is set.
const DefaultMaxPending = 10_000

// QueueStats is how much waits for a store, and how often that was too much.
type QueueStats struct {
	Pending int64 // what waits now
	Refused int64 // what found too many waiting, so far
}

// Pending counts what waits for the store, and bounds it: with a store that is slower than its
// callers, all callers would else wait, each of them longer than the one before, until the
// memory is full. It is safe for concurrent use.
type Pending struct {
	most    int64
	_       [64]byte // what all callers write is on no cache line that others read
	now     atomic.Int64
	_       [64]byte
	refused atomic.Int64
}

// NewPending returns a bound of so many; 0 or less: DefaultMaxPending.
func NewPending(most int) *Pending {
	return &Pending{most: int64(cmp.Or(max(most, 0), DefaultMaxPending))}
}

// Enter has n more wait, all or none, and reports whether there is room for them. Leave has to
// be called then, with as many. More than there may ever be need all the room there is.
func (p *Pending) Enter(n int) bool {
	taken := p.room(n)
	if p.now.Add(taken) <= p.most {
		return true
	}
	p.now.Add(-taken)
	p.refused.Add(int64(n))
	return false
}

// Refuse counts a call that another bound has refused.
func (p *Pending) Refuse() { p.refused.Add(1) }

// Leave ends the wait of n.
func (p *Pending) Leave(n int) { p.now.Add(-p.room(n)) }

func (p *Pending) room(n int) int64 { return min(int64(n), p.most) }

// Stats returns how much waits now, and how much was refused so far.
func (p *Pending) Stats() QueueStats { return QueueStats{p.now.Load(), p.refused.Load()} }
