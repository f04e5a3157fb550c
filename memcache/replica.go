package memcache

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
)

// This is a server as package replication knows it: a replica of a counter.

// Name returns the server's name.
func (s *server) Name() string { return s.Endpoint.Name }

// Up reports whether it is worth asking.
func (s *server) Up() bool { return s.breaker.up() }

// Memory returns what is known of its losses.
func (s *server) Memory() *replica.Memory { return s.examiner.memory }

// Look looks at the server.
func (s *server) Look(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	return s.examiner.look(ctx, deadline)
}

// Marker calls use with its marker.
func (s *server) Marker(ctx context.Context, use func(replica.MarkerItem) error) error {
	deadline, _ := ctx.Deadline()
	return s.examiner.onMarker(ctx, deadline, use)
}

// Keys calls yield for each item of a counter that it holds.
func (s *server) Keys(ctx context.Context, yield func(replica.Key) error) error {
	conn, err := s.Dial(ctx, time.Now().Add(s.common.Timeout))
	if err != nil {
		return err
	}
	defer conn.Close()
	ahead := s.clockAhead(conn)
	err = memproto.ListKeys(ctx, conn, keysPause, func(k memproto.Listed) error {
		if k.Expires != 0 {
			k.Expires -= ahead
		}
		return yield(replica.Key(k))
	})
	if errors.Is(err, memproto.ErrNoKeys) || errors.Is(err, memproto.ErrKeysMissed) {
		s.lists.note(err)
	} else {
		s.lists.note(nil)
	}
	return err
}

// clockAhead returns by how many seconds the server's clock, as it was when the server started, is ahead of the
// one here. Less than two are none, nor are those of a server that does not tell.
func (s *server) clockAhead(conn net.Conn) int64 {
	if conn.SetDeadline(time.Now().Add(s.common.Timeout)) != nil {
		return 0
	}
	stats, err := memproto.FetchStats(conn)
	ahead := stats.Time - s.common.Clock().Unix()
	if err != nil || stats.Time == 0 || -2 < ahead && ahead < 2 {
		return 0
	}
	return ahead
}

// keysPause is the longest that a list of keys may pause.
const keysPause = 30 * time.Second

// Lists reports whether it lists its keys, as far as is known.
func (s *server) Lists() bool { return !s.lists.rests() }

// Do makes a round trip.
func (s *server) Do(ctx context.Context, counter replica.Counter, op *store.Op) {
	e := exchange{writes: op.Writes}
	if e.begin(ctx, s, counter.Hash, op, false) {
		e.run()
	}
}

// Start begins a round trip of adds and reads, or of data.
func (s *server) Start(ctx context.Context, deadline time.Time, counter replica.Counter, op *store.Op, index int, ended chan<- int, late replica.Acknowledger) replica.Exchange {
	e := exchange{writes: op.Writes}
	begun := e.begin(ctx, s, counter.Hash, op, false)
	e.deadline = memproto.Instant(deadline)
	if begun && e.meta && (!e.auto || s.dialect.speaks() == Meta) {
		m := &replicaCall{exchange: e, late: late}
		if !op.Data {
			m.adds = slices.Clone(op.Writes)
		}
		m.write()
		m.call.Notify(ended, index, m)
		m.send()
		return m
	}
	// It goes on if the caller gives up, so it has an op of its own.
	kept := &store.Op{Counter: op.Counter, Data: op.Data, Writes: slices.Clone(op.Writes), Reads: slices.Clone(op.Reads), Err: op.Err}
	for i := range kept.Writes {
		kept.Writes[i].Data = slices.Clone(kept.Writes[i].Data)
	}
	c := &replicaExchange{exchange: e, ended: ended, index: index}
	c.exchange.op, c.exchange.writes = kept, kept.Writes
	if !begun {
		c.settle(unsent)
		return c
	}
	go func() {
		kept.Err = c.exchange.make()
		c.exchange.note(kept.Err)
		c.at = memproto.Instant(time.Now())
		if !c.settle(over) && kept.Err == nil && len(kept.Writes) > 0 && !kept.Data {
			late.Acknowledge(s, counter.Hash, kept.Writes)
		}
	}()
	return c
}

// replicaCall is a round trip on the meta path.
type replicaCall struct {
	exchange
	adds []store.Write
	late replica.Acknowledger
}

// AnsweredLate notes that the server has acknowledged all adds. Of a call that was answered in
// part only the rest is hinted, and an acknowledgment would be taken for that of another trip.
func (m *replicaCall) AnsweredLate(whole bool) {
	if whole && len(m.adds) > 0 {
		m.late.Acknowledge(m.server, m.hash, m.adds)
	}
}

// GiveUp has the round trip end.
func (m *replicaCall) GiveUp() { m.call.GiveUp() }

// End fills in what came of it.
func (m *replicaCall) End(op *store.Op) {
	m.op, m.writes = op, op.Writes
	m.end(m.outcome())
}

// replicaExchange is a round trip on the classic path, or to a server that has to be asked first how
// it speaks, in a goroutine of its own.
type replicaExchange struct {
	exchange exchange // of the goroutine, until it has settled
	ended    chan<- int
	index    int
	state    atomic.Int32
	at       int64 // the instant of its end: End may be called much later
}

// The states of a replicaExchange: it is under way, then one of these.
const (
	over = 1 + iota
	givenUp
	unsent // it could not begin, and that has been reported
)

func (c *replicaExchange) settle(state int32) (first bool) {
	first = c.state.CompareAndSwap(0, state)
	if first {
		c.ended <- c.index
	}
	return first
}

// GiveUp has the round trip end.
func (c *replicaExchange) GiveUp() { c.settle(givenUp) }

// End fills in what came of it.
func (c *replicaExchange) End(op *store.Op) {
	kept := c.exchange.op
	switch c.state.Load() {
	case givenUp:
		op.Receipt, op.Err = store.Receipt{}, c.exchange.server.Wrap(memproto.ErrNoReply)
		// The goroutine has the exchange.
		(&exchange{ctx: c.exchange.ctx, op: op, writes: op.Writes, kind: Exchange, server: c.exchange.server, now: c.exchange.now}).tell(op.Err)
	case over:
		copy(op.Writes, kept.Writes)
		copy(op.Reads, kept.Reads)
		op.Receipt, op.Err = store.Acknowledged(c.exchange.landed), kept.Err
		c.exchange.over = c.at
		c.exchange.tell(kept.Err)
	default:
		op.Receipt, op.Err = store.Receipt{}, kept.Err
	}
}
