package store

import (
	"context"
	"errors"
	"sync"
)

var (
	// ErrNoCount is what the error of an op wraps if an item of the counter holds no count,
	// because another client of the server wrote it. The store itself is well.
	ErrNoCount = errors.New("store: an item of the counter holds no count")
	// ErrNoData is what the error of an op with Data wraps if an item holds a count, or what
	// another client of the server wrote. The store itself is well.
	ErrNoData = errors.New("store: an item of the counter holds no bytes of counterd")
	// ErrUnsupported is what the error of an op wraps if the store has no such write, or does
	// not know the server that the op names. The store has done nothing.
	ErrUnsupported = errors.New("store: unsupported operation")
)

// Store keeps the items of counters. An item holds a count, or bytes. A count that is not
// there is zero. A Store is safe for concurrent use.
type Store interface {
	// Do makes one round trip for each of the ops, side by side, and returns when all of them
	// have ended. Each op is of another counter, or of another server, and has an outcome of
	// its own.
	//
	// A round trip ends by the deadline of the context, and the store bounds its time, too. A
	// context that is canceled keeps a round trip from beginning, and does not cut it short: a
	// half of a round trip is worse than all of it.
	Do(ctx context.Context, ops ...*Op)
	// Capabilities returns what the store can do besides. The answer is always the same.
	Capabilities() Capabilities
}

// Capabilities is what a store can do besides round trips. A store that wraps another one
// returns the capabilities of that one.
type Capabilities struct {
	// Replicas is the number of servers that keep each counter; 0 is 1.
	Replicas int
	// Since returns the Unix second since which the store has lost nothing of the counter; 0:
	// as far as the store knows, it never has. The engine calls it for every decision, after
	// the round trips. It makes none itself. nil: the store does not detect a loss.
	Since func(counter string) int64
	// Writes are the kinds of writes that the store knows; with Append, it takes all ops with
	// Data.
	Writes Kinds
	// Alias returns what names the counter in ops, too, and tells nothing of its event and features;
	// nil: only its ID names it.
	Alias func(counter string) string
	// Background runs a function in a goroutine that the store's Close waits for. It drops the
	// function if the store is closed, or runs many already. nil: round trips take no time, as in
	// this process's memory.
	Background func(func(context.Context))
}

// Replicated reports whether several servers keep each counter.
func (c Capabilities) Replicated() bool { return c.Replicas > 1 }

// Later has do make round trips for which no caller waits: in the background, if the store has
// one. There they may be dropped.
func Later(s Store, do func(context.Context, Store)) {
	if background := s.Capabilities().Background; background != nil {
		background(func(ctx context.Context) { do(ctx, s) })
		return
	}
	do(context.Background(), s)
}

// SideBySide calls do for each of the ops at the same time, and waits for all: for a Store
// that makes one round trip at a time.
func SideBySide(ops []*Op, do func(*Op)) {
	if len(ops) == 1 {
		do(ops[0])
		return
	}
	var running sync.WaitGroup
	for _, op := range ops {
		running.Go(func() { do(op) })
	}
	running.Wait()
}
