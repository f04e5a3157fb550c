package limiter

import (
	"iter"

	"github.com/counterd/counterd/engine"
)

// limitsOn are the limits of a hit on one of its counters: what a cached denial of the counter
// is about.
type limitsOn struct {
	hit     *hit
	counter *counterState
}

// all yields the limits in the order of the rules.
func (on limitsOn) all() iter.Seq[*limitEval] {
	return func(yield func(*limitEval) bool) {
		for i := range on.hit.limits {
			if u := &on.hit.limits[i]; u.counter == on.counter && !yield(u) {
				return
			}
		}
	}
}

// key returns the key of a denial of the hit by the counter. Other hits of the batch may have
// other limits on it, of another generation of rules, which the key leaves out.
func (on limitsOn) key() cacheKey {
	hash := uint64(14695981039346656037) // FNV-1a, by words
	for u := range on.all() {
		hash = (hash ^ uint64(u.window.limit.Window)) * 1099511628211
		hash = (hash ^ uint64(u.window.ceiling)) * 1099511628211
	}
	return cacheKey{hash, on.hit.cost}
}

// isEnforced reports whether one of the limits can deny the hit.
func (on limitsOn) isEnforced() bool {
	for u := range on.all() {
		if u.enforced() {
			return true
		}
	}
	return false
}

// isFull reports whether one of the limits that can deny the hit has no room for it.
func (on limitsOn) isFull() bool {
	for u := range on.all() {
		if u.enforced() && !u.fits() {
			return true
		}
	}
	return false
}

// isRecalled reports whether a cached denial decided the limits.
func (on limitsOn) isRecalled() bool {
	for u := range on.all() {
		if u.cached != nil {
			return true
		}
	}
	return false
}

// recall has the limits weighed as the cached denial found them.
func (on limitsOn) recall(found *cachedDenial) {
	next := 0
	for u := range on.all() {
		u.cached = &found.limits[next]
		next++
	}
}

// indexOf returns which of the limits it is.
func (on limitsOn) indexOf(of *limitEval) (index int) {
	for u := range on.all() {
		if u == of {
			break
		}
		index++
	}
	return index
}

// denial returns what to cache of the limits, and whether one denies.
func (on limitsOn) denial(moment engine.Moment) (found *cachedDenial, denies bool) {
	found = &cachedDenial{
		key: on.key(), stamp: moment.Stamp, until: on.counter.began.Add(denialLife), touched: on.counter.touched,
		limits: make([]cachedLimit, 0, len(on.hit.limits)),
	}
	if on.hit.verdict == contended {
		found.until = moment.Now // it makes the hits that follow look, no more
	}
	for u := range on.all() {
		s := cachedLimit{outcome: u.outcome, count: u.count, exact: u.exact, reset: u.own}
		if !u.fits() && u.allows { // let through, so nothing searched its reset
			s.reset = u.windowLength()
		}
		found.limits = append(found.limits, s)
		denies = denies || u.denies()
	}
	return found, denies
}
