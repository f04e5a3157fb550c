// Package repair makes the replicas of counters equal again when one may have missed something
// (anti-entropy): it came back empty, was away, or is new. A [Repairer] does that in the
// background while the counters are in use. Import it beside a store with replicas, such as a
// fleet of package memcache. docs/design.md has the method and its reasons.
package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

const (
	// DefaultMaxBytes bounds a Repairer's list of counters where nothing else is set: some
	// 300,000.
	DefaultMaxBytes = 32 << 20
	// DefaultRate is how many looks at a bucket a Repairer takes in a second where nothing else
	// is set, a few hundred of them in one request. A million buckets with two replicas take
	// two minutes.
	DefaultRate = 50_000

	// pollEvery is how often a Repairer asks the store whether there is something to do.
	pollEvery = 250 * time.Millisecond
	// hintPause is the time, beside that of round trips, in which hints are replayed.
	hintPause = time.Second
	// A failed repair is tried again after a time that doubles.
	firstRetry, lastRetry = 5 * time.Second, time.Minute
)

// Config sets up a Repairer. Store, Layout and Grace are needed.
type Config struct {
	Store  Replicas
	Layout Layout // of the counters
	// RepairLog makes the replicas of the log of a counter equal, and returns how many it has
	// changed; nil: no counter has a log.
	RepairLog func(ctx context.Context, counter string, retention time.Duration) (changed int, err error)
	Clock     func() time.Time // nil: time.Now
	Grace     time.Duration    // that of the engine
	// Timeout is the longest that a round trip to the store is under way, in any process; 0:
	// half the grace. What is quiet for more than twice as long is taken to be so.
	Timeout  time.Duration
	MaxBytes int // bounds the list of counters; 0: DefaultMaxBytes
	Rate     int // looks at buckets in a second, those at all replicas together; 0: DefaultRate
	// OnError gets the error of each failed repair of a counter, which is repaired later.
	// nil: it is not called.
	OnError func(error)
	// KindOf returns what an item is; nil: all are buckets.
	KindOf func(item uint64) Kind
	// Retention returns the longest for which any counter is remembered; nil: 32 days.
	Retention func() time.Duration
	// OnPassStart and OnPassEnd are called for each pass over the counters that this process
	// has used. There is one where a server does not list its keys. nil: they are not.
	OnPassStart func(counters int)
	OnPassEnd   func(Pass)
	// OnCopyStart and OnCopyEnd are called for each copying from one server to another of what
	// that lacks. nil: they are not.
	OnCopyStart func(to, from string)
	OnCopyEnd   func(Copy)
}

// Kind is how an item of a counter is copied.
type Kind int

const (
	Bucket  Kind = iota
	Count        // another count that only grows
	Log          // RepairLog does it
	Bytes        // they are written once
	Foreign      // it is none of a counter's
)

// complete checks the config and sets all defaults.
func (c *Config) complete() error {
	if c.Store == nil || c.Layout == nil || c.Grace <= 0 {
		return errors.New("repair: a repairer needs a store, a layout and a grace above 0")
	}
	c.Timeout = cmp.Or(c.Timeout, c.Grace/2)
	if c.Timeout < 0 || c.Rate < 0 || c.MaxBytes < 0 {
		return fmt.Errorf("repair: the timeout, %s, the rate, %d, and the bytes, %d, of a repairer cannot be negative", c.Timeout, c.Rate, c.MaxBytes)
	}
	c.MaxBytes, c.Rate = cmp.Or(c.MaxBytes, DefaultMaxBytes), cmp.Or(c.Rate, DefaultRate)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Retention == nil {
		c.Retention = func() time.Duration { return 32 * 24 * time.Hour }
	}
	if c.KindOf == nil {
		c.KindOf = func(uint64) Kind { return Bucket }
	}
	return nil
}

// quiet returns for how long nothing changes that has nothing under way.
func (c *Config) quiet() time.Duration { return 2*c.Timeout + c.Timeout/2 }

// pause returns how long to wait for what is under way, and for hints, before a repair.
func (c *Config) pause() time.Duration { return 2*c.Timeout + hintPause }

// Pass is the result of a pass over all counters that a process knew when it began.
type Pass struct {
	Counters int
	Raised   int // buckets and logs, once for each replica
	Failed   int // counters that have to be repaired later
	Took     time.Duration
}

// Repairer makes the replicas of counters equal again. It copies to a server what that lacks, by
// the key lists of the others. Where a server lists no keys it compares the counters that this
// process has used, by Note. It is safe for concurrent use, and any number of processes may repair
// at once.
type Repairer struct {
	config  Config // with all defaults
	store   *paced
	bounds  bounds
	counted *census
	backlog *backlog
	broken  sabotage
	stop    context.CancelFunc
	running sync.WaitGroup

	raised atomic.Int64
	toWalk atomic.Int64
	toCopy atomic.Int64 // items, and servers
	open   atomic.Bool  // a pass is under way: new counters are noted for afterwards
}

// sabotage is what the tests break.
type sabotage struct {
	hasty         bool // nothing has to be quiet
	childrenFirst bool
}

// New returns a Repairer, which works until it is closed.
func New(config Config) (*Repairer, error) {
	r, err := newRepairer(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.running.Go(func() { r.run(ctx) })
	r.running.Go(func() { r.copyWhatIsDue(ctx) })
	return r, nil
}

func newRepairer(config Config) (*Repairer, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	return &Repairer{
		config: config, bounds: newBounds(), backlog: newBacklog(), stop: func() {},
		store:   &paced{config.Store, rate.NewLimiter(rate.Limit(config.Rate), maxLook), semaphore.NewWeighted(atOnce)},
		counted: newCensus(config.MaxBytes, config.Clock),
	}, nil
}

// Close ends the repairs, and waits for them. That of a nil Repairer does nothing.
func (r *Repairer) Close() {
	if r == nil {
		return
	}
	r.stop()
	r.running.Wait()
}

// Note adds a counter that is used now to the list: its ID, the levels of its buckets, and for
// how long it is remembered. One that is noted again within the hour costs next to nothing.
func (r *Repairer) Note(id string, finest, coarsest uint8, retention time.Duration, now time.Time) {
	counter := Counter{id, finest, coarsest, retention}
	if r.counted.note(counter, now) && r.open.Load() {
		r.backlog.come(counter)
	}
}

// State is how far a Repairer is.
type State struct {
	Known      int   // counters
	ToWalk     int   // of the pass that is under way, or due
	Failed     int   // that have to be tried again
	Raised     int64 // buckets and logs so far, once for each replica
	Overflowed bool  // counters may be missing for which there was no room
}

// State returns how far the Repairer is.
func (r *Repairer) State() State {
	failed, _ := r.backlog.size()
	return State{
		Known: r.counted.len(), ToWalk: int(max(r.toWalk.Load(), 0) + r.toCopy.Load()), Failed: failed, Raised: r.raised.Load(),
		Overflowed: r.counted.overflowed(),
	}
}

// run repairs whatever there is to repair until the context ends.
func (r *Repairer) run(ctx context.Context) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	var seen uint64
	var retryAt time.Time
	retry := firstRetry
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if missed := r.store.Missed(); len(missed) > 0 {
			if r.backlog.isEmpty() {
				retry, retryAt = firstRetry, time.Now().Add(r.config.pause())
			}
			r.backlog.leave(missed)
		}
		due := !r.backlog.isEmpty() && !time.Now().Before(retryAt)
		_, more := r.backlog.size()
		switch gaps := r.store.Gaps(); {
		case gaps != seen && r.store.Unlisted() || due && more:
			r.toWalk.Store(int64(r.counted.len()))
			if rest(ctx, r.config.pause()) != nil {
				return
			}
			seen = r.store.Gaps()
			r.pass(ctx)
			retry = firstRetry
			retryAt = time.Now().Add(retry)
		case due:
			r.repairUntilGap(ctx, seen, r.left)
			retry = min(2*retry, lastRetry)
			retryAt = time.Now().Add(retry)
		default:
			if r.backlog.isEmpty() {
				r.repairUntilGap(ctx, seen, slices.Values(r.backlog.takeFresh()))
			}
			differing := r.differing()
			if len(differing) == 0 || rest(ctx, r.config.pause()) != nil {
				continue
			}
			r.repairUntilGap(ctx, seen, slices.Values(differing))
		}
	}
}

// repairUntilGap repairs counters, until a server may have missed something once more: then
// a pass over all of them is due, without delay.
func (r *Repairer) repairUntilGap(ctx context.Context, seen uint64, counters iter.Seq[Counter]) {
	if !r.store.Unlisted() { // no pass would follow
		r.repairAll(ctx, counters)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for r.store.Gaps() == seen {
			if rest(ctx, pollEvery) != nil {
				return
			}
		}
		stop()
	})
	r.repairAll(ctx, counters)
	stop()
	watch.Wait()
}

// pass repairs all counters that are known as it begins. Later counters reach all replicas
// by themselves: however many come, the pass ends. What other processes had counted of them
// before is repaired afterwards, as far as it can be; nothing waits for that.
func (r *Repairer) pass(ctx context.Context) {
	began, raised := time.Now(), r.raised.Load()
	r.backlog.begin()
	r.open.Store(true)
	r.toWalk.Store(int64(r.counted.len()))
	if r.config.OnPassStart != nil {
		r.config.OnPassStart(r.counted.len())
	}
	n := r.repairAll(ctx, r.counted.knownBefore())
	r.open.Store(false)
	r.toWalk.Store(0)
	if ctx.Err() != nil {
		return
	}
	if r.config.OnPassEnd != nil {
		failed, _ := r.backlog.size()
		r.config.OnPassEnd(Pass{n, int(r.raised.Load() - raised), failed, time.Since(began)})
	}
}

// repairAll repairs counters, many at a time, and returns how many there were when it is
// done with them.
func (r *Repairer) repairAll(ctx context.Context, counters iter.Seq[Counter]) (n int) {
	var repairs sync.WaitGroup
	for counter := range counters {
		if r.bounds.listing.Acquire(ctx, 1) != nil {
			break // it is closed
		}
		n++
		repairs.Go(func() {
			r.repair(ctx, counter)
			if r.open.Load() {
				r.toWalk.Add(-1)
			}
		})
	}
	repairs.Wait()
	return n
}

// repair repairs one counter, whose turn it is to be listed.
func (r *Repairer) repair(ctx context.Context, counter Counter) {
	g := r.begin(counter)
	g.lists = true
	defer g.release()
	err := repairLog(ctx, g)
	if err == nil && ctx.Err() == nil {
		r.store.Settle(counter.ID)
	}
	if counter.hasBuckets() && !errors.Is(err, errFewReplicas) {
		err = errors.Join(err, g.run(ctx))
	}
	r.raised.Add(int64(g.raised))
	if ctx.Err() != nil {
		return
	}
	if err != nil && r.config.OnError != nil {
		r.config.OnError(fmt.Errorf("repair: a counter could not be repaired: %w", err))
	}
	r.backlog.ended(counter.ID, g.raised, err)
}

// begin returns the repair of a counter, which has not begun to list its buckets.
func (r *Repairer) begin(counter Counter) *repair {
	return &repair{
		arithmetic: arithmetic{r.config.Layout}, copies: r.store.of(counter.ID), turn: turn{bounds: r.bounds},
		config: &r.config, broken: r.broken, counter: counter, began: r.config.Clock().Unix(), gaps: r.store.Gaps(),
	}
}

// left yields the counters whose repair failed.
func (r *Repairer) left(yield func(Counter) bool) {
	for id := range r.backlog.takeLeft() {
		counter, found := r.counted.find(id)
		if !found { // it has expired, or there was no room to note it: then it has a log
			counter = r.config.logOf(id)
		}
		if !yield(counter) {
			return
		}
	}
}

// differing returns the known counters whose replicas were seen to differ, unless they have
// a cooldown.
func (r *Repairer) differing() (counters []Counter) {
	for _, id := range r.store.Differing() {
		if counter, found := r.counted.find(id); found && r.backlog.isDue(id) {
			counters = append(counters, counter)
		}
	}
	return counters
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
