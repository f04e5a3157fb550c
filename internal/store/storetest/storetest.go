// Package storetest has what tests of stores and of engines share: a call for each kind of op,
// and a store whose ops a test watches, delays or breaks.
package storetest

import (
	"context"

	"github.com/counterd/counterd/internal/store"
)

// Op returns an op that adds to items and reads others. Expires is as long as adds.
func Op(counter string, by int64, adds []uint64, expires []int64, reads []uint64) *store.Op {
	op := &store.Op{Counter: counter}
	for i, item := range adds {
		op.Writes = append(op.Writes, store.Write{Kind: store.Add, Item: item, By: by, Expires: expires[i]})
	}
	for _, item := range reads {
		op.Reads = append(op.Reads, store.Read{Item: item})
	}
	return op
}

// Values copies the results of an op to values: those of its writes, then those of its reads.
func Values(op *store.Op, values []int64) {
	for i := range op.Writes {
		values[i] = op.Writes[i].Result
	}
	for i := range op.Reads {
		values[len(op.Writes)+i] = op.Reads[i].Value
	}
}

// Trip adds to items and reads others. It fills values as Values does.
func Trip(ctx context.Context, s store.Store, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (store.Receipt, error) {
	op := Op(counter, by, adds, expires, reads)
	s.Do(ctx, op)
	Values(op, values)
	return op.Receipt, op.Err
}

// RollBack rolls back the adds of a Trip.
func RollBack(ctx context.Context, s store.Store, counter string, by int64, adds []uint64, receipt store.Receipt) error {
	var op store.Op
	op.RollBack(counter, Op(counter, by, adds, make([]int64, len(adds)), nil).Writes, receipt, by)
	s.Do(ctx, &op)
	return op.Err
}

// Hint has the replicas that have missed the adds of a Trip get them later.
func Hint(s store.Store, counter string, by int64, adds []uint64, expires []int64, receipt store.Receipt) {
	var op store.Op
	op.Hint(counter, Op(counter, by, adds, expires, nil).Writes, receipt, by)
	s.Do(context.Background(), &op)
}

// Delete deletes items.
func Delete(ctx context.Context, s store.Store, counter string, items []uint64) error {
	op := store.Op{Counter: counter}
	for _, item := range items {
		op.Writes = append(op.Writes, store.Write{Kind: store.Delete, Item: item})
	}
	s.Do(ctx, &op)
	return op.Err
}

// Look reads items and their versions on one server.
func Look(ctx context.Context, s store.Store, counter, server string, items []uint64, values []int64, versions []uint64) error {
	op := Op(counter, 0, nil, nil, items)
	op.Server, op.Versions = server, true
	s.Do(ctx, op)
	for i := range op.Reads {
		values[i], versions[i] = op.Reads[i].Value, op.Reads[i].Version
	}
	return op.Err
}

// Raise writes an item on one server if it has the version. Version 0 is an item that is not
// there.
func Raise(ctx context.Context, s store.Store, counter, server string, item, version uint64, value, expires int64) (bool, error) {
	w := store.Write{Kind: store.Swap, Item: item, Version: version, By: value, Expires: expires}
	if version == 0 {
		w.Kind = store.Create
	}
	op := store.Op{Counter: counter, Server: server, Writes: []store.Write{w}}
	s.Do(ctx, &op)
	return op.Writes[0].Result == 1, op.Err
}

// Watched is a store of which a test watches, delays or breaks the ops. Each gets to it by
// Before, which may end it with an error, and leaves it by After.
type Watched struct {
	store.Store
	Before func(context.Context, *store.Op) error // nil: nothing
	After  func(context.Context, *store.Op)       // nil: nothing
}

// Do makes the round trips, each by itself.
func (w *Watched) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if w.Before != nil {
			if op.Receipt, op.Err = keptReceipt(op), w.Before(ctx, op); op.Err != nil {
				return
			}
		}
		w.Store.Do(ctx, op)
		if w.After != nil {
			w.After(ctx, op)
		}
	})
}

// keptReceipt returns the receipt that an op begins with.
func keptReceipt(op *store.Op) store.Receipt {
	if kind := op.Kind(); kind == store.Subtract || kind == store.Hint {
		return op.Receipt
	}
	return store.Receipt{}
}

// IsTrip reports whether the op adds and reads, or only reads.
func IsTrip(op *store.Op) bool { return op.Kind() == 0 || op.Kind() == store.Add }
