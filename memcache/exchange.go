package memcache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
)

// exchange is one op to one server: the counter, how the server is spoken to, and until
// when.
type exchange struct {
	ctx      context.Context // of the call, for OnRoundTrip
	op       *store.Op
	writes   []store.Write // those of the op that the server gets
	kind     RoundTripKind
	hash     store.Hash
	server   *server
	list     uint32 // the version of the list of servers
	meta     bool
	auto     bool
	now      int64 // the instant of its beginning
	over     int64 // when it had ended; 0: tell takes the time
	deadline int64 // as an instant
	timeout  time.Duration
	clock    time.Time      // the fleet's clock at the beginning
	call     *memproto.Call // that is under way, on the meta path
	landed   int            // writes acknowledged
}

// kindOf returns what the op is for.
func kindOf(op *store.Op) RoundTripKind {
	if op.Data {
		return Exchange
	}
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
	case f.replicas > 1 && f.common.closed.Load():
		for _, op := range ops {
			op.Err = ErrClosed
		}
	case f.replicas > 1:
		f.set.Do(ctx, ops...)
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
			e.write()
		default:
			ended[i] = make(chan struct{})
			go func() {
				defer close(ended[i])
				op.Err = e.classic()
				e.over = memproto.Instant(time.Now())
			}()
		}
	}
	sendTogether(all)
	// The last one first: answers come in order, so mostly its caller wakes once for all of them.
	for i := len(all) - 1; i >= 0; i-- {
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

// sendTogether sends the calls of the exchanges, those to one server together.
func sendTogether(all []exchange) {
	calls, sent := make([]*memproto.Call, 0, len(all)), make([]bool, len(all))
	for i := range all {
		if all[i].call == nil || sent[i] {
			continue
		}
		calls = calls[:0]
		for j := i; j < len(all); j++ {
			if e := &all[j]; e.call != nil && e.server == all[i].server {
				calls, sent[j] = append(calls, e.call), true
			}
		}
		all[i].server.pipeline.Send(memproto.Instant(time.Now()), calls...)
	}
}

// begin finds the server of the op, and sets the deadline. It reports whether the exchange can
// be made. Else the op has ended.
func (f *Fleet) begin(ctx context.Context, e *exchange, op *store.Op, allTime bool) bool {
	if op.Err = store.Check(op); op.Err != nil || op.Kind() == store.Hint {
		return false // no replica lacks anything
	}
	hash, writes := f.keyer.hash(op.Counter), op.Writes
	var s replica.Server
	var list uint32
	switch {
	case op.Server != "":
		if s = f.set.Named(op.Server); s == nil {
			op.Err = replica.NotListed(op.Server)
			return false
		}
	case op.Kind() == store.Subtract:
		if op.Receipt.None() {
			return false
		}
		// Not where the counter is by now: where it was added to.
		if s = f.set.FirstOf(hash, op.Receipt.List); s == nil {
			op.Err = errListChanged
			return false
		}
		writes = writes[max(len(writes)-op.Receipt.On(0), 0):]
	default:
		s, list = f.set.First(hash)
	}
	e.list, e.writes = list, writes
	return e.begin(ctx, s.(*server), hash, op, allTime)
}

// begin begins an exchange of the writes with the server. It reports whether the exchange can
// be made. Else the op has ended.
func (e *exchange) begin(ctx context.Context, s *server, hash store.Hash, op *store.Op, allTime bool) bool {
	start, c := time.Now(), s.common
	e.ctx, e.op, e.kind, e.hash, e.server = ctx, op, kindOf(op), hash, s
	e.auto, e.now, e.timeout, e.clock = c.Protocol == Auto, memproto.Instant(start), c.Timeout, start
	op.Err = nil
	if kind := op.Kind(); kind != store.Subtract {
		op.Receipt = store.Receipt{}
	}
	err := e.enter(ctx, allTime)
	if err != nil {
		op.Err = err
		e.tell(err)
	}
	return err == nil && len(e.writes)+len(op.Reads) > 0
}

// enter finds out whether the exchange can be made, how, and until when: within the fleet's
// timeout, or the context's if that is sooner; allTime: all the time of the context, as of many
// trips that are started at once some wait for long until it is their turn. Nothing else is
// asked of the context: a trip that has begun is not cut short, for nothing is left half done
// that could be finished.
func (e *exchange) enter(ctx context.Context, allTime bool) error {
	s, c := e.server, e.server.common
	if c.closed.Load() {
		return ErrClosed
	}
	e.deadline = e.now + int64(c.Timeout)
	if end, bounded := ctx.Deadline(); bounded {
		if at := memproto.Instant(end); allTime || at < e.deadline {
			e.deadline = at
		}
	}
	if err := ctx.Err(); err != nil {
		return s.Wrap(err)
	}
	if err := s.breaker.admit(); err != nil {
		return err
	}
	if c.Clock != nil {
		e.clock = c.Clock()
	}
	if c.Protocol == Classic {
		return nil
	}
	classic, ask := s.dialect.isClassic(e.now)
	if ask {
		s.askAgain()
	}
	if classic && c.Protocol == Meta {
		return s.Wrap(memproto.ErrClassic)
	}
	e.meta = !classic
	return nil
}

// run makes the exchange, and ends the op.
func (e *exchange) run() { e.end(e.make()) }

// make makes the exchange.
func (e *exchange) make() error {
	if !e.meta {
		return e.classic()
	}
	e.write()
	e.send()
	return e.await()
}

// classic makes the round trip on the classic path.
func (e *exchange) classic() error {
	e.over = 0 // of the meta path, which was tried before
	version := uint64(0)
	if e.op.Kind() == store.Swap {
		version = e.writes[0].Version
	}
	return e.server.pool.Trip(e.ctx, memproto.Epoch.Add(time.Duration(e.deadline)), e.timeout, version, func(conn *memproto.Conn) (err error) {
		e.landed, err = conn.Do(e.hash, e.op, e.writes, e.clock)
		return err
	})
}

// write writes the commands of the exchange into a call.
func (e *exchange) write() {
	e.call = e.server.pipeline.Call(e.hash, e.op, e.writes, e.clock, e.deadline, e.server.common.OnRoundTrip != nil)
}

// send sends the call.
func (e *exchange) send() { e.server.pipeline.Send(e.now, e.call) }

// await waits for an exchange on the meta path. One that was not begun, because the server
// was asked and does not know the meta commands, is made the classic way.
func (e *exchange) await() error {
	e.call.Wait()
	err := e.outcome()
	if e.auto && errors.Is(err, memproto.ErrClassic) {
		return e.classic()
	}
	return err
}

// outcome takes in a call that has ended.
func (e *exchange) outcome() error {
	r := e.call.Result(e.writes, e.op.Reads)
	e.over, e.landed = r.At, r.Landed
	if r.Err == nil {
		return nil
	}
	if len(r.Orphaned) > 0 {
		e.undo(r.Orphaned)
	}
	return e.server.Wrap(r.Err)
}

// undo rolls back adds that were acknowledged although one before them had failed. Best
// effort: what stays counts high, never low.
func (e *exchange) undo(orphaned []store.Write) {
	undo := exchange{
		ctx: e.ctx, op: &store.Op{Writes: orphaned}, writes: orphaned, kind: RollBack, hash: e.hash, server: e.server,
		now: memproto.Instant(time.Now()), deadline: e.deadline, timeout: e.timeout, clock: e.clock,
	}
	undo.write()
	undo.send()
	undo.call.Wait()
	undo.tell(undo.outcome())
}

// end ends the op.
func (e *exchange) end(err error) {
	e.note(err)
	if errors.Is(err, memproto.ErrUnread) { // it was not sent, and has written nothing
		e.writes[0].Result, e.landed, err = 0, 1, nil
	}
	if kind := e.op.Kind(); kind == 0 || kind == store.Add || e.op.Data {
		e.op.Receipt = store.Receipt{List: e.list, Acknowledged: [store.MaxReplicas]uint32{uint32(e.landed)}}
	}
	e.tell(err)
	e.op.Err = err
}

// note notes what the outcome says of the server.
func (e *exchange) note(err error) {
	e.server.breaker.note(err, e.now, e.deadline-e.now >= int64(e.timeout)/2)
}

// RoundTripKind is what an exchange with a server is for.
type RoundTripKind int

const (
	Exchange RoundTripKind = iota + 1 // adds to buckets of a counter, and reads some
	RollBack                          // subtracts what was added for nothing
	Delete                            // removes buckets, for a reset
	Look                              // reads buckets and their versions, for a repair
	Raise                             // sets a bucket that was too low, or missing
)

var tripKindNames = [...]string{Exchange: "exchange", RollBack: "roll_back", Delete: "delete", Look: "repair_read", Raise: "repair_write"}

// String returns exchange, roll_back, delete, repair_read or repair_write.
func (k RoundTripKind) String() string {
	if k >= Exchange && int(k) < len(tripKindNames) {
		return tripKindNames[k]
	}
	return fmt.Sprintf("TripKind(%d)", int(k))
}

// RoundTripKinds returns all kinds.
func RoundTripKinds() []RoundTripKind {
	return []RoundTripKind{Exchange, RollBack, Delete, Look, Raise}
}

// RoundTrip is one exchange with one server, for one counter, that has ended.
type RoundTrip struct {
	Server string // its name, as in the config
	Kind   RoundTripKind
	Adds   int // the buckets that it was to change: to add to, subtract from, delete or set
	Reads  int // the buckets that it was to read
	Began  time.Time
	Took   time.Duration // until its answer came, or its caller left
	Err    error         // nil, or why it failed; see OutcomeOf
}

// What OutcomeOf returns.
const (
	OutcomeOK      = "ok"
	OutcomeTimeout = "timeout" // no answer in time, or no connection
	OutcomeDown    = "down"    // the server is known to be down: it was not asked, or not waited for
	OutcomeRefused = "refused" // the server took no connection, or did not let this process in
	OutcomeClosed  = "closed"  // the fleet is
	OutcomeError   = "error"   // anything else
)

// Outcomes returns all that OutcomeOf may return.
func Outcomes() []string {
	return []string{OutcomeOK, OutcomeTimeout, OutcomeDown, OutcomeRefused, OutcomeClosed, OutcomeError}
}

// OutcomeOf returns what became of a trip that ended with the error: one of Outcomes.
func OutcomeOf(err error) string {
	switch {
	case err == nil:
		return OutcomeOK
	case errors.Is(err, ErrClosed):
		return OutcomeClosed
	case errors.Is(err, ErrDown):
		return OutcomeDown
	case isTimeout(err):
		return OutcomeTimeout
	case memproto.IsRefused(err):
		return OutcomeRefused
	}
	return OutcomeError
}

func isTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, memproto.ErrBusy) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// tell calls OnRoundTrip with the exchange, which has ended. An exchange with nothing to do
// asks no server.
func (e *exchange) tell(err error) {
	told := e.server.common.OnRoundTrip
	if told == nil || len(e.writes)+len(e.op.Reads) == 0 {
		return
	}
	// By the wall clock as it is now, not as it was when the process began: it may have been
	// set since.
	now := time.Now()
	ago := memproto.Instant(now) - e.now
	took := ago
	if e.over != 0 {
		took = e.over - e.now
	}
	told(e.ctx, RoundTrip{
		Server: e.server.Endpoint.Name, Kind: e.kind, Adds: len(e.writes), Reads: len(e.op.Reads),
		Began: now.Add(-time.Duration(ago)), Took: time.Duration(max(took, 0)), Err: err,
	})
}
