package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/coalesce"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

const (
	// DefaultTimeout is the longest wait for the store in one decision.
	DefaultTimeout = 100 * time.Millisecond
	// MaxCost is the most that one hit costs.
	MaxCost = 1_000_000
	// MaxReserved is the longest time for which a hit reserves.
	MaxReserved = 24 * time.Hour
	// MaxHits is the most hits that are decided together.
	MaxHits = 1000
	// MaxPartCost is the most that a part of a hit costs, and all parts on one counter.
	MaxPartCost = MaxCost * MaxHits

	// tripsAtOnce bounds the round trips of one decision that are under way at a time.
	tripsAtOnce = 64
	// maxWaitShare is the share of the timeout for which hits wait for others on one of their
	// counters. Those may be held up by another server, or by a server that is down; then the
	// hits that wait go without them.
	maxWaitShare = 8
)

// Config sets up a Limiter. All of it may be left out.
type Config struct {
	// Local decides where the store cannot be asked and a rule says so
	// (events.OnErrorLocal); nil: such a rule denies then. It is of this process
	// alone.
	Local store.Store
	// Timeout is the longest wait for the store in one decision; a rollback has as long
	// again. Where so many hits are decided together that their round trips have to queue,
	// it is the wait for each 64 of them. 0: DefaultTimeout; at most half the grace.
	Timeout time.Duration
	// OnStoreError gets the error of each round trip to the store that failed, and of each
	// rollback that did: what it should have subtracted stays counted.
	OnStoreError func(error)
	// OnDecision gets each decision before it is returned, that of each hit of Hits by itself,
	// in the goroutine of the caller, which waits for it. It must not change or keep the
	// decision; it may keep the Limits. A faulty hit has no decision. Callers call it
	// concurrently. It must not panic.
	OnDecision func(context.Context, Hit, *events.Decision, Call)
	// OnCoalesced gets each hit that was decided with hits of other callers: its context, the
	// context of the caller whose round trips they shared (the same one, for that caller's own
	// hit), and how many hits they were. It runs before the hit's call returns, in that caller's
	// goroutine. Callers call it concurrently. It must not panic: the hits that wait for that
	// caller would fail.
	OnCoalesced func(hit, trips context.Context, hits int)
	// MaxPending is the most hits and checks that may wait for the store at once, those
	// of Hits each for itself. One beyond it is decided at once, by the OnError of its
	// rules, as if the store had failed; what needs no store is decided as ever. 0:
	// DefaultMaxPending.
	MaxPending int
	// NoCachedDenials has each denial decided by the store.
	NoCachedDenials bool
	// Random returns how long a hit pauses that retries, less than the given time; nil: each time
	// is as likely. It is called concurrently.
	Random func(below time.Duration) time.Duration
}

// Limiter decides hits: it adds them to their counters and admits the hits that fit
// the limits of all their rules. However many Limiters decide at once on one
// store, in however many processes, no window of a limit ever holds more
// admitted cost than the limit allows, as long as their clocks agree within a
// quarter of the grace and the store keeps what it acknowledged. docs/design.md
// has the proof.
//
// Hits that come at the same time on one counter share a round trip: see Hit. It is safe for
// concurrent use.
type Limiter struct {
	engines      engines
	store        store.Store
	local        store.Store
	changes      *engine.Changes
	now          func() time.Time
	real         bool // that is the real time
	grace        time.Duration
	timeout      time.Duration
	onStoreError func(error)
	onDecision   func(context.Context, Hit, *events.Decision, Call) // or nil
	onCoalesced  func(hit, trips context.Context, hits int)         // or nil
	tally        tally
	// replicated: the store keeps several replicas of a counter.
	replicated bool
	since      func(counter string) int64  // of the store's capabilities, or nil
	alias      func(counter string) string // as well
	stamps     stamps
	denials    *denialCache
	coalescer  *coalesce.Coalescer[*request]
	pending    *engine.Pending
	// requests is the limiter's own: a bubble of testing/synctest cannot wait on the
	// channels of another. It is not a part of the limiter, which the runtime would hold
	// on to with it.
	requests *sync.Pool
	random   func(below time.Duration) time.Duration
}

// New returns a Limiter on the engines, at least one. They share a Base: its store and its clock.
// A limit's counter is kept by the first engine that keeps limits of its algorithm.
func New(config Config, keep ...engine.Engine) (*Limiter, error) {
	if len(keep) == 0 {
		return nil, errors.New("limiter: it needs an engine")
	}
	base := keep[0].Base()
	for _, other := range keep[1:] {
		if b := other.Base(); b.Store != base.Store || b.Grace != base.Grace || b.Changes != base.Changes {
			return nil, errors.New("limiter: its engines differ in their store, grace or changes: make one with the Base of the other")
		}
	}
	l := &Limiter{
		engines:      keep,
		changes:      base.Changes,
		store:        base.Store,
		local:        config.Local,
		now:          base.Clock,
		grace:        base.Grace,
		timeout:      cmp.Or(config.Timeout, DefaultTimeout),
		onStoreError: config.OnStoreError,
		onDecision:   config.OnDecision,
		onCoalesced:  config.OnCoalesced,
		denials:      newDenialCache(!config.NoCachedDenials, base.Changes),
		pending:      engine.NewPending(config.MaxPending),
		requests:     new(sync.Pool),
		random:       config.Random,
	}
	if l.onStoreError == nil {
		l.onStoreError = func(error) {}
	}
	if l.now == nil {
		l.now, l.real = time.Now, true
	}
	if l.random == nil {
		l.random = rand.N[time.Duration]
	}
	l.coalescer = coalesce.New[*request](l.timeout/maxWaitShare, MaxHits)
	can := l.store.Capabilities()
	l.replicated, l.since, l.alias = can.Replicated(), can.Since, can.Alias
	if l.timeout < 0 || l.timeout > l.grace/2 {
		return nil, fmt.Errorf("limiter: the timeout, %s, is more than half the grace, %s", l.timeout, l.grace)
	}
	if config.MaxPending < 0 {
		return nil, fmt.Errorf("limiter: MaxPending is negative: %d", config.MaxPending)
	}
	return l, nil
}

// QueueStats returns how many hits and checks wait for the store, and how many have found too
// many of them.
func (l *Limiter) QueueStats() engine.QueueStats { return l.pending.Stats() }

// Call is what a decision was asked for by.
type Call int

const (
	CallHit   Call = iota + 1 // Hit or Hits
	CallCheck                 // Check
)

// String returns hit or check.
func (c Call) String() string {
	switch c {
	case CallHit:
		return "hit"
	case CallCheck:
		return "check"
	}
	return fmt.Sprintf("Call(%d)", int(c))
}

// Hit is what a Limiter decides: an event with the features that do it.
type Hit struct {
	Event    *events.Event
	Features events.Features
	Cost     int64 // 0 to MaxCost; 0 adds nothing, and fits while no limit is exceeded
	// Reserved is for how long the hit can be settled, by its true cost, whole seconds up to
	// MaxReserved; 0: it cannot.
	Reserved time.Duration
	// Parts are what the hit counts on instead of the counters of its features, at most MaxHits:
	// on all of them, or on none if one denies it. Features and Cost then have no meaning.
	Parts []Part
}

// Part is a part of a hit with a cost of its own. The costs of parts on the same counter add up, except of parts that
// look.
type Part struct {
	events.Applied
	Cost  int64 // 1 to MaxPartCost; 0 behind a part on the same counter, which has the cost for both
	Looks bool  // it adds nothing: it asks whether its cost alone has room, or what others add to its counter
}

func (p *Part) cost() partCost {
	if p.Looks {
		return partCost{asks: p.Cost}
	}
	return partCost{p.Cost, p.Cost}
}

// Hit adds the hit to its counters and decides it. Where it is denied its adds
// are rolled back, unless a rule counts all hits. A fault of the hit is an error
// that wraps events.ErrInvalid or engine.ErrOutOfRange; a store that fails is a decision
// by the rules' OnError, not an error.
//
// While hits on one of its counters are being decided it waits, and then goes with
// all others that did; the decision is what it would be one by one. A hit whose
// context ends before the timeout does goes by itself.
func (l *Limiter) Hit(ctx context.Context, h Hit) (events.Decision, error) {
	result := l.Decide(ctx, h, CallHit)
	return result.Decision, result.Err
}

// Decide is Hit or Check, as the call is, and also returns what the hit has reserved.
func (l *Limiter) Decide(ctx context.Context, h Hit, call Call) Result {
	if call == CallCheck {
		return l.check(ctx, h, func(*batch) error { return nil })
	}
	if err := ctx.Err(); err != nil {
		return Result{Err: err}
	}
	r := l.newRequest(ctx, h)
	defer l.freeRequest(r)
	l.decide(r)
	if l.onDecision != nil && r.err == nil {
		l.onDecision(ctx, h, &r.result.Decision, CallHit)
	}
	r.result.Err = r.err
	return r.result
}

// Hits decides several hits, at most MaxHits, as Hit does each of them, those on
// the same counter in their order and in one round trip. The error is that of the
// context, if it had ended before anything was done.
func (l *Limiter) Hits(ctx context.Context, hits []Hit) ([]Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(hits) > MaxHits {
		return nil, engine.OutOfRange(engine.ArgHits, "%d of them, at most %d are decided together", len(hits), MaxHits)
	}
	if len(hits) == 0 {
		return []Result{}, nil
	}
	g := l.coalescer.NewGroup()
	for _, h := range hits {
		r := l.newRequest(ctx, h)
		r.until = r.until.Add(l.timeout * time.Duration(len(hits)/tripsAtOnce))
		r.hurried()
		g.Requests = append(g.Requests, r)
	}
	requests := slices.Clone(g.Requests)
	if l.pending.Enter(len(hits)) {
		defer l.pending.Leave(len(hits))
		l.lead(g, nil, requests[0].began)
	} else {
		l.overload(g)
	}
	results := make([]Result, len(hits))
	for i, r := range requests {
		if l.onDecision != nil && r.err == nil {
			l.onDecision(ctx, hits[i], &r.result.Decision, CallHit)
		}
		r.result.Err = r.err
		results[i] = r.result
		l.freeRequest(r)
	}
	return results, nil
}

// Check returns the decision that the hit would get, with exact counts, and adds
// nothing.
func (l *Limiter) Check(ctx context.Context, h Hit) (events.Decision, error) {
	result := l.Decide(ctx, h, CallCheck)
	return result.Decision, result.Err
}

// Explain returns the decision of a Check, and of each of its limits what the count consists of and the
// next moments at which it holds less, at most so many. A limit that is not decided on the store, or this
// process's own, has none. It makes some more round trips, for which it has ten times the timeout. If the store
// fails meanwhile the error wraps [engine.ErrStore].
func (l *Limiter) Explain(ctx context.Context, h Hit, moments int) (events.Decision, []Explained, error) {
	var explained []Explained
	result := l.check(ctx, h, func(f *batch) (err error) {
		explained, err = f.explain(f.hits.all[0], moments)
		return err
	})
	return result.Decision, explained, result.Err
}

// check decides the hit, and hands what it was decided on to explain.
func (l *Limiter) check(ctx context.Context, h Hit, explain func(*batch) error) Result {
	if err := ctx.Err(); err != nil {
		return Result{Err: err}
	}
	r := l.newRequest(ctx, h)
	defer l.freeRequest(r)
	if r.err != nil {
		return Result{Err: r.err}
	}
	r.hurried()
	f := l.newBatch(engine.Moment{Now: r.began, Check: true}, r)
	defer f.free()
	if r.err != nil {
		return Result{Err: r.err}
	}
	if l.pending.Enter(1) {
		defer l.pending.Leave(1)
	} else {
		f.overloaded = true
	}
	f.recall()
	f.look()
	f.decide()
	f.counters.later(f.l)
	f.findResets()
	if err := explain(f); err != nil {
		return Result{Err: err}
	}
	f.conclude(f.hits.all[0])
	if l.onDecision != nil {
		l.onDecision(ctx, h, &r.result.Decision, CallCheck)
	}
	return r.result
}

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
