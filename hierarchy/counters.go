package hierarchy

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/algorithm"
	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

const (
	// DefaultGrace is the allowance for clocks that differ and trips that are late.
	DefaultGrace = events.DefaultGrace
	// MaxBy is the most that one increment adds.
	MaxBy = 1_000_000
	// MaxHistory is the most buckets that one History returns.
	MaxHistory = 10_000

	// tripReads is the most buckets read in one trip, few enough that a trip takes little
	// longer than that of a count. The longest cover, of 30 days, has 171; only History and
	// Reset need to split.
	tripReads = 250
)

// Config sets up Counters. Only Store is needed.
type Config struct {
	Store store.Store
	Clock func() time.Time // nil: time.Now
	Grace time.Duration    // 0: DefaultGrace; processes that share a store need the same
	// MaxPending bounds the calls that may wait for the store at once: a Count and a
	// History are one, an Increment is one for each counter, a Reset is as many as its calls
	// of the store at once, 16, and one while it waits for its turn. One beyond it returns [engine.ErrOverload] at once, and has done
	// nothing. 0: DefaultMaxPending.
	MaxPending int
	// CacheBytes bounds what is remembered of closed buckets, at least half a megabyte, which it
	// takes at once. 0: DefaultCacheBytes; less: nothing is remembered.
	CacheBytes int
	// OnUse is called with each counter that is used, by its ID too, in the caller's goroutine.
	// Callers call it concurrently. nil: it is not called.
	OnUse func(id string, counter events.Counter, now time.Time)
}

// Counters counts events. It is safe for concurrent use, and any number of Counters, in any
// number of processes, may share one store. Counters are the engine of a limiter that decides
// on the same counts.
type Counters struct {
	base       engine.Base
	store      store.Store
	replicated bool // the store keeps several replicas of a counter
	now        func() time.Time
	grace      time.Duration
	cache      *bucketCache
	use        func(id string, counter events.Counter, now time.Time)
	pending    *engine.Pending
	resets     chan struct{} // one for each Reset under way

	// What the simulation breaks to see that it finds it broken.
	ahead  int64 // seconds for which the clocks of other processes may be ahead
	open   int64 // seconds for which a bucket that has ended may still change
	spanOf func(a algorithm.Algorithm, now int64, length time.Duration, finest Level, ahead int64) span
}

// NewCounters returns Counters on the store of the config.
func NewCounters(config Config) *Counters {
	c := &Counters{
		store: config.Store, replicated: config.Store.Capabilities().Replicated(), now: config.Clock, grace: cmp.Or(max(config.Grace, 0), DefaultGrace),
		use: config.OnUse, pending: engine.NewPending(config.MaxPending),
		resets: make(chan struct{}, resetsAtOnce), spanOf: spanOf,
	}
	c.base = engine.Base{Store: c.store, Clock: config.Clock, Grace: c.grace, Changes: new(engine.Changes)}
	c.ahead, c.open = engine.CeilSeconds(c.grace), openSeconds(c.grace)
	if config.CacheBytes >= 0 {
		c.cache = newBucketCache(config.CacheBytes)
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.use == nil {
		c.use = func(string, events.Counter, time.Time) {}
	}
	return c
}

// QueueStats returns how much waits for the store, and how many calls have found that it was
// too much.
func (c *Counters) QueueStats() engine.QueueStats { return c.pending.Stats() }

// CacheStats returns what was asked of closed buckets that are remembered.
func (c *Counters) CacheStats() CacheStats {
	if c.cache == nil {
		return CacheStats{}
	}
	return c.cache.stats()
}

// Increment adds by, 1 to MaxBy, to each of the counters at the moment at, which
// lies between their retention back and the grace ahead; the zero time is now.
// It returns that moment in whole seconds, UTC.
//
// A fault of an argument is a *RangeError, and nothing is counted then. An error that wraps
// ErrStore leaves open what was counted: the acknowledged adds are rolled back, but an
// answer may be lost. Do not repeat the call where counting twice is worse than not at all.
func (c *Counters) Increment(ctx context.Context, by int64, at time.Time, counters ...events.Counter) (time.Time, error) {
	now := c.now()
	if at.IsZero() {
		at = now
	}
	if err := CheckBy(by); err != nil {
		return time.Time{}, err
	}
	if len(counters) == 0 {
		return time.Time{}, engine.OutOfRange(engine.ArgCounters, "there is none to add to")
	}
	second := at.Unix()
	for _, counter := range counters {
		if kept := c.kept(counter, now); second < kept.First || second > kept.Last {
			return time.Time{}, engine.OutOfRange(engine.ArgAt, "it lies between %s back and %s ahead of now",
				events.FormatDuration(counter.Remembered()), c.grace)
		}
	}
	if !c.pending.Enter(len(counters)) {
		return time.Time{}, engine.ErrOverload
	}
	defer c.pending.Leave(len(counters))
	return time.Unix(second, 0).UTC(), c.add(ctx, by, second, counters)
}

// CheckBy returns a *RangeError for what Increment does not add.
func CheckBy(by int64) error {
	if by < 1 || by > MaxBy {
		return engine.OutOfRange(engine.ArgBy, "it is 1 to %d", MaxBy)
	}
	return nil
}

// add adds to all counters side by side.
func (c *Counters) add(ctx context.Context, by, second int64, counters []events.Counter) error {
	if len(counters) == 1 {
		return c.addOne(ctx, by, second, counters[0])
	}
	faults := make([]error, len(counters))
	var trips sync.WaitGroup
	for i, counter := range counters {
		trips.Go(func() { faults[i] = c.addOne(ctx, by, second, counter) })
	}
	trips.Wait()
	return errors.Join(faults...)
}

// addOne adds to the buckets of one counter that hold the second, the finest level first: a
// reader that sees an event in a bucket sees it in the finer ones too.
func (c *Counters) addOne(ctx context.Context, by, second int64, counter events.Counter) error {
	r := newReader(counter.ID())
	defer r.free()
	for bucket := range BucketsOf(counter, second) {
		r.add(bucket, bucket.Expires(counter.Remembered(), c.grace))
	}
	now := c.now()
	c.use(r.id, counter, now)
	err := r.trip(ctx, c.store, by, now)
	if err != nil && !r.op.Receipt.None() {
		// The acknowledged adds are rolled back, so that a failed increment does not stay
		// by half. If the rollback fails too, it stays.
		var undo store.Op
		undo.RollBack(r.id, r.adds, r.op.Receipt, by)
		c.store.Do(context.WithoutCancel(ctx), &undo)
		err = errors.Join(err, undo.Err)
	}
	if c.replicated && err == nil {
		var hint store.Op
		hint.Hint(r.id, r.adds, r.op.Receipt, by)
		c.store.Do(ctx, &hint)
	}
	// Whatever became of it: denials from before it may be true no more.
	c.base.Changes.Of(r.id).Add(1)
	if finest, _ := levels(counter); BucketAt(finest, second).Last() < c.now().Unix()-c.open {
		c.cache.forget(r.id, now)
	}
	return err
}

// Count is the sum of a window.
type Count struct {
	Window  Window      // what was summed; wider than asked for if the counter's precision is coarser
	Count   int64       // events
	Buckets [Levels]int // buckets of the cover, by level
}

// Count returns the exact sum of the counter over the window of that length that
// ends with the second of the moment at; the zero time is now. The length is in
// whole seconds. The window begins within the counter's retention, and ends no
// more than the grace ahead.
//
// Increments that are under way may be in the sum or not; what another process has
// changed more than twice the grace back is seen within a second. Faults of an argument
// are a *RangeError; errors of the store wrap ErrStore.
func (c *Counters) Count(ctx context.Context, counter events.Counter, length time.Duration, at time.Time) (Count, error) {
	now := c.now()
	if at.IsZero() {
		at = now
	}
	if length < time.Second || length%time.Second != 0 {
		return Count{}, engine.OutOfRange(engine.ArgWindow, "it is in whole seconds, at least 1s")
	}
	if length > counter.Remembered() {
		return Count{}, engine.OutOfRange(engine.ArgWindow, "the counter is remembered for %s, no longer window can be summed",
			events.FormatDuration(counter.Remembered()))
	}
	w, kept := WindowAt(at, length), c.kept(counter, now)
	switch {
	case w.Last > kept.Last:
		return Count{}, engine.OutOfRange(engine.ArgAt, "the window ends more than %s ahead of now", c.grace)
	case w.Last < kept.First:
		return Count{}, engine.OutOfRange(engine.ArgAt, "the window ends longer ago than the %s for which the counter is remembered",
			events.FormatDuration(counter.Remembered()))
	// A caller's clock may be behind by the grace: its last 24 hours are no fault.
	case w.First < kept.First-engine.CeilSeconds(c.grace):
		return Count{}, engine.OutOfRange(engine.ArgWindow, "the window begins longer ago than the %s for which the counter is remembered",
			events.FormatDuration(counter.Remembered()))
	}
	return c.sum(ctx, counter, w)
}

func (c *Counters) sum(ctx context.Context, counter events.Counter, w Window) (Count, error) {
	finest, coarsest := levels(counter)
	cover := CoverOf(w, finest, coarsest)
	count := Count{Window: w.outward(finest), Buckets: cover.PerLevel()}
	r := newReader(counter.ID())
	defer r.free()
	now := c.now()
	c.use(r.id, counter, now)
	r.remember(c.cache, now, now.Unix()-c.open, time.Time{})
	// What a count has read may be of a copy alone that missed something, and must not
	// decide hits, which reach another one.
	r.asks = c.replicated
	r.wantAll(cover)
	if len(r.reads) > 0 {
		if !c.pending.Enter(1) {
			return Count{}, engine.ErrOverload
		}
		defer c.pending.Leave(1)
		if err := r.trip(ctx, c.store, 0, now); err != nil {
			return Count{}, err
		}
	}
	count.Count, _ = r.exact(cover)
	return count, nil
}

// Point is the count of one bucket.
type Point struct {
	Bucket Bucket
	Count  int64
}

// History returns the counter's buckets of one level from the one that holds
// from to the one that holds to, the empty ones included, at most MaxHistory.
// The zero time of to is now; of from, as far back as the counter is
// remembered. Faults of an argument are a *RangeError; errors of the store wrap
// ErrStore.
func (c *Counters) History(ctx context.Context, counter events.Counter, level Level, from, to time.Time) ([]Point, error) {
	now := c.now()
	kept := c.kept(counter, now)
	if from.IsZero() {
		from = time.Unix(kept.First+1, 0)
	}
	if to.IsZero() {
		to = now
	}
	finest, coarsest := levels(counter)
	w := Window{from.Unix(), to.Unix()}
	switch {
	case level < finest || level > coarsest:
		return nil, engine.OutOfRange(engine.ArgLevel, "the counter has the levels %s to %s", finest, coarsest)
	case w.First < kept.First-engine.CeilSeconds(c.grace):
		return nil, engine.OutOfRange(engine.ArgFrom, "it is longer ago than the %s for which the counter is remembered",
			events.FormatDuration(counter.Remembered()))
	case w.Last > kept.Last:
		return nil, engine.OutOfRange(engine.ArgTo, "it is more than %s ahead of now", c.grace)
	case w.First > w.Last:
		return nil, engine.OutOfRange(engine.ArgFrom, "it is later than to")
	}
	if n := runWithin(level, w).Len(); n > MaxHistory {
		return nil, engine.OutOfRange(engine.ArgFrom, "there are %d buckets from here, at most %d are returned: choose a coarser level or a later moment",
			n, MaxHistory)
	}
	buckets := bucketsWithin(level, w)
	if !c.pending.Enter(1) {
		return nil, engine.ErrOverload
	}
	defer c.pending.Leave(1)
	values, err := c.read(ctx, counter, buckets)
	if err != nil {
		return nil, err
	}
	points := make([]Point, len(buckets))
	for i := range buckets {
		points[i] = Point{buckets[i], values[i]}
	}
	return points, nil
}

// read returns the values of the buckets, in as many trips as their number needs.
func (c *Counters) read(ctx context.Context, counter events.Counter, buckets []Bucket) ([]int64, error) {
	values := make([]int64, 0, len(buckets))
	id := counter.ID()
	for chunk := range slices.Chunk(buckets, tripReads) {
		op := store.Op{Counter: id, Reads: make([]store.Read, len(chunk))}
		for i, bucket := range chunk {
			op.Reads[i].Item = bucket.ID()
		}
		c.store.Do(ctx, &op)
		if op.Err != nil {
			return nil, engine.StoreError(op.Err)
		}
		for i := range op.Reads {
			values = append(values, op.Reads[i].Value)
		}
	}
	return values, nil
}

// kept returns the seconds whose events the counter takes at the moment now.
func (c *Counters) kept(counter events.Counter, now time.Time) Window {
	second := now.Unix()
	return Window{second - engine.CeilSeconds(counter.Remembered()), second + int64(c.grace/time.Second)}
}

// BucketsOf yields the buckets to which an event in that Unix second is added,
// the finest first.
func BucketsOf(counter events.Counter, second int64) iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		finest, coarsest := levels(counter)
		for l := finest; l <= coarsest; l++ {
			if !yield(BucketAt(l, second)) {
				return
			}
		}
	}
}
