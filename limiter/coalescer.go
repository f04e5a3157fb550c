package limiter

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Hits that arrive on one counter while others on it are being decided wait in its queue,
// and go together: one round trip for all of them. No hit waits for others to arrive. So the
// busier a counter is, the more hits share a round trip, and the fewer hits of this process
// contend.
//
// A hit waits in the queue of one of its counters only. While its group is being decided,
// another group may decide hits on the others: it counts what this group adds in full, so
// nothing but speed depends on the queues.

const (
	queueShards = 64
	spareQueues = 64 // for each shard
	// maxWaitShare is the share of the timeout for which hits wait in a queue. The group
	// ahead may be held up by another server, or by a server that is down; then the hits
	// that wait go without it.
	maxWaitShare = 8
	// apartFor is how long hits on several counters go by themselves after a round trip of
	// such hits has failed: a group waits for all of its round trips, and one server that does
	// not answer would hold up hits that do not need it.
	apartFor = time.Second
)

// coalescer has the queues of the counters on which hits are being decided.
type coalescer struct {
	maxWait time.Duration
	seed    maphash.Seed
	shards  [queueShards]queueShard
	epoch   time.Time
	apart   atomic.Int64 // until when hits on several counters go by themselves, since the epoch
}

type queueShard struct {
	mu    sync.Mutex
	busy  map[string]*queue // by the counter's ID
	spare []*queue
}

// queue is a counter on which hits are being decided, and the hits that wait meanwhile.
type queue struct {
	shard   *queueShard
	id      string
	turn    uint64 // of the group that holds the queue; it grows with each
	waiting []*request
	timer   *time.Timer // runs while there are any
}

// group is hits that are decided together, and the queues that it holds meanwhile.
type group struct {
	requests []*request
	held     []hold
	try      int
	began    time.Time // the first try
}

type hold struct {
	queue *queue
	turn  uint64
}

var groups = sync.Pool{New: func() any { return new(group) }}

func newGroup(requests ...*request) *group {
	g := groups.Get().(*group)
	g.requests = append(g.requests, requests...)
	return g
}

func (g *group) free() {
	clear(g.requests)
	clear(g.held)
	*g = group{requests: g.requests[:0], held: g.held[:0]}
	groups.Put(g)
}

func newCoalescer(maxWait time.Duration) *coalescer {
	return &coalescer{maxWait: maxWait, seed: maphash.MakeSeed(), epoch: time.Now()}
}

func (c *coalescer) shardOf(id string) *queueShard {
	return &c.shards[maphash.String(c.seed, id)%queueShards]
}

// enter returns the group of the request alone, which holds the queues of its
// counters; or nil, if hits on one of them are being decided: then it waits for its
// turn with others.
func (c *coalescer) enter(r *request) *group {
	if c.goesApart(r) {
		return newGroup(r)
	}
	if len(r.applied) > 1 {
		for i := range r.applied {
			shard := c.shardOf(r.applied[i].ID)
			shard.mu.Lock()
			if q := shard.busy[r.applied[i].ID]; q != nil {
				c.wait(q, r)
				shard.mu.Unlock()
				return nil
			}
			shard.mu.Unlock()
		}
	}
	var g *group
	for i := range r.applied {
		id := r.applied[i].ID
		shard := c.shardOf(id)
		shard.mu.Lock()
		q := shard.busy[id]
		switch {
		case q == nil:
			if g == nil {
				g = newGroup(r)
			}
			q = c.open(shard, id)
			g.held = append(g.held, hold{q, q.turn})
		case g == nil:
			c.wait(q, r)
			shard.mu.Unlock()
			return nil
		}
		shard.mu.Unlock()
	}
	return g
}

// stayApart has hits on several counters go by themselves for a while.
func (c *coalescer) stayApart() { c.apart.Store(int64(time.Since(c.epoch) + apartFor)) }

// goesApart reports whether the hit should go by itself.
func (c *coalescer) goesApart(r *request) bool {
	until := c.apart.Load()
	return until != 0 && r.onSeveral() && int64(time.Since(c.epoch)) < until
}

// open returns a queue for the counter. The shard is locked.
func (c *coalescer) open(shard *queueShard, id string) *queue {
	var q *queue
	if n := len(shard.spare); n > 0 {
		q = shard.spare[n-1]
		shard.spare = shard.spare[:n-1]
	} else {
		q = &queue{shard: shard}
	}
	q.id = id
	q.turn++
	if shard.busy == nil {
		shard.busy = map[string]*queue{}
	}
	shard.busy[id] = q
	return q
}

// wait puts the request in the queue. The shard is locked.
func (c *coalescer) wait(q *queue, r *request) {
	r.waited = true
	q.waiting = append(q.waiting, r)
	switch {
	case len(q.waiting) > 1:
	case q.timer == nil:
		q.timer = time.AfterFunc(c.maxWait, func() { c.releaseLate(q) })
	default:
		q.timer.Reset(c.maxWait)
	}
}

// releaseLate lets the hits go that have waited for maxWait.
func (c *coalescer) releaseLate(q *queue) {
	q.shard.mu.Lock()
	next := c.next(q)
	q.shard.mu.Unlock()
	c.pass(next)
}

// next returns the group of the hits that wait, which holds the queue from now on. Hits that go
// by themselves, or are beyond MaxHits, are not in it. The shard is locked. No hit waits
// afterwards.
func (c *coalescer) next(q *queue) *group {
	if len(q.waiting) == 0 {
		return nil
	}
	q.timer.Stop()
	q.turn++
	g := newGroup()
	g.held = append(g.held, hold{q, q.turn})
	others := g
	for _, r := range q.waiting {
		switch {
		case c.goesApart(r):
			c.pass(newGroup(r))
		case len(others.requests) < MaxHits:
			others.requests = append(others.requests, r)
		default:
			if others != g {
				c.pass(others)
			}
			others = newGroup(r)
		}
	}
	if others != g {
		c.pass(others)
	}
	clear(q.waiting)
	q.waiting = q.waiting[:0]
	return g
}

// pass has the caller of the group's first request lead it. A group without requests leaves
// its queues.
func (c *coalescer) pass(g *group) {
	switch {
	case g == nil:
	case len(g.requests) == 0:
		c.leave(g)
	default:
		leader := g.requests[0]
		leader.waited = false
		leader.turn <- g
	}
}

// leave gives the group's queues to the hits that wait. Hits that have waited for maxWait
// have gone already.
func (c *coalescer) leave(g *group) {
	for _, h := range g.held {
		c.pass(c.leaveQueue(h))
	}
	g.free()
}

// leaveQueue ends the group's hold of the queue, and returns the group that has it next.
func (c *coalescer) leaveQueue(h hold) *group {
	q, shard := h.queue, h.queue.shard
	shard.mu.Lock()
	defer shard.mu.Unlock()
	switch {
	case q.turn != h.turn:
	case len(q.waiting) > 0:
		return c.next(q)
	default:
		delete(shard.busy, q.id)
		q.id = ""
		q.turn++
		if len(shard.spare) < spareQueues {
			shard.spare = append(shard.spare, q)
		}
	}
	return nil
}
