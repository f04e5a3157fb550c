package limiter

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/limiter/engine"
)

// errAbandoned is the error of hits whose leader panicked.
var errAbandoned = fmt.Errorf("%w: the decision was broken off by a panic", engine.ErrStore)

const (
	queueShards = 64
	spareQueues = 64 // of each shard
	// apartFor is how long hits on several counters go alone after stayApart.
	apartFor = time.Second
)

// queues lets hits that arrive on a counter, while others on it are being decided, wait and then go together. No hit
// waits for others to arrive: the busier a counter is, the more hits share a round trip.
//
// A hit waits in the queue of one counter only. Nothing but speed depends on the queues, because hits of other processes
// are under way anyway.
type queues struct {
	maxWait time.Duration
	seed    maphash.Seed
	shards  [queueShards]queueShard
	began   time.Time
	apart   atomic.Int64 // until when hits on several counters go alone, since began
}

type queueShard struct {
	mu    sync.Mutex
	busy  map[string]*queue // by counter
	spare []*queue
}

// A queue is a counter on which hits are being decided, and the hits that wait. The mutex of its shard protects it.
type queue struct {
	shard   *queueShard
	counter string
	leader  *request // of the group that holds the queue
	waiting []*request
	timer   *time.Timer // runs while hits wait
}

// A waiter is the place of a request in the queues. The leader of a group decides it, and holds queues until it is done.
type waiter struct {
	group []*request // that the request leads; those that are done are nil
	open  []*request // the group as decide uses it
	holds []*queue
	turn  chan bool // true: the request leads its group; false: it is decided
	leads *request  // the leader of the group that the request waits in, or nil
	place int       // in that group
}

func (q *queues) init(maxWait time.Duration) {
	q.maxWait, q.seed, q.began = maxWait, maphash.MakeSeed(), time.Now()
	for i := range q.shards {
		q.shards[i].busy = map[string]*queue{}
	}
}

func (q *queues) shard(counter string) *queueShard {
	return &q.shards[maphash.String(q.seed, counter)%queueShards]
}

// do decides the request by decide, or waits until another caller has done so.
func (q *queues) do(r *request, decide func([]*request)) {
	if q.goesApart(r) || q.enter(r) {
		r.group = append(r.group[:0], r)
	} else if leads := <-r.turn; !leads {
		return
	}
	defer q.leave(r)
	r.open = append(r.open[:0], r.group...)
	decide(r.open)
}

// done ends the wait of the request's caller. The request is its caller's again.
func (r *request) done() {
	if leader := r.leads; leader != nil {
		leader.group[r.place], r.leads = nil, nil
		r.turn <- false
	}
}

// isCoalesced reports whether the request is in a group with others.
func (r *request) isCoalesced() bool { return r.leads != nil || len(r.group) > 1 }

// leaderContext returns the context of the request's leader.
func (r *request) leaderContext() context.Context {
	if r.leads != nil {
		return r.leads.ctx
	}
	return r.ctx
}

// stayApart makes hits on several counters go alone for a second. It is called if a counter has failed: a group waits
// for all of its counters, and would delay hits that do not need the failed one.
func (q *queues) stayApart() { q.apart.Store(int64(time.Since(q.began) + apartFor)) }

// goesApart reports whether the request goes alone.
func (q *queues) goesApart(r *request) bool {
	until := q.apart.Load()
	return until != 0 && len(r.applied) > 1 && int64(time.Since(q.began)) < until
}

// enter reports whether the request leads a group at once, and then holds the queues of its counters. Otherwise it
// waits.
func (q *queues) enter(r *request) bool {
	if len(r.applied) > 1 {
		for i := range r.applied {
			if q.waitIfBusy(r, r.applied[i].ID) {
				return false
			}
		}
	}
	for i := range r.applied {
		if !q.hold(r, r.applied[i].ID) {
			return false
		}
	}
	return true
}

// waitIfBusy makes the request wait if hits on the counter are being decided, and reports whether it does.
func (q *queues) waitIfBusy(r *request, counter string) bool {
	shard := q.shard(counter)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	busy := shard.busy[counter]
	if busy != nil {
		q.wait(busy, r)
	}
	return busy != nil
}

// hold makes the request hold the queue of the counter. If another request has it, the request waits and hold returns
// false, unless it holds a queue already: then it goes without this one.
func (q *queues) hold(r *request, counter string) bool {
	shard := q.shard(counter)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if busy := shard.busy[counter]; busy != nil {
		if len(r.holds) > 0 {
			return true
		}
		q.wait(busy, r)
		return false
	}
	var held *queue
	if n := len(shard.spare); n > 0 {
		held, shard.spare = shard.spare[n-1], shard.spare[:n-1]
	} else {
		held = &queue{shard: shard}
	}
	held.counter, held.leader = counter, r
	shard.busy[counter] = held
	r.holds = append(r.holds, held)
	return true
}

// wait puts the request in the queue, whose shard is locked.
func (q *queues) wait(busy *queue, r *request) {
	if r.turn == nil {
		r.turn = make(chan bool, 1)
	}
	busy.waiting = append(busy.waiting, r)
	switch {
	case len(busy.waiting) > 1:
	case busy.timer == nil:
		busy.timer = time.AfterFunc(q.maxWait, func() { q.hurry(busy) })
	default:
		busy.timer.Reset(q.maxWait)
	}
}

// hurry lets the hits of a queue go that have waited for maxWait: another counter may delay the leader.
func (q *queues) hurry(held *queue) {
	held.shard.mu.Lock()
	defer held.shard.mu.Unlock()
	q.pass(held)
}

// pass lets the hits go that wait in a queue, whose shard is locked. The leader of their first group holds the queue,
// unless all go alone. It reports whether there is such a leader.
func (q *queues) pass(held *queue) bool {
	if len(held.waiting) == 0 {
		return false
	}
	held.timer.Stop()
	together := held.waiting[:0]
	var apart []*request
	for _, r := range held.waiting {
		if q.goesApart(r) {
			apart = append(apart, r)
		} else {
			together = append(together, r)
		}
	}
	passed := len(together) > 0
	if passed {
		held.leader = together[0]
		held.leader.holds = append(held.leader.holds, held)
	}
	for group := range slices.Chunk(together, MaxHits) {
		lead(group)
	}
	for i := range apart {
		lead(apart[i : i+1])
	}
	clear(held.waiting)
	held.waiting = held.waiting[:0]
	return passed
}

// lead makes the first request the leader of the group.
func lead(group []*request) {
	leader := group[0]
	leader.group = append(leader.group[:0], group...)
	for i, r := range group[1:] {
		r.leads, r.place = leader, i+1
	}
	leader.turn <- true
}

// leave passes on the queues that the leader still holds. Hits of its group that are not done were abandoned.
func (q *queues) leave(leader *request) {
	for _, r := range leader.group[1:] {
		if r != nil {
			r.result = Result{Err: errAbandoned}
			r.done()
		}
	}
	for _, held := range leader.holds {
		q.release(held, leader)
	}
	clear(leader.holds)
	clear(leader.group)
	clear(leader.open)
	leader.holds, leader.group = leader.holds[:0], leader.group[:0]
}

// release ends the leader's hold of a queue, unless another one has it by now.
func (q *queues) release(held *queue, leader *request) {
	shard := held.shard
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if held.leader != leader || q.pass(held) {
		return
	}
	delete(shard.busy, held.counter)
	held.counter, held.leader = "", nil
	if len(shard.spare) < spareQueues {
		shard.spare = append(shard.spare, held)
	}
}
