package limiter

import (
	"context"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// The adds of a hit that is denied are transient: they are rolled back. Other hits count
// them meanwhile. One limit orders all hits, so there a transient add costs no other hit its
// place, as long as what is ahead of it fits: that is admitted, or will be. More than that
// is denied in part, and a hit that costs less may fit in its place. Several limits, several
// counters and several replicas order the same hits differently. Hits may then deny each other
// although each would fit: that is contention.
//
// So a hit that is denied under contention rolls its adds back, looks, and adds again where
// the look finds room. A limit that a look finds without room is Full by one of these rules,
// and else FullForNow:
//
//  1. The closed buckets of its window leave no room. Transient adds exist in open buckets
//     only.
//  2. It holds no more than it allows: admitted hits alone explain the count.
//  3. A final denial that still holds, for the same limits and cost, found it Full: its window
//     has not moved since, or not far enough, and adds make no room. It holds for its second, or
//     until its wait is over if the engine's waits are finer than a second.
//  4. Its overshoot has not shrunk for half the timeout.
//  5. It holds no more than it allows, though some of that may be rolled back, and has not
//     shrunk for 32 ms and three looks: a rollback takes less.
//
// A denial is final as soon as one limit that denies is Full. Until then the hit retries; the
// timeout ends all tries. Only final denials are cached. The last hit to retry meets no
// transient adds, so what fits is admitted.
//
// Exactness does not depend on this: each try is a hit of its own, with its own stamp and
// adds.

// overshoot is the least that a hit found in a limit that denies it for now, since when it finds
// no less there, and in how many tries.
type overshoot struct {
	limit int // which of the hit's
	least int64
	since time.Time
	tries int
}

// retryPolicy says which denied hits of a batch retry.
type retryPolicy struct {
	timeout    time.Duration
	replicated bool // replicas order the same hits differently
	denials    *denialCache
	random     func(below time.Duration) time.Duration
}

func (l *Limiter) retryPolicy() *retryPolicy {
	return &retryPolicy{timeout: l.timeout, replicated: l.replicated, denials: l.denials, random: l.random}
}

// contended returns the hits that limits deny for now, before their closed buckets are read.
func (p *retryPolicy) contended(hits []*hit, moment engine.Moment) (open []*hit) {
	for _, h := range hits {
		// Where all hits meet in one order, a hit that has added is denied for good.
		if !h.isDenied() || !h.mayRetry() || h.path == adding && !p.replicated && h.inOneOrder() {
			continue
		}
		p.findContention(h, moment)
		if h.isContended() {
			open = append(open, h)
		}
	}
	return open
}

// findContention finds which limits deny the hit for now.
func (p *retryPolicy) findContention(h *hit, moment engine.Moment) {
	for i := range h.limits {
		u := &h.limits[i]
		if u.denies() && !u.final && h.mayFitLater(u) &&
			(h.path == adding || u.count > u.window.ceiling && !p.denials.isFull(h, u, moment)) {
			u.outcome = engine.FullForNow
		}
	}
}

// isContended reports whether each limit that denies the hit does so for now.
func (h *hit) isContended() bool {
	contended := h.path == adding
	for i := range h.limits {
		if u := &h.limits[i]; u.denies() {
			if u.outcome == engine.Full {
				return false
			}
			contended = true
		}
	}
	return contended
}

// settle has those of the open hits retry that are still contended after so many tries, now
// that their closed buckets are known.
func (p *retryPolicy) settle(open []*hit, try int, now time.Time) {
	for _, h := range open {
		if h.path == looking {
			h.findFull(now, p.timeout/2)
		}
		if h.isContended() {
			h.verdict = contended
			h.retries = try < maxTries && now.Sub(h.request.began) < p.timeout && h.request.ctx.Err() == nil
		}
	}
}

// mayRetry reports whether the hit left nothing behind: an add whose answer was lost, or that
// is not rolled back, is not repeated.
func (h *hit) mayRetry() bool {
	return !slices.ContainsFunc(h.counters, func(c *counterState) bool { return c.name.countAll || c.err != nil || c.notRolledBack })
}

// mayFitLater reports whether transient adds of other hits may be what fills the limit. What
// the hit's own batch was admitted with stays.
func (h *hit) mayFitLater(u *limitEval) bool {
	return u.cached == nil && u.listing == events.Unlisted && u.ahead+h.costOn(u.counter) <= u.window.ceiling
}

// findFull finds a limit that is full by its closed buckets, or by a count that has not shrunk: for
// that long if it is more than the limit allows, else for fullPause.
func (h *hit) findFull(now time.Time, long time.Duration) {
	seen, first := &h.request.overshoot, true
	for i := range h.limits {
		u := &h.limits[i]
		if !u.denies() {
			continue
		}
		if u.window.final+h.costOn(u.counter) > u.window.ceiling {
			u.outcome = engine.Full
		}
		if first && (seen.since.IsZero() || seen.limit != i || u.count < seen.least) {
			*seen = overshoot{limit: i, least: u.count, since: now}
		}
		if first {
			seen.tries++
			unchanged := now.Sub(seen.since)
			stays := u.count <= u.window.ceiling && unchanged >= fullPause && seen.tries >= fullTries
			if stays || unchanged >= long {
				u.outcome = engine.Full
			}
		}
		first = false
	}
}

// order returns in which order the limit counts hits, of those of its counter.
func (u *limitEval) order() int { return u.counter.open().Span(u.window.index).Order }

// inOneOrder reports whether all limits of the hit put hits in the same order, and the one that
// denies it knows of no hits ahead that may be rolled back: all of them fit.
func (h *hit) inOneOrder() bool {
	for i := range h.limits {
		u := &h.limits[i]
		if u.counter != h.limits[0].counter || u.order() != h.limits[0].order() || u.denies() && (u.outcome == engine.FullForNow || u.count > u.window.ceiling) {
			return false
		}
	}
	return true
}

const (
	// maxTries is how often a contended hit retries; within the timeout it gets to fewer.
	maxTries = 40
	maxPause = 16 * time.Millisecond
	// A count that does not shrink for so long, in so many looks, is that of hits that stay.
	fullPause = 2 * maxPause
	fullTries = 3
)

// pause spreads the retries of processes that contend: none before the first, then a random
// time that grows to maxPause.
func (p *retryPolicy) pause(ctx context.Context, try int) {
	if try == 0 {
		return
	}
	timer := time.NewTimer(p.random(min(time.Millisecond<<try, maxPause)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
