// Package counting counts events without deciding: it checks the range of each call once, bounds
// the calls that wait for the store, and passes them on to the engines that keep the counter.
//
// Most programs use the root package, which wires these parts.
package counting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// Engine is an engine of a limiter that also counts without deciding.
type Engine interface {
	engine.Counting
	// Base returns what the engine shares with the others.
	Base() engine.Base
	// Keeps reports whether the engine keeps the counters of limits with the algorithm.
	Keeps(algorithm string) bool
}

// Config sets up Counters. The zero Config is of use.
type Config struct {
	// MaxPending bounds the calls that may wait for the store at once: an Increment is one for each
	// counter and engine, any other call is one. One beyond it returns [engine.ErrOverload] at
	// once, and has done nothing. As many buckets may be read by histories at once, each charged by
	// its own. 0: [engine.DefaultMaxPending].
	MaxPending int
}

// Counters counts events on several engines. It is safe for concurrent use, and any number of
// Counters, in any number of processes, may share one store.
//
// A counter is kept by each engine that keeps one of its limits, as of a limiter on the same engines,
// which has them in the same order. Counts and histories are of the engine of its first limit, in the
// order of the rules, that is no token bucket; leases are counted where there is nothing else. A counter
// without limits is kept by the first engine.
type Counters struct {
	engines []Engine
	now     func() time.Time
	grace   time.Duration
	pending *engine.Pending
	buckets *engine.Pending // that histories read; beside pending, so that a long history takes no room from other calls
}

// New returns Counters on engines that share a Base. The first one keeps counters without limits.
func New(config Config, first Engine, others ...Engine) *Counters {
	base := first.Base()
	c := &Counters{
		engines: append([]Engine{first}, others...), now: base.Clock, grace: base.Grace, pending: engine.NewPending(config.MaxPending),
		buckets: engine.NewPending(config.MaxPending),
	}
	if c.now == nil {
		c.now = time.Now
	}
	return c
}

// QueueStats returns how much waits for the store, and how many calls have found that it was
// too much.
func (c *Counters) QueueStats() engine.QueueStats { return c.pending.Stats() }

// errNoEngine is the error of a counter with a limit whose algorithm no engine knows.
var errNoEngine = fmt.Errorf("%w: no engine keeps the algorithm of a limit", events.ErrInvalid)

// of returns the places of the engines that count the counter, first that of its first limit with a window.
// Leases are counted where there is nothing else.
func (c *Counters) of(counter events.Counter) (places []int, err error) {
	if places, err = c.keeping(counter); err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(slices.Clone(places), func(place int) bool { return c.engines[place].Keeps(events.Concurrency) })
	if len(others) > 0 {
		return others, nil
	}
	return places, nil
}

// keeping returns the places of the engines that keep the counter, first that of its first limit with a
// window.
func (c *Counters) keeping(counter events.Counter) (places []int, err error) {
	windows := 0 // engines of limits that count in windows: they remember events
	for _, limit := range counter.Limits() {
		place := slices.IndexFunc(c.engines, func(e Engine) bool { return e.Keeps(limit.Algorithm) })
		if place < 0 {
			return nil, errNoEngine
		}
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
		if at := slices.Index(places, place); limit.Burst == 0 && at >= windows {
			places[at], places[windows] = places[windows], place
			windows++
		}
	}
	if len(places) == 0 {
		return []int{0}, nil
	}
	return places, nil
}

// Increment adds by, 1 to [engine.MaxBy], to each of the counters at the moment at, which lies
// between their retention back and the grace ahead; the zero time is now. It returns that moment
// in whole seconds, UTC.
//
// A fault of an argument is a *[engine.RangeError], and nothing is counted then. An error that wraps
// [engine.ErrStore] leaves open what was counted: the acknowledged adds of an engine are rolled back,
// but an answer may be lost, and another engine or counter may have counted. Do not repeat the call
// where counting twice is worse than not at all.
func (c *Counters) Increment(ctx context.Context, by int64, at time.Time, counters ...events.Counter) (time.Time, error) {
	now := c.now()
	at = or(at, now)
	if err := c.checkIncrement(by, at, now, counters); err != nil {
		return time.Time{}, err
	}
	calls, n, err := c.split(counters, c.of)
	if err != nil {
		return time.Time{}, err
	}
	if !c.pending.Enter(n) {
		return time.Time{}, engine.ErrOverload
	}
	defer c.pending.Leave(n)
	return time.Unix(at.Unix(), 0).UTC(), sideBySide(calls, func(one call) error {
		_, err := one.engine.Increment(ctx, by, at, one.counters...)
		return err
	})
}

// call is a call of one engine.
type call struct {
	engine   Engine
	counters []events.Counter
}

// split returns a call for each engine that has some of the counters, and how many counters they
// have in all.
func (c *Counters) split(counters []events.Counter, of func(events.Counter) ([]int, error)) (calls []call, n int, err error) {
	all := make([]call, len(c.engines))
	for _, counter := range counters {
		places, err := of(counter)
		if err != nil {
			return nil, 0, err
		}
		for _, place := range places {
			all[place].engine = c.engines[place]
			all[place].counters = append(all[place].counters, counter)
			n++
		}
	}
	return slices.DeleteFunc(all, func(of call) bool { return of.engine == nil }), n, nil
}

// sideBySide does all calls at the same time, and waits for them.
func sideBySide(calls []call, do func(call) error) error {
	if len(calls) == 1 {
		return do(calls[0])
	}
	faults := make([]error, len(calls))
	var running sync.WaitGroup
	for i, one := range calls {
		running.Go(func() { faults[i] = do(one) })
	}
	running.Wait()
	return errors.Join(faults...)
}

// Refund takes the latest events away that the counter remembers, at most by, and returns how many that was:
// fewer, if there were fewer. A window admits no more than its limit and what was given back: so give back only what
// was admitted, once. If the counter has limits in a log, it is a *[engine.RangeError]: reserve there, and settle. An
// error that wraps [engine.ErrStore] leaves open what was taken away.
func (c *Counters) Refund(ctx context.Context, by int64, counter events.Counter) (int64, error) {
	places, err := c.of(counter)
	switch {
	case by < 1:
		return 0, engine.OutOfRange(engine.ArgBy, "by must be at least 1")
	case err != nil:
		return 0, err
	case len(places) > 1:
		return 0, errRefund
	case !c.pending.Enter(1):
		return 0, engine.ErrOverload
	}
	defer c.pending.Leave(1)
	return c.engines[places[0]].Refund(ctx, by, counter)
}

var errRefund = engine.OutOfRange(engine.ArgBy, "it has limits of several engines, of which one gives nothing back: reserve, and settle")

// Count returns the sum of the counter over the window of that length that ends with the second of
// the moment at; the zero time is now. The length is in whole seconds. The window begins within the
// counter's retention, and ends no more than the grace ahead.
//
// Increments that are under way may be in the sum or not. Faults of an argument are a
// *[engine.RangeError]; errors of the store wrap [engine.ErrStore].
func (c *Counters) Count(ctx context.Context, counter events.Counter, length time.Duration, at time.Time) (engine.Count, error) {
	now := c.now()
	if err := c.checkCount(counter, length, or(at, now), now); err != nil {
		return engine.Count{}, err
	}
	places, err := c.of(counter)
	if err != nil {
		return engine.Count{}, err
	}
	if !c.pending.Enter(1) {
		return engine.Count{}, engine.ErrOverload
	}
	defer c.pending.Leave(1)
	return c.engines[places[0]].Count(ctx, counter, length, at)
}

// History returns the counter's intervals of one level from the one that holds from to the one that
// holds to, the empty ones included, at most [engine.MaxHistory]. The zero time of to is now; of from,
// as far back as the counter is remembered. Faults of an argument are a *[engine.RangeError]; errors
// of the store wrap [engine.ErrStore].
func (c *Counters) History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error) {
	now := c.now()
	if from.IsZero() {
		from = time.Unix(c.kept(counter, now).first+1, 0)
	}
	to = or(to, now)
	if err := c.checkHistory(counter, level, from, to, now); err != nil {
		return engine.History{}, err
	}
	places, err := c.of(counter)
	if err != nil {
		return engine.History{}, err
	}
	if !c.pending.Enter(1) {
		return engine.History{}, engine.ErrOverload
	}
	defer c.pending.Leave(1)
	buckets := int(level.Of(to.Unix()) - level.Of(from.Unix()) + 1)
	if !c.buckets.Enter(buckets) {
		c.pending.Refuse()
		return engine.History{}, engine.ErrOverload
	}
	defer c.buckets.Leave(buckets)
	return c.engines[places[0]].History(ctx, counter, level, from, to)
}

// Reset forgets the counter on all engines that keep it. It does not reach what another engine kept
// by older rules. Increments and hits that are under way may stay; a reset that begins after them
// forgets them. An error wraps [engine.ErrStore]: repeat the call then.
func (c *Counters) Reset(ctx context.Context, counter events.Counter) error {
	calls, _, err := c.split([]events.Counter{counter}, c.keeping)
	if err != nil {
		return err
	}
	if !c.pending.Enter(1) {
		return engine.ErrOverload
	}
	defer c.pending.Leave(1)
	return sideBySide(calls, func(one call) error { return one.engine.Reset(ctx, counter) })
}

// or returns the moment, or now instead of the zero time.
func or(moment, now time.Time) time.Time {
	if moment.IsZero() {
		return now
	}
	return moment
}
