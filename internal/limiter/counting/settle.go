package counting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// errForeign is the error of what was reserved on an engine that this process does not have.
var errForeign = fmt.Errorf("%w reservation: this process has no such engine", events.ErrInvalid)

// Settle settles what a hit has reserved, on all of its counters, by its true cost, 0 to [engine.MaxBy], and
// releases its leases. It does so once: a call with the same cost changes nothing, and one with another cost
// is [engine.ErrSettled]. After its time it is [engine.ErrEnded]. Errors of the store wrap [engine.ErrStore]:
// repeat the call then, on any process. What was not settled stays as it was reserved. The first counter that
// has no lease decides: calls with other costs may come to the others in another order.
func (c *Counters) Settle(ctx context.Context, reserved []engine.Reserved, cost int64) error {
	if cost < 0 || cost > engine.MaxBy {
		return engine.OutOfRange(engine.ArgCost, "it is 0 to %d", engine.MaxBy)
	}
	first := slices.IndexFunc(reserved, func(r engine.Reserved) bool { return r.Lease == 0 })
	decided, verdict := make(chan struct{}), error(nil)
	_, faults, err := c.each(reserved, func(e Engine, i int) (r engine.Reserved, err error) {
		switch {
		case i == first:
			defer close(decided)
			verdict = e.Settle(ctx, reserved[i], cost)
			return r, verdict
		case reserved[i].Lease == 0:
			if <-decided; verdict != nil {
				return r, verdict
			}
		}
		return r, e.Settle(ctx, reserved[i], cost)
	})
	if err != nil {
		return err
	}
	ended := 0
	for i, fault := range faults {
		if errors.Is(fault, engine.ErrEnded) {
			if ended++; (reserved[i].Lease != 0 || reserved[i].Turn) && ended < len(faults) { // it is free, or was used
				faults[i] = nil
			}
		}
	}
	return errors.Join(faults...)
}

// Renew has the leases among what a hit has reserved end no sooner than so much after now, at most as long as a
// lease is by the rules in force, and returns what is reserved then. If one of them has ended it is
// [engine.ErrEnded], and all are released. After an error of the store none has ended that had not: what is
// returned has the ends that are known. Repeat the call then, with that or with what it was.
func (c *Counters) Renew(ctx context.Context, reserved []engine.Reserved, by time.Duration) ([]engine.Reserved, error) {
	leases := false
	for _, r := range reserved {
		if leases = leases || r.Lease != 0; r.Lease != 0 && (by <= 0 || by > r.Lease) {
			return nil, engine.OutOfRange(engine.ArgRenew, "it is above 0s and at most %s, as long as a lease", events.FormatDuration(r.Lease))
		}
	}
	if !leases {
		return nil, engine.OutOfRange(engine.ArgRenew, "there is no lease: only the leases of concurrency limits are renewed")
	}
	renewed, faults, err := c.each(reserved, func(e Engine, i int) (engine.Reserved, error) {
		if reserved[i].Lease == 0 {
			return reserved[i], nil
		}
		return e.Renew(ctx, reserved[i], by)
	})
	if err == nil {
		err = errors.Join(faults...)
	}
	if errors.Is(err, engine.ErrEnded) {
		return nil, errors.Join(err, c.release(ctx, renewed))
	}
	return renewed, err
}

// release releases the leases among what a hit has reserved.
func (c *Counters) release(ctx context.Context, reserved []engine.Reserved) error {
	_, faults, _ := c.each(reserved, func(e Engine, i int) (r engine.Reserved, err error) {
		if reserved[i].Lease != 0 {
			err = e.Settle(ctx, reserved[i], 0)
		}
		if errors.Is(err, engine.ErrEnded) {
			err = nil
		}
		return r, err
	})
	return errors.Join(faults...)
}

// each calls the engine of each of what was reserved, side by side, and returns what each call returns. The
// error is why none was called.
func (c *Counters) each(
	reserved []engine.Reserved, call func(e Engine, i int) (engine.Reserved, error),
) (results []engine.Reserved, faults []error, err error) {
	for _, r := range reserved {
		if r.Engine < 0 || r.Engine >= len(c.engines) {
			return nil, nil, errForeign
		}
	}
	if !c.pending.Enter(len(reserved)) {
		return nil, nil, engine.ErrOverload
	}
	defer c.pending.Leave(len(reserved))
	results, faults = make([]engine.Reserved, len(reserved)), make([]error, len(reserved))
	var running sync.WaitGroup
	for i, r := range reserved {
		running.Go(func() { results[i], faults[i] = call(c.engines[r.Engine], i) })
	}
	running.Wait()
	return results, faults, nil
}
