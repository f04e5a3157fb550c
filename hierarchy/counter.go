package hierarchy

import (
	"math/rand/v2"
	"time"

	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// A counter is one counter of a batch: it plans round trips and absorbs their results. It does no I/O. The plan methods
// add the writes and reads of the next round trip to op.
type counter struct {
	tally            *limiter.Tally
	engine           *Counters
	at               limiter.Moment
	finest, coarsest Level
	views            []view // of the tally's limits
	counts           counts // without the hits of the batch
	closed           closedView
	op               store.Op // the next round trip, or the last one
	list             store.Op // the read of the open reservations beside op, if planned
	open             openList
	planned          bool
	err              error // of the last round trip
	adds             []store.Write
	receipt          store.Receipt // of adds
	added            bool          // all adds were acknowledged
	searches         []search
}

func (c *counter) begin(e *Counters, at limiter.Moment, t *limiter.Tally) {
	*c = counter{
		tally: t, engine: e, at: at, counts: c.counts, closed: c.closed, op: c.op, list: c.list,
		views: c.views[:0], adds: c.adds[:0], searches: c.searches,
	}
	if c.counts == nil {
		c.counts = counts{}
	}
	clear(c.counts)
	c.closed.begin(e.closed, t.ID, e.base.Clock())
	c.finest, c.coarsest = levels(t.Counter)
	ahead := max(at.Second+engine.CeilSeconds(e.base.Grace), at.Latest)
	for i := range t.Limits {
		c.views = append(c.views, newView(t.Limits[i].Windows(), at.Second, ahead, c.finest))
		t.Limits[i].First = c.views[i].edge.First
	}
}

// retry lets the counter plan round trips after the store has failed it.
func (c *counter) retry() { c.err = nil }

// planAdd adds the hits to their buckets, the finest level first, and reads the other buckets of the views.
func (c *counter) planAdd() {
	cost, reserves := int64(0), false
	for i := range c.tally.Adds {
		a := &c.tally.Adds[i]
		cost += a.Cost
		if a.Ends != 0 || a.Wait != 0 {
			reserves = true
			a.Reserved = engine.Reserved{Counter: c.tally.ID, ID: rand.Uint64() >> (64 - engine.IDBits), Time: c.at.Second * 1000, Ends: a.Ends, Cost: a.Cost}
		}
	}
	if cost > 0 {
		c.adds = c.engine.appendAdds(c.adds, c.tally.Counter, c.at.Second, cost)
		c.op.Writes = append(c.op.Writes, c.adds...)
		for i := range c.adds {
			c.counts[c.adds[i].Item] = 0 // the add returns it
		}
	}
	for i := range c.views {
		c.read(c.views[i].buckets())
	}
	if reserves {
		c.op.Reads = append(c.op.Reads, store.Read{Item: epochItem})
	}
}

// planOpenEdges reads the edges of windows whose bounds do not decide all hits.
func (c *counter) planOpenEdges() {
	for i := range c.views {
		ceiling := c.tally.Limits[i].Ceiling
		if least, most := c.views[i].bounds(c.counts, c.finest); least < ceiling && most+c.tally.Demand > ceiling {
			c.readEdge(&c.views[i])
		}
	}
}

// planCheck reads the buckets that tile the windows.
func (c *counter) planCheck() {
	for i := range c.views {
		v := &c.views[i]
		var tiles [2 * maxRuns]BucketRange
		c.read(v.appendTiles(tiles[:0], c.finest))
		v.split = true
	}
	c.planList()
}

// planUndo subtracts the hits that are not kept, from the buckets whose adds were acknowledged.
func (c *counter) planUndo() {
	added, kept := c.costs()
	if added > kept && !c.receipt.None() {
		c.op.RollBack(c.tally.ID, c.adds, c.receipt, added-kept)
	}
}

// planHint repeats the hits that are kept on replicas that have not acknowledged them.
func (c *counter) planHint() {
	if _, kept := c.costs(); kept > 0 && c.added && c.engine.replicated {
		c.op.Hint(c.tally.ID, c.adds, c.receipt, kept)
	}
}

// costs returns the cost of the hits that the batch has added, and of those that are kept.
func (c *counter) costs() (added, kept int64) {
	if len(c.adds) == 0 {
		return 0, 0
	}
	for i := range c.tally.Adds {
		if a := &c.tally.Adds[i]; a.Kept {
			kept += a.Cost
		}
	}
	return c.adds[0].By, kept
}

// readEdge reads the buckets that tile the edge of a window.
func (c *counter) readEdge(v *view) {
	if v.partial && !v.split {
		var tiles [maxRuns]BucketRange
		c.read(v.appendEdge(tiles[:0], c.finest))
		v.split = true
	}
}

// read reads those buckets that are not known.
func (c *counter) read(cover Cover) {
	for b := range cover.Buckets() {
		item := b.ID()
		if _, known := c.counts[item]; known {
			continue
		}
		value, cached := int64(0), false
		if c.isClosed(b) {
			value, cached = c.closed.find(item)
		}
		c.counts[item] = value
		if !cached {
			c.op.Reads = append(c.op.Reads, store.Read{Item: item})
		}
	}
}

// isClosed reports whether no hit changes the bucket any more.
func (c *counter) isClosed(b Bucket) bool {
	return b.Last() < c.at.Second-openSeconds(c.engine.base.Grace)
}

// absorb takes in the results of the round trip.
func (c *counter) absorb() {
	kind := c.op.Kind()
	if kind == store.Add {
		c.receipt, c.added = c.op.Receipt, c.op.Err == nil
	}
	if c.op.Err != nil {
		c.err = engine.StoreError(c.op.Err)
		return
	}
	if kind == store.Subtract || kind == store.Hint {
		return
	}
	for i := range c.op.Writes {
		w := &c.op.Writes[i]
		c.counts[w.Item] = w.Result - w.By
	}
	for i := range c.op.Reads {
		r := &c.op.Reads[i]
		if r.Item == epochItem {
			c.setEpoch(r.Value)
			continue
		}
		c.counts[r.Item] = r.Value
		if c.isClosed(bucketOf(r.Item)) && !(c.at.Peek && c.engine.replicated) {
			c.closed.add(r.Item, r.Value)
		}
	}
	c.closed.put(kind == store.Add)
	if c.planned { // a list that was not read lacks the reservations of others
		for _, part := range partsOf(&c.list) {
			if part.Err == nil {
				c.open.read(part.Reads[0].Data, c.at.Time.UnixMilli())
			}
		}
	}
}

// setEpoch sets the epoch of the reservations, which was read after the adds.
func (c *counter) setEpoch(epoch int64) {
	for i := range c.tally.Adds {
		if r := &c.tally.Adds[i].Reserved; r.ID != 0 {
			r.ID = inEpoch(r.ID, epoch)
		}
	}
}

// measure sets the answers of Add or Check.
func (c *counter) measure() {
	t := c.tally
	t.Err, t.Tick, t.Until, t.Settled = c.err, time.Second, time.Unix(c.at.Second+1, 0), false
	for i := range c.views {
		least, most := c.views[i].bounds(c.counts, c.finest)
		t.Limits[i].Count, t.Limits[i].Exact = most, least == most
	}
}
