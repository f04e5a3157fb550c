package memcache

import (
	"context"
	"errors"
	"time"

	"github.com/counterd/counterd/replication"
	"github.com/counterd/counterd/store"
)

// exchange is one op to one server: the counter, how the server is spoken to, and until
// when.
type exchange struct {
	ctx      context.Context // of the call, for who is told
	op       *store.Op
	writes   []store.Write // those of the op that the server gets
	kind     RoundTripKind
	hash     counterHash
	server   *server
	list     uint32 // the version of the list of servers
	meta     bool
	auto     bool
	now      int64 // the instant of its beginning
	over     int64 // when it had ended; 0: that is found out when it is told
	deadline int64 // as an instant
	timeout  time.Duration
	clock    time.Time // the fleet's clock at the beginning
	call     *call     // that is under way, on the meta path
	landed   int       // writes acknowledged
}

// kindOf returns what the op is for.
func kindOf(op *store.Op) RoundTripKind {
	switch op.Kind() {
	case store.Subtract:
		return RollBack
	case store.Delete:
		return Delete
	case store.Create, store.Swap:
		return Raise
	}
	if op.Versions {
		return Look
	}
	return Exchange
}

// Do makes the round trips: see package store. On the meta path all of an op goes out in one
// write, and many ops share what is written and read. On the classic path each write waits for
// the answer to the one before, all reads are one multi-get, and each of several ops has a
// goroutine. A single op has the fleet's timeout, or the context's if that is sooner; several
// have all the time of the context.
func (f *Fleet) Do(ctx context.Context, ops ...*store.Op) {
	switch {
	case f.replicas > 1:
		f.doReplicated(ctx, ops)
	case len(ops) == 1:
		var e exchange
		if f.begin(ctx, &e, ops[0], false) {
			e.run()
		}
	default:
		f.doTogether(ctx, ops)
	}
}

func (f *Fleet) doTogether(ctx context.Context, ops []*store.Op) {
	all := make([]exchange, len(ops))
	ended := make([]chan struct{}, len(ops)) // of those on the classic path
	for i, op := range ops {
		e := &all[i]
		switch {
		case !f.begin(ctx, e, op, true):
			e.server = nil
		case e.meta:
			e.send()
		default:
			ended[i] = make(chan struct{})
			go func() {
				defer close(ended[i])
				op.Err = e.classic()
				e.over = instant(time.Now())
			}()
		}
	}
	for i := range all {
		switch e := &all[i]; {
		case e.server == nil:
		case e.meta:
			e.end(e.await())
		default:
			<-ended[i]
			e.end(e.op.Err)
		}
	}
}

// begin finds the server of the op, and sets the deadline. It reports whether the exchange can
// be made. Else the op has ended.
func (f *Fleet) begin(ctx context.Context, e *exchange, op *store.Op, allTime bool) bool {
	op.Err = nil
	if op.Kind() == store.Hint {
		return false // no replica lacks anything
	}
	hash, writes := f.keyer.hash(op.Counter), op.Writes
	var s replication.Server
	var list uint32
	switch {
	case op.Server != "":
		if s = f.set.Named(op.Server); s == nil {
			op.Err = replication.NotListed(op.Server)
			return false
		}
	case op.Kind() == store.Subtract:
		if op.Receipt.None() {
			return false
		}
		// Not where the counter is by now: where it was added to.
		if s = f.set.FirstOf(replication.Hash(hash), op.Receipt.List); s == nil {
			op.Err = errListChanged
			return false
		}
		writes = writes[max(len(writes)-op.Receipt.On(0), 0):]
	default:
		s, list = f.set.First(replication.Hash(hash))
	}
	e.list, e.writes = list, writes
	return e.begin(ctx, s.(*server), hash, op, allTime)
}

// begin begins an exchange of the writes with the server. It reports whether the exchange can
// be made. Else the op has ended.
func (e *exchange) begin(ctx context.Context, s *server, hash counterHash, op *store.Op, allTime bool) bool {
	start, f := time.Now(), s.fleet
	e.ctx, e.op, e.kind, e.hash, e.server = ctx, op, kindOf(op), hash, s
	e.auto, e.now, e.timeout, e.clock = f.protocol == Auto, instant(start), f.timeout, start
	op.Err = nil
	if kind := op.Kind(); kind != store.Subtract {
		op.Receipt = store.Receipt{}
	}
	err := f.enter(ctx, e)
	if allTime {
		e.takeAllTime(ctx)
	}
	if err != nil {
		op.Err = err
		e.tell(err)
	}
	return err == nil && len(e.writes)+len(op.Reads) > 0
}

// enter finds out whether the exchange can be made, and how.
func (f *Fleet) enter(ctx context.Context, e *exchange) error {
	s := e.server
	if err := f.limit(ctx, e); err != nil {
		return s.wrap(err)
	}
	if err := s.admit(); err != nil {
		return err
	}
	if f.clock != nil {
		e.clock = f.clock()
	}
	switch {
	case f.protocol == Classic:
	case !s.classic(e.now):
		// Looks and raises are rare, so they take the classic path whatever the server knows.
		e.meta = e.kind != Look && e.kind != Raise
	case f.protocol == Meta:
		return s.wrap(errClassic)
	}
	return nil
}

// limit sets the deadline: the fleet's timeout, or the context's if that is sooner.
// Nothing else is asked of the context: a trip that has begun is not cut short, for
// nothing is left half done that could be finished.
func (f *Fleet) limit(ctx context.Context, e *exchange) error {
	if f.closed.Load() {
		return ErrClosed
	}
	e.deadline = e.now + int64(f.timeout)
	if end, bounded := ctx.Deadline(); bounded {
		e.deadline = min(e.deadline, instant(end))
	}
	return ctx.Err()
}

// takeAllTime gives the exchange all the time of the context. Of many trips that are
// started at once some wait for long until it is their turn.
func (e *exchange) takeAllTime(ctx context.Context) {
	if end, bounded := ctx.Deadline(); bounded {
		e.deadline = instant(end)
	}
}

// run makes the exchange, and ends the op.
func (e *exchange) run() { e.end(e.make()) }

// make makes the exchange.
func (e *exchange) make() error {
	if !e.meta {
		return e.classic()
	}
	e.send()
	return e.await()
}

// await waits for an exchange on the meta path. One that was not begun, because the server
// does not know the meta commands, is made the classic way.
func (e *exchange) await() error {
	<-e.call.own
	err := e.outcome()
	if e.turnsClassic(err) {
		return e.classic()
	}
	return err
}

// turnsClassic reports whether the exchange, not begun yet, has to be made the
// classic way: the server was asked, and does not know the meta commands.
func (e *exchange) turnsClassic(err error) bool {
	return e.auto && errors.Is(err, errClassic)
}

// end ends the op.
func (e *exchange) end(err error) {
	if e.op.Kind() == store.Add {
		e.op.Receipt = store.Receipt{List: e.list, Acknowledged: [store.MaxReplicas]uint32{uint32(e.landed)}}
	}
	e.op.Err = e.ended(err)
}
