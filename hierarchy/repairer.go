package hierarchy

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

	"github.com/counterd/counterd/events"
)

const (
	// DefaultRepairBytes bounds a Repairer's list of counters where nothing else is set:
	// some 300,000.
	DefaultRepairBytes = 32 << 20
	// DefaultRepairRate is how many looks at a bucket a Repairer takes in a second where
	// nothing else is set, a few hundred of them in one request. A million buckets with two
	// replicas take two minutes.
	DefaultRepairRate = 50_000

	// repairerLooks is how many looks of a Repairer are under way at a time, and of how
	// many counters the buckets are being listed.
	repairerLooks = 4
	// repairerEntries bounds the buckets under repair at a time, beside the ones that are
	// being listed; a counter is reckoned to have at least leastEntries.
	repairerEntries = 2 * maxEntries
	leastEntries    = 256

	// repairerPoll is how often a Repairer asks the store whether there is something to do.
	repairerPoll = 250 * time.Millisecond
	// repairerPause is the time, beside that of trips, in which hints are replayed.
	repairerPause = time.Second
	// A failed repair is tried again after a time that doubles.
	firstRetry, lastRetry = 5 * time.Second, time.Minute
	// A counter whose replicas were seen to differ has a cooldown after its repair, which
	// doubles each time that there was nothing to raise: adds under way reach the replicas
	// at different moments.
	firstCooldown, lastCooldown = 10 * time.Second, time.Hour
	// maxLeft bounds what a Repairer has to come back to.
	maxLeft = 1 << 16
)

// RepairerConfig sets up a Repairer. Only Store is needed.
type RepairerConfig struct {
	Store Replicas
	Clock func() time.Time // nil: time.Now
	Grace time.Duration    // 0: DefaultGrace; that of the Limiter and the Counters
	// Timeout is the longest that a trip to the store is under way, in any process; 0:
	// half the grace. What is quiet for more than twice as long is taken to be so.
	Timeout  time.Duration
	MaxBytes int // bounds the list of counters; 0: DefaultRepairBytes
	Rate     int // looks at buckets in a second, those at all copies together; 0: DefaultRepairRate
	// OnError gets the error of each failed repair of a counter, which is repaired later.
	// nil: it is not called.
	OnError func(error)
	// OnPassStart and OnPassEnd are called for each pass over all counters. nil: they are
	// not.
	OnPassStart func(counters int)
	OnPassEnd   func(RepairPass)
	// OnRepaired is called when all counters that this process knew when the store's Gaps
	// were that number have been repaired since; nil: it is not called.
	OnRepaired func(gaps uint64)
}

// RepairPass is the result of a pass over all counters that a process knew when it began.
type RepairPass struct {
	Gaps     uint64 // of the store when it began
	Counters int
	Raised   int // buckets, once for each copy
	Failed   int // counters that have to be repaired later
	Took     time.Duration
}

// Repairer makes the replicas of counters equal again when one may have missed something:
// it came back empty, was away, or is new. It knows the counters that this process has
// used, from the Limiter and the Counters on the store. It is safe for concurrent use, and
// any number of processes may repair at once. docs/design.md explains how it does that
// while the counters are in use.
type Repairer struct {
	store   Replicas
	now     func() time.Time
	grace   time.Duration
	quiet   time.Duration // what does not change for so long has nothing under way
	pause   time.Duration
	config  RepairerConfig
	counted *census
	rate    *rate.Limiter
	looking *semaphore.Weighted
	listing *semaphore.Weighted
	room    *semaphore.Weighted // for entries
	broken  brokenRepairer
	stop    context.CancelFunc
	running sync.WaitGroup

	raised atomic.Int64
	walked atomic.Uint64 // Gaps
	toWalk atomic.Int64
	failed atomic.Int64
	open   atomic.Bool // a pass is under way: new counters are noted for afterwards

	mu        sync.Mutex
	fresh     []known         // noted for the first time during the pass, as far as there is room
	left      map[string]bool // not repaired: to be tried again
	again     bool            // so many that they were not written down
	cooldowns map[string]cooldown
}

// cooldown is until when a counter is left alone whose replicas differ.
type cooldown struct {
	until time.Time
	step  time.Duration
}

// brokenRepairer is what the tests break.
type brokenRepairer struct {
	hasty         bool // nothing has to be quiet
	childrenFirst bool
}

// NewRepairer returns a Repairer, which works until it is closed.
func NewRepairer(config RepairerConfig) (*Repairer, error) {
	m, err := newRepairer(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.running.Go(func() { m.run(ctx) })
	return m, nil
}

func newRepairer(config RepairerConfig) (*Repairer, error) {
	if config.Store == nil {
		return nil, errors.New("hierarchy: a repairer needs a store")
	}
	m := &Repairer{
		store: config.Store, now: config.Clock, grace: cmp.Or(config.Grace, DefaultGrace), config: config,
		looking: semaphore.NewWeighted(repairerLooks), listing: semaphore.NewWeighted(repairerLooks), room: semaphore.NewWeighted(repairerEntries),
		left: map[string]bool{}, cooldowns: map[string]cooldown{}, stop: func() {},
	}
	if m.now == nil {
		m.now = time.Now
	}
	timeout := cmp.Or(config.Timeout, m.grace/2)
	if timeout < 0 || config.Rate < 0 || config.MaxBytes < 0 {
		return nil, fmt.Errorf("hierarchy: the timeout, %s, the rate, %d, and the bytes, %d, of a repairer cannot be negative", timeout, config.Rate, config.MaxBytes)
	}
	m.quiet = 2*timeout + timeout/2
	m.pause = 2*timeout + repairerPause
	perSecond := cmp.Or(config.Rate, DefaultRepairRate)
	m.rate = rate.NewLimiter(rate.Limit(perSecond), lookBuckets)
	m.counted = newCensus(cmp.Or(config.MaxBytes, DefaultRepairBytes), m.now)
	return m, nil
}

// Close ends the repairs, and waits for them. That of a nil Repairer does nothing.
func (m *Repairer) Close() {
	if m == nil {
		return
	}
	m.stop()
	m.running.Wait()
}

// Note adds a counter that is used to the list: it is for the OnUse of a Limiter and of
// Counters. A nil Repairer takes no notice.
func (m *Repairer) Note(id string, counter events.Counter, now time.Time) {
	if m == nil || !m.counted.note(id, counter, now) || !m.open.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.fresh) < maxLeft {
		m.fresh = append(m.fresh, knownOf(id, counter))
	}
}

// RepairState is how far a Repairer is.
type RepairState struct {
	Known      int    // counters
	ToWalk     int    // of the pass that is under way
	Failed     int    // that have to be tried again
	Raised     int64  // buckets so far, once for each copy
	Walked     uint64 // the store's Gaps up to which all known counters were repaired
	Overflowed bool   // counters may be missing for which there was no room
}

// State returns how far the Repairer is.
func (m *Repairer) State() RepairState {
	return RepairState{
		Known: m.counted.len(), ToWalk: int(max(m.toWalk.Load(), 0)), Failed: int(m.failed.Load()), Raised: m.raised.Load(),
		Walked: m.walked.Load(), Overflowed: m.counted.overflowed(),
	}
}

// run repairs whatever there is to repair until the context ends.
func (m *Repairer) run(ctx context.Context) {
	ticker := time.NewTicker(repairerPoll)
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
		due := m.unfinished() && !time.Now().Before(retryAt)
		switch gaps := m.store.Gaps(); {
		case gaps != seen || due && m.startAgain():
			if m.rest(ctx, m.pause) != nil {
				return
			}
			seen = m.store.Gaps()
			m.pass(ctx, seen)
			retry = firstRetry
			retryAt = time.Now().Add(retry)
		case due:
			if m.repairUntilGap(ctx, seen, m.takeLeft) {
				m.finish(seen)
			}
			retry = min(2*retry, lastRetry)
			retryAt = time.Now().Add(retry)
		default:
			if !m.unfinished() {
				m.repairUntilGap(ctx, seen, m.takeFresh)
			}
			differing := m.differing()
			if len(differing) == 0 || m.rest(ctx, m.pause) != nil {
				continue
			}
			m.repairUntilGap(ctx, seen, slices.Values(differing))
		}
	}
}

// repairUntilGap repairs counters, until a server may have missed something once more: then
// a pass over all of them is due, without delay. It reports whether it came to the end.
func (m *Repairer) repairUntilGap(ctx context.Context, seen uint64, counters iter.Seq[known]) (ended bool) {
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for m.store.Gaps() == seen {
			if m.rest(ctx, repairerPoll) != nil {
				return
			}
		}
		stop()
	})
	m.repairAll(ctx, counters)
	stop()
	watch.Wait()
	return m.store.Gaps() == seen
}

// pass repairs all counters that are known as it begins. Later counters reach all replicas
// by themselves: however many come, the pass ends. What other processes had counted of them
// before is repaired afterwards, as far as it can be; nothing waits for that.
func (m *Repairer) pass(ctx context.Context, gaps uint64) {
	began, raised := time.Now(), m.raised.Load()
	m.mu.Lock()
	clear(m.left)
	m.fresh, m.again = nil, false
	m.mu.Unlock()
	m.failed.Store(0)
	m.open.Store(true)
	m.toWalk.Store(int64(m.counted.len()))
	if m.config.OnPassStart != nil {
		m.config.OnPassStart(m.counted.len())
	}
	n := m.repairAll(ctx, m.counted.knownBefore())
	m.open.Store(false)
	m.toWalk.Store(0)
	if ctx.Err() != nil {
		return
	}
	took := time.Since(began)
	m.finish(gaps) // before OnPassEnd is called, so that its callee sees the result
	if m.config.OnPassEnd != nil {
		m.config.OnPassEnd(RepairPass{gaps, n, int(m.raised.Load() - raised), int(m.failed.Load()), took})
	}
}

// finish calls OnRepaired if all known counters are repaired.
func (m *Repairer) finish(gaps uint64) {
	if m.unfinished() {
		return
	}
	before := m.walked.Swap(gaps)
	if before != gaps && m.config.OnRepaired != nil && !m.counted.overflowed() {
		m.config.OnRepaired(gaps)
	}
}

func (m *Repairer) unfinished() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.again || len(m.left) > 0
}

// startAgain reports whether more is unfinished than was written down.
func (m *Repairer) startAgain() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.again
}

// repairAll repairs counters, many at a time, and returns how many there were when it is
// done with them.
func (m *Repairer) repairAll(ctx context.Context, counters iter.Seq[known]) (n int) {
	var repairs sync.WaitGroup
	for k := range counters {
		if m.listing.Acquire(ctx, 1) != nil {
			break // it is closed
		}
		n++
		repairs.Go(func() {
			m.repair(ctx, k)
			if m.open.Load() {
				m.toWalk.Add(-1)
			}
		})
	}
	repairs.Wait()
	return n
}

// repair repairs one counter, whose turn it is to be listed.
func (m *Repairer) repair(ctx context.Context, k known) {
	g := m.newRepair(k)
	g.lists = true
	defer g.release()
	err := errFewReplicas
	if len(g.servers) > 1 {
		err = g.run(ctx, runWithin(k.coarsest, g.alive(k.coarsest)))
	}
	m.raised.Add(int64(g.raised))
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		m.report(fmt.Errorf("%w: a counter could not be repaired: %w", ErrStore, err))
	}
	m.ended(k, g.raised, err)
}

func (m *Repairer) report(err error) {
	if m.config.OnError != nil {
		m.config.OnError(err)
	}
}

// ended notes what became of a counter.
func (m *Repairer) ended(k known, raised int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		delete(m.left, k.id)
	case len(m.left) < maxLeft:
		m.left[k.id] = true
	default:
		m.again = true
	}
	m.failed.Store(int64(len(m.left)))
	quiet, found := m.cooldowns[k.id]
	if !found {
		return // its repair was not for differing replicas
	}
	quiet.step = min(2*quiet.step, lastCooldown)
	if raised > 0 {
		quiet.step = firstCooldown
	}
	quiet.until = time.Now().Add(quiet.step)
	m.cooldowns[k.id] = quiet
}

// takeLeft yields the counters whose repair failed.
func (m *Repairer) takeLeft(yield func(known) bool) {
	m.mu.Lock()
	left := m.left
	m.left = map[string]bool{}
	m.mu.Unlock()
	for id := range left {
		if k, found := m.counted.find(id); found && !yield(k) {
			return
		}
	}
}

// takeFresh yields the counters that were noted for the first time during the pass.
func (m *Repairer) takeFresh(yield func(known) bool) {
	m.mu.Lock()
	fresh := m.fresh
	m.fresh = nil
	m.mu.Unlock()
	for _, k := range fresh {
		if !yield(k) {
			return
		}
	}
}

// differing returns the known counters whose replicas were seen to differ, unless they have
// a cooldown.
func (m *Repairer) differing() (counters []known) {
	for _, id := range m.store.Differing() {
		if k, found := m.counted.find(id); found && m.isDue(id) {
			counters = append(counters, k)
		}
	}
	return counters
}

// isDue reports whether a counter whose replicas differ is to be repaired now.
func (m *Repairer) isDue(id string) bool {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	quiet, found := m.cooldowns[id]
	if found && now.Before(quiet.until) {
		return false
	}
	if !found && len(m.cooldowns) >= maxLeft {
		for other, quiet := range m.cooldowns {
			if now.After(quiet.until) {
				delete(m.cooldowns, other)
			}
		}
		if len(m.cooldowns) >= maxLeft {
			return false
		}
	}
	if !found {
		m.cooldowns[id] = cooldown{step: firstCooldown}
	}
	return true
}

// rest waits.
func (m *Repairer) rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
