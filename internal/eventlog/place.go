package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// A placing makes the round trips of one log, by itself, until the entries of its batch have their place in it.
type placing struct{ log *log }

// settle makes the round trips that the log needs until its entries have their place in it for good. Without entries
// it only replaces what is no log.
func (p placing) settle(ctx context.Context) {
	l := p.log
	for range maxTrips {
		switch {
		case l.err != nil:
			return
		case l.isFound && l.replicas.fault != nil:
			p.replace(ctx)
		case len(l.batch.entries) == 0:
			l.isUntidy = l.isFound && l.upkeep.isShrinking()
			return
		case !l.isFound:
			p.create(ctx)
		case !l.batch.isAppended:
			p.makeRoom(ctx)
		case p.isStale():
			p.appendLater(ctx)
		case l.replicas.lackKeys():
			l.engine.base.Store.Do(ctx, l.upkeep.repairs(l.batch.data)...)
			l.do(ctx, false)
		case l.tries <= maxTries && p.isDeniedByOlderRules():
			p.decideAnew(ctx)
		case p.isExpiring():
			if p.rewrite(ctx) {
				return
			}
			l.do(ctx, false)
		default:
			l.isUntidy = l.upkeep.isRewriteDue() || l.replicas.lack()
			return
		}
	}
	l.err = errMissing
}

// create creates the log. The store has no room for one that is lost again and again. Between the creation and the
// append may have been a reset.
func (p placing) create(ctx context.Context) {
	l := p.log
	if l.tries >= maxTries {
		l.err = errNoRoom
		return
	}
	if l.planCreate() {
		l.engine.base.Store.Do(ctx, &l.trip.op)
		l.absorb()
	}
}

// makeRoom appends the entries to a log that has refused them, or that was only read because it may be too large. To a
// log over half its bound it appends no more of them than have room: denied ones would fill it.
func (p placing) makeRoom(ctx context.Context) {
	l := p.log
	if l.replicas.largest+len(l.batch.data) > journal.MaxSize/2 && l.batch.isOfHits() && !l.batch.isFitted {
		if p.fit(false); len(l.batch.entries) == 0 {
			return
		}
	}
	l.tries++
	size := l.replicas.largest + len(l.batch.data)
	switch {
	case l.tries > maxTries:
		l.err = errNoRoom
	case size <= journal.MaxSize/2, size <= l.batch.bound() && l.tries <= maxAppends: // a reset was in the way
		l.do(ctx, true)
	case !p.hasRoom():
	case l.swap(ctx):
		l.do(ctx, true)
	default:
		l.do(ctx, false)
	}
}

// hasRoom prepares a rewrite, and reports whether the log has room for the entries then. If it has none, increments
// that are denied are left out, too: a flood of hits that are counted although they are denied does not go by on_error.
func (p placing) hasRoom() bool {
	l := p.log
	err := l.upkeep.shorten()
	if err == nil && len(l.upkeep.next)+len(l.batch.data) > l.batch.bound() {
		err = fmt.Errorf("%w: %w", engine.ErrStore, journal.ErrTooLarge)
	}
	if errors.Is(err, journal.ErrTooLarge) && l.batch.isOfHits() {
		if p.fit(true); len(l.batch.entries) == 0 {
			return false
		}
	}
	if err != nil {
		l.err = err
	}
	return err == nil
}

// fit leaves hits out for which the limits have no room, by the log that was read. Increments are not left out, unless
// all that is denied is.
func (p placing) fit(increments bool) {
	l := p.log
	ahead, isShared := int64(0), false
	l.batch.take(l.batch.adds, func(add *limiter.Addition) bool {
		isFull, isTooMany := l.view.isFull(ahead+add.Cost), len(l.batch.entries) >= maxEntries && !add.Counts
		if isFull && (increments || !add.Counts) || isTooMany {
			l.batch.isTentative = l.batch.isTentative || isShared || isTooMany
			return false
		}
		ahead, isShared = ahead+add.Cost, isShared || add.Shared
		return true
	})
	l.batch.isFitted = true
	l.err = l.batch.encode(nil)
}

// isStale reports whether the entries have no place in the log: it was lost or reset since they were appended, or their
// time is not after its floor, so that they may have been counted before.
func (p placing) isStale() bool {
	l := p.log
	return !l.view.content.Verdict(0).Found || l.batch.reserves() && l.view.time <= l.view.content.Head().Floor
}

// appendLater appends the entries once more; if they are not after the floor of the log, as others that are.
func (p placing) appendLater(ctx context.Context) {
	l := p.log
	if floor := l.view.content.Head().Floor; l.view.time <= floor {
		if l.batch.release != 0 && l.batch.entries[0].Ends <= floor {
			l.err = engine.ErrEnded // by the time of the log, or by a reset
			return
		}
		var voids []byte
		if l.batch.reserves() { // they count in spite of that
			voids = l.batch.appendVoids(nil, nil)
		}
		l.view.time = floor + 1
		l.batch.postpone(floor + 1)
		l.err = l.batch.rename(voids)
	}
	l.do(ctx, true)
}

// isDeniedByOlderRules reports whether the log denies hits by the limits of older rules.
func (p placing) isDeniedByOlderRules() bool {
	isDenied := slices.ContainsFunc(p.log.batch.entries, func(e entry) bool { return e.admits < e.Count })
	return isDenied && p.log.view.isOlder()
}

// decideAnew rewrites the log under newer rules, voids the entries, and appends others.
func (p placing) decideAnew(ctx context.Context) {
	l := p.log
	l.tries++
	p.rewrite(ctx)
	if l.err == nil {
		l.err = l.batch.rename(l.batch.appendVoids(nil, nil))
	}
	l.do(ctx, true)
}

// isExpiring reports whether the log may expire, or lose the settlement of the batch, before its entries have left
// their windows.
func (p placing) isExpiring() bool {
	l := p.log
	return l.view.content.Head().Until < l.upkeep.life().need || l.batch.release != 0 && l.replicas.disagree()
}

// rewrite swaps the log for a shorter one. It reports whether it has: the log may have changed since it was read.
func (p placing) rewrite(ctx context.Context) bool {
	l := p.log
	if l.err = l.upkeep.shorten(); l.err != nil {
		return false
	}
	return l.swap(ctx)
}

// replace puts an empty log, which knows no events before now, in the place of an item that no process has written, if
// that is still the item that was read. Two processes that find it replace it once: the second finds the log of the
// first, and appends to it.
func (p placing) replace(ctx context.Context) {
	l := p.log
	if !l.replicas.isReplaceable() {
		l.err = fmt.Errorf("%w: %w", engine.ErrBadCounter, l.replicas.fault)
		return
	}
	if l.err = l.upkeep.empty(0, l.view.time); l.err != nil {
		return
	}
	l.swap(ctx)
	l.do(ctx, len(l.batch.entries) > 0)
}
