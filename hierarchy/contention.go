package hierarchy

import (
	"time"

	"github.com/counterd/counterd/events"
)

// The adds of a hit that will be denied are in place for a moment, and others count
// them. With one limit that costs nobody anything: those ahead in its order are
// admitted, or there is no room. But several limits, or several counters, order
// the same hits differently, as do several copies of one counter, and then hits may
// deny each other that would each have fitted: of a burst some could be admitted, and
// none is.
//
// So a hit that was denied in such company takes its adds back, looks, and adds
// again if there is room. It is settled when a look finds the limit full and not
// overfull: more than a limit allows can only stand there for a moment. The last
// one to settle has nobody in its way, so in the end what fits is admitted.
//
// Exactness does not depend on it: each try is a hit of its own, with its own
// stamp and adds.

// crowd is the least that stood in a hit's way when it looked, at the first of the limits
// that were overfull, and since when it has found no less there. A crowd of which nobody
// leaves for half the timeout is none of the moment: increments go beyond limits, and a
// reload may have lowered one below what stands. Once that has been found out nobody else
// is kept waiting for it, as long as the windows hold what stood there, up to standsLife.
// Where some left and others came it may have been a crowd all the same, and that is gone
// by for a second only.
type crowd struct {
	count int64
	limit int // which of the hit's
	since time.Time
	last  int64 // how much there was at the last look
	left  bool  // at one of the looks there was less than at the one before
}

// leaveUnsettled finds the denied hits that should try again, or should have if the
// time for it were not over.
func (f *flush) leaveUnsettled(try int) {
	var now time.Time
	for _, h := range f.hits.handedOut() {
		if h.path != adding && h.path != looking || h.allowed || h.refused || h.stale || !h.ofTheMoment() {
			continue
		}
		if now.IsZero() {
			now = f.l.now()
		}
		h.doubtful = h.path == adding && (f.l.replicated || !h.inOneOrder()) || h.path == looking && f.crowded(h, now)
		h.unsettled = h.doubtful && try < maxTries && now.Sub(h.request.began) < f.l.timeout && h.request.ctx.Err() == nil
	}
}

// crowded reports whether what stands in the way of a hit that has looked is more
// than its limits allow, and has not been there for long.
func (f *flush) crowded(h *hit, now time.Time) bool {
	found := crowd{since: now}
	for j := range h.uses {
		if u := &h.uses[j]; !u.state.Allowed && u.enforced() && u.count > u.check.ceiling {
			if f.l.denials.stands(h, u, f.stamp, now) {
				h.goesBy = true
				return false
			}
			if found.count == 0 {
				found.count, found.limit = u.count, j
			}
		}
	}
	before := &h.request.crowd
	if first := before.since.IsZero(); first || found.limit != before.limit || found.count < before.count {
		found.left = !first && found.count == 0
		*before = found
	}
	before.left = before.left || found.count < before.last
	before.last = found.count
	return found.count > 0 && now.Sub(before.since) < f.l.timeout/2
}

// ofTheMoment reports whether what denied the hit may go away at once.
func (h *hit) ofTheMoment() bool {
	for i := range h.uses {
		u := &h.uses[i]
		// One whose answer was lost, or could not be taken back, must not be repeated.
		if u.claim.name.countAll || u.claim.err != nil || u.claim.stuck {
			return false
		}
		if u.state.Allowed || !u.enforced() {
			continue
		}
		if u.recalled != nil || u.listing != events.Unlisted || h.cost > u.check.ceiling {
			return false
		}
		// What the flush itself was admitted with stays.
		if admitted := u.count - u.check.hi; admitted+h.cost > u.check.ceiling {
			return false
		}
	}
	return true
}

// inOneOrder reports whether all limits of the hit put hits in the same order.
func (h *hit) inOneOrder() bool {
	for i := range h.uses {
		if u := &h.uses[i]; u.claim != h.uses[0].claim || u.check.span.rank != h.uses[0].check.span.rank {
			return false
		}
	}
	return true
}
