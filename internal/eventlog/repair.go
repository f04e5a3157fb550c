package eventlog

import (
	"context"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// errBusy is the error of a repair for which the log changes too often.
var errBusy = fmt.Errorf("eventlog: the log changes all the time: %w", engine.ErrStore)

// maxRepairs bounds how often a repair reads a log that changes.
const maxRepairs = 6

// Repair gives each replica of the log of a counter what it lacks of their union, and returns how
// many replicas it has changed. Any number of processes may repair beside hits: an entry that is
// appended twice counts once. Without an error all replicas have answered, and have all that any of
// them held before. A log that no replica can read is left as it is. Errors wrap ErrStore.
func (e *Engine) Repair(ctx context.Context, id string, retention time.Duration) (changed int, err error) {
	l := e.open(events.Counter{Retention: retention}, id, e.now(), 0)
	defer l.close()
	l.upkeep.unitesAll = true
	for range maxRepairs {
		l.do(ctx, false)
		if l.err != nil {
			return changed, l.err
		}
		if err := l.trip.unanswered(); err != nil {
			return changed, err
		}
		if !l.isFound || l.replicas.fault != nil {
			return changed, nil
		}
		written, isWhole, err := l.upkeep.unite(ctx)
		changed += written
		if isWhole || err != nil {
			return changed, err
		}
	}
	return changed, errBusy
}

// unanswered returns why a replica has not answered, or nil. The log takes the place of a foreign item.
func (t *trip) unanswered() error {
	if err := t.op.Err; err != nil {
		return engine.StoreError(err)
	}
	for i := range t.op.Replicas {
		part := &t.op.Replicas[i]
		if part.Err != nil && !isForeign(part) {
			return engine.StoreError(part.Err)
		}
	}
	return nil
}

// unite gives replicas what they lack, also of entries that may be on their way to them.
func (u *upkeep) unite(ctx context.Context) (changed int, isWhole bool, err error) {
	ops := []*store.Op(nil)
	switch {
	case u.replicas.lackSums():
		if err := u.shorten(); err != nil {
			return 0, false, err
		}
		ops = u.swaps()
	case u.replicas.lack():
		ops = u.repairs(nil)
	}
	if len(ops) == 0 {
		return 0, true, nil
	}
	u.engine.base.Store.Do(ctx, ops...)
	if changed, isWhole, err = resultOf(ops); err != nil {
		err = engine.StoreError(err)
	}
	return changed, isWhole, err
}
