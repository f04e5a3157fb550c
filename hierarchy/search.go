package hierarchy

import (
	"cmp"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// explainedAtOnce is the most buckets whose children one round trip reads for an explanation.
const explainedAtOnce = 4

// A search looks for the second in which a limit counts no more than it should, if no other hits come: the oldest events
// of its window have to leave.
//
// It begins with the buckets that tile the window. In each step it finds the bucket in which the last of those events
// lies, and goes on with its children. If it is cut short, the event lies no later than the second of the hit.
type search struct {
	*limiter.Search
	view      *view
	lacks     int64 // how many events have to leave
	need      int64 // how many of the events in found have to leave, the oldest first
	found     Bucket
	ended     bool
	rest      []Bucket // that are to be explained, in the order of time
	explained bool
}

// planEdges reads the edges of windows that are to be searched, unless more than the edge has to leave.
func (c *counter) planEdges() {
	if c.tally.Err != nil || len(c.tally.Searches) == 0 {
		return
	}
	for i := range c.tally.Searches {
		s := &c.tally.Searches[i]
		v := &c.views[s.Limit]
		if least, _ := v.bounds(c.counts, c.finest); s.Moments > 0 || least+c.tally.Taken <= s.Most {
			c.readEdge(v)
		}
	}
	c.planList()
}

// beginSearches begins the searches of the tally.
func (c *counter) beginSearches() {
	c.searches = c.searches[:0]
	if c.tally.Err != nil {
		return
	}
	for i := range c.tally.Searches {
		s := &c.tally.Searches[i]
		v := &c.views[s.Limit]
		tiles := Cover{v.later()}
		if v.split || !v.partial {
			tiles = v.appendTiles(nil, c.finest)
		}
		lacks := c.counts.sum(tiles) + c.tally.Taken - s.Most
		q := search{Search: s, view: v, lacks: lacks, need: lacks, found: BucketAt(c.finest, c.at.Second)}
		q.ended, q.explained = c.err != nil || lacks <= 0, c.err != nil || s.Moments == 0 // with an error the edge is not known
		if !q.ended {
			c.pick(&q, tiles)
		}
		if !q.explained {
			q.begin(c.counts, tiles)
		}
		c.searches = append(c.searches, q)
	}
}

// planSearches takes each search down as far as buckets are known, and reads the next ones.
func (c *counter) planSearches() {
	for open := true; open && len(c.op.Reads) == 0; { // all that is to be read may be cached
		open = false
		for i := range c.searches { // before any of them reads, as what is read is taken for known
			c.descend(&c.searches[i])
			c.explain(&c.searches[i])
		}
		for i := range c.searches {
			q := &c.searches[i]
			if !q.ended {
				c.read(q.found.children())
			}
			if !q.explained {
				c.readRest(q)
			}
			open = open || !q.ended || !q.explained
		}
	}
}

// descend takes a search down as far as buckets are known.
func (c *counter) descend(q *search) {
	for !q.ended && q.found.Level > c.finest && !q.view.leavesTogether(q.found) {
		children := q.found.children()
		if !c.counts.has(children) {
			return
		}
		q.need -= c.counts.lost(q.found)
		c.pick(q, children)
	}
	q.ended = true
}

// pick finds the bucket of the cover in which the last event lies that has to leave. The hits of the batch that are kept
// are events, too.
func (c *counter) pick(q *search, cover Cover) {
	first := true
	for b := range cover.Buckets() {
		value := c.counts[b.ID()]
		if b == BucketAt(b.Level, c.at.Second) {
			value += c.tally.Taken
		}
		if first || value > 0 {
			q.found, first = b, false
		}
		if value >= q.need {
			return
		}
		q.need -= max(value, 0)
	}
}

// endSearches sets the answers.
func (c *counter) endSearches() {
	for i := range c.tally.Adds {
		if a := &c.tally.Adds[i]; isOpen(a) && len(c.searches) > 0 {
			c.open[a.Reserved.ID] = a.Reserved
		}
	}
	for i := range c.searches {
		q := &c.searches[i]
		last := q.found.Last()
		if q.found.Level > c.finest { // the event lies no later than the hit
			last = min(last, BucketAt(c.finest, max(c.at.Second, q.found.First())).Last())
		}
		q.Reset = time.Duration(max(q.view.leaves(last)-c.at.Second, 1)) * time.Second
		switch {
		case q.Most < 0:
			q.Reset = events.Never
		case q.lacks <= 0 && c.err == nil:
			q.Reset = 0
		}
		q.MayFit = q.Most >= 0 && c.open.cost(q.view.edge.First) >= q.lacks
		q.Explanation.Whole = q.Moments > 0 && c.err == nil
	}
}

// begin begins the explanation of a limit with the sum of its count.
func (q *search) begin(counts counts, tiles Cover) {
	q.Explanation = engine.Explanation{}
	for b := range tiles.Buckets() {
		if count := counts[b.ID()]; count != 0 {
			q.rest = append(q.rest, b)
			q.Explanation.Sum = append(q.Explanation.Sum, engine.Part{Level: b.Level, Interval: engine.Interval{First: b.First(), Last: b.Last(), Count: count}})
		}
	}
}

// explain finds the next moments at which the limit counts less, as far as buckets are known.
func (c *counter) explain(q *search) {
	for !q.explained && len(q.rest) > 0 && len(q.Explanation.Frees) <= q.Moments {
		b := q.rest[0]
		if b.Level == c.finest || q.view.leavesTogether(b) {
			q.free(b.Last(), c.counts[b.ID()])
			q.rest = q.rest[1:]
			continue
		}
		if !c.counts.has(b.children()) {
			return
		}
		q.free(BucketAt(c.finest, b.First()).Last(), c.counts.lost(b))
		isEmpty := func(child Bucket) bool { return c.counts[child.ID()] == 0 }
		q.rest = slices.Concat(slices.DeleteFunc(slices.Collect(b.children().Buckets()), isEmpty), q.rest[1:])
	}
	q.explained = true
	q.Explanation.Frees = q.Explanation.Frees[:min(len(q.Explanation.Frees), q.Moments)]
}

// readRest reads the children of the next buckets that are to be explained. Each of these buckets leaves at one moment at
// least, so that few are read in vain.
func (c *counter) readRest(q *search) {
	next := min(q.Moments+1-len(q.Explanation.Frees), len(q.rest), explainedAtOnce)
	for _, b := range q.rest[:next] {
		if b.Level > c.finest && !q.view.leavesTogether(b) {
			c.read(b.children())
		}
	}
}

// free adds that the count leaves the window with the second.
func (q *search) free(second, count int64) {
	if count <= 0 {
		return
	}
	frees, at := q.Explanation.Frees, q.view.leaves(second)*1000
	i, found := slices.BinarySearchFunc(frees, at, func(f engine.Freed, at int64) int { return cmp.Compare(f.At, at) })
	if !found {
		frees = slices.Insert(frees, i, engine.Freed{At: at})
	}
	frees[i].Count += count
	q.Explanation.Frees = frees
}
