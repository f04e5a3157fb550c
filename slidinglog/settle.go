package slidinglog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/journal"
	"github.com/counterd/counterd/store"
)

// Settle voids the entry of the hit, and appends in the same write an increment with its true cost, whose
// identity is derived from that of the entry. The first one in the log is the settlement: it is there until
// the reservation ends. Of a lease it only appends the void, which releases it. See [engine.Counting].
func (e *Engine) Settle(ctx context.Context, r engine.Reserved, cost int64) error {
	s := beginReserved(e, r)
	defer s.End()
	if s.time >= r.Ends {
		return engine.ErrEnded
	}
	defer e.base.Changes.Of(r.Counter).Add(1)
	if e.leases() {
		return releaseLease(ctx, s, journal.ID(r.ID))
	}
	if e.replicated { // one of them may lack an earlier settlement
		s.keys = append(s.keys[:0], journal.ID(r.ID).Settlement())
		s.Look()
		if err := e.travel(ctx, s)[0]; err != nil {
			return err
		}
		if s.replicas.value != nil && s.log.Verdict(0).Found {
			return s.settledWith(cost)
		}
	}
	s.at, s.batch.release = r.Time, journal.ID(r.ID)
	s.batch.identity = journal.ID(r.ID).Settlement
	s.Add([]engine.Hit{{Cost: cost, Counts: true, Ends: r.Ends, Stays: true}}, cost)
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

// startLater begins what the call does not wait for.
func startLater(s *session) {
	if later := s.Later(); later != nil {
		store.Later(s.engine.base.Store, later)
	}
}

// releaseLease appends what releases a lease. Of a log that is lost there is nothing to release.
func releaseLease(ctx context.Context, s *session, id journal.ID) error {
	s.trip.clear()
	void, err := journal.AppendEntry(nil, journal.Entry{Kind: journal.Void, ID: id, Time: s.time})
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrStore, err)
	}
	s.write(store.Write{Kind: store.Append, Data: void})
	s.read()
	s.engine.base.Store.Do(ctx, s.trip.all()...)
	if s.op.Err != nil {
		return engine.StoreError(s.op.Err)
	}
	if found, err := s.decode(); !found || err != nil {
		return err
	}
	s.shortenLater()
	startLater(s)
	return nil
}

// Renew appends what releases the lease, and another one, which the log decides as it does all leases: by a
// clock that is ahead another one may have taken its place. See [engine.Counting].
func (e *Engine) Renew(ctx context.Context, r engine.Reserved, by time.Duration) (engine.Reserved, error) {
	s := beginReserved(e, r)
	defer s.End()
	if s.time >= r.Ends {
		return r, engine.ErrEnded
	}
	if !e.leases() {
		return r, engine.OutOfRange(engine.ArgRenew, "it is no lease")
	}
	defer e.base.Changes.Of(r.Counter).Add(1)
	s.keys = append(s.keys[:0], journal.ID(r.ID))
	s.Look()
	if err := e.travel(ctx, s)[0]; err != nil {
		return r, err
	}
	if s.replicas.value == nil || s.log.Verdict(0).Counted == 0 {
		return r, engine.ErrEnded
	}
	head := s.log.Head()
	for _, limit := range head.Limits {
		window := time.Duration(limit.Window) * time.Millisecond
		s.Limit(engine.Limit{Limit: events.Limit{N: limit.Ceiling, Window: window}, Ceiling: limit.Ceiling, Enforced: true, Revision: head.Revision})
	}
	return renewLease(ctx, s, r, by)
}

// renewLease has the session take the lease that comes in the place of another one.
func renewLease(ctx context.Context, s *session, r engine.Reserved, by time.Duration) (engine.Reserved, error) {
	s.at, s.batch.release = s.time-(r.Lease-by).Milliseconds(), journal.ID(r.ID)
	hits := []engine.Hit{{Cost: r.Cost}}
	s.Add(hits, r.Cost)
	err := s.engine.travel(ctx, s)[0]
	for err == nil && s.standing(r.Cost) == engine.FullForNow && s.confirms < maxConfirms {
		s.step = confirming // leases that are about to be denied are ahead of it
		err = s.engine.travel(ctx, s)[0]
	}
	hits[0].Stays = err == nil && s.standing(r.Cost) == engine.Fits && s.batch.decided
	if !hits[0].Stays {
		undo := voidEntries(ctx, s)
		if err == nil {
			err = engine.ErrEnded
		}
		return r, errors.Join(err, undo)
	}
	startLater(s)
	renewed := hits[0].Reserved
	renewed.Counter, renewed.Retention, renewed.Precision, renewed.Engine, renewed.Lease = r.Counter, r.Retention, r.Precision, r.Engine, r.Lease
	return renewed, nil
}

// standing returns how the limits of the log answer the only hit of the session.
func (s *session) standing(cost int64) (outcome engine.Outcome) {
	for i := range s.limits {
		if o := s.Standing(i, 0, 0, cost).Outcome; o != engine.Fits && outcome != engine.Full {
			outcome = o
		}
	}
	return outcome
}
