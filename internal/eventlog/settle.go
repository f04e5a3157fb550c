package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// Settle voids the entry of the hit, and appends in the same write an increment with its true cost, whose
// identity is derived from that of the entry. The first one in the log is the settlement: it is there until
// the reservation ends. Replicas get the one that any of them has, and of two that are first the larger. Of a
// lease it only appends the void, which releases it. See [engine.Counting].
func (e *Engine) Settle(ctx context.Context, r engine.Reserved, cost int64) error {
	s := beginReserved(e, r)
	defer s.End()
	if s.time >= r.Ends {
		return engine.ErrEnded
	}
	if err := s.verify(ctx, r); err != nil {
		return err
	}
	defer e.base.Changes.Of(r.Counter).Add(1)
	if e.leases() {
		return releaseLease(ctx, s, journal.ID(r.ID))
	}
	tried := cost
	if e.replicated { // one of them may lack an earlier settlement: then it gets that one
		s.keys = append(s.keys[:0], journal.ID(r.ID).Settlement())
		s.Look()
		if err := e.travel(ctx, s)[0]; err != nil {
			return err
		}
		if s.replicas.value != nil && s.log.Verdict(0).Found {
			if !s.lackKeys() && !s.disagree() {
				return s.settledWith(cost)
			}
			tried = s.log.Entry(0).Cost
		}
	}
	s.at, s.batch.release = r.Time, journal.ID(r.ID)
	s.batch.identity = journal.ID(r.ID).Settlement
	s.Add([]engine.Hit{{Cost: tried, Counts: true, Ends: r.Ends, Stays: true}}, tried)
	if err := e.travel(ctx, s)[0]; err != nil {
		return err
	}
	return s.settledWith(cost)
}

// settledWith returns whether the settlement in the log is one with that cost.
func (s *session) settledWith(cost int64) error {
	startLater(s)
	if settled := s.log.Entry(0).Cost; settled != cost {
		return fmt.Errorf("%w: %d", engine.ErrSettled, settled)
	}
	return nil
}

// beginReserved returns a session on the counter of a reservation, without limits: those of the log hold.
func beginReserved(e *Engine, r engine.Reserved) *session {
	counter := events.Counter{Retention: r.Retention, Precision: r.Precision}
	s := e.begin(counter, r.Counter, engine.Moment{Now: e.now()})
	s.time = max(s.time, r.Time) // a reset before the hit may be ahead of this clock
	return s
}

// verify returns an error for a reservation that is stamped ahead, unless the log has its entry, or its settlement.
func (s *session) verify(ctx context.Context, r engine.Reserved) error {
	if r.Ahead == 0 {
		return nil
	}
	s.keys = append(s.keys[:0], journal.ID(r.ID), journal.ID(r.ID).Settlement())
	s.Look()
	if err := s.engine.travel(ctx, s)[0]; err != nil {
		return err
	}
	for i := range s.keys {
		if s.replicas.value == nil || !s.log.Verdict(i).Found {
			continue
		}
		if e := s.log.Entry(i); i > 0 || stampOf(&e) == r.Time {
			return nil
		}
	}
	return &engine.AheadError{After: r.Ahead}
}

// startLater begins what the call does not wait for.
func startLater(s *session) {
	if later := s.Later(); later != nil {
		store.Later(s.engine.base.Store, later)
	}
}

// releaseLease appends what releases a lease. Of a log that is lost, or that cannot be read, there is nothing to
// release.
func releaseLease(ctx context.Context, s *session, id journal.ID) error {
	s.trip.clear()
	void, err := journal.AppendEntry(nil, journal.Entry{Kind: journal.Void, ID: id, Time: s.time})
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrStore, err)
	}
	s.write(store.Write{Kind: store.Append, Data: void})
	s.read()
	s.engine.base.Store.Do(ctx, s.trip.all()...)
	if errors.Is(s.op.Err, store.ErrNoData) {
		return nil
	}
	if s.op.Err != nil {
		return engine.StoreError(s.op.Err)
	}
	found, err := s.decode()
	if errors.Is(err, journal.ErrCorrupt) {
		return nil
	}
	if !found || err != nil {
		return err
	}
	s.shortenLater()
	startLater(s)
	return nil
}

// Refund returns an error: a log tells its entries apart, and a refund names none.
func (e *Engine) Refund(context.Context, int64, events.Counter) (int64, error) {
	return 0, engine.OutOfRange(engine.ArgBy, "a log gives nothing back: reserve, and settle")
}

// Renew extends the lease: it appends its entry again, with a later end, which the entry then has at its place
// in the log. So a repeated call, or a lost answer, is harmless, and the lease keeps its place: all that the log
// decides before it ends counts it. See [engine.Counting].
func (e *Engine) Renew(ctx context.Context, r engine.Reserved, by time.Duration) (engine.Reserved, error) {
	s := beginReserved(e, r)
	defer s.End()
	switch {
	case !e.leases():
		return r, engine.OutOfRange(engine.ArgRenew, "it is no lease")
	case s.time >= r.Ends:
		return r, engine.ErrEnded
	}
	if err := s.verify(ctx, r); err != nil {
		return r, err
	}
	defer e.base.Changes.Of(r.Counter).Add(1)
	s.keys = append(s.keys[:0], journal.ID(r.ID))
	s.Look()
	if err := e.travel(ctx, s)[0]; err != nil {
		return r, err
	}
	held, err := s.entryOf(r)
	if err != nil {
		return r, err
	}
	ends := min(r.Ends, endOf(s.log.Head(), &held))
	if err := s.keeps(&held, ends); err != nil {
		return r, err
	}
	return s.extend(ctx, r, held, ends, by)
}

// extend extends the lease that the log holds, which ended by then.
func (s *session) extend(ctx context.Context, r engine.Reserved, held journal.Entry, ends int64, by time.Duration) (engine.Reserved, error) {
	lease := leaseBy(s.log.Head(), r.Lease)
	s.time = max(s.time, stampOf(&held)+1) // it tells the entry from one that was not there
	s.at, s.batch.extends = s.time-max(lease-by, 0).Milliseconds(), true
	s.batch.lease = []journal.Limit{{Window: lease.Milliseconds()}}
	s.batch.identity = func() journal.ID { return held.ID }
	hits := []engine.Hit{{Cost: held.Cost, Counts: held.Kind == journal.Increment, Pending: true}}
	s.Add(hits, held.Cost)
	if err := s.engine.travel(ctx, s)[0]; err != nil {
		return r, err
	}
	longer, err := s.entryOf(r)
	switch {
	case err == nil && stampOf(&longer) != stampOf(&held): // it was released, and forgotten, meanwhile
		err = engine.ErrEnded
	case err == nil && leaseBy(s.log.Head(), r.Lease) != lease:
		err = errReload
	case err == nil:
		err = s.keeps(&longer, ends)
	}
	if errors.Is(err, engine.ErrEnded) {
		return r, errors.Join(err, voidEntries(ctx, s))
	}
	if startLater(s); err != nil {
		return r, err
	}
	r.Ends, r.Lease = endOf(s.log.Head(), &longer), lease
	return r, nil
}

// stampOf returns when the entry was appended first.
func stampOf(e *journal.Entry) int64 { return cmp.Or(e.Appended, e.Time) }

var (
	errUnseen = fmt.Errorf("slidinglog: a replica that may have the lease did not answer: %w", engine.ErrStore)
	errReload = fmt.Errorf("slidinglog: the rules have another lease meanwhile: %w", engine.ErrStore)
	errPlace  = fmt.Errorf("slidinglog: by a clock that is ahead another lease has its place: %w", engine.ErrStore)
)

// entryOf returns the entry of a lease as the log that was read has it. One that is void, or that no replica
// has, has ended.
func (s *session) entryOf(r engine.Reserved) (journal.Entry, error) {
	switch {
	case s.replicas.value == nil || !s.log.Verdict(0).Found:
		if !s.whole {
			return journal.Entry{}, errUnseen
		}
		return journal.Entry{}, engine.ErrEnded
	case s.log.Verdict(0).Counted == 0:
		return journal.Entry{}, engine.ErrEnded
	}
	return s.log.Entry(0), nil
}

// keeps returns why a lease that ends then is not extended. It keeps its place unless an entry was stamped
// later, which may not have counted it. Then it has to have room beside all that counts.
func (s *session) keeps(e *journal.Entry, ends int64) error {
	if e.Kind == journal.Increment || !s.log.LaterThan(ends, e.ID) {
		return nil
	}
	fits, full := true, false
	for _, limit := range s.log.Head().Limits {
		held, own := s.log.Held(limit, s.time), int64(0)
		if e.Time > limit.Edge(s.time) {
			own = e.Cost
		}
		full = full || engine.OutcomeOf(held.Count-held.Undecided-own, e.Cost, limit.Ceiling) != engine.Fits
		fits = fits && engine.OutcomeOf(held.Count-own, e.Cost, limit.Ceiling) == engine.Fits
	}
	switch {
	case fits:
		return nil
	case full && s.time >= ends:
		return engine.ErrEnded
	}
	return errPlace
}
