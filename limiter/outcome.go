package limiter

import (
	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
)

// source is where the count of a limit comes from.
type source uint8

const (
	ofStore  source = iota // the shared store
	ofDenial               // a cached denial
	ofLocal                // this process's own counters: the shared store failed
	ofNone                 // the shared store failed, and no other may stand in
)

// failed reports whether the shared store did not answer.
func (s source) failed() bool { return s == ofLocal || s == ofNone }

// verdict is how a hit is decided.
type verdict uint8

const (
	undecided   verdict = iota
	admitted            // it counts
	denied              // a limit denies it
	contended           // a limit denies it for now: it may retry, and its denial is not cached
	unavailable         // a rule refuses it because no store answered
	asBefore            // the store failed in a retry: the decision of the try before holds
)

// ruling is how one limit rules on a hit: what the fold over all of them takes and gives.
type ruling struct {
	rule    *events.Rule
	listing events.Listing
	outcome engine.Outcome
	source  source

	allows  bool // by itself
	ignored bool // the store failed, and OnError decides
}

// enforced reports whether the limit can deny the hit by itself.
func (r *ruling) enforced() bool {
	return !r.rule.Shadow && r.listing != events.Allowed && r.rule.Throttle.Kind != events.Elastic
}

// denies reports whether the limit denies the hit by itself.
func (r *ruling) denies() bool { return !r.allows && r.enforced() }

// isOfAll reports whether the limit is on the event as a whole.
func (r *ruling) isOfAll() bool { return len(r.rule.Per) == 0 }

// fits reports whether no count is known that leaves no room.
func (r *ruling) fits() bool { return r.outcome == engine.Fits || r.outcome == engine.Unknown }

// rules sets what the limit says by itself. An elastic limit allows while the event as a whole
// has room.
func (r *ruling) rules(wholeFits bool) {
	if r.ignored = r.source == ofNone && (r.outcome == engine.Unknown || !r.enforced()); r.ignored {
		r.allows = r.rule.OnError == events.OnErrorAllow || r.listing == events.Allowed
		return
	}
	r.allows = r.listing != events.Denied &&
		(r.fits() || r.listing == events.Allowed || r.rule.Throttle.Kind == events.Elastic && wholeFits)
}

// fold has all limits of a hit rule on it, and returns its verdict. A denial outranks a
// refusal without a store, which outranks an admission. Shadow limits only report.
func fold(limits []limitEval) verdict {
	wholeFits := true
	for i := range limits {
		wholeFits = wholeFits && (limits[i].fits() || !limits[i].isOfAll())
	}
	refused, blocked := false, false
	for i := range limits {
		r := &limits[i].ruling
		r.rules(wholeFits)
		refused = refused || r.ignored && !r.allows && !r.rule.Shadow
		blocked = blocked || !r.ignored && !r.allows && !r.rule.Shadow
	}
	switch {
	case blocked:
		return denied
	case refused:
		return unavailable
	}
	return admitted
}
