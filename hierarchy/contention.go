package hierarchy

import (
	"slices"
	"time"

	"github.com/counterd/counterd/events"
)

// The adds of a hit that is denied are transient: they are rolled back. Other hits count
// them meanwhile. One limit orders all hits of one cost, so there a transient add costs no
// other hit its place: the hits ahead are admitted, or there is no room. Several limits,
// several counters and several replicas order the same hits differently. Hits may then deny
// each other although each would fit: that is contention.
//
// So a hit that is denied under contention rolls its adds back, looks, and adds again where
// the look finds room. Its denial is final as soon as one of these rules says so:
//
//  1. The closed buckets of a limit's window leave no room. Transient adds exist in open
//     buckets only.
//  2. Each limit that denies the hit is full and none holds more than it allows: admitted
//     hits alone explain the count.
//  3. A final denial of the same second, for the same limits and cost, found the limit full.
//     The window has not moved since, and adds make no room.
//  4. The overshoot has not shrunk for half the timeout.
//
// The timeout ends all tries. A denial that it ends, or that no rule makes final, is not
// cached. The last hit to retry meets no transient adds, so what fits is admitted.
//
// Exactness does not depend on this: each try is a hit of its own, with its own stamp and
// adds.

// overshoot is the least that a hit found in a limit that held more than it allows, and
// since when it finds no less there.
type overshoot struct {
	limit int // which of the hit's
	least int64
	since time.Time
}

// leaveUnsettled finds the denied hits that should try again, or should have if the
// time for it were not over.
func (f *flush) leaveUnsettled(try int) {
	var contended []*hit
	for _, h := range f.hits.handedOut() {
		switch {
		case h.path != adding && h.path != looking || h.allowed || h.refused || h.stale || !h.ofTheMoment():
		case h.path == adding:
			h.doubtful = f.l.copier != nil || !h.inOneOrder()
		case h.isOvershot() && !f.isCachedFull(h):
			contended = append(contended, h)
		}
	}
	if len(contended) > 0 {
		f.readClosed(contended)
	}
	now := f.l.now()
	for _, h := range contended {
		h.doubtful = !h.isClosedFull() && !h.waitedOut(now, f.l.timeout/2)
	}
	for _, h := range f.hits.handedOut() {
		h.unsettled = h.doubtful && try < maxTries && now.Sub(h.request.began) < f.l.timeout && h.request.ctx.Err() == nil
	}
}

// isOvershot reports whether a limit that denies the hit holds more than it allows.
func (h *hit) isOvershot() bool {
	for i := range h.uses {
		if u := &h.uses[i]; u.denies() && u.count > u.check.ceiling {
			return true
		}
	}
	return false
}

// denies reports whether the limit denies its hit by itself.
func (u *use) denies() bool { return !u.state.Allowed && u.enforced() }

// waitedOut reports whether the overshoot has not shrunk for that long.
func (h *hit) waitedOut(now time.Time, long time.Duration) bool {
	seen := &h.request.overshoot
	for i := range h.uses {
		u := &h.uses[i]
		if !u.denies() || u.count <= u.check.ceiling {
			continue
		}
		if seen.since.IsZero() || seen.limit != i || u.count < seen.least {
			*seen = overshoot{limit: i, least: u.count, since: now}
		}
		break
	}
	return now.Sub(seen.since) >= long
}

// isCachedFull reports whether a final denial of this second found one of the limits full
// that deny the hit.
func (f *flush) isCachedFull(h *hit) bool {
	for i := range h.uses {
		if u := &h.uses[i]; u.denies() && f.l.denials.isFull(h, u, f.stamp, f.began) {
			return true
		}
	}
	return false
}

// readClosed finds what closed buckets hold of the limits that deny the hits. Where the store
// fails that is unknown, and 0.
func (f *flush) readClosed(hits []*hit) {
	var claims []*claim
	f.marked++
	for _, h := range hits {
		for i := range h.uses {
			if u := &h.uses[i]; u.denies() {
				f.wantClosed(u)
				if len(u.claim.reads) > 0 && u.claim.marked != f.marked {
					u.claim.marked = f.marked
					claims = append(claims, u.claim)
				}
			}
		}
	}
	f.readOn(claims, nil)
	for _, h := range hits {
		for i := range h.uses {
			if u := &h.uses[i]; u.denies() {
				u.check.closed, _ = u.claim.exact(f.closedTiles(u))
			}
		}
	}
}

// wantClosed wants the closed buckets of the limit's window.
func (f *flush) wantClosed(u *use) { u.claim.wantAll(f.closedTiles(u)) }

func (f *flush) closedTiles(u *use) Cover {
	u.claim.tiles = u.check.span.closed(u.claim.tiles[:0], u.claim.finest, f.closed())
	return u.claim.tiles
}

// isClosedFull reports whether closed buckets alone leave the hit no room in a limit that
// denies it.
func (h *hit) isClosedFull() bool {
	return slices.ContainsFunc(h.uses, func(u use) bool { return u.denies() && u.check.closed+h.cost > u.check.ceiling })
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
