package eventlog

import (
	"context"
	"errors"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// A session serves one batch after another: a log for each of its tallies.
type session struct {
	trips   trips
	at      limiter.Moment
	tallies []*limiter.Tally
}

// NewSession implements [limiter.Engine].
func (e *Engine) NewSession() limiter.Session {
	return &session{trips: trips{engine: e}}
}

// Add implements [limiter.Session]. One round trip decides nearly all logs. Each of the others goes on by itself.
func (s *session) Add(ctx context.Context, at limiter.Moment, tallies []*limiter.Tally) {
	s.begin(at, tallies)
	for i, t := range tallies {
		s.trips.logs[i].take(t.Adds)
	}
	s.trips.settle(ctx)
	for i, t := range tallies {
		s.trips.logs[i].measure(t)
	}
}

// Check implements [limiter.Session].
func (s *session) Check(ctx context.Context, at limiter.Moment, tallies []*limiter.Tally) {
	s.begin(at, tallies)
	s.trips.settle(ctx)
	for i, t := range tallies {
		s.trips.logs[i].measure(t)
		s.trips.logs[i].startTidying()
	}
}

// begin opens a log for each tally.
func (s *session) begin(at limiter.Moment, tallies []*limiter.Tally) {
	s.trips.close()
	s.at, s.tallies = at, tallies
	for _, t := range tallies {
		l := s.trips.engine.open(t.Counter, t.ID, at.Time, at.Second)
		for i := range t.Limits {
			limit := &t.Limits[i]
			l.view.rules.add(limit.Limit, limit.Ceiling, limit.Enforced, limit.Rule.Revision)
		}
		s.trips.logs = append(s.trips.logs, l)
	}
}

// Undo implements [limiter.Session]: it appends the voids of hits that are not kept.
func (s *session) Undo(ctx context.Context) error {
	s.trips.ops = s.trips.ops[:0]
	for i, l := range s.trips.logs {
		adds := s.tallies[i].Adds
		if l.planVoids(func(hit int) bool { return adds[hit].Kept }) {
			s.trips.ops = append(s.trips.ops, &l.trip.op)
		}
	}
	if len(s.trips.ops) > 0 {
		s.trips.engine.base.Store.Do(ctx, s.trips.ops...)
	}
	var errs []error
	for _, op := range s.trips.ops {
		if op.Err != nil {
			errs = append(errs, engine.StoreError(op.Err))
		}
	}
	for _, l := range s.trips.logs {
		l.startTidying()
	}
	return errors.Join(errs...)
}

// Search implements [limiter.Session]. The logs that were read have all answers.
func (s *session) Search(context.Context) error {
	for i, t := range s.tallies {
		if t.Err != nil {
			continue
		}
		l, first := s.trips.logs[i], events.Never
		for j := range t.Searches {
			l.view.search(t, &t.Searches[j], l.batch.cost)
			if reset := t.Searches[j].Reset; reset > 0 {
				first = min(first, reset)
			}
		}
		if first != events.Never && !l.view.isOfLeases {
			t.Until = s.at.Time.Add(first)
		}
	}
	return nil
}

// trips makes the round trips of several logs side by side.
type trips struct {
	engine *Engine
	logs   []*log
	going  []*log
	ops    []*store.Op
}

// settle makes the round trips of all logs: an append of the entries with a read of the log, or only the read. Logs
// that are missing are created side by side, too.
func (t *trips) settle(ctx context.Context) {
	t.trip(ctx, (*log).planAppend)
	t.trip(ctx, (*log).planCreate)
	for _, l := range t.logs {
		placing{l}.settle(ctx)
	}
}

// trip makes a round trip for each log for which plan returns true.
func (t *trips) trip(ctx context.Context, plan func(*log) bool) {
	t.going, t.ops = t.going[:0], t.ops[:0]
	for _, l := range t.logs {
		if plan(l) {
			t.going = append(t.going, l)
			t.ops = append(t.ops, &l.trip.op)
		}
	}
	if len(t.ops) == 0 {
		return
	}
	t.engine.base.Store.Do(ctx, t.ops...)
	for _, l := range t.going {
		l.absorb()
	}
}

// close closes the logs.
func (t *trips) close() {
	for _, l := range t.logs {
		l.close()
	}
	clear(t.logs)
	clear(t.going)
	t.logs, t.going = t.logs[:0], t.going[:0]
}
