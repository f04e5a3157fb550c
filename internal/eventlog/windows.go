package eventlog

import (
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// windows are the limits of a counter, and what a log that was read says of them.
type windows struct {
	batch
	occupancy
	revision  uint64        // the highest of them
	longest   time.Duration // of what limits count
	retention time.Duration // of events, unless there are token buckets alone
	buckets   int           // how many of the limits are token buckets
	moment    int64         // milliseconds; waits count from here

	log      journal.Log
	question journal.Question
	waits    []time.Duration // of the searches
	mayFit   []bool          // of the searches
	leases   bool            // what counts are leases

	explanations map[int]engine.Explanation // by their limits
}

func (w *windows) begin(moment engine.Moment, retention time.Duration) {
	w.moment, w.revision, w.longest, w.retention, w.buckets = moment.Now.UnixMilli(), 0, 0, retention, 0
	w.question.Newest = w.question.Newest[:0]
	w.time = max(w.moment, moment.Stamp*1000)
	w.log.Clear()
}

func (w *windows) end() {
	w.occupancy.clear()
	w.waits, w.mayFit, w.question.Limits = w.waits[:0], w.mayFit[:0], w.question.Limits[:0]
	clear(w.explanations)
}

// Limit adds a limit.
func (w *windows) Limit(limit engine.Limit) {
	w.occupancy.add(limit)
	own := journal.LimitFrom(limit.Limit, limit.Ceiling)
	if own.Shadow = !limit.Enforced; own.Rate > 0 {
		w.buckets++
	}
	w.question.Limits = append(w.question.Limits, own)
	if limit.Enforced {
		w.turns = max(w.turns, limit.LongestWait(limit.Ceiling))
	}
	w.longest = max(w.longest, limit.Span(limit.Ceiling))
	if limit.Revision > w.revision {
		w.revision, w.question.Newest = limit.Revision, w.question.Newest[:0]
	}
	if limit.Revision == w.revision {
		w.question.Newest = append(w.question.Newest, own)
	}
}

// retained returns for how long events are kept beyond what limits count: token buckets need none.
func (w *windows) retained() time.Duration {
	if w.buckets > 0 && w.buckets == len(w.limits) {
		return 0
	}
	return w.retention
}

// needed returns for how long the log is needed after a hit.
func (w *windows) needed() time.Duration { return max(w.longest, w.retained()) }

// hold notes what the windows hold by the log that was read.
func (w *windows) hold() {
	for i, limit := range w.question.Limits {
		w.base[i] = w.log.Held(limit, w.time)
	}
}

// voids reports whether a hit is to be void since a limit of the session denies it.
func (w *windows) voids() bool {
	ahead := int64(0)
	for i, h := range w.hits {
		if p := w.places[i]; p.entry >= 0 && w.entries[p.entry].Pending && w.denies(ahead, h.Cost) {
			return true
		}
		ahead += h.Cost
	}
	return false
}

// Standing returns whether the limit has room. A hit that was added has it only if the log admits
// it, too: the log is judged by limits that may be of other rules, and counts hits of the batch that
// another counter has denied.
func (w *windows) Standing(limit, decided int, ahead, cost int64) engine.Standing {
	own, held, leftOut, fits := w.question.Limits[limit], w.base[limit], false, false
	if decided < len(w.hits) {
		if p := w.places[decided]; p.entry < 0 && p.behind >= 0 { // as it was found then, whatever is void since
			held, leftOut = w.probe[limit], true
			fits = w.outcome(limit, held, ahead, cost) == engine.Fits
			ahead = p.behind
		}
	}
	standing := engine.Standing{Outcome: w.outcome(limit, held, ahead, cost), Count: held.Count + ahead, Exact: w.isExact(own), Final: true}
	if standing.Outcome == engine.Full && fits {
		// But for hits ahead of it that another counter has denied: it comes again.
		standing.Outcome, standing.Final = engine.FullForNow, false
	}
	if standing.Outcome == engine.Fits && w.limits[limit].Algorithm == events.LeakyBucket {
		standing.Wait = time.Duration(own.Wait(held.Level, ahead)) * time.Millisecond
	}
	if standing.Outcome != engine.Fits || own.Shadow || leftOut {
		return standing
	}
	counts := decided < len(w.hits) && w.hits[decided].Counts
	if decided < len(w.hits) && !(counts && w.isStale()) {
		if w.batch.decided && (counts || w.batch.admits(decided) || w.denies(ahead, cost)) {
			return standing
		}
		standing.Outcome = engine.FullForNow
	}
	if w.isStale() && w.isFull(ahead, cost) {
		standing.Outcome = engine.Full
	}
	return standing
}

// isStale reports whether the log has limits of newer rules than the session, and other ones.
func (w *windows) isStale() bool { return w.log.Head().Revision > w.revision && !w.log.IsOfReader() }

// isFull reports whether the limits of the log have no room for the hit, whatever is void.
func (w *windows) isFull(ahead, cost int64) bool {
	for _, limit := range w.log.Head().Limits {
		held := w.log.Held(limit, w.time)
		if !limit.Shadow && held.Count-held.Undecided-w.total+ahead+cost > limit.Ceiling {
			return true
		}
	}
	return false
}

// isExact reports whether the log knows the moments of all events in the window of the limit.
func (w *windows) isExact(limit journal.Limit) bool {
	return limit.Rate > 0 || w.log.Head().Coarse <= limit.Edge(w.time) && w.log.Knows(limit.Edge(w.time))
}

// Span returns the first second of the window, and since when the log that was read knows all
// events. A log has one order.
func (w *windows) Span(limit int) engine.Span {
	own := w.question.Limits[limit]
	edge := own.Edge(w.time)
	if own.Rate > 0 {
		edge = w.time - w.limits[limit].Span(own.Ceiling).Milliseconds()
	}
	return engine.Span{First: (edge + 1) / 1000, Since: w.log.Since(own) / 1000}
}

// since returns the time after which a new log knows all events: those before would have left it, or
// came when no log was kept for the limits.
func (w *windows) since() int64 {
	return max(w.time-w.needed().Milliseconds()-1000, w.kept(), 0) // a window begins within a second
}

// kept returns the time since which a log is kept for all limits, as far as this process knows; or 0.
func (w *windows) kept() (since int64) {
	for _, limit := range w.limits {
		if limit.Since != 0 {
			since = max(since, limit.Since*second+999)
		}
	}
	return since
}

// Search finds in the log when the limit has room. It makes no round trip.
func (w *windows) Search(limit int, ahead, cost int64) (int, bool) {
	// Hits of the batch that are void leave at once; what was left out is not in the log.
	cost += min(ahead-w.total, 0)
	at, ok := w.log.Frees(w.question.Limits[limit], cost, w.time)
	if w.isStale() {
		for _, other := range w.log.Head().Limits {
			if other.Shadow {
				continue
			}
			frees, fits := w.log.Frees(other, cost, w.time)
			at, ok = max(at, frees), ok && fits
		}
	}
	wait := time.Duration(at-w.moment) * time.Millisecond
	switch {
	case !ok:
		wait = events.Never
	case at <= w.time:
		return 0, false
	}
	w.waits, w.mayFit = append(w.waits, wait), append(w.mayFit, w.mayFitNow(w.question.Limits[limit], cost))
	return len(w.waits) - 1, true
}

// mayFitNow reports whether the limit would have room if all open reservations and leases were given back.
func (w *windows) mayFitNow(limit journal.Limit, cost int64) bool {
	if w.leases {
		return cost <= limit.Ceiling
	}
	open := w.log.Open(limit, w.time)
	for i := range w.hits {
		if h := &w.hits[i]; h.Stays && !h.Counts && h.Ends != 0 && h.Reserved.ID != 0 {
			open += h.Cost
		}
	}
	return w.log.Held(limit, w.time).Count+cost-open <= limit.Ceiling && !w.isStale()
}

// MayFit returns whether the search has found that the hit may fit.
func (w *windows) MayFit(search int) bool { return w.mayFit[search] }

// Wait returns what the search has found.
func (w *windows) Wait(search int) time.Duration { return w.waits[search] }

// occupancy is what each limit of a session counts.
type occupancy struct {
	limits []engine.Limit
	base   []journal.Content // of each, ahead of the batch
	probe  []journal.Content // the same, of hits that are left out of the batch
}

// add adds a limit that counts nothing yet.
func (o *occupancy) add(limit engine.Limit) {
	o.limits, o.base = append(o.limits, limit), append(o.base, journal.Content{})
}

func (o *occupancy) clear() {
	clear(o.limits)
	o.limits, o.base = o.limits[:0], o.base[:0]
}

// outcome returns how the limit answers by itself if it holds that.
func (o *occupancy) outcome(limit int, held journal.Content, ahead, cost int64) engine.Outcome {
	ceiling := o.limits[limit].Ceiling
	switch {
	case engine.OutcomeOf(held.Count+ahead, cost, ceiling) == engine.Fits:
		return engine.Fits
	case engine.OutcomeOf(held.Count-held.Undecided+ahead, cost, ceiling) == engine.Fits:
		return engine.FullForNow
	}
	return engine.Full
}

// denies reports whether a limit denies the hit by itself.
func (o *occupancy) denies(ahead, cost int64) bool {
	for i := range o.limits {
		if o.limits[i].Enforced && o.outcome(i, o.base[i], ahead, cost) != engine.Fits {
			return true
		}
	}
	return false
}

// WantFinal wants nothing: what was read says which hits may be void yet.
func (o *occupancy) WantFinal(int) {}

// Final returns what the window holds without hits that other counters may deny.
func (o *occupancy) Final(limit int) int64 {
	return o.base[limit].Count - o.base[limit].Undecided
}
