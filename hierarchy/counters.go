package hierarchy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// tripReads is the most buckets that one round trip reads, so few that it takes little longer than a count. The longest
// cover, of 32 days, has some 175 buckets, so that only History and Reset need several.
const tripReads = 250

// Increment implements [engine.Counting].
func (c *Counters) Increment(ctx context.Context, by int64, at time.Time, counters ...events.Counter) (time.Time, error) {
	now := c.base.Clock()
	if at.IsZero() {
		at = now
	}
	tallies := make([]*limiter.Tally, len(counters))
	for i, counter := range counters {
		tallies[i] = &limiter.Tally{ID: counter.ID(), Counter: counter}
		c.base.OnUse(tallies[i].ID, counter, now)
	}
	_, err := c.add(ctx, by, at.Unix(), tallies...)
	return unix(at.Unix()), err
}

// add adds to the buckets that contain the second, of all counters side by side. What was acknowledged of an add that
// fails is undone. If that fails too, it is kept.
func (c *Counters) add(ctx context.Context, by, second int64, tallies ...*limiter.Tally) (*session, error) {
	s := &session{engine: c}
	for _, t := range tallies {
		t.Adds = []limiter.Addition{{Cost: by}}
	}
	s.begin(limiter.Moment{Time: c.base.Clock(), Second: second, Latest: second}, tallies)
	s.trip(ctx, (*counter).planAdd)
	s.each((*counter).measure)
	var errs []error
	for _, t := range tallies {
		t.Adds[0].Kept = t.Err == nil
		errs = append(errs, t.Err)
	}
	errs = append(errs, s.Undo(context.WithoutCancel(ctx)))
	for _, t := range tallies {
		c.base.Changes.Of(t.ID).Add(1) // whatever became of it, denials from before may be true no more
		if finest, _ := levels(t.Counter); BucketAt(finest, second).Last() < c.base.Clock().Unix()-openSeconds(c.base.Grace) {
			c.closed.drop(t.ID)
		}
	}
	return s, errors.Join(errs...)
}

// changed drops all that is cached of the counter with that ID or alias.
func (c *Counters) changed(id string) {
	c.closed.drop(id)
	c.base.Changes.Of(id).Add(1)
}

// appendAdds appends the adds to the buckets of the counter that contain the second, the finest first: a reader that
// sees an event in a bucket sees it in the finer ones too.
func (c *Counters) appendAdds(adds []store.Write, counter events.Counter, second, by int64) []store.Write {
	for b := range BucketsOf(counter, second) {
		adds = append(adds, store.Write{Kind: store.Add, Item: b.ID(), By: by, Expires: b.Expires(counter.Remembered(), c.base.Grace)})
	}
	return adds
}

// subtract subtracts from the buckets of adds that the receipt acknowledges.
func (c *Counters) subtract(ctx context.Context, id string, adds []store.Write, receipt store.Receipt, by int64) error {
	var undo store.Op
	undo.RollBack(id, adds, receipt, by)
	return c.do(ctx, &undo)
}

// do makes a round trip.
func (c *Counters) do(ctx context.Context, op *store.Op) error {
	c.base.Store.Do(ctx, op)
	if op.Err != nil {
		return engine.StoreError(op.Err)
	}
	return nil
}

// Count sums the buckets that tile the window exactly. Increments that are under way may be in the sum or not. What
// another process has changed more than twice the grace back is seen within a second. See [engine.Counting].
func (c *Counters) Count(ctx context.Context, named events.Counter, length time.Duration, at time.Time) (engine.Count, error) {
	now := c.base.Clock()
	if at.IsZero() {
		at = now
	}
	finest, coarsest := levels(named)
	w := WindowAt(at, length).widen(finest)
	cover := CoverOf(w, finest, coarsest)
	tally := limiter.Tally{ID: named.ID(), Counter: named}
	c.base.OnUse(tally.ID, named, now)
	s := session{engine: c}
	s.begin(limiter.Moment{Time: now, Second: now.Unix(), Peek: true}, []*limiter.Tally{&tally})
	s.trip(ctx, func(k *counter) { k.read(cover) })
	if err := s.counters[0].err; err != nil {
		return engine.Count{}, err
	}
	return engine.Count{From: unix(w.First), To: unix(w.Last), Count: s.counters[0].counts.sum(cover), Exact: true, Buckets: cover.PerLevel()}, nil
}

// History returns the counts of the buckets of one level. See [engine.Counting].
func (c *Counters) History(ctx context.Context, counter events.Counter, level Level, from, to time.Time) (engine.History, error) {
	if finest, coarsest := levels(counter); level < finest || level > coarsest {
		return engine.History{}, engine.OutOfRange(engine.ArgLevel, "the counter has the levels %s to %s", finest, coarsest)
	}
	history := engine.History{Exact: true}
	for chunk := range slices.Chunk(bucketsOver(level, Window{from.Unix(), to.Unix()}), tripReads) {
		op := readOf(counter.ID(), chunk)
		if err := c.do(ctx, op); err != nil {
			return engine.History{}, err
		}
		for i, b := range chunk {
			history.Intervals = append(history.Intervals, engine.Interval{First: b.First(), Last: b.Last(), Count: op.Reads[i].Value})
		}
	}
	return history, nil
}

// readOf returns an op that reads the buckets.
func readOf(id string, buckets []Bucket) *store.Op {
	op := &store.Op{Counter: id, Reads: make([]store.Read, len(buckets))}
	for i, b := range buckets {
		op.Reads[i].Item = b.ID()
	}
	return op
}

func unix(second int64) time.Time { return time.Unix(second, 0).UTC() }
