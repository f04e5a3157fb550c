package eventlog

import (
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// rules are the limits of one counter, of one or several versions of the rules of this process.
type rules struct {
	limits    []journal.Limit
	newest    []journal.Limit // of the highest revision
	revision  uint64
	longest   time.Duration // of the windows
	longWait  time.Duration // of hits for their turns
	retention time.Duration // of events
	buckets   int           // token buckets among the limits
	isMixed   bool          // the limits are of several versions
	since     int64         // since when a log is kept for all limits, as far as the process knows; or 0
}

// add adds a limit.
func (r *rules) add(limit events.Limit, ceiling int64, isEnforced bool, revision uint64) {
	own := journal.LimitFrom(limit, ceiling)
	own.Shadow = !isEnforced
	r.limits = append(r.limits, own)
	if own.Rate > 0 {
		r.buckets++
	}
	if isEnforced {
		r.longWait = max(r.longWait, limit.LongestWait(ceiling))
	}
	r.longest = max(r.longest, limit.Span(ceiling))
	if limit.Since != 0 {
		r.since = max(r.since, limit.Since*second+999)
	}
	r.isMixed = r.isMixed || len(r.limits) > 1 && revision != r.revision
	if revision > r.revision {
		r.revision, r.newest = revision, r.newest[:0]
	}
	if revision == r.revision {
		r.newest = append(r.newest, own)
	}
}

// retained returns for how long events are kept beyond the windows: token buckets need none.
func (r *rules) retained() time.Duration {
	if r.buckets > 0 && r.buckets == len(r.limits) {
		return 0
	}
	return r.retention
}

// needed returns for how long the log is needed after a hit.
func (r *rules) needed() time.Duration { return max(r.longest, r.retained()) }

// A view is the log of a counter as it was read, by the rules of the process.
type view struct {
	rules      rules
	content    journal.Log
	now        int64 // by the clock, in Unix milliseconds: waits count from here
	time       int64 // of the batch: now, or its second if that is later, or a time after the floor of the log
	isOfLeases bool
}

// begin begins without limits.
func (v *view) begin(now, unix int64, retention time.Duration, isOfLeases bool) {
	v.rules = rules{limits: v.rules.limits[:0], newest: v.rules.newest[:0], retention: retention}
	v.now, v.time, v.isOfLeases = now, max(now, unix*second), isOfLeases
	if isOfLeases { // those of the past are not needed
		v.rules.retention = 0
	}
	v.content.Clear()
}

// read decodes a value.
func (v *view) read(value []byte, keys []journal.ID) error {
	return v.content.Read(value, journal.Question{Keys: keys, Limits: v.rules.limits, Newest: v.rules.newest, Revision: v.rules.revision})
}

// isFull reports whether an enforced limit has no room for the cost.
func (v *view) isFull(cost int64) bool {
	for _, limit := range v.rules.limits {
		if !limit.Shadow && v.content.Held(limit, v.time).Count+cost > limit.Ceiling {
			return true
		}
	}
	return false
}

// isOlder reports whether the log has the limits of older rules, which are not those of this process.
func (v *view) isOlder() bool {
	return v.content.Head().Outdated(v.rules.revision) && !v.content.IsOfReader()
}

// isNewer reports whether the log has the limits of newer rules, which are not those of this process.
func (v *view) isNewer() bool {
	return v.content.Head().Revision > v.rules.revision && !v.content.IsOfReader()
}

// sinceOfNew returns the time after which a new log knows all events: those before would have left it, or came when no
// log was kept for the limits.
func (v *view) sinceOfNew() int64 {
	return max(v.time-v.rules.needed().Milliseconds()-second, v.rules.since, 0) // a window begins within a second
}

// measure sets the counts of the tally.
func (l *log) measure(t *limiter.Tally) {
	v := &l.view
	t.Err, t.Until, t.Tick, t.Settled = l.err, time.Time{}, time.Millisecond, false
	if l.err != nil {
		return
	}
	if !v.isOfLeases { // other processes release leases at any time
		t.Until = time.UnixMilli(v.now).Add(time.Second)
	}
	mayDeny := false
	for i := range t.Limits {
		limit, own, held := &t.Limits[i], v.rules.limits[i], v.content.Held(v.rules.limits[i], v.time)
		if l.batch.isDecided {
			held = v.content.Ahead(0, i)
		}
		edge := own.Edge(v.time)
		limit.Count, limit.Level = held.Count, held.Level
		limit.Exact = own.Rate > 0 || v.content.Head().Coarse <= edge && v.content.Knows(edge)
		if own.Rate > 0 {
			edge = v.time - limit.Span(limit.Ceiling).Milliseconds()
		}
		limit.First, limit.Since = (edge+1)/second, v.content.Since(own)/second
		mayDeny = mayDeny || limit.Count+t.Demand > limit.Ceiling
	}
	if v.isNewer() {
		v.strengthen(t, l.batch.cost)
	} else {
		t.Settled = !l.batch.isTentative && !(mayDeny && v.content.IsUndecided(l.upkeep.undecided()))
	}
	l.answer(t)
}

// answer sets what the log says of each hit of the tally. It refuses no hit that the counts deny anyway: they do if all
// hits before it are decided by this log alone.
func (l *log) answer(t *limiter.Tally) {
	taken, isCertain := int64(0), !l.batch.isTentative && !l.view.rules.isMixed
	for i := range l.batch.places {
		add := &t.Adds[i]
		add.Reserved = l.batch.reservation(i, l.view.content.Head())
		add.Refused = !l.batch.admits(i) && !(isCertain && isFull(t, taken+add.Cost))
		if add.Refused {
			t.Settled = false
		}
		if l.batch.admits(i) {
			taken, isCertain = taken+add.Cost, isCertain && !add.Shared
		}
	}
}

// isFull reports whether an enforced limit of the tally has no room for the cost.
func isFull(t *limiter.Tally, cost int64) bool {
	return slices.ContainsFunc(t.Limits, func(limit limiter.Limit) bool {
		return limit.Enforced && limit.Count+cost > limit.Ceiling
	})
}

// strengthen makes the limits count no less than the newer limits of the log leave room for: a process with stale rules
// loosens nothing. The hits of the batch cost so much.
func (v *view) strengthen(t *limiter.Tally, cost int64) {
	for _, newer := range v.content.Head().Limits {
		room := newer.Ceiling - (v.content.Held(newer, v.time).Count - cost)
		for i := range t.Limits {
			limit := &t.Limits[i]
			if !newer.Shadow && limit.Enforced && limit.Ceiling-room > limit.Count {
				limit.Count, limit.Exact = limit.Ceiling-room, false
			}
		}
	}
}

// search finds when the limit counts no more than s.Most. The hits of the batch that count in the log cost so much.
func (v *view) search(t *limiter.Tally, s *limiter.Search, cost int64) {
	own := v.rules.limits[s.Limit]
	s.Reset, s.MayFit, s.Explanation = 0, false, engine.Explanation{}
	if s.Moments > 0 {
		s.Explanation = v.explain(&t.Limits[s.Limit], own, s.Moments)
	}
	room := own.Ceiling - s.Most + min(t.Taken-cost, 0) // hits that are not kept leave at once
	at, fits := v.frees(own, room, t.Taken-cost)
	if v.isNewer() {
		for _, newer := range v.content.Head().Limits {
			if newer.Shadow {
				continue
			}
			frees, hasRoom := v.frees(newer, room, t.Taken-cost)
			at, fits = max(at, frees), fits && hasRoom
		}
	}
	switch {
	case !fits:
		s.Reset = events.Never
	case at > v.time:
		s.Reset = time.Duration(at-v.now) * time.Millisecond
	default:
		return
	}
	s.MayFit = v.mayFit(t, own, room)
}

// frees returns when the limit has room for the cost, after hits that cost more than the log counts: a check lets them
// through, and they are about to be added.
func (v *view) frees(limit journal.Limit, cost, more int64) (at int64, fits bool) {
	at, fits = v.content.Frees(limit, cost, v.time)
	if !fits || more <= 0 {
		return at, fits
	}
	later, fitsBeside := v.content.Frees(limit, cost+more, v.time)
	switch {
	case fitsBeside:
	case limit.Rate > 0:
		later = limit.Returns(v.content.Held(limit, v.time).Level+more*limit.Window, limit.Ceiling-cost, v.time)
	default:
		later = limit.Leaves(v.time)
	}
	return max(at, later), true
}

// mayFit reports whether the limit would have room for the cost if all open reservations and leases were given back.
func (v *view) mayFit(t *limiter.Tally, limit journal.Limit, cost int64) bool {
	if v.isOfLeases {
		return cost <= limit.Ceiling
	}
	open := v.content.Open(limit, v.time)
	for i := range t.Adds {
		if add := &t.Adds[i]; add.Kept && !add.Counts && add.Ends != 0 && add.Reserved.ID != 0 {
			open += add.Cost
		}
	}
	return v.content.Held(limit, v.time).Count+cost-open <= limit.Ceiling && !v.isNewer()
}

// explain finds what the limit's count consists of, and the next moments at which it is less.
func (v *view) explain(limit *limiter.Limit, own journal.Limit, moments int) engine.Explanation {
	e := engine.Explanation{Whole: true}
	if own.Rate > 0 {
		v.explainLevel(&e, limit, own, moments)
		return e
	}
	for time, count := range v.content.Counted(own, v.time) {
		if n := len(e.Sum); n == 0 || e.Sum[n-1].First != time/second {
			e.Sum = append(e.Sum, engine.Part{Level: engine.Second, Interval: engine.Interval{First: time / second, Last: time / second}})
		}
		e.Sum[len(e.Sum)-1].Count += count
		leaves := own.Leaves(time)
		if n := len(e.Frees); n > 0 && e.Frees[n-1].At == leaves {
			e.Frees[n-1].Count += count
		} else if n < moments {
			e.Frees = append(e.Frees, engine.Freed{At: leaves, Count: count})
		}
	}
	return e
}

// explainLevel explains a token bucket: what it lacks, and when the next tokens return.
func (v *view) explainLevel(e *engine.Explanation, limit *limiter.Limit, own journal.Limit, moments int) {
	if limit.Count == 0 {
		return
	}
	at := v.time / second
	e.Sum = []engine.Part{{Level: engine.Second, Interval: engine.Interval{First: at, Last: at, Count: limit.Count}}}
	for left := limit.Count - 1; left >= 0 && len(e.Frees) < moments; left-- {
		e.Frees = append(e.Frees, engine.Freed{At: own.Returns(limit.Level, left, v.time), Count: 1})
	}
}
