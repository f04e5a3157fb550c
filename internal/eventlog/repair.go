package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// errBusy is the error of a repair for which the log changes too often.
var errBusy = fmt.Errorf("slidinglog: the log changes all the time: %w", engine.ErrStore)

// Repair gives each replica of the log of a counter what it lacks of their union, and returns how
// many replicas it has changed. Any number of processes may repair beside hits: an entry that is
// appended twice counts once. Without an error all replicas have answered, and have all that any of
// them held before. A log that no replica can read is left as it is. Errors wrap ErrStore.
func (e *Engine) Repair(ctx context.Context, id string, retention time.Duration) (changed int, err error) {
	s := e.begin(events.Counter{Retention: retention}, id, engine.Moment{Now: e.now()})
	defer s.End()
	for range maxTrips {
		s.trip.clear()
		s.read()
		e.base.Store.Do(ctx, s.trip.all()...)
		ops, err := fillGaps(s)
		if len(ops) == 0 || err != nil {
			return changed, err
		}
		e.base.Store.Do(ctx, ops...)
		written, whole, err := outcomeOf(ops)
		if changed += written; whole || err != nil {
			return changed, err
		}
	}
	return changed, errBusy
}

// fillGaps takes in what was read, and returns what gives each replica what it lacks: also entries that
// may be on their way to it.
func fillGaps(s *session) ([]*store.Op, error) {
	var foreign []*store.Op
	for _, op := range append(s.op.Replicas, s.op) {
		switch {
		case op.Err == nil:
		case op.Server != "" && errors.Is(op.Err, store.ErrNoData):
			foreign = append(foreign, &store.Op{Counter: s.op.Counter, Server: op.Server, Writes: []store.Write{{Kind: store.Delete, Item: s.engine.item}}})
		default:
			return nil, engine.StoreError(op.Err)
		}
	}
	value := s.replicas.take(&s.trip, nil, math.MaxInt64)
	if value == nil || s.log.Read(value, journal.Question{}) != nil {
		return nil, nil
	}
	if len(foreign) > 0 { // another client wrote there: the log is created instead
		return foreign, nil
	}
	s.step, s.data = idle, s.data[:0]
	switch {
	case s.lackSums():
		if err := s.rewrite(repairing); err != nil {
			return nil, err
		}
	case s.replicas.lack():
		s.step = repairing
	}
	return s.Next(s.engine.now()), nil
}

// outcomeOf returns how many of the round trips have written anything; whole: all have written all.
func outcomeOf(ops []*store.Op) (written int, whole bool, err error) {
	whole = true
	for _, op := range ops {
		if op.Err != nil {
			return written, false, engine.StoreError(op.Err)
		}
		if op.Writes[0].Result == 1 {
			written++
		}
		for i := range op.Writes {
			whole = whole && op.Writes[i].Result == 1
		}
	}
	return written, whole, nil
}
