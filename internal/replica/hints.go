package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/counterd/counterd/internal/store"
)

const (
	// replayInterval is how often the queue looks whether a server with hints is up.
	replayInterval = 50 * time.Millisecond
	// The queue waits between two replays to a server that acknowledged none, longer and
	// longer: what the server was too slow to acknowledge counts once more with each try.
	firstReplayWait = 100 * time.Millisecond
	lastReplayWait  = 2 * time.Second
	// A replay of a hint is a round trip of adds. replaysAtOnce bounds those under way.
	replaysAtOnce    = 64
	replaysPerSecond = 20_000
	// maxAsides bounds the functions in the background, of which each may hold a log.
	maxAsides = 256
)

// hintQueue keeps the adds that servers did not acknowledge, and replays them: hinted handoff.
type hintQueue struct {
	set  *Set
	most int
	ctx  context.Context
	stop context.CancelFunc

	mu        sync.Mutex
	pending   pendingHints
	early     credits        // for hints that may follow
	batch     []pendingWrite // under way
	replayed  Server         // that of the batch
	n         int            // hints, those included
	replaying bool
	asides    int // functions in the background
	closed    bool
	others    sync.WaitGroup
}

// hint is the adds of a round trip to one server. Hints with the same items are one hint.
type hint struct {
	adds []store.Write
	due  time.Time // until then the answer may come after all
}

// pendingHints are hints by server and counter, the oldest first.
type pendingHints map[Server]map[store.Hash][]hint

// put sets the hints of a counter on a server.
func (p pendingHints) put(server Server, h store.Hash, hints []hint) {
	if len(hints) == 0 {
		delete(p[server], h)
		return
	}
	if p[server] == nil {
		p[server] = map[store.Hash][]hint{}
	}
	p[server][h] = hints
}

func newHintQueue(set *Set, most int) *hintQueue {
	l := &hintQueue{set: set, most: most, pending: pendingHints{}}
	l.early = credits{life: 2 * set.timeout, most: most}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// follow has the copies that did not acknowledge all adds get the rest later, as much as stays
// of it.
func (l *hintQueue) follow(c Counter, op *store.Op) {
	op.Err = nil
	receipt := op.Receipt
	t := l.set.at(receipt.List)
	if t == nil { // too long ago: rather twice than not at all
		t, receipt = l.set.topology.Load(), store.Receipt{}
	}
	var list [MaxReplicas]Server
	for i, server := range t.of(c.Hash, &list) {
		if n := receipt.On(i); n < len(op.Writes) {
			l.add(server, c.Hash, op.Writes[n:])
		}
	}
}

// add queues a hint for replay. If there are too many, it drops the hint, and the server has missed something.
func (l *hintQueue) add(server Server, h store.Hash, adds []store.Write) {
	if !l.queue(server, h, adds) {
		server.Memory().Missed()
	}
}

// hasAny reports whether there are hints for the server.
func (l *hintQueue) hasAny(server Server) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending[server]) > 0 || len(l.batch) > 0 && l.replayed == server
}

// queue queues a hint, and reports whether there was room.
func (l *hintQueue) queue(server Server, h store.Hash, adds []store.Write) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed, !l.set.topology.Load().has(server):
		return true // the server is of no list any more
	}
	if server.Up() && server.Memory().Since() == 0 { // it has what it acknowledged
		if adds = l.early.use(time.Now(), server, h, adds); adds == nil {
			return true
		}
	}
	switch {
	case l.merge(server, h, adds):
		return true
	case l.n >= l.most:
		return false
	}
	l.n++
	adds = slices.Clone(adds)
	for i := range adds {
		adds[i].Kind = store.Add
	}
	l.pending.put(server, h, append(l.pending[server][h], hint{adds, nextDue(l.set.timeout)}))
	if !l.replaying {
		l.replaying = true
		l.others.Go(l.replay)
	}
	return true
}

// nextDue returns when a hint of now is replayed. A server that was too slow to be
// waited for has answered by then, and acknowledge has subtracted it.
func nextDue(timeout time.Duration) time.Time { return time.Now().Add(2 * timeout) }

// find returns the hint of the items of these adds; nil: there is none. That of this very
// second is the last one.
func find(hints []hint, adds []store.Write) *hint {
	for i := len(hints) - 1; i >= 0; i-- {
		if slices.EqualFunc(hints[i].adds, adds, func(a, b store.Write) bool { return a.Item == b.Item }) {
			return &hints[i]
		}
	}
	return nil
}

// merge adds to the hint with the same items, if there is one.
func (l *hintQueue) merge(server Server, h store.Hash, adds []store.Write) bool {
	d := find(l.pending[server][h], adds)
	if d == nil {
		return false
	}
	for i := range d.adds {
		d.adds[i].By += adds[i].By
		d.adds[i].Expires = max(d.adds[i].Expires, adds[i].Expires)
	}
	d.due = nextDue(l.set.timeout)
	return true
}

// acknowledge subtracts from a hint what the server acknowledged late. If there is no hint yet,
// it subtracts that from the one that follows.
func (l *hintQueue) acknowledge(server Server, h store.Hash, adds []store.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hints := l.pending[server][h]
	d := find(hints, adds)
	if d == nil {
		l.early.keep(time.Now(), server, h, adds)
		return
	}
	for i := range d.adds {
		d.adds[i].By -= adds[i].By
	}
	if d.adds[0].By <= 0 { // the adds of a hint are equal
		l.pending.put(server, h, slices.DeleteFunc(hints, func(d hint) bool { return d.adds[0].By <= 0 }))
		l.n--
	}
}

// drop drops hints of items of the counter, which are deleted. One that is just
// being made up for is not tried again.
func (l *hintQueue) drop(h store.Hash, deletes []store.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deleted := func(d hint) bool {
		return slices.ContainsFunc(d.adds, func(add store.Write) bool {
			return slices.ContainsFunc(deletes, func(w store.Write) bool { return w.Item == add.Item })
		})
	}
	l.early.drop(h)
	for server, hints := range l.pending {
		before := len(hints[h])
		l.pending.put(server, h, slices.DeleteFunc(hints[h], deleted))
		l.n -= before - len(hints[h])
	}
	for i := range l.batch {
		if p := &l.batch[i]; p.hash == h && deleted(p.hint) {
			p.dropped = true
		}
	}
}

// dropServer drops the hints of a server.
func (l *hintQueue) dropServer(server Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, hints := range l.pending[server] {
		l.n -= len(hints)
	}
	delete(l.pending, server)
}

func (l *hintQueue) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.others.Wait()
}

// background runs do beside the replay of hints, unless too many run.
func (l *hintQueue) background(do func(context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.asides == maxAsides {
		return
	}
	l.asides++
	l.others.Go(func() {
		do(l.ctx)
		l.mu.Lock()
		l.asides--
		l.mu.Unlock()
	})
}

// replay replays hints until there are none.
func (l *hintQueue) replay() {
	pace := rate.NewLimiter(replaysPerSecond, replaysAtOnce)
	ticker := time.NewTicker(replayInterval)
	defer ticker.Stop()
	later := map[Server]retry{}
	for {
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
		for _, server := range l.replayable() {
			again := later[server]
			if time.Now().Before(again.at) {
				continue
			}
			if l.replayAll(server, pace) {
				delete(later, server)
			} else {
				later[server] = again.next(time.Now())
			}
		}
		if l.done() {
			return
		}
	}
}

// retry is when a server is tried again.
type retry struct {
	wait time.Duration
	at   time.Time
}

func (r retry) next(now time.Time) retry {
	wait := min(max(2*r.wait, firstReplayWait), lastReplayWait)
	return retry{wait, now.Add(wait)}
}

// replayable returns the servers with hints that are up.
func (l *hintQueue) replayable() []Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	var servers []Server
	for _, m := range l.set.topology.Load().members {
		if len(l.pending[m.Server]) > 0 && m.Up() {
			servers = append(servers, m.Server)
		}
	}
	return servers
}

// done reports whether no hint is left, and the replay ends.
func (l *hintQueue) done() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for server, hints := range l.pending {
		if len(hints) == 0 {
			delete(l.pending, server)
		}
	}
	l.replaying = l.n > 0
	return !l.replaying
}

// replayAll replays the hints of a server. It reports whether the server acknowledged all.
func (l *hintQueue) replayAll(server Server, pace *rate.Limiter) bool {
	for {
		batch := l.take(server)
		if len(batch) == 0 {
			return true
		}
		if !l.replayBatch(server, batch, pace) {
			return false
		}
	}
}

func (l *hintQueue) replayBatch(server Server, batch []pendingWrite, pace *rate.Limiter) (all bool) {
	if pace.WaitN(l.ctx, len(batch)) != nil {
		return false // the set is closed
	}
	ended := make(chan int, len(batch))
	deadline := time.Now().Add(l.set.timeout)
	exchanges, ops := make([]Exchange, len(batch)), make([]store.Op, len(batch))
	for i, p := range batch {
		ops[i].Writes = slices.Clone(p.adds)
		exchanges[i] = server.Start(l.ctx, deadline, Counter{Hash: p.hash}, &ops[i], i, ended, l.set)
	}
	landed := make([]int, len(batch))
	for range batch {
		i := <-ended
		exchanges[i].End(&ops[i])
		landed[i] = ops[i].Receipt.On(0)
		// One item that holds no count must not delay the hints of others. The trip that
		// found it has listed the counter as differing.
		if err := ops[i].Err; err == nil || errors.Is(err, store.ErrNoCount) {
			landed[i] = len(ops[i].Writes)
		}
	}
	return l.settle(server, landed)
}

// pendingWrite is a hint that is being replayed.
type pendingWrite struct {
	hash store.Hash
	hint
	dropped bool
}

// take takes some hints for replay, and drops the ones whose items have expired. The queue
// counts them until they are settled.
func (l *hintQueue) take(server Server) []pendingWrite {
	now, second := time.Now(), l.set.now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batch, l.replayed = l.batch[:0], server
	for h, hints := range l.pending[server] {
		for len(hints) > 0 && len(l.batch) < replaysAtOnce && !hints[0].due.After(now) {
			d := hints[0]
			hints = hints[1:]
			if slices.ContainsFunc(d.adds, func(add store.Write) bool { return add.Expires > second }) {
				l.batch = append(l.batch, pendingWrite{hash: h, hint: d})
			} else {
				l.n--
			}
		}
		l.pending.put(server, h, hints)
		if len(l.batch) == replaysAtOnce {
			break
		}
	}
	return slices.Clone(l.batch)
}

// settle drops what servers acknowledged of the batch: so many adds of each hint. The
// rest is queued again, ahead of what has come since. It reports
// whether there was no such thing.
func (l *hintQueue) settle(server Server, landed []int) (all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = true
	known := l.set.topology.Load().has(server)
	for i, p := range slices.Backward(l.batch) {
		if p.adds = p.adds[landed[i]:]; len(p.adds) > 0 {
			all = false
			p.adds = l.early.use(time.Now(), server, p.hash, p.adds)
		}
		if len(p.adds) == 0 {
			l.n--
			continue
		}
		if p.dropped || !known || l.merge(server, p.hash, p.adds) {
			l.n--
			continue
		}
		l.pending.put(server, p.hash, slices.Insert(l.pending[server][p.hash], 0, p.hint))
	}
	clear(l.batch)
	l.batch = l.batch[:0]
	return all
}
