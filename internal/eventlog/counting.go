package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
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
	hits := []engine.Hit{{Cost: by, Counts: true}}
	var sessions []*session
	for _, counter := range counters {
		s := e.begin(counter, counter.ID(), engine.Moment{Now: now})
		defer s.End()
		addLimits(s)
		s.at = at.UnixMilli()
		s.Add(hits, by)
		sessions = append(sessions, s)
	}
	faults := e.travel(ctx, sessions...)
	for i, s := range sessions {
		if faults[i] == nil && len(s.entries) == 0 { // it is left out
			faults[i] = fmt.Errorf("%w: %w", engine.ErrStore, journal.ErrTooLarge)
		}
		if hits[0].Stays = faults[i] == nil; faults[i] != nil {
			faults[i] = errors.Join(faults[i], voidEntries(ctx, s))
		} else {
			startLater(s)
		}
		e.base.Changes.Of(s.op.Counter).Add(1)
	}
	return time.Unix(at.Unix(), 0).UTC(), errors.Join(faults...)
}

// addLimits adds the counter's limits to the session: they judge a log that it creates or rewrites.
func addLimits(s *session) {
	for rule, limit := range s.counter.Limits() {
		if s.engine.Keeps(limit.Algorithm) {
			s.Limit(engine.Limit{Limit: limit, Ceiling: rule.Throttle.Ceiling(limit.Most()), Enforced: !rule.Shadow, Revision: rule.Revision})
		}
	}
}

// travel makes the round trips of the sessions' steps, side by side, and returns the error of each.
func (e *Engine) travel(ctx context.Context, sessions ...*session) []error {
	faults := make([]error, len(sessions))
	for {
		var ops []*store.Op
		var going []int
		for i, s := range sessions {
			if next := s.Next(e.now()); len(next) > 0 {
				ops, going = append(ops, next...), append(going, i)
			}
		}
		if len(ops) == 0 {
			return faults
		}
		e.base.Store.Do(ctx, ops...)
		for _, i := range going {
			faults[i] = sessions[i].Absorb()
		}
	}
}

// voidEntries rolls back what an increment that failed has appended. If that fails too, it stays.
func voidEntries(ctx context.Context, s *session) (err error) {
	for _, op := range s.RollBack() {
		s.engine.base.Store.Do(context.WithoutCancel(ctx), op)
		err = op.Err
	}
	return err
}

// Count sums the events in the log. Windows shorter than a minute slide by milliseconds, others by
// whole seconds. A moment in whole seconds is the last second of the window, and so is any moment
// of which the log has forgotten the milliseconds: the count is then not exact. See [engine.Counting].
func (e *Engine) Count(ctx context.Context, counter events.Counter, length time.Duration, at time.Time) (engine.Count, error) {
	s, err := readLog(ctx, e, counter)
	defer s.End()
	if err != nil {
		return engine.Count{}, err
	}
	w := windowOf(&s.log, length, at, s.time)
	count := engine.Count{
		From: time.UnixMilli(w.first).UTC(), To: time.UnixMilli(w.last).UTC(), Count: s.log.Sum(w.first, w.last),
		Exact: !w.rounded && s.hasAll(w.first) && isKnown(s.log.Head(), w.first) && isKnown(s.log.Head(), w.last+1),
	}
	if w.whole {
		count.To = count.To.Truncate(time.Second)
	}
	return count, nil
}

// readLog returns a session that has read the log of the counter.
func readLog(ctx context.Context, e *Engine, counter events.Counter) (*session, error) {
	s := e.begin(counter, counter.ID(), engine.Moment{Now: e.now()})
	s.Look()
	return s, e.travel(ctx, s)[0]
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

// hasAll reports whether the log knows all events from that time on that it remembers: one that was put in the place of
// what could not be read does not.
func (s *session) hasAll(from int64) bool {
	return from > s.log.Head().Since || from <= s.time-s.counter.Remembered().Milliseconds()
}

// In milliseconds.
const (
	second = 1000
	hour   = 3600 * second
)

// History sums the events in the log by intervals. It has every level. See [engine.Counting].
func (e *Engine) History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error) {
	s, err := readLog(ctx, e, counter)
	defer s.End()
	if err != nil {
		return engine.History{}, err
	}
	length, begin := level.Seconds(), level.Of(from.Unix())
	intervals := make([]engine.Interval, level.Of(to.Unix())-begin+1)
	for i := range intervals {
		first := (begin + int64(i)) * length
		intervals[i] = engine.Interval{First: first, Last: first + length - 1}
	}
	for start, count := range s.log.History(length * 1000) {
		if i := start/1000/length - begin; i >= 0 && i < int64(len(intervals)) {
			intervals[i].Count = count
		}
	}
	first := intervals[0].First * 1000
	return engine.History{Intervals: intervals, Exact: s.hasAll(first) && isKnown(s.log.Head(), first)}, nil
}

// Reset deletes the log, which orders it: entries that were appended before are gone, and later ones
// stay, as does what its writer has not read yet and appends again. See [engine.Counting].
func (e *Engine) Reset(ctx context.Context, counter events.Counter) (err error) {
	s := e.begin(counter, counter.ID(), engine.Moment{Now: e.now()})
	defer s.End()
	addLimits(s)
	if s.next = s.next[:0]; e.replicated {
		err = resetReplicas(ctx, e.base.Store, s)
	} else {
		op := store.Op{Counter: s.op.Counter, Writes: []store.Write{{Kind: store.Delete, Item: e.item}}}
		e.base.Store.Do(ctx, &op)
		err = op.Err
	}
	e.base.Changes.Of(s.op.Counter).Add(1)
	if err != nil {
		return engine.StoreError(err)
	}
	s.noted.size.Store(uint32(len(s.next)))
	return nil
}

// resetReplicas puts an empty log on each replica, which says up to when entries are gone on all of them: a
// hit beside it may read one replica before and another one after it, and unites them. It reads the logs
// before: clocks that are ahead have appended entries with later times.
func resetReplicas(ctx context.Context, st store.Store, s *session) error {
	s.trip.clear()
	s.read()
	st.Do(ctx, s.trip.all()...)
	if len(s.op.Replicas) == 0 {
		return s.op.Err
	}
	latest := s.time
	for i := range s.op.Replicas {
		if part := &s.op.Replicas[i]; part.Err == nil && s.log.Read(part.Reads[0].Data, journal.Question{}) == nil {
			latest = max(latest, s.log.Latest())
		}
	}
	latest = min(latest, s.time+int64(s.engine.grace)/2) // no further ahead than clocks may be
	if err := empty(s, latest, s.since()); err != nil {
		return err
	}
	s.replicas.clear()
	for i := range s.op.Replicas {
		to := replica{server: s.op.Replicas[i].Server}
		s.replicas.send(s.op.Counter, &to, store.Write{Kind: store.Put, Data: s.next, Expires: lifeOf(s).expires()})
	}
	st.Do(ctx, s.replicas.allSent()...)
	var faults []error
	for _, op := range s.replicas.sent {
		faults = append(faults, op.Err)
	}
	return errors.Join(faults...)
}
