package memcache

import (
	"slices"
	"time"

	"github.com/counterd/counterd/store"
)

// The meta path: the commands of a call go out in one write, on a connection that it
// shares with others.

// send sends the commands of the exchange.
func (e *exchange) send() {
	e.call = newCall()
	e.write(e.call)
	e.hand(e.call)
}

func (e *exchange) write(c *call) {
	c.write(e.hash, e.server.pipeline.tag(max(len(e.writes), 1)), e.writes, e.op.Reads, e.clock)
}

// hand hands the call to one of the server's connections.
func (e *exchange) hand(c *call) {
	c.deadline = e.deadline
	c.timed = e.server.fleet.config.OnRoundTrip != nil
	if e.deadline <= e.now {
		c.settle(ended, errNotSent)
		return
	}
	e.server.pipeline.next(e.now).take(c, e.now)
}

// outcome takes in a call that has ended. With an error the call may still be in the hands of
// the connection: it is not to be used again.
func (e *exchange) outcome() error {
	c := e.call
	e.over = c.at
	err := c.verdict
	switch {
	case c.state.Load() == late:
		e.landed = int(c.partly.Load())
	default:
		e.landed = c.landed
		if err == nil {
			err = c.fault
		}
	}
	for i := range e.writes[:min(e.landed, len(e.writes))] {
		e.writes[i].Result = c.values[i]
	}
	if err == nil {
		c.takeResults(e.op.Reads)
		c.free()
		return nil
	}
	if orphaned := c.orphaned(e.writes); len(orphaned) > 0 {
		e.undo(orphaned)
	}
	return e.server.wrap(err)
}

// undo takes back adds that were acknowledged although one before them had failed. Best
// effort: what stays counts high, never low.
func (e *exchange) undo(orphaned []store.Write) {
	undo := exchange{
		ctx: e.ctx, op: &store.Op{Writes: orphaned}, writes: orphaned, kind: RollBack, hash: e.hash, server: e.server,
		now: instant(time.Now()), deadline: e.deadline, timeout: e.timeout, clock: e.clock,
	}
	undo.send()
	<-undo.call.own
	undo.tell(undo.outcome())
}

// orphaned returns the adds that were acknowledged although one before them failed, the last
// first, each as what rolls it back.
func (c *call) orphaned(adds []store.Write) (writes []store.Write) {
	if c.kind != store.Add || c.state.Load() == late || c.fault == nil {
		return nil
	}
	for i := c.landed; i < min(c.answered, len(adds)); i++ {
		if c.values[i] != refused {
			writes = append(writes, store.Write{Kind: store.Subtract, Item: adds[i].Item, By: adds[i].By})
		}
	}
	slices.Reverse(writes)
	return writes
}
