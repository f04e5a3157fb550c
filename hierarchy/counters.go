package hierarchy

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

const (
	// DefaultGrace is the allowance for clocks that differ and trips that are late.
	DefaultGrace = events.DefaultGrace

	// tripReads is the most buckets read in one trip, few enough that a trip takes little
	// longer than that of a count. The longest cover, of 32 days, has some 175; only History and
	// Reset need to split.
	tripReads = 250
)

// Config sets up Counters. Only Store is needed.
type Config struct {
	Store store.Store
	Clock func() time.Time // nil: time.Now
	Grace time.Duration    // 0: DefaultGrace; processes that share a store need the same
	// CacheBytes bounds what is remembered of closed buckets, at least half a megabyte, which it
	// takes at once. 0: DefaultCacheBytes; less: nothing is remembered.
	CacheBytes int
	// OnUse is called with each counter that is used, by its ID too, in the caller's goroutine.
	// Callers call it concurrently. nil: it is not called.
	OnUse func(id string, counter events.Counter, now time.Time)
}

// Counters counts events. It is safe for concurrent use, and any number of Counters, in any
// number of processes, may share one store. Counters are an engine of a limiter and of package
// counting, which decide and count on the same counts.
type Counters struct {
	base       engine.Base
	store      store.Store
	replicated bool // the store keeps several replicas of a counter
	now        func() time.Time
	grace      time.Duration
	cache      *bucketCache
	use        func(id string, counter events.Counter, now time.Time)
	resets     chan struct{} // one for each Reset under way
	reserving  atomic.Bool   // this process has seen a reservation
}

// NewCounters returns Counters on the store of the config.
func NewCounters(config Config) *Counters {
	c := &Counters{
		store: config.Store, replicated: config.Store.Capabilities().Replicated(), now: config.Clock, grace: cmp.Or(max(config.Grace, 0), DefaultGrace),
		use:    config.OnUse,
		resets: make(chan struct{}, resetsAtOnce),
	}
	c.base = engine.Base{Store: c.store, Clock: config.Clock, Grace: c.grace, Changes: new(engine.Changes), OnUse: config.OnUse}
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

// CacheStats returns what was asked of closed buckets that are remembered.
func (c *Counters) CacheStats() CacheStats {
	if c.cache == nil {
		return CacheStats{}
	}
	return c.cache.stats()
}

// Increment adds by to the buckets of each of the counters. See [engine.Counting]: package counting
// checks the arguments.
func (c *Counters) Increment(ctx context.Context, by int64, at time.Time, counters ...events.Counter) (time.Time, error) {
	if at.IsZero() {
		at = c.now()
	}
	second := at.Unix()
	return unix(second), c.add(ctx, by, second, counters)
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
	id := counter.ID()
	c.use(id, counter, c.now())
	_, err := c.addTo(ctx, by, second, counter, id)
	return err
}

// addTo adds to the counter with that ID or alias. It returns what acknowledged that.
func (c *Counters) addTo(ctx context.Context, by, second int64, counter events.Counter, id string) (store.Receipt, error) {
	r := newReader(id)
	defer r.free()
	r.adds = c.addsOf(r.adds, counter, second)
	err := r.trip(ctx, c.store, by, c.now())
	receipt := r.op.Receipt
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
	if finest, _ := levels(counter); BucketAt(finest, second).Last() < c.now().Unix()-openSeconds(c.grace) {
		c.cache.forget(r.id)
	}
	return receipt, err
}

// addsOf appends the adds to the buckets of the counter that hold the second, the finest first.
func (c *Counters) addsOf(adds []store.Write, counter events.Counter, second int64) []store.Write {
	for bucket := range BucketsOf(counter, second) {
		adds = append(adds, store.Write{Kind: store.Add, Item: bucket.ID(), Expires: bucket.Expires(counter.Remembered(), c.grace)})
	}
	return adds
}

// Count sums the buckets that tile the window exactly. It begins at most the retention and the grace
// back.
//
// Increments that are under way may be in the sum or not; what another process has changed more than
// twice the grace back is seen within a second. See [engine.Counting].
func (c *Counters) Count(ctx context.Context, counter events.Counter, length time.Duration, at time.Time) (engine.Count, error) {
	if at.IsZero() {
		at = c.now()
	}
	w := WindowAt(at, length)
	finest, coarsest := levels(counter)
	cover := CoverOf(w, finest, coarsest)
	summed := w.outward(finest)
	count := engine.Count{From: unix(summed.First), To: unix(summed.Last), Exact: true, Buckets: cover.PerLevel()}
	r := newReader(counter.ID())
	defer r.free()
	now := c.now()
	c.use(r.id, counter, now)
	r.remember(c.cache, now, now.Unix()-openSeconds(c.grace), time.Time{})
	// What a count has read may be of a copy alone that missed something, and must not
	// decide hits, which reach another one.
	r.asks = c.replicated
	r.wantAll(cover)
	if len(r.reads) > 0 {
		if err := r.trip(ctx, c.store, 0, now); err != nil {
			return engine.Count{}, err
		}
	}
	count.Count, _ = r.exact(cover)
	return count, nil
}

// History returns the counts of the buckets of one level. See [engine.Counting].
func (c *Counters) History(ctx context.Context, counter events.Counter, level Level, from, to time.Time) (engine.History, error) {
	if finest, coarsest := levels(counter); level < finest || level > coarsest {
		return engine.History{}, engine.OutOfRange(engine.ArgLevel, "the counter has the levels %s to %s", finest, coarsest)
	}
	buckets := bucketsWithin(level, Window{from.Unix(), to.Unix()})
	values, err := c.read(ctx, counter.ID(), buckets)
	if err != nil {
		return engine.History{}, err
	}
	history := engine.History{Intervals: make([]engine.Interval, len(buckets)), Exact: true}
	for i, bucket := range buckets {
		history.Intervals[i] = engine.Interval{First: bucket.First(), Last: bucket.Last(), Count: values[i]}
	}
	return history, nil
}

func unix(second int64) time.Time { return time.Unix(second, 0).UTC() }

// read returns the values of the buckets, in as many trips as their number needs.
func (c *Counters) read(ctx context.Context, id string, buckets []Bucket) ([]int64, error) {
	values := make([]int64, 0, len(buckets))
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
