package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// Increment appends an entry to the log of each of the counters, side by side, in one round trip. See
// [engine.Counting]: package counting checks the arguments.
func (e *Engine) Increment(ctx context.Context, by int64, at time.Time, counters ...events.Counter) (time.Time, error) {
	now := e.now()
	if at.IsZero() {
		at = now
	}
	t := trips{engine: e}
	defer t.close()
	for _, counter := range counters {
		l := e.openWithLimits(counter, now)
		l.batch.at = at.UnixMilli()
		l.take([]limiter.Addition{{Cost: by, Counts: true}})
		t.logs = append(t.logs, l)
	}
	t.settle(ctx)
	var errs []error
	for _, l := range t.logs {
		switch {
		case l.err != nil:
			errs = append(errs, l.err, l.undo(ctx))
		case len(l.batch.entries) == 0: // it is left out
			errs = append(errs, fmt.Errorf("%w: %w", engine.ErrStore, journal.ErrTooLarge))
		}
		l.startTidying()
		e.base.Changes.Of(l.trip.op.Counter).Add(1)
	}
	return time.Unix(at.Unix(), 0).UTC(), errors.Join(errs...)
}

// openWithLimits returns the log of the counter with its limits: they judge a log that is created or rewritten.
func (e *Engine) openWithLimits(counter events.Counter, now time.Time) *log {
	l := e.open(counter, counter.ID(), now, 0)
	for rule, limit := range counter.Limits() {
		if e.Keeps(limit.Algorithm) {
			l.view.rules.add(limit, rule.Throttle.Ceiling(limit.Most()), !rule.Shadow, rule.Revision)
		}
	}
	return l
}

// undo voids the entries of a call that has failed. If that fails too, they stay.
func (l *log) undo(ctx context.Context) error {
	if !l.planVoids(nil) {
		return nil
	}
	l.engine.base.Store.Do(context.WithoutCancel(ctx), &l.trip.op)
	return l.trip.op.Err
}

// Count sums the events in the log. Windows shorter than a minute slide by milliseconds, others by
// whole seconds. A moment in whole seconds is the last second of the window, and so is any moment
// of which the log has forgotten the milliseconds: the count is then not exact. See [engine.Counting].
func (e *Engine) Count(ctx context.Context, counter events.Counter, length time.Duration, at time.Time) (engine.Count, error) {
	l := e.open(counter, counter.ID(), e.now(), 0)
	defer l.close()
	if err := l.look(ctx); err != nil {
		return engine.Count{}, err
	}
	v := &l.view
	w := windowOf(&v.content, length, at, v.time)
	count := engine.Count{
		From: time.UnixMilli(w.first).UTC(), To: time.UnixMilli(w.last).UTC(), Count: v.content.Sum(w.first, w.last),
		Exact: !w.rounded && v.hasAll(w.first) && isKnown(v.content.Head(), w.first) && isKnown(v.content.Head(), w.last+1),
	}
	if w.whole {
		count.To = count.To.Truncate(time.Second)
	}
	return count, nil
}

// look reads the log.
func (l *log) look(ctx context.Context) error {
	l.do(ctx, false)
	placing{l}.settle(ctx)
	l.startTidying()
	return l.err
}

// window is from the first to the last millisecond, both included.
type window struct {
	first, last int64
	whole       bool // these are of whole seconds
	rounded     bool // because the log has forgotten milliseconds
}

// windowOf returns the window of a count on a log. The zero moment is now.
func windowOf(log *journal.Log, length time.Duration, at time.Time, now int64) window {
	last, whole := now, length >= time.Minute
	if !at.IsZero() {
		last, whole = at.UnixMilli(), whole || at.Nanosecond() == 0
	}
	first := last - length.Milliseconds() + 1
	rounded := !whole && !(log.Knows(first-1) && log.Knows(last))
	if whole = whole || rounded; whole {
		last += 999 - last%1000
		first = last - length.Milliseconds() + 1
	}
	return window{first, last, whole, rounded}
}

// isKnown reports whether the log knows, of each event, whether it was before that time: rewrites of
// a log that was too large have moved events, within their hours.
func isKnown(head journal.Head, at int64) bool {
	return at > head.Coarse || at%hour == 0
}

// hasAll reports whether the log has all events from that time on that it remembers: one that was put in the place of an
// item that could not be read does not.
func (v *view) hasAll(from int64) bool {
	return from > v.content.Head().Since || from <= v.time-v.rules.retention.Milliseconds()
}

// In milliseconds.
const (
	second = 1000
	hour   = 3600 * second
)

// History sums the events in the log by intervals. It has every level. See [engine.Counting].
func (e *Engine) History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error) {
	l := e.open(counter, counter.ID(), e.now(), 0)
	defer l.close()
	if err := l.look(ctx); err != nil {
		return engine.History{}, err
	}
	length, begin := level.Seconds(), level.Of(from.Unix())
	intervals := make([]engine.Interval, level.Of(to.Unix())-begin+1)
	for i := range intervals {
		first := (begin + int64(i)) * length
		intervals[i] = engine.Interval{First: first, Last: first + length - 1}
	}
	for start, count := range l.view.content.History(length * second) {
		if i := start/second/length - begin; i >= 0 && i < int64(len(intervals)) {
			intervals[i].Count = count
		}
	}
	first := intervals[0].First * second
	return engine.History{Intervals: intervals, Exact: l.view.hasAll(first) && isKnown(l.view.content.Head(), first)}, nil
}

// Reset deletes the log, which orders it: entries that were appended before are gone, and later ones
// stay, as does what its writer has not read yet and appends again. See [engine.Counting].
func (e *Engine) Reset(ctx context.Context, counter events.Counter) (err error) {
	l := e.openWithLimits(counter, e.now())
	defer l.close()
	if l.upkeep.next = l.upkeep.next[:0]; e.replicated {
		err = l.resetReplicas(ctx)
	} else {
		op := store.Op{Counter: l.trip.op.Counter, Writes: []store.Write{{Kind: store.Delete, Item: e.item}}}
		e.base.Store.Do(ctx, &op)
		err = op.Err
	}
	e.base.Changes.Of(l.trip.op.Counter).Add(1)
	if err != nil {
		return engine.StoreError(err)
	}
	l.noted.size.Store(uint32(len(l.upkeep.next)))
	return nil
}

// resetReplicas puts an empty log on each replica, which says up to when entries are gone on all of them: a
// hit beside it may read one replica before and another one after it, and unites them. It reads the logs
// before: clocks that are ahead have appended entries with later times.
func (l *log) resetReplicas(ctx context.Context) error {
	st, op := l.engine.base.Store, &l.trip.op
	l.trip.clear()
	l.trip.read()
	st.Do(ctx, op)
	if len(op.Replicas) == 0 {
		return op.Err
	}
	latest := l.view.time
	for i := range op.Replicas {
		if part := &op.Replicas[i]; part.Err == nil && l.view.content.Read(part.Reads[0].Data, journal.Question{}) == nil {
			latest = max(latest, l.view.content.Latest())
		}
	}
	latest = min(latest, l.view.time+int64(l.engine.grace)/2) // no further ahead than clocks may be
	if err := l.upkeep.empty(latest, l.view.sinceOfNew()); err != nil {
		return err
	}
	var ops []*store.Op
	for i := range op.Replicas {
		put := store.Write{Kind: store.Put, Item: l.engine.item, Data: l.upkeep.next, Expires: l.upkeep.life().expires()}
		ops = append(ops, &store.Op{Counter: op.Counter, Server: op.Replicas[i].Server, Data: true, Writes: []store.Write{put}})
	}
	st.Do(ctx, ops...)
	var errs []error
	for _, op := range ops {
		errs = append(errs, op.Err)
	}
	return errors.Join(errs...)
}
