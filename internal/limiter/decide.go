package limiter

import (
	"slices"
	"time"

	"github.com/counterd/counterd/events"
)

// A verdict is how a hit is decided.
type verdict uint8

const (
	admitted    verdict = iota
	denied              // a limit has no room for the hit
	unavailable         // the store did not answer, and a rule refuses the hit
	unchanged           // the store failed after it had rejected the hit: the denial holds
)

// An outcome is how a count compares with its limit.
type outcome uint8

const (
	fits outcome = iota
	full
	unknown // no store answered
)

// An answer is how one limit answers one hit.
type answer struct {
	*events.Applied
	tally      *Tally
	share      int     // index in the hit's shares
	limit      *Limit  // of the tally, or of a cached denial
	index      int     // of the limit in the tally
	part       int     // of the hit
	denial     *denial // the cached denial of the limit, or nil
	cost       int64
	count      int64 // in the window, before the hit
	known      bool  // a store answered, so that count has a meaning
	outcome    outcome
	allowed    bool
	unreserved bool          // see events.LimitState
	wait       time.Duration // for its turn, of a hit that fits
	search     int           // index in tally.Searches, or -1
	roomIn     time.Duration // the time until the limit has room, if there is no search
}

// decide decides the hits in their order. Each hit counts those before it that are kept, and no others. If late is set,
// the decision came too late to admit hits; hits that are denied stay denied.
func (b *batch) decide(late bool) {
	for _, t := range b.tallies {
		t.Taken = 0
	}
	for i := range b.hits {
		h := &b.hits[i]
		if !late || h.verdict != denied {
			h.weigh()
		}
		for j := range h.shares {
			s := &h.shares[j]
			kept := h.verdict == admitted || s.tally.countAll && !b.at.Peek
			if s.add >= 0 {
				s.tally.Adds[s.add].Kept = kept
			}
			if kept && !b.at.Peek { // a client's check adds nothing
				s.tally.Taken += s.adds
			}
		}
	}
	if len(b.hits) > 1 {
		for i := range b.hits {
			b.hits[i].weighLast()
		}
	}
}

// weighLast weighs a denied hit again, after all hits of the batch that are kept: its counts then hold when it is answered.
// It stays denied, because there is less room.
func (h *hit) weighLast() {
	if h.verdict != denied {
		return
	}
	h.count(-1)
	h.weigh()
	h.count(1)
}

// count adds to Taken what the denied hit adds to counters that count all hits.
func (h *hit) count(times int64) {
	for i := range h.shares {
		if s := &h.shares[i]; s.tally.countAll {
			s.tally.Taken += times * s.adds
		}
	}
}

// weigh decides one hit.
func (h *hit) weigh() {
	for i := range h.answers {
		a := &h.answers[i]
		a.compare()
		if add := h.shares[a.share].add; add >= 0 && a.known && a.tally.Adds[add].Refused && a.limit.Enforced {
			a.outcome = full
		}
	}
	h.verdict = combine(h.answers)
	if h.request.rejected && h.hasFailed() {
		h.verdict = unchanged
	}
}

// compare compares the count of the limit with its ceiling.
func (a *answer) compare() {
	t, limit := a.tally, a.limit
	cost := needed(a.cost, limit.Ceiling)
	a.known = a.denial != nil || t.Err == nil && (!t.failed || a.Rule.OnError == events.OnErrorLocal)
	a.count, a.wait = 0, 0
	if a.known {
		a.count = a.limit.Count + t.Taken
	}
	switch {
	case cost > limit.Ceiling, a.known && a.count+cost > limit.Ceiling:
		a.outcome = full
	case !a.known:
		a.outcome = unknown
	default:
		a.outcome = fits
		a.wait = limit.delay(t.Taken, a.cost)
	}
}

// needed returns the room that a cost needs. A limit of 0 has no room for a free hit either.
func needed(cost, ceiling int64) int64 {
	if ceiling == 0 {
		return max(cost, 1)
	}
	return cost
}

// delay returns how long a hit waits in a leaky bucket for hits that cost taken, and for those before them.
func (l *Limit) delay(taken, cost int64) time.Duration {
	if l.Algorithm != events.LeakyBucket || cost == 0 {
		return 0
	}
	return time.Duration((l.Level+taken*l.Window.Milliseconds()+l.N-1)/l.N) * time.Millisecond
}

// isEnforced reports whether limits of the rule can deny the hit by themselves.
func isEnforced(a *events.Applied) bool {
	kind := a.Rule.Throttle.Kind
	return !a.Rule.Shadow && a.Listing != events.Allowed && kind != events.Elastic && kind != events.Quota
}

// combine sets which limits allow the hit, and returns the verdict. A denial outranks a failure of the store, and a
// failure outranks an admission. Limits in shadow have no say.
func combine(answers []answer) verdict {
	eventFits, quotaFits := true, false
	for i := range answers {
		a := &answers[i]
		eventFits = eventFits && (a.outcome != full || len(a.Rule.Per) > 0)
		quotaFits = quotaFits || a.outcome != full && a.Rule.Throttle.Kind == events.Quota
	}
	result := admitted
	for i := range answers {
		a := &answers[i]
		a.allowed = a.allows(eventFits, quotaFits)
		switch {
		case a.allowed || a.Rule.Shadow || result == denied:
		case a.isIgnored():
			result = unavailable
		default:
			result = denied
		}
	}
	return result
}

// isIgnored reports whether no store answered, so that OnError decides. A cost above an enforced limit is denied without
// a store.
func (a *answer) isIgnored() bool {
	return !a.known && (a.outcome == unknown || !isEnforced(a.Applied))
}

// allows reports whether the limit admits the hit by itself. An elastic limit admits while the event as a whole has
// room, a quota while another quota of the hit has.
func (a *answer) allows(eventFits, quotaFits bool) bool {
	switch {
	case a.isIgnored():
		return a.Rule.OnError == events.OnErrorAllow || a.Listing == events.Allowed
	case a.Listing != events.Unlisted:
		return a.Listing == events.Allowed
	case a.outcome != full:
		return true
	}
	kind := a.Rule.Throttle.Kind
	return kind == events.Elastic && eventFits || kind == events.Quota && quotaFits
}

// denies reports whether the limit denies the hit by itself.
func (a *answer) denies() bool { return !a.allowed && isEnforced(a.Applied) }

// admits reports whether a hit of the batch is admitted.
func (b *batch) admits() bool {
	return slices.ContainsFunc(b.hits, func(h hit) bool { return h.verdict == admitted })
}

// hasFailed reports whether the shared store failed for a counter of the hit.
func (h *hit) hasFailed() bool {
	return slices.ContainsFunc(h.shares, func(s share) bool { return s.tally.failed && s.denial == nil })
}

// countsAll reports whether a counter of the hit counts denied hits too.
func (h *hit) countsAll() bool {
	return slices.ContainsFunc(h.shares, func(s share) bool { return s.tally.countAll })
}

// wait returns how long an admitted hit waits for its turn.
func (h *hit) wait() (longest time.Duration) {
	for i := range h.answers {
		if a := &h.answers[i]; isEnforced(a.Applied) {
			longest = max(longest, a.wait)
		}
	}
	return longest
}

// search finds when the limits have room that have none for a hit, and what their counts consist of if the batch
// explains them.
func (b *batch) search() {
	searches := false
	for i := range b.hits {
		h := &b.hits[i]
		for j := range h.answers {
			a := &h.answers[j]
			if h.verdict != unchanged && b.needsSearch(h, a) {
				b.addSearch(a)
			}
			searches = searches || a.search >= 0
		}
	}
	if searches {
		b.limiter.reportError(b.session.Search(b.ctx))
	}
}

// needsSearch reports whether a search must find when the limit has room for the hit. Otherwise it sets roomIn.
func (b *batch) needsSearch(h *hit, a *answer) bool {
	switch {
	case a.known && b.moments > 0:
		return true
	case a.allowed && !b.isInOwnWay(h, a):
	case needed(a.cost, a.limit.Ceiling) > a.limit.Ceiling || a.Listing == events.Denied:
		a.roomIn = events.Never
	case !a.known:
	case h.goesOn && b.adds: // a check finds out
		a.roomIn = b.leaves(a)
	case a.denial != nil:
		a.roomIn = a.denial.remaining(a.limit, b.at.Time)
	default:
		return !h.goesOn
	}
	return false
}

// isInOwnWay reports whether the hit takes the room from its next try, because another limit denied it and this counter
// counts it anyway.
func (b *batch) isInOwnWay(h *hit, a *answer) bool {
	return b.adds && h.verdict == denied && a.tally.countAll && h.shares[a.share].adds > 0 && a.known && isEnforced(a.Applied)
}

// leaves returns the time after which a hit has left the limit's window, or an empty token bucket is full.
func (b *batch) leaves(a *answer) time.Duration {
	windows := a.limit.Windows()
	if windows.Algorithm.Around == nil {
		return a.limit.Span(a.limit.Ceiling)
	}
	step := int64(a.Counter.Precision.Length() / time.Second)
	_, last := windows.Around(b.at.Second - b.at.Second%step + step - 1)
	return time.Duration(last+1-b.at.Second) * time.Second
}

// addSearch adds a search, unless it is there.
func (b *batch) addSearch(a *answer) {
	t := a.tally
	s := Search{Limit: a.index, Most: a.limit.Ceiling - needed(a.cost, a.limit.Ceiling), Moments: b.moments}
	a.search = slices.IndexFunc(t.Searches, func(other Search) bool { return other.Limit == s.Limit && other.Most == s.Most })
	if a.search < 0 {
		a.search = len(t.Searches)
		t.Searches = append(t.Searches, s)
	}
}

// reset returns the time until the limit has room for the hit.
func (b *batch) reset(a *answer) time.Duration {
	switch {
	case a.search < 0:
		return a.roomIn
	case !a.allowed: // if it has room by now, the room has just come
		return max(a.tally.Searches[a.search].Reset, a.tally.Tick, time.Millisecond)
	case b.moments > 0:
		return 0
	}
	return a.tally.Searches[a.search].Reset
}

// mayFit reports whether the limit would have room if all open reservations and leases were given back.
func (a *answer) mayFit() bool {
	switch {
	case a.search >= 0:
		return a.tally.Searches[a.search].MayFit
	case a.denial != nil:
		return a.denial.of(a.limit).mayFit
	}
	return false
}
