package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

const (
	// maxTrips bounds the steps of one batch on a log that changes all the time.
	maxTrips = 16
	// maxTries bounds how often a batch creates a log that is lost again, or appends to one that refuses, and
	// maxAppends how often it appends before it rewrites that log.
	maxTries   = 6
	maxAppends = 2
	// maxBlind is the most bytes that are appended to a log that was not read before.
	maxBlind = 1 << 10
)

var (
	errNoRoom  = fmt.Errorf("eventlog: no room for the log: %w", engine.ErrStore)
	errMissing = fmt.Errorf("eventlog: the log changes all the time: %w", engine.ErrStore)
)

// A log is one counter in a batch: the entries to append to its log, and the log as it was read last.
type log struct {
	engine  *Engine
	counter events.Counter
	noted   *noted
	batch   batch
	trip    trip

	// Set by a round trip.
	view     view
	replicas replicas
	isFound  bool
	tries    int // creations of the log, and appends that it refused
	err      error

	upkeep   upkeep
	isUntidy bool // the log is to be rewritten, or replicas lack entries
	isVoided bool // voids are appended to the log that was read
}

var logs = sync.Pool{New: func() any { return new(log) }}

// open returns the log of the counter, without entries and limits.
func (e *Engine) open(counter events.Counter, id string, now time.Time, unix int64) *log {
	if e.base.OnUse != nil {
		e.base.OnUse(id, counter, now)
	}
	l := logs.Get().(*log)
	l.engine, l.counter, l.noted = e, counter, e.places.of(id)
	l.upkeep = upkeep{engine: e, view: &l.view, replicas: &l.replicas, batch: &l.batch, next: l.upkeep.next}
	l.view.begin(now.UnixMilli(), unix, counter.Remembered(), e.leases())
	l.batch.begin(e, id, l.view.time)
	l.trip.begin(id, e.item)
	l.isFound, l.isUntidy, l.isVoided = false, false, false
	l.tries, l.err = 0, nil
	return l
}

// close gives the log back. It keeps only memory.
func (l *log) close() {
	l.replicas.clear()
	l.batch.clear()
	l.engine, l.counter, l.noted = nil, events.Counter{}, nil
	l.upkeep = upkeep{next: l.upkeep.next}
	logs.Put(l)
}

// take makes the hits the entries of the batch.
func (l *log) take(adds []limiter.Addition) {
	l.batch.isFull = int(l.noted.size.Load()) > journal.MaxSize/2
	if l.view.isOfLeases {
		l.batch.lease = l.view.rules.limits
	}
	l.batch.take(adds, nil)
	l.err = l.batch.encode(nil)
}

// planAppend appends the entries, and reads the log. It only reads a log that may be too large for them.
func (l *log) planAppend() bool {
	if l.err != nil {
		return false
	}
	l.trip.clear()
	size := int(l.noted.size.Load()) + len(l.batch.data)
	if len(l.batch.entries) > 0 && len(l.batch.data) <= maxBlind && size <= journal.MaxSize/2 {
		l.append()
	}
	l.trip.read()
	return true
}

// append has the round trip append the entries.
func (l *log) append() {
	l.noted.size.Add(uint32(len(l.batch.data))) // others do not wait for what is read
	l.trip.write(store.Write{Kind: store.Append, Data: l.batch.data})
}

// planCreate creates the log, if there is none to append the entries to.
func (l *log) planCreate() bool {
	if l.err != nil || l.isFound || len(l.batch.entries) == 0 {
		return false
	}
	l.tries++
	if l.err = l.upkeep.empty(0, l.view.sinceOfNew()); l.err != nil {
		return false
	}
	l.trip.clear()
	l.trip.write(store.Write{Kind: store.Create, Data: l.upkeep.next, Expires: l.upkeep.life().expires()})
	l.append()
	l.trip.read()
	return true
}

// absorb takes in the log that was read. It takes a foreign item for a damaged log.
func (l *log) absorb() {
	if len(l.trip.op.Writes) > 0 {
		l.batch.isAppended = l.trip.hasLanded()
	}
	l.isFound, l.batch.isDecided = false, false
	if err := l.trip.op.Err; err != nil && !errors.Is(err, store.ErrNoData) {
		l.err = engine.StoreError(err)
		return
	}
	value := l.replicas.take(&l.trip.op, l.batch.keys, l.upkeep.undecided())
	if value == nil && l.replicas.fault == nil {
		l.view.content.Clear()
		l.noted.size.Store(0)
		return
	}
	l.isFound = true
	if l.replicas.fault == nil {
		l.replicas.setFault(l.view.read(value, l.batch.keys))
	}
	switch fault := l.replicas.fault; {
	case errors.Is(fault, journal.ErrVersion):
		l.noted.size.Store(unreadable)
		l.err = fmt.Errorf("%w: %w", engine.ErrStore, fault)
	case fault == nil:
		l.noted.size.Store(uint32(l.replicas.largest))
		l.batch.decide(&l.view.content)
	}
}

// do makes a round trip of this log alone: it appends the entries, or does not, and reads the log.
func (l *log) do(ctx context.Context, appends bool) {
	if l.err != nil {
		return
	}
	l.trip.clear()
	if appends {
		l.append()
	}
	l.trip.read()
	l.engine.base.Store.Do(ctx, &l.trip.op)
	l.absorb()
}

// swap replaces the log by the next one, and reports whether it has, on all replicas.
func (l *log) swap(ctx context.Context) (done bool) {
	ops := l.upkeep.swaps()
	l.engine.base.Store.Do(ctx, ops...)
	changed, done, err := resultOf(ops)
	if err != nil && changed == 0 {
		l.err = engine.StoreError(err)
	}
	if done {
		l.noted.size.Store(uint32(len(l.upkeep.next)))
	}
	return done
}

// planVoids appends what voids the hits that are not kept. It reports whether there are any.
func (l *log) planVoids(isKept func(hit int) bool) bool {
	if !l.batch.isAppended {
		return false
	}
	voids := l.batch.appendVoids(nil, isKept)
	if len(voids) == 0 {
		return false
	}
	l.isVoided = true
	l.trip.clear()
	l.trip.write(store.Write{Kind: store.Append, Data: voids})
	return true
}
