package memproto

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// MaxPipelined is how many connections a server has on the meta path, as measured: see
// BenchmarkPipes.
const MaxPipelined = 2

// Pipeline keeps the shared connections to one server.
type Pipeline struct {
	dial    func(context.Context, time.Time) (net.Conn, error) // of the meta path
	timeout time.Duration                                      // of connecting
	list    []*pipe
	tags    atomic.Uint32 // the last tag that was given out
	calls   sync.Pool

	ctx    context.Context // of what goes on in the background
	stop   context.CancelFunc
	mu     sync.Mutex
	closed bool
	others sync.WaitGroup // what goes on in the background
}

// NewPipeline returns a pipeline of so many connections, which dial opens.
func NewPipeline(dial func(context.Context, time.Time) (net.Conn, error), conns int, timeout time.Duration) *Pipeline {
	ps := &Pipeline{dial: dial, timeout: timeout}
	ps.ctx, ps.stop = context.WithCancel(context.Background())
	for range conns {
		ps.list = append(ps.list, newPipe(ps))
	}
	return ps
}

// Call returns a call with the commands of an op, of which the server gets these writes. A Swap
// goes on the connection that its version names. The call ends at the deadline, an instant. timed: the instant of its
// end is needed.
func (ps *Pipeline) Call(hash store.Hash, op *store.Op, writes []store.Write, now time.Time, deadline int64, timed bool) *Call {
	c := newCall(&ps.calls)
	c.deadline, c.timed = deadline, timed
	switch kind := op.Kind(); {
	case op.Data, kind == store.Create, kind == store.Swap:
		c.writeData(hash, ps.tag(len(writes)+len(op.Reads)), op.Data, writes, op.Reads, now)
		if kind == store.Swap {
			c.swaps, c.on = true, connOf(writes[0].Version)
		}
	default:
		c.write(hash, ps.tag(max(len(writes), 1)+len(op.Reads)), writes, op.Reads, op.Versions, now)
	}
	return c
}

// Send hands the calls to connections, which they share with others. An idle connection writes the calls that it gets
// at once. now is the present instant.
func (ps *Pipeline) Send(now int64, calls ...*Call) {
	for len(calls) > 0 {
		together := 0
		for _, c := range calls[:min(len(calls), maxTogether)] {
			if c.swaps || c.deadline <= now {
				break
			}
			together++
		}
		switch c := calls[0]; {
		case together > 0:
			ps.next(now).take(now, calls[:together]...)
		case c.deadline <= now:
			together = 1
			c.settle(ended, errNotSent)
		default:
			together = 1
			ps.swap(c, now)
		}
		calls = calls[together:]
	}
}

// swap hands the call to the connection that its version was read on. Another server process
// may be behind any other: there the version is of another change.
func (ps *Pipeline) swap(c *Call, now int64) {
	for _, p := range ps.list {
		if p.number.Load() == c.on {
			p.take(now, c)
			return
		}
	}
	c.settle(ended, ErrUnread)
}

// Load returns how many calls wait for an answer.
func (ps *Pipeline) Load() (n int) {
	for _, p := range ps.list {
		n += int(p.load.Load())
	}
	return n
}

// tag returns the first of n tags in a row.
func (ps *Pipeline) tag(n int) uint32 { return ps.tags.Add(uint32(n)) - uint32(n) }

// next returns the connection for the next call: one that is idle, else the one with the
// fewest calls. Where all are busy another one is opened, for later callers.
func (ps *Pipeline) next(now int64) *pipe {
	best, least := ps.list[0], int32(-1)
	var shut *pipe
	for _, p := range ps.list {
		if !p.open.Load() {
			if shut == nil {
				shut = p
			}
			continue
		}
		load := p.load.Load()
		if load == 0 {
			return p
		}
		if least < 0 || load < least {
			best, least = p, load
		}
	}
	if least > 0 && shut != nil && shut.load.Load() == 0 && now >= shut.rest.Load() {
		shut.connect()
	}
	return best
}

// Background runs f in a goroutine that Close waits for. It reports whether it does.
func (ps *Pipeline) Background(f func(context.Context)) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return false
	}
	ps.others.Go(func() { f(ps.ctx) })
	return true
}

// Close waits for the calls under way and closes the connections.
func (ps *Pipeline) Close() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	ps.stop()
	var closing sync.WaitGroup
	for _, p := range ps.list {
		closing.Go(p.close)
	}
	closing.Wait()
	ps.others.Wait()
}

// Drop ends all calls that wait for the server.
func (ps *Pipeline) Drop(fault error) {
	for _, p := range ps.list {
		p.drop(fault)
	}
}

const (
	// maxTogether bounds the calls that go to one connection while another one may be idle.
	maxTogether = 64
	// A batch is no longer than this, unless it is a single call: so its commands
	// and its answers find room in the buffers of the two sockets, and neither side
	// waits for the other to read while that waits for it.
	maxBatchRequest = 64 << 10
	maxBatchAnswer  = 64 << 10
	// maxRecord bounds what is written at once with TLS. Memcached reads a record into a buffer
	// of 16 KiB, and does not look again for what is left of it. So a batch is one record, and
	// with larger writes of bytes, each write ends a record.
	maxRecord = 16_000
	// maxQuiet is how long a connection may have been idle and be used without
	// looking whether the server has closed it.
	maxQuiet = int64(time.Millisecond)
	// restAfterRefusal is how long a server that refused a connection is not asked for one
	// that no call needs: it may have a bound on them.
	restAfterRefusal = int64(time.Second)
	// readBuffer is how much is read at once. It is longer than any one line with
	// its data.
	readBuffer = 64 << 10
)

// pipe is one connection to a server, shared by concurrent callers. While one
// batch of calls is on the wire, the next gathers. A caller that finds the connection idle
// writes its calls itself; the reader, which reads all answers and wakes the callers, writes
// what has gathered as soon as the batch before is answered. So no call waits for others to
// join it, and the more calls there are, the fewer writes and reads each of them costs.
//
// One goroutine, run, opens the connection, reads from it and, where it fails, fails the
// calls that are on the wire. It alone does: a goroutine that finds a fault closes the
// connection and leaves the rest to it. It ends where the connection has failed and no call
// waits for a new one.
type pipe struct {
	pipeline *Pipeline
	ctx      context.Context // of dialing; canceled where no call waits and the connection closes
	stop     context.CancelFunc
	open     atomic.Bool  // connected
	rest     atomic.Int64 // until when no connection is opened unless a call needs it

	mu      sync.Mutex
	running bool
	conn    net.Conn        // nil while there is none to write to
	raw     syscall.RawConn // the connection's, or nil
	records bool            // TLS records are to be seen there
	fault   error           // why the connection was closed from this side
	batches
	quiet   int64 // when the last batch was answered
	closing bool
	change  sync.Cond // on mu, of running, queue and wire, while closing

	alarm alarm // for the calls whose deadline passes
}

// alarm calls ring at an instant.
type alarm struct {
	ring  func()
	timer *time.Timer
	at    int64 // never: math.MaxInt64
}

// set has ring called at the instant.
func (a *alarm) set(at, now int64) {
	a.at = at
	if wait := time.Duration(at - now); a.timer == nil {
		a.timer = time.AfterFunc(wait, a.ring)
	} else {
		a.timer.Reset(wait)
	}
}

// batches are the calls of a connection. Its methods want the connection's lock.
type batches struct {
	load   atomic.Int32  // calls gathered or on the wire
	number atomic.Uint32 // of the connection: see newNumber
	most   int           // bytes of a batch
	queue  []*Call       // gathered: none of it was sent
	wire   []*Call       // the batch on the wire
	head   int           // how many calls of it were answered
	sent   int64         // when it was written, as an instant
	spare  []*Call       // memory for the next batch
}

// takeUnsent takes out the calls that were not sent.
func (b *batches) takeUnsent() (unsent []*Call) {
	unsent, b.queue = b.queue, nil
	b.load.Add(-int32(len(unsent)))
	return unsent
}

// takeSent takes out the calls that were not answered.
func (b *batches) takeSent() (lost []*Call) {
	lost = b.wire[b.head:]
	b.wire, b.head = nil, 0
	b.load.Add(-int32(len(lost)))
	return lost
}

// answer takes out the first calls of the batch, and reports whether none is left.
func (b *batches) answer(calls int) (done bool) {
	b.load.Add(-int32(calls))
	if b.head += calls; b.head < len(b.wire) {
		return false
	}
	// The memory of this batch is in use until all are woken.
	b.wire, b.spare, b.head = b.spare[:0], b.wire, 0
	return true
}

// isEmpty reports whether no call waits.
func (b *batches) isEmpty() bool { return len(b.queue) == 0 && b.head == len(b.wire) }

// dropSwaps ends the swaps that wait for a connection which is over.
func (b *batches) dropSwaps() {
	b.queue = slices.DeleteFunc(b.queue, func(c *Call) bool {
		if c.swaps {
			b.load.Add(-1)
			c.settle(ended, ErrUnread)
		}
		return c.swaps
	})
}

// expire lets the callers leave whose deadline has passed. It returns the next deadline, and
// whether none of the callers is left whose calls were sent.
func (b *batches) expire(now int64) (next int64, alone bool) {
	next = int64(math.MaxInt64)
	b.queue = slices.DeleteFunc(b.queue, func(c *Call) bool {
		if c.deadline > now {
			next = min(next, c.deadline)
			return false
		}
		b.load.Add(-1)
		c.settle(late, errNotSent)
		return true
	})
	alone = b.head < len(b.wire)
	for _, c := range b.wire[b.head:] {
		if c.deadline > now {
			next = min(next, c.deadline)
			alone = false
		} else {
			c.settle(late, ErrNoReply)
		}
	}
	return next, alone
}

func newPipe(ps *Pipeline) *pipe {
	p := &pipe{pipeline: ps}
	p.alarm = alarm{ring: p.ring, at: math.MaxInt64}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.change.L = &p.mu
	return p
}

// take takes the calls in, and wakes their callers when they have ended. now is the present
// instant. A swap comes alone.
func (p *pipe) take(now int64, calls ...*Call) {
	p.mu.Lock()
	fault := error(nil)
	if p.closing {
		fault = ErrClosed
	} else if calls[0].swaps && calls[0].on != p.number.Load() {
		fault = ErrUnread
	}
	if fault != nil {
		p.mu.Unlock()
		for _, c := range calls {
			c.settle(ended, fault)
		}
		return
	}
	p.load.Add(int32(len(calls)))
	for _, c := range calls {
		if c.deadline < p.alarm.at {
			p.alarm.set(c.deadline, now)
		}
	}
	conn := p.conn
	if conn != nil && len(p.wire) == 0 && now-p.quiet > maxQuiet && p.raw != nil && closedRaw(p.raw, p.records) {
		// The reader is about to learn that too, but a caller that writes before it does loses
		// a trip.
		p.abandon(errors.New("the server closed the connection"))
		conn = nil
	}
	p.queue = append(p.queue, calls...)
	if conn == nil || len(p.wire) > 0 {
		p.start()
		p.mu.Unlock()
		return
	}
	p.gather()
	if first := p.wire[0]; len(p.wire) == 1 {
		p.mu.Unlock()
		p.writeCall(conn, first)
		return
	}
	out := outs.Get().(*[]byte)
	*out = appendRequests((*out)[:0], p.wire)
	p.mu.Unlock()
	p.write(conn, *out)
	outs.Put(out)
}

// outs has memory for batches that callers write.
var outs = sync.Pool{New: func() any { return new([]byte) }}

// appendRequests appends the commands of a batch.
func appendRequests(b []byte, batch []*Call) []byte {
	for _, c := range batch {
		b = append(b, c.request...)
	}
	return b
}

// connect opens the connection without a call.
func (p *pipe) connect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closing {
		p.start()
	}
}

// start runs the connection, with mu held.
func (p *pipe) start() {
	if !p.running {
		p.running = true
		go p.run()
	}
}

// writeCall writes a call that is a batch of its own. After its last write it does not look at
// the call, which may have been answered.
func (p *pipe) writeCall(conn net.Conn, c *Call) {
	rest, from := c.request, 0
	for _, end := range c.ends {
		p.write(conn, rest[from:end])
		from = end
	}
	if from < len(rest) {
		p.write(conn, rest[from:])
	}
}

// write writes a batch. Where it fails, it is unknown how much of it arrived.
func (p *pipe) write(conn net.Conn, batch []byte) {
	if _, err := conn.Write(batch); err != nil {
		p.mu.Lock()
		if p.conn == conn {
			p.abandon(err)
		}
		p.mu.Unlock()
	}
}

// abandon closes the connection, with mu held. The reader finds out and does the
// rest.
func (p *pipe) abandon(fault error) {
	p.fault = fault
	p.open.Store(false)
	p.conn.Close()
	p.conn = nil
}

// run opens the connection and reads from it, and again as long as it fails while calls
// wait for it.
func (p *pipe) run() {
	for more := true; more; {
		deadline := time.Now().Add(p.pipeline.timeout)
		conn, err := p.pipeline.dial(p.ctx, deadline)
		if err != nil {
			more = p.refused(err, !time.Now().Before(deadline))
			continue
		}
		r := reader{pipe: p, conn: conn}
		r.write(p.connected(conn))
		more = p.failed(conn, r.serve())
	}
}

// refused ends the calls that wait for a connection which could not be opened. It reports
// whether to try again: where the time of this attempt was over, but not that of all
// waiting calls.
func (p *pipe) refused(err error, overdue bool) (more bool) {
	var waiting []*Call
	p.rest.Store(Instant(time.Now()) + restAfterRefusal)
	p.mu.Lock()
	if !overdue {
		waiting = p.takeUnsent()
	}
	more = p.goesOn()
	p.mu.Unlock()
	for _, c := range waiting {
		c.settle(ended, err)
	}
	return more
}

// connected takes the connection into use, and returns the waiting calls, which come first.
func (p *pipe) connected(conn net.Conn) []*Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.fault = conn, nil
	p.number.Store(newNumber())
	p.dropSwaps()
	p.most = maxBatchRequest
	if p.raw, p.records = control(conn); p.records {
		p.most = maxRecord
	}
	p.quiet = Instant(time.Now())
	p.open.Store(true)
	p.gather()
	p.signal()
	return p.wire
}

// failed ends the calls on the wire of a connection that is over, and reports whether calls
// wait for a new one.
func (p *pipe) failed(conn net.Conn, fault error) (more bool) {
	p.mu.Lock()
	if p.conn != nil {
		p.abandon(fault)
	}
	fault, p.fault = p.fault, nil
	lost := p.takeSent()
	more = p.goesOn()
	p.mu.Unlock()
	conn.Close()
	for _, c := range lost {
		c.settle(ended, fault)
	}
	return more
}

// goesOn reports, with mu held, whether calls wait for a connection. Where none does the
// connection stops.
func (p *pipe) goesOn() bool {
	p.running = len(p.queue) > 0
	p.signal()
	return p.running
}

// signal tells close, with mu held, that something has changed.
func (p *pipe) signal() {
	if p.closing {
		p.change.Broadcast()
	}
}

// reader reads from a connection, and writes what gathers meanwhile.
type reader struct {
	*pipe
	conn net.Conn
	out  []byte // memory for what it writes
}

// serve reads until the connection is over, and returns why.
func (r *reader) serve() error {
	buf := make([]byte, readBuffer)
	have := 0 // bytes read and not yet understood
	var batch []*Call
	for {
		n, err := r.conn.Read(buf[have:])
		have += n
		if len(batch) == 0 {
			r.mu.Lock()
			batch = r.wire[r.head:]
			r.mu.Unlock()
		}
		used, whole, fault := readAnswers(batch, buf[:have])
		have = copy(buf, buf[used:have])
		batch = r.answered(batch, whole)
		if err := cmp.Or(fault, err); err != nil {
			return err
		}
	}
}

// readAnswers hands the answers in b to the calls of the batch. It returns how much of b it
// understood and how many calls are answered whole. Bytes after the last call's answer are
// unsolicited.
func readAnswers(batch []*Call, b []byte) (used, whole int, fault error) {
	for ; whole < len(batch); whole++ {
		c := batch[whole]
		n, last, err := c.read(b[used:])
		used += n
		if !last {
			c.partly.Store(int32(c.landed))
			return used, whole, err
		}
	}
	if used < len(b) {
		return used, whole, nonsense(b[used:])
	}
	return used, whole, nil
}

// answered wakes the callers of the first calls of the batch, and writes the next batch
// where it was the last of this one. It returns the calls that wait then.
func (r *reader) answered(batch []*Call, whole int) []*Call {
	if whole == 0 {
		return batch
	}
	woken, rest := batch[:whole], batch[whole:]
	r.mu.Lock()
	done := r.answer(whole)
	if done {
		if r.pipe.conn == r.conn {
			r.gather()
		}
		if len(r.wire) == 0 {
			r.quiet = Instant(time.Now())
		}
	}
	next := r.wire
	r.signal()
	r.mu.Unlock()
	if done {
		r.write(next)
		rest = next
	}
	for _, c := range woken {
		c.answerCame()
	}
	return rest
}

// gather makes of what has gathered the batch on the wire where no other batch is there.
func (b *batches) gather() {
	n, request, answer := 0, 0, 0
	for ; n < len(b.queue); n++ {
		c := b.queue[n]
		request += len(c.request)
		answer += c.answerBytes()
		if n > 0 && (request > b.most || answer > maxBatchAnswer) {
			break
		}
		c.conn = b.number.Load()
	}
	if n > 0 {
		b.sent = Instant(time.Now())
	}
	b.wire = append(b.wire, b.queue[:n]...)
	b.queue = slices.Delete(b.queue, 0, n)
}

// write writes the calls' commands.
func (r *reader) write(batch []*Call) {
	switch {
	case len(batch) == 0:
	case len(batch) > 1:
		r.out = appendRequests(r.out[:0], batch)
		r.pipe.write(r.conn, r.out)
	case batch[0].large():
		// It may not find room in the sockets: its answers have to be read meanwhile.
		go r.pipe.writeCall(r.conn, batch[0])
	default:
		r.pipe.writeCall(r.conn, batch[0])
	}
}

// ring lets the callers leave whose deadline has passed. Their unsent calls are never sent;
// the answers to the others are skipped when they come. Where no caller is left of the
// batch on the wire, and it has been there for the fleet's timeout, the connection is given
// up, so that it does not keep the next calls waiting.
func (p *pipe) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := Instant(time.Now())
	next, alone := p.expire(now)
	if alone && p.conn != nil {
		// Not because of one caller without time: the server has the fleet's timeout.
		if until := p.sent + int64(p.pipeline.timeout); until > now {
			next = min(next, until)
		} else {
			p.abandon(ErrNoReply)
		}
	}
	p.alarm.at = math.MaxInt64
	if next < p.alarm.at {
		p.alarm.set(next, now)
	}
	p.signal()
}

// drop ends the calls that wait: the unsent ones at once, and through the reader the calls
// on the wire, with their connection.
func (p *pipe) drop(fault error) {
	p.mu.Lock()
	waiting := p.takeUnsent()
	if p.conn != nil {
		p.abandon(fault)
	}
	p.signal()
	p.mu.Unlock()
	for _, c := range waiting {
		c.settle(ended, fault)
	}
}

// close waits for the calls under way and closes the connection.
func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	for p.running {
		if p.isEmpty() {
			p.stop()
			if p.conn != nil {
				p.abandon(ErrClosed)
			}
		}
		p.change.Wait()
	}
	p.stop()
	if p.alarm.timer != nil {
		p.alarm.timer.Stop()
	}
}
