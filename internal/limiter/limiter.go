package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

const (
	// DefaultTimeout bounds the wait for the store in one decision.
	DefaultTimeout = 100 * time.Millisecond
	// MaxCost is the highest cost of one hit.
	MaxCost = 1_000_000
	// MaxReserved is the longest time for which a hit reserves.
	MaxReserved = 24 * time.Hour
	// MaxHits is the most hits that are decided together.
	MaxHits = 1000
	// MaxPartCost is the highest cost of a part of a hit, and of all parts on one counter.
	MaxPartCost = MaxCost * MaxHits

	// maxTries bounds how often a rejected hit adds again. It adds only if a check has found room, and fails only if
	// others take that room first.
	maxTries = 4
	// tripsAtOnce is the number of hits, or parts, for which one Timeout is enough.
	tripsAtOnce = 64
	// maxWaitShare is the share of the timeout for which a hit waits for others on one of its counters.
	maxWaitShare = 8
)

// Config configures a Limiter. All fields may be left out.
type Config struct {
	// Local are engines on a store of this process, in the order of the shared engines. They decide for rules with
	// on_error: local if the shared store fails. If empty, such rules deny.
	Local []Engine
	// Timeout bounds the wait for the store in one decision, and again while hits are undone. If many hits are decided
	// together, it bounds the wait for each 64 of them. It is at most half the grace. If zero, DefaultTimeout is used.
	Timeout time.Duration
	// OnStoreError is called with each failure of the store. It may be nil.
	OnStoreError func(error)
	// OnDecision is called with each decision before it is returned, in the goroutine of the caller, and concurrently. It
	// must not change or keep the decision, but may keep its Limits. A hit with an error has no decision. It must not
	// panic. It may be nil.
	OnDecision func(context.Context, Hit, *events.Decision, Call)
	// OnCoalesced is called with each hit that was decided with hits of other callers: its context, the context of the
	// caller that made the round trips, and the number of the hits. It is called before the hit's call returns, in the
	// goroutine of the caller that made the round trips, and concurrently. If it panics, waiting hits fail. It may be nil.
	OnCoalesced func(hit, trips context.Context, hits int)
	// MaxPending bounds the hits and checks that wait for the store. A hit beyond it is decided at once as if the store
	// had failed. If zero, engine.DefaultMaxPending is used.
	MaxPending int
	// NoCachedDenials makes the store decide each denial.
	NoCachedDenials bool
	// Random returns a random pause below its argument. If nil, each pause is equally likely. It is called concurrently.
	Random func(below time.Duration) time.Duration
}

// Limiter decides hits. It is safe for concurrent use, and any number of Limiters, in any number of processes, may share
// one store.
type Limiter struct {
	config   Config
	timeout  time.Duration
	grace    time.Duration
	clock    clock
	engines  mux
	local    mux
	since    func(counter string) int64  // of the store's capabilities, or nil
	alias    func(counter string) string // likewise
	detached bool                        // the store may use a context after the round trip
	changes  *engine.Changes
	denials  denials
	queues   queues
	pending  *engine.Pending
	stats    stats
	// The pools are the limiter's own, because a test bubble cannot wait on channels of another. They are pointers,
	// because the runtime keeps used pools for a while.
	requests *sync.Pool
	batches  *sync.Pool
}

// New returns a Limiter on the engines, which share a Base. The counters of a rule are kept by the first engine that
// keeps its algorithm.
func New(config Config, engines ...Engine) (*Limiter, error) {
	if len(engines) == 0 {
		return nil, errors.New("limiter: it needs an engine")
	}
	base := engines[0].Base()
	for _, other := range engines[1:] {
		if b := other.Base(); b.Store != base.Store || b.Grace != base.Grace || b.Changes != base.Changes {
			return nil, errors.New("limiter: its engines differ in their store, grace or changes: make one with the Base of the other")
		}
	}
	l := &Limiter{
		config: config, timeout: cmp.Or(config.Timeout, DefaultTimeout), grace: base.Grace, engines: engines, local: config.Local,
		changes: base.Changes, pending: engine.NewPending(config.MaxPending), requests: new(sync.Pool), batches: new(sync.Pool),
	}
	if l.timeout < 0 || l.timeout > l.grace/2 {
		return nil, fmt.Errorf("limiter: the timeout, %s, is more than half the grace, %s", l.timeout, l.grace)
	}
	if config.MaxPending < 0 {
		return nil, fmt.Errorf("limiter: MaxPending is negative: %d", config.MaxPending)
	}
	if len(l.local) > 0 && len(l.local) != len(l.engines) {
		return nil, errors.New("limiter: Local differs from the shared engines")
	}
	if l.config.Random == nil {
		l.config.Random = rand.N[time.Duration]
	}
	can := base.Store.Capabilities()
	l.since, l.alias, l.detached = can.Since, can.Alias, can.Background != nil
	l.clock.init(base.Clock, base.Grace)
	l.queues.init(l.timeout / maxWaitShare)
	l.denials.init(!config.NoCachedDenials, base.Changes)
	return l, nil
}

// Hit adds the hit to its counters and decides it. If it is denied, it is undone, unless a rule counts denied hits. An
// invalid hit is an error that wraps events.ErrInvalid or engine.ErrOutOfRange. If the store fails, the rules decide by
// their OnError, and there is no error.
//
// A hit on a counter on which hits are being decided waits and then shares a round trip with other waiting hits. Each
// decision is the same as one by one. A hit whose context ends before the timeout does not wait.
func (l *Limiter) Hit(ctx context.Context, h Hit) (events.Decision, error) {
	result := l.Decide(ctx, h, CallHit)
	return result.Decision, result.Err
}

// Check returns the decision that the hit would get, by exact counts, and adds nothing.
func (l *Limiter) Check(ctx context.Context, h Hit) (events.Decision, error) {
	result := l.Decide(ctx, h, CallCheck)
	return result.Decision, result.Err
}

// Decide is Hit or Check. Its result includes what the hit reserved.
func (l *Limiter) Decide(ctx context.Context, h Hit, call Call) Result {
	if err := ctx.Err(); err != nil {
		return Result{Err: err}
	}
	r := l.newRequest(ctx, h)
	defer l.freeRequest(r)
	if call == CallCheck {
		l.peek(r, 0)
	} else {
		l.hit(r)
	}
	l.report(r, h, call)
	return r.result
}

// Hits decides at most MaxHits hits as if one by one, in their order, but together. The error is the context's, if it
// has ended before.
func (l *Limiter) Hits(ctx context.Context, hits []Hit) ([]Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(hits) > MaxHits {
		return nil, engine.OutOfRange(engine.ArgHits, "%d of them, at most %d are decided together", len(hits), MaxHits)
	}
	requests := make([]*request, len(hits))
	var open []*request
	for i, h := range hits {
		r := l.newRequest(ctx, h)
		requests[i] = r
		r.deadline = r.deadline.Add(l.timeout * time.Duration(len(hits)/tripsAtOnce))
		r.isHurried()
		if r.result.Err == nil && !l.refuse(r) {
			open = append(open, r)
		}
	}
	l.decideAll(open)
	results := make([]Result, len(hits))
	for i, r := range requests {
		l.report(r, hits[i], CallHit)
		results[i] = r.result
		l.freeRequest(r)
	}
	return results, nil
}

// decideAll decides requests of one caller, in their order.
func (l *Limiter) decideAll(requests []*request) {
	n := len(requests)
	if n == 0 {
		return
	}
	if l.pending.Enter(n) {
		defer l.pending.Leave(n)
	} else {
		for _, r := range requests {
			r.overloaded = true
		}
	}
	if !slices.ContainsFunc(requests, l.mustCheck) {
		requests = l.add(requests)
	}
	l.retry(requests)
}

// hit decides one request. A denial from memory neither waits nor makes a round trip.
func (l *Limiter) hit(r *request) {
	if r.result.Err != nil || l.refuse(r) || l.recall(r) {
		return
	}
	r.open = append(r.open[:0], r)
	if !l.pending.Enter(1) {
		r.overloaded = true
		l.decideAny(r.open)
		return
	}
	defer l.pending.Leave(1)
	if r.isHurried() {
		l.decideAny(r.open)
	} else {
		l.queues.do(r, l.decideAny)
	}
}

// decideAny decides requests of several callers, in any order. Those that may add do not wait for checks of others, and
// these do not wait until rejected requests are decided.
func (l *Limiter) decideAny(requests []*request) {
	adds := 0
	for i, r := range requests {
		if !l.mustCheck(r) {
			requests[adds], requests[i] = r, requests[adds]
			adds++
		}
	}
	rejected := l.add(requests[:adds])
	checked := copy(requests[len(rejected):], requests[adds:])
	l.retry(requests[:len(rejected)+checked])
}

// retry checks the requests in their order, adds those that have room, and repeats that with the rejected ones.
func (l *Limiter) retry(requests []*request) {
	for try := 1; len(requests) > 0 && try <= maxTries; try++ {
		l.pause(requests[0].ctx, try)
		requests = l.add(l.check(l.dropLate(requests)))
	}
	for _, r := range requests {
		l.giveUp(r)
	}
}

// add adds the requests and decides them by the values that the adds return. It returns the rejected ones, which have
// been undone.
func (l *Limiter) add(requests []*request) (rejected []*request) {
	if len(requests) == 0 {
		return nil
	}
	b := l.newBatch(requests, true)
	b.session.Add(b.ctx, b.at, b.tallies)
	b.decide(false)
	if b.admits() && l.clock.isLate(b.at) {
		b.session.failLate(b.ctx, b.at, b.tallies)
		b.decide(true)
	}
	b.undo()
	return b.finish(requests[:0])
}

// check decides the requests by reading their counters. It returns those that are to be added, because they have room or
// because they count even if they are denied.
func (l *Limiter) check(requests []*request) (room []*request) {
	if len(requests) == 0 {
		return nil
	}
	b := l.newBatch(requests, false)
	b.recall()
	b.session.Check(b.ctx, b.at, b.unknown)
	b.dropStale()
	b.decide(false)
	return b.finish(requests[:0])
}

// QueueStats returns how many hits and checks wait for the store, and how many were decided without it because too many
// waited.
func (l *Limiter) QueueStats() engine.QueueStats { return l.pending.Stats() }

// Stats returns what the limiter has done so far.
func (l *Limiter) Stats() Stats {
	return Stats{l.stats.batches.Load(), l.stats.hits.Load(), l.stats.cachedDenials.Load()}
}
