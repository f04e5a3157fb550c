package slidinglog

import (
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/journal"
	"github.com/counterd/counterd/store"
)

// This is what a session says of a log that it has read.

// Standing returns whether the limit has room. A hit that was added has it only if the log admits
// it, too: the log is judged by limits that may be of other rules, and counts hits of the batch that
// another counter has denied.
func (s *session) Standing(limit, decided int, ahead, cost int64) engine.Standing {
	own := s.question.Limits[limit]
	count := s.base[limit].Count + ahead
	standing := engine.Standing{Outcome: s.outcome(limit, ahead, cost), Count: count, Exact: s.isExact(own), Final: true}
	if standing.Outcome != engine.Fits || own.Shadow {
		return standing
	}
	if decided < len(s.hits) {
		if s.batch.decided && (s.hits[decided].Counts || s.batch.counts(decided) || s.denies(ahead, cost)) {
			return standing
		}
		standing.Outcome = engine.FullForNow
	}
	if s.isStale() && s.isFull(ahead, cost) {
		standing.Outcome = engine.Full
	}
	return standing
}

// outcome returns how the limit answers by itself.
func (s *session) outcome(limit int, ahead, cost int64) engine.Outcome {
	held, ceiling := s.base[limit], s.limits[limit].Ceiling
	switch {
	case engine.OutcomeOf(held.Count+ahead, cost, ceiling) == engine.Fits:
		return engine.Fits
	case engine.OutcomeOf(held.Count-held.Undecided+ahead, cost, ceiling) == engine.Fits:
		return engine.FullForNow
	}
	return engine.Full
}

// denies reports whether a limit denies the hit by itself.
func (s *session) denies(ahead, cost int64) bool {
	for i := range s.limits {
		if s.limits[i].Enforced && s.outcome(i, ahead, cost) != engine.Fits {
			return true
		}
	}
	return false
}

// isStale reports whether the log has limits of newer rules than the session.
func (s *session) isStale() bool { return s.log.Head().Revision > s.revision }

// isFull reports whether the limits of the log have no room for the hit, whatever is void.
func (s *session) isFull(ahead, cost int64) bool {
	for _, limit := range s.log.Head().Limits {
		held := s.log.Held(limit, s.time)
		if held.Count-held.Undecided-s.total+ahead+cost > limit.Ceiling {
			return true
		}
	}
	return false
}

// isExact reports whether the log knows the moments of all events in the window of the limit.
func (s *session) isExact(limit journal.Limit) bool {
	return s.log.Head().Coarse <= s.time-limit.Window-1000
}

// Span returns the first second of the window. A log has one order.
func (s *session) Span(limit int) engine.Span {
	length := s.limits[limit].Window
	if length < time.Minute {
		return engine.Span{First: (s.time - length.Milliseconds() + 1) / 1000}
	}
	return engine.Span{First: s.time/1000 - int64(length/time.Second) + 1}
}

// WantFinal wants nothing: what was read says which hits may be void yet.
func (s *session) WantFinal(int) { s.step = idle }

// Final returns what the window holds without hits that other counters may deny.
func (s *session) Final(limit int) int64 {
	return s.base[limit].Count - s.base[limit].Undecided
}

// RollBack returns what voids the entries of hits that do not stay.
func (s *session) RollBack() []*store.Op {
	if !s.appended {
		return nil
	}
	voids := s.batch.appendVoids(nil, s.time, s.batch.stays)
	if len(voids) == 0 {
		return nil
	}
	s.undo.Writes = append(s.undo.Writes[:0], store.Write{Kind: store.Append, Item: logItem, Data: voids})
	s.ops[0] = &s.undo
	return s.ops[:]
}

// Hint returns nothing: there is one replica.
func (s *session) Hint() []*store.Op { return nil }

// Search finds in the log when the limit has room. It makes no round trip.
func (s *session) Search(limit int, ahead, cost int64) (int, bool) {
	s.step = idle
	cost += ahead - s.total // hits of the batch that are void leave at once
	at := s.frees(s.question.Limits[limit], cost)
	if s.isStale() {
		for _, other := range s.log.Head().Limits {
			at = max(at, s.frees(other, cost))
		}
	}
	if at <= s.time {
		return 0, false
	}
	s.waits = append(s.waits, engine.Wait(at-s.moment.Now.UnixMilli())*engine.Wait(time.Millisecond))
	return len(s.waits) - 1, true
}

// frees returns when the limit has room, or the session's moment if it never has: another limit
// says so.
func (s *session) frees(limit journal.Limit, cost int64) int64 {
	at, _ := s.log.Frees(limit, cost, s.time)
	return at
}

// Wait returns what the search has found.
func (s *session) Wait(search int) engine.Wait { return s.waits[search] }
