// Package coalesce has requests that arrive on one key, while others on it are being handled,
// wait in its queue and then go together. No request waits for others to arrive. So the busier a
// key is, the more requests share the work of one.
//
// A request waits in the queue of one of its keys only. While its group is being handled, another
// group may handle requests on the others: nothing but speed may depend on the queues.
package coalesce

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	queueShards = 64
	spareQueues = 64 // for each shard
	// apartFor is how long requests on several keys go by themselves after StayApart.
	apartFor = time.Second
)

// Request is what is coalesced: a pointer to a struct that embeds a Waiter.
type Request[R any] interface{ waiter() *Waiter[R] }

// Waiter is a request's place in the queues. The zero value is ready for use, and for use again
// once the request is done.
type Waiter[R any] struct {
	Keys []string // of the request; they stay while it is with the coalescer

	turn  chan *Group[R] // made when it first waits
	waits bool           // its caller waits for turn
}

func (w *Waiter[R]) waiter() *Waiter[R] { return w }

// Turn waits, after an Enter that returned nil, until the request is done, and returns nil; or
// until it is the caller's to lead the group that it returns.
func (w *Waiter[R]) Turn() *Group[R] { return <-w.turn }

// Done ends the wait of the request's caller, if it waits. The request is its caller's from then
// on.
func (w *Waiter[R]) Done() { w.give(nil) }

func (w *Waiter[R]) give(g *Group[R]) {
	if w.waits {
		w.waits = false
		w.turn <- g
	}
}

// onSeveral reports whether the request is on several keys.
func (w *Waiter[R]) onSeveral() bool {
	return slices.ContainsFunc(w.Keys, func(key string) bool { return key != w.Keys[0] })
}

// Group is requests that are handled together, and the queues that it holds meanwhile. Its leader,
// the caller of one of them, has it alone, until it calls Pass or Leave.
type Group[R any] struct {
	Requests []R
	// Try and Began are for the leaders: how often the group was tried, and since when.
	Try   int
	Began time.Time

	held []hold[R]
}

type hold[R any] struct {
	queue *queue[R]
	turn  uint64
}

// Coalescer has the queues of the keys on which requests are being handled. It is safe for
// concurrent use.
type Coalescer[R Request[R]] struct {
	maxWait time.Duration
	most    int
	seed    maphash.Seed
	shards  [queueShards]queueShard[R]
	groups  *sync.Pool // no part of the coalescer, which the runtime would hold on to with it
	epoch   time.Time
	apart   atomic.Int64 // until when requests on several keys go by themselves, since the epoch
}

type queueShard[R any] struct {
	mu    sync.Mutex
	busy  map[string]*queue[R] // by the key
	spare []*queue[R]
}

// queue is a key on which requests are being handled, and the requests that wait meanwhile.
type queue[R any] struct {
	shard   *queueShard[R]
	key     string
	turn    uint64 // of the group that holds the queue; it grows with each
	waiting []R
	timer   *time.Timer // runs while there are any
}

// New returns a Coalescer. A request waits in a queue for at most maxWait: the group ahead may be
// held up. A group that waited has at most that many requests, 1 or more.
func New[R Request[R]](maxWait time.Duration, most int) *Coalescer[R] {
	return &Coalescer[R]{maxWait: maxWait, most: most, seed: maphash.MakeSeed(), epoch: time.Now(), groups: new(sync.Pool)}
}

// NewGroup returns a group that holds no queues.
func (c *Coalescer[R]) NewGroup(requests ...R) *Group[R] {
	g, _ := c.groups.Get().(*Group[R])
	if g == nil {
		g = new(Group[R])
	}
	g.Requests = append(g.Requests, requests...)
	return g
}

func (c *Coalescer[R]) free(g *Group[R]) {
	clear(g.Requests)
	clear(g.held)
	*g = Group[R]{Requests: g.Requests[:0], held: g.held[:0]}
	c.groups.Put(g)
}

func (c *Coalescer[R]) shardOf(key string) *queueShard[R] {
	return &c.shards[maphash.String(c.seed, key)%queueShards]
}

// Busy returns the number of keys on which requests are being handled.
func (c *Coalescer[R]) Busy() (keys int) {
	for i := range c.shards {
		shard := &c.shards[i]
		shard.mu.Lock()
		keys += len(shard.busy)
		shard.mu.Unlock()
	}
	return keys
}

// Enter returns the group of the request alone, which holds the queues of its keys; or nil, if
// requests on one of them are being handled: then it waits for its turn with others.
func (c *Coalescer[R]) Enter(r R) *Group[R] {
	if c.goesApart(r) {
		return c.NewGroup(r)
	}
	keys := r.waiter().Keys
	if len(keys) > 1 {
		for _, key := range keys {
			shard := c.shardOf(key)
			shard.mu.Lock()
			if q := shard.busy[key]; q != nil {
				c.wait(q, r)
				shard.mu.Unlock()
				return nil
			}
			shard.mu.Unlock()
		}
	}
	var g *Group[R]
	for _, key := range keys {
		shard := c.shardOf(key)
		shard.mu.Lock()
		q := shard.busy[key]
		switch {
		case q == nil:
			if g == nil {
				g = c.NewGroup(r)
			}
			q = c.open(shard, key)
			g.held = append(g.held, hold[R]{q, q.turn})
		case g == nil:
			c.wait(q, r)
			shard.mu.Unlock()
			return nil
		}
		shard.mu.Unlock()
	}
	return g
}

// StayApart has requests on several keys go by themselves for a second. It is for when what one
// key needs has failed: a group waits for all of its keys, and would hold up requests that do not
// need that one.
func (c *Coalescer[R]) StayApart() { c.apart.Store(int64(time.Since(c.epoch) + apartFor)) }

// goesApart reports whether the request should go by itself.
func (c *Coalescer[R]) goesApart(r R) bool {
	until := c.apart.Load()
	return until != 0 && r.waiter().onSeveral() && int64(time.Since(c.epoch)) < until
}

// open returns a queue for the key. The shard is locked.
func (c *Coalescer[R]) open(shard *queueShard[R], key string) *queue[R] {
	var q *queue[R]
	if n := len(shard.spare); n > 0 {
		q = shard.spare[n-1]
		shard.spare = shard.spare[:n-1]
	} else {
		q = &queue[R]{shard: shard}
	}
	q.key = key
	q.turn++
	if shard.busy == nil {
		shard.busy = map[string]*queue[R]{}
	}
	shard.busy[key] = q
	return q
}

// wait puts the request in the queue. The shard is locked.
func (c *Coalescer[R]) wait(q *queue[R], r R) {
	w := r.waiter()
	if w.turn == nil {
		w.turn = make(chan *Group[R], 1)
	}
	w.waits = true
	q.waiting = append(q.waiting, r)
	switch {
	case len(q.waiting) > 1:
	case q.timer == nil:
		q.timer = time.AfterFunc(c.maxWait, func() { c.releaseLate(q) })
	default:
		q.timer.Reset(c.maxWait)
	}
}

// releaseLate lets the requests go that have waited for maxWait.
func (c *Coalescer[R]) releaseLate(q *queue[R]) {
	q.shard.mu.Lock()
	next := c.next(q)
	q.shard.mu.Unlock()
	c.Pass(next)
}

// next returns the group of the requests that wait, which holds the queue from now on. Requests
// that go by themselves, or are beyond the most, are not in it. The shard is locked. No request
// waits afterwards.
func (c *Coalescer[R]) next(q *queue[R]) *Group[R] {
	if len(q.waiting) == 0 {
		return nil
	}
	q.timer.Stop()
	q.turn++
	g := c.NewGroup()
	g.held = append(g.held, hold[R]{q, q.turn})
	others := g
	for _, r := range q.waiting {
		switch {
		case c.goesApart(r):
			c.Pass(c.NewGroup(r))
		case len(others.Requests) < c.most:
			others.Requests = append(others.Requests, r)
		default:
			if others != g {
				c.Pass(others)
			}
			others = c.NewGroup(r)
		}
	}
	if others != g {
		c.Pass(others)
	}
	clear(q.waiting)
	q.waiting = q.waiting[:0]
	return g
}

// Pass has the caller of the group's first request lead it. A group without requests leaves
// its queues.
func (c *Coalescer[R]) Pass(g *Group[R]) {
	switch {
	case g == nil:
	case len(g.Requests) == 0:
		c.Leave(g)
	default:
		g.Requests[0].waiter().give(g)
	}
}

// Leave gives the group's queues to the requests that wait, and frees the group. Requests that
// have waited for maxWait have gone already.
func (c *Coalescer[R]) Leave(g *Group[R]) {
	for _, h := range g.held {
		c.Pass(c.leaveQueue(h))
	}
	c.free(g)
}

// leaveQueue ends the group's hold of the queue, and returns the group that has it next.
func (c *Coalescer[R]) leaveQueue(h hold[R]) *Group[R] {
	q, shard := h.queue, h.queue.shard
	shard.mu.Lock()
	defer shard.mu.Unlock()
	switch {
	case q.turn != h.turn:
	case len(q.waiting) > 0:
		return c.next(q)
	default:
		delete(shard.busy, q.key)
		q.key = ""
		q.turn++
		if len(shard.spare) < spareQueues {
			shard.spare = append(shard.spare, q)
		}
	}
	return nil
}
