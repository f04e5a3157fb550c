package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

var (
	errUnseen = fmt.Errorf("eventlog: a replica that may have the lease did not answer: %w", engine.ErrStore)
	errPlace  = fmt.Errorf("eventlog: by a clock that is ahead another lease has its place: %w", engine.ErrStore)
)

// A reservation is one in its log, or a lease.
type reservation struct {
	log  *log
	name engine.Reserved
}

// Settle voids the entry of the hit, and appends in the same write an increment with its true cost, whose
// identity is derived from that of the entry. The first one in the log is the settlement: it is there until
// the reservation ends. Replicas get the one that any of them has, and of two that are first the larger. Of a
// lease it only appends the void, which releases it. See [engine.Counting].
func (e *Engine) Settle(ctx context.Context, r engine.Reserved, cost int64) error {
	open := e.openReserved(r)
	l, id := open.log, journal.ID(r.ID)
	defer l.close()
	if l.view.time >= r.Ends {
		return engine.ErrEnded
	}
	if err := open.verify(ctx); err != nil {
		return err
	}
	defer e.base.Changes.Of(r.Counter).Add(1)
	if e.leases() {
		return open.release(ctx)
	}
	tried := cost
	if e.replicated { // one of them may lack an earlier settlement: then it gets that one
		if err := open.find(ctx, id.Settlement()); err != nil {
			return err
		}
		if open.isFound(0) {
			if !l.replicas.lackKeys() && !l.replicas.disagree() {
				return open.checkSettled(cost)
			}
			tried = l.view.content.Entry(0).Cost
		}
	}
	l.batch.at, l.batch.release = r.Time, id
	open.append(ctx, id.Settlement(), limiter.Addition{Cost: tried, Counts: true, Ends: r.Ends})
	if l.err != nil {
		return l.err
	}
	return open.checkSettled(cost)
}

// openReserved opens the log of a reservation, without limits: those of the log hold.
func (e *Engine) openReserved(r engine.Reserved) reservation {
	counter := events.Counter{Retention: r.Retention, Precision: r.Precision}
	l := e.open(counter, r.Counter, e.now(), 0)
	l.view.time = max(l.view.time, r.Time) // a reset before the hit may be ahead of this clock
	l.batch.time, l.batch.at = l.view.time, l.view.time
	return reservation{log: l, name: r}
}

// find reads the log, and looks for entries.
func (r reservation) find(ctx context.Context, keys ...journal.ID) error {
	l := r.log
	l.batch.keys = append(l.batch.keys[:0], keys...)
	l.do(ctx, false)
	placing{l}.settle(ctx)
	return l.err
}

// append appends the hit as an entry with that identity.
func (r reservation) append(ctx context.Context, id journal.ID, add limiter.Addition) {
	l := r.log
	l.batch.take([]limiter.Addition{add}, nil)
	l.batch.entries[0].ID = id
	l.err = l.batch.encode(nil)
	l.do(ctx, true)
	placing{l}.settle(ctx)
}

// isFound reports whether the log that was read has the i-th entry that find was to look for.
func (r reservation) isFound(i int) bool { return r.log.isFound && r.log.view.content.Verdict(i).Found }

// checkSettled returns ErrSettled if the log was settled at another cost.
func (r reservation) checkSettled(cost int64) error {
	r.log.startTidying()
	if settled := r.log.view.content.Entry(0).Cost; settled != cost {
		return fmt.Errorf("%w: %d", engine.ErrSettled, settled)
	}
	return nil
}

// verify returns an error for a reservation that is stamped ahead, unless the log has its entry, or its settlement.
func (r reservation) verify(ctx context.Context) error {
	if r.name.Ahead == 0 {
		return nil
	}
	id := journal.ID(r.name.ID)
	if err := r.find(ctx, id, id.Settlement()); err != nil {
		return err
	}
	if r.isFound(0) {
		if e := r.log.view.content.Entry(0); stampOf(&e) == r.name.Time {
			return nil
		}
	}
	if r.isFound(1) {
		return nil
	}
	return &engine.AheadError{After: r.name.Ahead}
}

// release appends what releases a lease. In a log that is lost, or that cannot be read, there is nothing to
// release.
func (r reservation) release(ctx context.Context) error {
	l := r.log
	void, err := journal.AppendEntry(nil, journal.Entry{Kind: journal.Void, ID: journal.ID(r.name.ID), Time: l.view.time})
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrStore, err)
	}
	l.batch.keys = l.batch.keys[:0]
	l.trip.clear()
	l.trip.write(store.Write{Kind: store.Append, Data: void})
	l.trip.read()
	l.engine.base.Store.Do(ctx, &l.trip.op)
	l.absorb()
	if l.isFound && l.replicas.fault == nil {
		l.isUntidy = l.upkeep.isShrinking()
		l.startTidying()
	}
	return l.err
}

// Refund returns an error: a log tells its entries apart, and a refund names none.
func (e *Engine) Refund(context.Context, int64, events.Counter) (int64, error) {
	return 0, engine.OutOfRange(engine.ArgBy, "a log gives nothing back: reserve, and settle")
}

// Renew extends the lease: it appends its entry again, with a later end, which the entry then has at its place
// in the log. So a repeated call, or a lost answer, is harmless, and the lease keeps its place: all that the log
// decides before it ends counts it. See [engine.Counting].
func (e *Engine) Renew(ctx context.Context, r engine.Reserved, by time.Duration) (engine.Reserved, error) {
	open := e.openReserved(r)
	l := open.log
	defer l.close()
	switch {
	case !e.leases():
		return r, engine.OutOfRange(engine.ArgRenew, "it is no lease")
	case l.view.time >= r.Ends:
		return r, engine.ErrEnded
	}
	if err := open.verify(ctx); err != nil {
		return r, err
	}
	defer e.base.Changes.Of(r.Counter).Add(1)
	if err := open.find(ctx, journal.ID(r.ID)); err != nil {
		return r, err
	}
	if err := open.hasLease(); err != nil {
		return r, err
	}
	held, head := l.view.content.Entry(0), l.view.content.Head()
	ends := min(r.Ends, endOf(head, &held)) // newer rules may have a shorter lease
	if err := open.keepsPlace(&held, ends); err != nil {
		return r, err
	}
	r.Lease = leaseBy(head, r.Lease)
	began := max(l.view.time, stampOf(&held)+1) // it tells the entry from one that was not there
	l.view.time, l.batch.time, l.batch.extends = began, began, true
	l.batch.at, l.batch.lease = began-max(r.Lease-by, 0).Milliseconds(), []journal.Limit{{Window: r.Lease.Milliseconds()}}
	open.append(ctx, held.ID, limiter.Addition{Cost: held.Cost, Counts: held.Kind == journal.Increment, Shared: true})
	longer, err := open.extended(&held, ends, r.Lease)
	if errors.Is(err, engine.ErrEnded) {
		return open.name, errors.Join(err, l.undo(ctx))
	}
	if l.startTidying(); err != nil {
		return open.name, err
	}
	r.Ends = endOf(l.view.content.Head(), &longer)
	return r, nil
}

// hasLease returns nil if the log that was read has the entry of the lease, and it counts.
func (r reservation) hasLease() error {
	switch l := r.log; {
	case l.err != nil:
		return l.err
	case r.isFound(0) && l.view.content.Verdict(0).Counted > 0:
		return nil
	case !r.isFound(0) && !l.replicas.isWhole:
		return errUnseen
	}
	return engine.ErrEnded
}

// extended returns the entry that was appended again in place of the one that was held, which ended then.
func (r reservation) extended(held *journal.Entry, ends int64, lease time.Duration) (longer journal.Entry, err error) {
	if err := r.hasLease(); err != nil {
		return longer, err
	}
	content := &r.log.view.content
	longer = content.Entry(0)
	switch {
	case stampOf(&longer) != stampOf(held): // it was released, and forgotten, meanwhile
		return longer, engine.ErrEnded
	case leaseBy(content.Head(), lease) != lease:
		return longer, errMissing
	}
	return longer, r.keepsPlace(&longer, ends)
}

// keepsPlace returns why a lease that ends then is not extended. It keeps its place unless an entry was stamped
// later, which may not have counted it. Then it has to have room beside all that counts.
func (r reservation) keepsPlace(e *journal.Entry, ends int64) error {
	l := r.log
	content, now := &l.view.content, l.view.time
	if e.Kind == journal.Increment || !content.LaterThan(ends, e.ID) {
		return nil
	}
	fits := true
	for _, limit := range content.Head().Limits {
		held := content.Held(limit, now).Count
		if e.Time > limit.Edge(now) {
			held -= e.Cost
		}
		fits = fits && held+e.Cost <= limit.Ceiling
	}
	switch {
	case fits:
		return nil
	case now >= ends && !content.IsUndecided(l.upkeep.undecided()):
		return engine.ErrEnded
	}
	return errPlace
}

// stampOf returns when the entry was appended first.
func stampOf(e *journal.Entry) int64 { return cmp.Or(e.Appended, e.Time) }

// endOf returns until when a log counts a lease: until it ends, or for as long as the limits in force have it.
func endOf(head journal.Head, e *journal.Entry) int64 {
	ends := e.Ends
	for _, limit := range head.Limits {
		ends = min(ends, limit.Leaves(e.Time))
	}
	return ends
}

// leaseBy returns how long a lease is by the limits in force; if there are none, or all are in shadow, it is
// as long as it was.
func leaseBy(head journal.Head, was time.Duration) time.Duration {
	if len(head.Limits) == 0 {
		return was
	}
	shortest := head.Limits[0].Window
	for _, limit := range head.Limits {
		shortest = min(shortest, limit.Window)
	}
	return time.Duration(shortest) * time.Millisecond
}

// longestOf returns how long the longest lease of the limits is.
func longestOf(limits []journal.Limit) time.Duration {
	longest := int64(0)
	for _, limit := range limits {
		longest = max(longest, limit.Window)
	}
	return time.Duration(longest) * time.Millisecond
}
