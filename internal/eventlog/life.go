package eventlog

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// An upkeep decides how long the log of a batch lives, whether a rewrite is due, and what it writes.
type upkeep struct {
	engine    *Engine
	view      *view
	replicas  *replicas
	batch     *batch
	unitesAll bool   // replicas lack also what may be on its way to them
	needed    int64  // until when an earlier batch needs the log, in Unix milliseconds, or 0
	next      []byte // the value that a rewrite or a creation writes
}

// A life is how long a log lives that is written now. Times are Unix milliseconds.
type life struct {
	ttl     int64 // seconds
	need    int64 // until when the entries of the batch need the log; 0 if none counts
	until   int64 // for its header
	renewal int64 // milliseconds: a batch that needs the log until later than that before its end extends it
}

// life returns how long the log is to live; by older limits only until newer ones rewrite it.
func (u *upkeep) life() (result life) {
	head := u.view.content.Head()
	if u.isOutdated() {
		head.TTL, head.Until = 0, 0
	}
	ttl := max(u.ttl(), head.TTL)
	now := max(u.view.time, u.engine.now().UnixMilli())
	spare, renewal := journal.Spare(ttl*second, u.view.content.Age(now))
	need := u.needed
	if u.batch.cost > 0 {
		need = max(need, u.view.time+ttl*second)
	}
	if ends := u.batch.ends(); ends > 0 {
		need = max(need, ends+u.engine.grace.young())
		if u.view.rules.buckets > 0 { // tokens return from then on
			need = max(need, ends+ttl*second)
		}
	}
	until := max(head.Until, now+ttl*second+spare, need)
	if drained := u.view.content.Drained() + u.engine.grace.young(); drained > until { // increments took more than a burst
		need, until = max(need, drained), drained+spare
	}
	return life{ttl: ttl, need: need, until: until, renewal: renewal}
}

// expires returns the Unix second when the item expires.
func (l life) expires() int64 { return l.until/second + 1 }

// ttl returns for how many seconds the log must live by the rules of this process.
func (u *upkeep) ttl() int64 { return u.engine.grace.ttl(u.view.rules.needed()) }

// isOutdated reports whether the log is to be rewritten under newer rules of this process: they have other limits, or
// need it for another time.
func (u *upkeep) isOutdated() bool {
	head := u.view.content.Head()
	return head.Outdated(u.view.rules.revision) && !(u.view.content.IsOfReader() && head.TTL == u.ttl())
}

// empty makes an empty log the next value, which knows all events since that time. In it nothing counts that was
// appended up to a reset.
func (u *upkeep) empty(reset, since int64) (err error) {
	u.view.content.Clear()
	life := u.life()
	head := journal.Head{
		Revision: u.view.rules.revision, Limits: u.view.rules.newest, TTL: life.ttl, Until: life.until,
		Floor: u.view.time - u.engine.grace.young(), Since: since, Reset: reset,
	}
	if u.next, err = journal.AppendNew(u.next[:0], head, u.view.time); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrStore, err)
	}
	return nil
}

// shorten makes a shorter log the next value. While replicas hold different entries, these keep their identity, unless
// the log is large.
func (u *upkeep) shorten() (err error) {
	life := u.life()
	how := journal.Rewrite{
		Limits: u.view.rules.newest, Revision: u.view.rules.revision, TTL: life.ttl, Until: life.until, Since: u.view.rules.since,
		Now: u.view.time, Young: u.young(), Retain: u.view.rules.retained().Milliseconds(), Alone: u.isAlone(),
	}
	if !u.mayShrink() {
		how.Young = u.view.time
	}
	if u.next, err = u.view.content.AppendRewrite(u.next[:0], how); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrStore, err)
	}
	return nil
}

// young returns for how many milliseconds an entry keeps its identity.
func (u *upkeep) young() int64 {
	return journal.Youth(u.engine.grace.young(), u.view.rules.longWait.Milliseconds(), u.replicas.largest)
}

// isAlone reports whether no process looks for void entries: they are leases, and no other replica can have one yet.
func (u *upkeep) isAlone() bool { return u.engine.leases() && !u.engine.replicated }

// mayShrink reports whether a rewrite may make sums of entries. A settlement has no limits, and does not know for how
// long hits wait for their turns.
func (u *upkeep) mayShrink() bool {
	isOfTurns := len(u.view.rules.limits) == 0 && u.view.content.Drained() > u.view.time
	return u.replicas.mayShrink() && !(isOfTurns && u.replicas.largest <= journal.MaxSize/2)
}

// isShrinking reports whether many entries of the log are no longer young.
func (u *upkeep) isShrinking() bool {
	return u.mayShrink() && u.view.content.DueBy(u.view.time-u.young(), u.isAlone())
}

// isRewriteDue reports whether the log has grown, is to live for longer, has older rules, or replicas with fewer sums.
func (u *upkeep) isRewriteDue() bool {
	head, life := u.view.content.Head(), u.life()
	return u.replicas.isWhole && u.replicas.lackSums() || u.isOutdated() || u.mayShrink() && u.view.content.Due() ||
		head.Until < life.need+life.renewal || head.Since < u.view.rules.since
}

// undecided returns the time after which other counters may still deny a hit, and its entry may be on its way to some
// replicas.
func (u *upkeep) undecided() int64 {
	if u.unitesAll {
		return math.MaxInt64
	}
	return u.view.time - u.engine.grace.undecided()
}

// swaps returns what replaces the log by the next value on all replicas.
func (u *upkeep) swaps() []*store.Op {
	return u.replicas.swaps(u.batch.counter, u.next, u.life().expires())
}

// repairs returns what gives each replica what it lacks. The data are the entries of the batch.
func (u *upkeep) repairs(data []byte) []*store.Op {
	return u.replicas.repairs(u.batch.counter, data, u.life().expires())
}

// startTidying starts what no hit waits for: a rewrite, if it is due, or a repair of replicas. Of each log a process tidies
// one at a time. A rewrite does nothing to a log that has changed since it was read.
func (l *log) startTidying() {
	if !l.isUntidy || l.err != nil || l.noted.isBusy.Load() {
		return
	}
	l.isUntidy = false
	if l.isVoided && l.engine.replicated && !l.engine.leases() {
		l.startReading()
		return
	}
	ops, size := l.planTidying()
	if len(ops) == 0 {
		return
	}
	ops = slices.Clone(ops)
	engine, noted, latest := l.engine, l.noted, l.engine.now().Add(l.engine.grace.duration())
	l.inBackground(func(ctx context.Context, st store.Store) {
		if size == 0 && engine.now().After(latest) { // what it repairs may be void, and forgotten
			return
		}
		noted.tidy(ctx, st, ops, size)
	})
}

// inBackground does what no hit waits for, unless this process tidies the log already by then.
func (l *log) inBackground(do func(context.Context, store.Store)) {
	noted := l.noted
	store.Later(l.engine.base.Store, func(ctx context.Context, st store.Store) {
		if noted.isBusy.CompareAndSwap(false, true) {
			defer noted.isBusy.Store(false)
			do(ctx, st)
		}
	})
}

// planTidying returns what rewrites the log, and its new size, or what repairs its replicas, and zero. The ops do not use
// memory of the log.
func (l *log) planTidying() (ops []*store.Op, size uint32) {
	if l.upkeep.isRewriteDue() || l.upkeep.isShrinking() {
		if l.isVoided || l.upkeep.shorten() != nil { // a log with voids has changed since it was read
			return nil, 0
		}
		ops, size = l.upkeep.swaps(), uint32(len(l.upkeep.next))
		l.upkeep.next = nil
		return ops, size
	}
	l.replicas.value = slices.Clone(l.replicas.value)
	return l.upkeep.repairs(slices.Clone(l.batch.data)), 0
}

// startReading starts to read the log anew and then to tidy it: replicas that get the value from before the voids would
// count the void entries again if the replica with the voids is lost.
func (l *log) startReading() {
	next := l.engine.open(l.counter, l.batch.counter, time.UnixMilli(l.view.now), l.view.time/second)
	next.view.rules = l.view.rules
	next.view.rules.limits, next.view.rules.newest = slices.Clone(l.view.rules.limits), slices.Clone(l.view.rules.newest)
	next.upkeep.needed = l.upkeep.life().need
	l.inBackground(func(ctx context.Context, st store.Store) {
		defer next.close()
		began := next.engine.now()
		next.view.time = max(next.view.time, began.UnixMilli())
		next.do(ctx, false)
		if next.err != nil || !next.isFound || next.replicas.fault != nil {
			return
		}
		ops, size := next.planTidying()
		if size > 0 || next.engine.now().Sub(began) < next.engine.grace.duration() {
			next.noted.tidy(ctx, st, ops, size)
		}
	})
}

// tidy makes the round trip of a rewrite to that size, or of a repair if it is zero.
func (n *noted) tidy(ctx context.Context, st store.Store, ops []*store.Op, size uint32) {
	if len(ops) == 0 {
		return
	}
	st.Do(ctx, ops...)
	if _, isWhole, _ := resultOf(ops); isWhole && size > 0 {
		n.size.Store(size)
	}
}
