package memcache

import "time"

// The meta path: the commands of a call go out in one write, on a connection that it
// shares with others.

func (e *exchange) metaTrip(by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (landed int, err error) {
	if len(adds) == 0 && len(reads) == 0 {
		return 0, nil
	}
	return e.metaEnd(e.metaStart(by, adds, expires, reads), by, adds, values)
}

// metaStart sends the commands of a trip. metaEnd waits for their answers.
func (e *exchange) metaStart(by int64, adds []uint64, expires []int64, reads []uint64) *call {
	c := newCall()
	c.trip(e.hash, e.server.pipes.tag(max(len(adds), 1)), by, adds, expires, reads, e.clock)
	e.send(c)
	return c
}

func (e *exchange) metaEnd(c *call, by int64, adds []uint64, values []int64) (landed int, err error) {
	<-c.own
	return e.metaOutcome(c, by, adds, values)
}

// metaOutcome takes in a trip that has ended.
func (e *exchange) metaOutcome(c *call, by int64, adds []uint64, values []int64) (landed int, err error) {
	landed, err = e.outcome(c)
	copy(values[:landed], c.values)
	if err == nil {
		copy(values[len(adds):], c.values[c.tagged:])
		c.free()
		return landed, nil
	}
	if astray := c.astray(adds); len(astray) > 0 {
		// An add failed and later ones did not. Best effort: what stays counts high,
		// never low.
		undo, began := *e, instant(time.Now())
		undone := undo.metaTakeBack(by, astray)
		undo.errand, undo.now = errand{kind: RollBack, adds: len(astray)}, began
		undo.tell(undone)
	}
	return landed, err
}

func (e *exchange) metaTakeBack(by int64, buckets []uint64) error {
	if len(buckets) == 0 {
		return nil
	}
	c := newCall()
	c.takeBack(e.hash, e.server.pipes.tag(len(buckets)), by, buckets)
	return e.finish(c)
}

func (e *exchange) metaDelete(buckets []uint64) error {
	if len(buckets) == 0 {
		return nil
	}
	c := newCall()
	c.delete(e.hash, e.server.pipes.tag(len(buckets)), buckets)
	return e.finish(c)
}

// finish sends a call of which only the outcome matters.
func (e *exchange) finish(c *call) error {
	e.send(c)
	_, err := e.await(c)
	if err == nil {
		c.free()
	}
	return err
}

// send hands the call to one of the server's connections.
func (e *exchange) send(c *call) {
	c.deadline = e.deadline
	c.timed = e.server.fleet.config.OnRoundTrip != nil
	if e.deadline <= e.now {
		c.settle(ended, errNotSent)
		return
	}
	e.server.pipes.next(e.now).take(c, e.now)
}

// await waits for the end of the call and returns how many of its adds, from the first
// on, were acknowledged; the call's values of those are good. With an error the call
// may still be in the hands of the connection: it is not to be used again.
func (e *exchange) await(c *call) (landed int, err error) {
	<-c.own
	return e.outcome(c)
}

// outcome is what await returns, of a call that has ended.
func (e *exchange) outcome(c *call) (landed int, err error) {
	e.over = c.at
	if c.state.Load() == late {
		return int(c.partly.Load()), e.server.wrap(c.verdict)
	}
	if c.verdict != nil {
		return c.landed, e.server.wrap(c.verdict)
	}
	return c.landed, e.server.wrap(c.fault)
}

// astray returns the adds that were acknowledged although one before them failed.
func (c *call) astray(adds []uint64) (buckets []uint64) {
	if c.state.Load() == late || c.fault == nil {
		return nil
	}
	for i := c.landed; i < min(c.answered, len(adds)); i++ {
		if c.values[i] != refused {
			buckets = append(buckets, adds[i])
		}
	}
	return buckets
}
