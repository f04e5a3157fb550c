package hierarchy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
)

// In a simulation with replicas each process has its own replica.Set over a few
// servers. Every command to every server waits for the scheduler. Servers go down and come
// back, some of them empty; processes are cut off from a server, or take it for down late
// or without need; commands and answers are lost; processes crash and their hints are lost
// with them.
//
// It is one of two kinds. In the first one server is reached by every hit throughout. In
// the second it dies, or comes back empty, when the others, which had missed things, are
// well again and have the replayed hints.
//
// Repairs (raising buckets, with Look and Raise) are not in it yet.

var (
	errGivenUp  = errors.New("the caller has left")
	errNotThere = errors.New("the simulation does not raise buckets")
)

// simServer is one server.
type simServer struct {
	name string
	storetest.Items
}

// simReplicas are the servers of a simulation, and what befalls them.
type simReplicas struct {
	s         *simulation
	rng       *rand.Rand
	replicas  int
	servers   []*simServer
	nodes     []*simNode
	place     *replica.Set // where counters are at the beginning
	faults    float64      // share of commands that go wrong, but to the one that all reach
	weather   float64      // share of steps in which something befalls a server
	wipes     bool         // servers come back empty
	maxHints  int
	noneSafe  bool // no server is reached by all: all windows are judged
	processes int  // at the least
	spare     int  // servers more than copies

	handover      bool
	handPhase     int
	handLeft      int // hits left to begin in that phase
	handed        bool
	withoutReplay bool                              // it dies before the hints are replayed
	atOnce        bool                              // it dies when they are, under hits that began before
	atHandover    func()                            // befalls them before the hints are replayed
	begin         func()                            // at the beginning
	wrapStore     func(replicatedStore) store.Store // breaks it
	wrapServer    func(*simLink) replica.Server

	mu     sync.Mutex
	safe   *simServer       // that all reach; nil: there is none, and all windows are judged
	gone   *simServer       // it, once it is dead
	calm   bool             // nothing befalls the others any more
	live   []*simExchange   // the ones that have to be answered
	lost   map[simTrip]bool // trips that such a one has not answered
	missed bool             // one of these was made all the same: nothing is promised
	left   atomic.Bool      // some caller left before a server had answered
}

// simNode is the servers as one process has them.
type simNode struct {
	links    []*simLink
	set      *replica.Set
	store    store.Store
	replayer *operation // replays hints
}

// How a link is.
const (
	sound    = iota
	refusing // each command fails
	holding  // what is sent arrives when it is sound again
)

// simLink is a server as one process has it.
type simLink struct {
	c         *simReplicas
	node      *simNode
	server    *simServer
	place     int
	state     int         // the scheduler's
	suspected atomic.Bool // the process takes it for down
	memory    replica.Memory

	mu    sync.Mutex
	trips map[simCalls]int
	first map[int]*float64 // priorities of operations
}

type simTrip struct {
	operation int
	counter   store.Hash
}

// simCalls are those of one kind that an operation makes to one counter.
type simCalls struct {
	operation int
	kind      string
}

func newSimReplicas(s *simulation, seed uint64, processes *int, broken func(*simReplicas)) *simReplicas {
	c := &simReplicas{s: s, rng: rand.New(rand.NewPCG(seed, 2)), wipes: true, lost: map[simTrip]bool{}}
	rng := c.rng
	c.replicas = testkit.Pick(rng, 1, 2, 2, 2, 3)
	servers := max(c.replicas, testkit.Pick(rng, 1, 2, 2, 3, 4))
	c.faults = testkit.Pick(rng, 0, 0.02, 0.1, 0.3)
	c.weather = testkit.Pick(rng, 0.02, 0.05, 0.1)
	if s.store.strict = rng.IntN(4) > 0; s.narrow {
		c.faults = testkit.Pick(rng, 0, 0.02)
	}
	for i := range servers {
		c.servers = append(c.servers, &simServer{fmt.Sprint(seed, i), s.newItems()})
	}
	c.handPhase, c.handLeft = rng.IntN(len(s.phases)), 1+rng.IntN(3)
	c.handover = c.replicas > 1 && rng.IntN(2) == 0
	if broken(c); c.handover {
		c.replicas, c.wipes, s.crashes = max(c.replicas, 2), false, 0
	}
	*processes = max(*processes, c.processes)
	c.settle()
	for i := range *processes {
		c.nodes = append(c.nodes, c.newNode(i))
	}
	if c.begin != nil {
		c.begin()
	}
	return c
}

// settle chooses the server that all reach: one that has a counter of the event.
func (c *simReplicas) settle() {
	for len(c.servers) < c.replicas+c.spare {
		c.servers = append(c.servers, &simServer{fmt.Sprint(c.rng.Uint64()), c.s.newItems()})
	}
	c.place = replica.New(replica.Config{Hash: hashOf, Replicas: c.replicas})
	list := make([]replica.Server, len(c.servers))
	for i, server := range c.servers {
		list[i] = &simLink{server: server}
	}
	c.place.Use(list)
	counters, err := c.s.event.Counters(events.Features{"ip": "192.0.2.1", "user": "a"})
	if err != nil {
		panic(err) // the simulation's own mistake
	}
	of := c.place.Of(hashOf(counters[c.rng.IntN(len(counters))].ID()))
	if c.safe = of[c.rng.IntN(len(of))].(*simLink).server; c.noneSafe {
		c.safe = nil
	}
}

func (c *simReplicas) newNode(process int) *simNode {
	n := &simNode{replayer: &operation{id: 1<<20 + 3000 + process, process: process}}
	n.replayer.priority = 0.5
	skewed := func() time.Time {
		if process >= len(c.s.processes) {
			return c.s.now() // it has not begun
		}
		return c.s.now().Add(time.Duration(c.s.processes[process].skew.Load()))
	}
	n.set = replica.New(replica.Config{Hash: hashOf, Replicas: c.replicas, Timeout: c.s.grace / 2, MaxHints: c.maxHints, Clock: skewed})
	for i, server := range c.servers {
		n.links = append(n.links, &simLink{c: c, node: n, server: server, place: i, trips: map[simCalls]int{}, first: map[int]*float64{}})
	}
	n.use(n.links)
	store := replicatedStore{c, n.set}
	switch {
	case c.wrapStore != nil:
		n.store = c.wrapStore(store)
	case c.rng.IntN(2) == 0:
		n.store = &storetest.Watched{Store: store} // each op by itself
	default:
		n.store = store
	}
	return n
}

// use has the process use these servers.
func (n *simNode) use(links []*simLink) {
	list := make([]replica.Server, len(links))
	for i, link := range links {
		if list[i] = link; link.c.wrapServer != nil {
			list[i] = link.c.wrapServer(link)
		}
	}
	n.set.Use(list)
}

// promises reports whether the windows of a counter have to be within their limits: all of
// its hits have reached the server that they had to reach, and it is one of the counter's.
func (c *simReplicas) promises(counter string) bool {
	if c.missed {
		return false
	}
	return c.safe == nil || slices.ContainsFunc(c.place.Of(hashOf(counter)), func(s replica.Server) bool {
		return s.(*simLink).server == c.safe
	})
}

// faultsAt returns the share of commands to the server that go wrong.
func (c *simReplicas) faultsAt(l *simLink) float64 {
	if c.calm && l.server != c.gone || l.server == c.safe {
		return 0
	}
	return c.faults
}

// turn has something befall a server that not all have to reach.
func (c *simReplicas) turn() {
	var able []*simLink
	for _, n := range c.nodes {
		for _, link := range n.links {
			if !c.calm && link.server != c.safe {
				able = append(able, link)
			}
		}
	}
	if len(able) == 0 {
		return
	}
	link := able[c.rng.IntN(len(able))]
	switch state := testkit.Pick(c.rng, refusing, holding); c.rng.IntN(7) {
	case 0: // it goes down
		c.setAll(link.server, state)
	case 1, 2: // the process is cut off
		link.state = state
	case 3:
		c.setAll(link.server, sound)
	case 4:
		link.state = sound
	case 5: // the process comes to see how it is
		link.suspected.Store(link.state != sound)
	case 6:
		if c.wipes {
			clear(link.server.Of)
			c.setAll(link.server, sound)
		}
	}
}

func (c *simReplicas) setAll(server *simServer, state int) {
	for _, n := range c.nodes {
		for _, link := range n.links {
			if link.server == server {
				link.state = state
			}
		}
	}
}

// advance has the server that all reached go when it is time.
func (c *simReplicas) advance(phase, left int) {
	if !c.handover || c.handed || phase != c.handPhase || left > c.handLeft {
		return
	}
	c.handed = true
	c.mu.Lock()
	c.calm = true
	c.mu.Unlock()
	for _, n := range c.nodes {
		for _, link := range n.links {
			link.state = sound
			link.suspected.Store(false)
		}
	}
	if c.atHandover != nil {
		c.atHandover()
	}
	if !c.withoutReplay && !c.settleHints() || !c.atOnce && !c.withoutReplay && !c.settleHints() {
		c.missed = true
	}
	c.mu.Lock()
	c.gone = c.safe
	c.mu.Unlock()
	switch c.rng.IntN(4) {
	case 0:
		clear(c.gone.Of) // and it goes on
		return
	case 1:
		c.setAll(c.gone, holding)
	default:
		c.setAll(c.gone, refusing)
	}
	for _, n := range c.nodes {
		for _, link := range n.links {
			link.suspected.Store(link.server == c.gone && c.rng.IntN(2) == 0)
		}
	}
}

// settleHints goes on until all operations under way have ended, and no hint is pending.
// Some more hits begin meanwhile. When the second round is over all operations have ended
// that began while hints were pending.
func (c *simReplicas) settleHints() bool {
	s := c.s
	old, more := slices.Clone(s.operation), c.rng.IntN(4)
	for range 5000 {
		synctest.Wait()
		s.step.Add(1)
		if c.hintsAreReplayed() && !slices.ContainsFunc(old, func(op *operation) bool {
			return op.ended == 0 && !s.processes[op.process].crashed
		}) {
			return true
		}
		waiting := s.waiting()
		switch {
		case more > 0 && c.rng.IntN(20) == 0:
			more--
			s.start()
		case len(waiting) > 0 && c.rng.IntN(10) > 0:
			s.serve(waiting)
		default:
			s.pass(20 * time.Millisecond)
		}
	}
	return false
}

func (c *simReplicas) hintsAreReplayed() bool {
	for i, n := range c.nodes {
		if owed, _ := n.set.PendingHints(); owed > 0 && !c.s.processes[i].crashed {
			return false
		}
	}
	return true
}

// pass lets time pass. Where a hit would time out at a server that all have to reach, that
// server goes on first. Most of a long time passes on the clocks alone.
func (c *simReplicas) pass(d time.Duration) {
	most := 2 * c.s.grace
	if d > most {
		defer c.s.offset.Add(int64(d - most))
		d = most
	}
	for end := time.Now().Add(d); ; {
		synctest.Wait()
		now := time.Now()
		if !now.Before(end) {
			return
		}
		until := end
		urgent := c.urgent()
		if urgent != nil && urgent.limit.Before(until) {
			until = urgent.limit
		}
		if wait := until.Sub(now); wait > 0 {
			time.Sleep(min(wait, c.s.grace/64)) // pausing operations may go on meanwhile
			continue
		}
		c.s.serve(slices.DeleteFunc(c.s.waiting(), func(other *command) bool { return other.of != urgent }))
	}
}

// urgent returns the exchange that has to be answered soonest.
func (c *simReplicas) urgent() (urgent *simExchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.live {
		switch {
		case x.link.server == c.gone || c.s.processes[x.op.process].crashed:
		case urgent == nil || cmp.Or(x.limit.Compare(urgent.limit), cmp.Compare(x.op.id, urgent.op.id), strings.Compare(x.part, urgent.part)) < 0:
			urgent = x
		}
	}
	return urgent
}

// lateMost bounds the waiting commands whose callers have left.
const lateMost = 100

// refuse answers for servers that refuse; and where there are very many commands it drops
// the ones whose callers have left.
func (c *simReplicas) refuse() {
	for w := c.refused(); w != nil; w = c.refused() {
		w.answer <- answer{err: errLost}
		synctest.Wait() // one after the other: what comes of it follows from the seed
	}
}

// refused takes the first of those commands out of the list.
func (c *simReplicas) refused() *command {
	store := c.s.store
	store.mu.Lock()
	defer store.mu.Unlock()
	crowded := len(store.waiting) > lateMost
	var first *command
	for _, w := range store.waiting {
		if (w.at.state == refusing || crowded && w.of.isOver()) && (first == nil || w.compare(first) < 0) {
			first = w
		}
	}
	store.waiting = slices.DeleteFunc(store.waiting, func(w *command) bool { return w == first })
	return first
}

// close ends what processes do in the background.
func (c *simReplicas) close() {
	for _, n := range c.nodes {
		c.s.running.Add(1)
		go func() {
			defer c.s.running.Add(-1)
			n.set.Close()
		}()
	}
}

// hashOf returns the hash of a counter's name.
func hashOf(counter string) (h store.Hash) {
	sum := sha256.Sum256([]byte(counter))
	copy(h[:], sum[:])
	return h
}

// replicatedStore is the store of a process whose counters have copies.
type replicatedStore struct {
	c   *simReplicas
	set *replica.Set
}

func (c replicatedStore) Do(ctx context.Context, ops ...*store.Op) {
	var others []*store.Op
	var waits []func()
	for _, op := range ops {
		if storetest.IsTrip(op) {
			waits = append(waits, c.start(ctx, op))
		} else {
			others = append(others, op)
		}
	}
	if len(others) > 0 {
		c.set.Do(ctx, others...)
	}
	for _, wait := range waits {
		wait()
	}
}

func (c replicatedStore) start(ctx context.Context, op *store.Op) (wait func()) {
	now := time.Now()
	deadline, bounded := ctx.Deadline()
	if !bounded {
		deadline = now.Add(c.c.s.grace / 2)
	}
	by := ctx.Value(operationKey{}).(*operation)
	end := c.set.Start(ctx, now.Add(-tie(by, hashOf(op.Counter), op.Reads)), deadline, named(op.Counter), op)
	return func() {
		end()
		c.c.returned(by, hashOf(op.Counter), op.Err)
	}
}

func (c replicatedStore) Capabilities() store.Capabilities {
	return store.Capabilities{Replicas: c.c.replicas}
}

// tie is so short a time that no two trips time out at once: the result would not follow
// from the seed.
func tie(op *operation, counter store.Hash, reads []store.Read) time.Duration {
	return time.Duration(uint64(op.id%4096)<<12 + uint64(counter[0])<<4 + firstRead(reads)%16)
}

// firstRead returns the first of the items that are read, which tells apart the trips of a reset that are
// under way together; 0: there is none.
func firstRead(reads []store.Read) uint64 {
	if len(reads) == 0 {
		return 0
	}
	return reads[0].Item
}

func named(counter string) replica.Counter {
	return replica.Counter{Name: counter, Hash: hashOf(counter)}
}

// holds reports whether what is sent does not arrive for the time being.
func (l *simLink) holds() bool { return l != nil && l.state == holding }

func (l *simLink) Name() string { return l.server.name }

func (l *simLink) Up() bool { return !l.suspected.Load() }

// Whole returns true, as if no process noticed a loss: noticing it only helps.
func (l *simLink) Memory() *replica.Memory { return &l.memory }

func (l *simLink) Look(context.Context) error { return nil }

func (l *simLink) Marker(context.Context, func(replica.MarkerItem) error) error { return nil }

func (l *simLink) Keys(context.Context, func(replica.Key) error) error { return nil }

func (l *simLink) Lists() bool { return true }

// operation returns whose call it is.
func (l *simLink) operation(ctx context.Context) *operation {
	if op, known := ctx.Value(operationKey{}).(*operation); known {
		return op
	}
	return l.node.replayer
}

// sender sends a command, and returns when it is answered.
type sender func(bucket uint64, run func()) answer

// sender returns what sends commands of a call to the server, one after the other.
func (l *simLink) sender(ctx context.Context, h store.Hash, what string, of *simExchange) sender {
	op := l.operation(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	part := fmt.Sprintf("%d %x %s", l.place, h[:4], what)
	calls := simCalls{op.id, part}
	l.trips[calls]++
	part += fmt.Sprint(" ", l.trips[calls])
	if l.first[op.id] == nil {
		first := rand.New(rand.NewPCG(uint64(op.id), uint64(l.place))).Float64()
		l.first[op.id] = &first
	}
	first := l.first[op.id]
	if of != nil {
		of.part = part
	}
	return func(bucket uint64, run func()) answer {
		return l.c.s.store.send(&command{by: op, at: l, of: of, part: part, bucket: bucket, run: run, first: first})
	}
}

func (l *simLink) Start(ctx context.Context, deadline time.Time, counter replica.Counter, op *store.Op, index int, ended chan<- int, _ replica.Acknowledger) replica.Exchange {
	now := time.Now()
	x := &simExchange{link: l, op: l.operation(ctx), counter: counter.Hash, index: index, ended: ended, limit: now.Add(deadline.Sub(now) * 7 / 16)}
	x.came = store.Op{Counter: string(counter.Hash[:]), Writes: slices.Clone(op.Writes), Reads: slices.Clone(op.Reads)}
	send := l.sender(ctx, counter.Hash, fmt.Sprint("trip", firstRead(op.Reads)), x)
	l.c.enter(x)
	if l.c.s.store.strict {
		x.mu.Lock()
		x.timer = time.AfterFunc(deadline.Sub(now)+tie(x.op, x.counter, op.Reads)+time.Duration(l.place), x.GiveUp)
		x.mu.Unlock()
	}
	adds, reads := slices.Clone(op.Writes), slices.Clone(op.Reads)
	l.c.s.store.late.Add(1)
	go func() {
		defer l.c.s.store.late.Add(-1)
		x.run(send, adds, reads)
	}()
	return x
}

func (l *simLink) Do(ctx context.Context, counter replica.Counter, op *store.Op) {
	what := "back"
	if op.Kind() == store.Delete {
		what = fmt.Sprint("delete", op.Writes[0].Item)
	}
	send := l.sender(ctx, counter.Hash, what, nil)
	for _, w := range op.Writes {
		a := send(w.Item, func() {
			if w.Kind == store.Subtract {
				l.server.Subtract(string(counter.Hash[:]), w.Item, w.By)
			} else {
				l.server.Remove(string(counter.Hash[:]), w.Item)
			}
		})
		if op.Err = a.err; op.Err != nil {
			return
		}
	}
}

// simExchange is a trip to one server.
type simExchange struct {
	link    *simLink
	op      *operation
	counter store.Hash
	must    bool // it has to be answered
	limit   time.Time
	part    string
	index   int
	ended   chan<- int
	timer   *time.Timer

	mu   sync.Mutex
	over bool
	err  error
	came store.Op
}

// enter notes whether the exchange has to be answered.
func (c *simReplicas) enter(x *simExchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	server := x.link.server
	if x.must = server != c.gone && (c.calm || server == c.safe); x.must {
		c.live = append(c.live, x)
	}
}

func (c *simReplicas) leave(x *simExchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = slices.DeleteFunc(c.live, func(other *simExchange) bool { return other == x })
	if x.err == errGivenUp && x.link.server != c.gone && !c.s.processes[x.op.process].crashed {
		c.lost[simTrip{x.op.id, x.counter}] = true
	}
}

// returned notes what came of a trip.
func (c *simReplicas) returned(op *operation, counter store.Hash, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	trip := simTrip{op.id, counter}
	if err == nil && c.lost[trip] {
		c.missed = true
	}
	delete(c.lost, trip)
}

// run makes the trip. When its caller has left it goes on all the same: sent commands
// arrive.
func (x *simExchange) run(send sender, adds []store.Write, reads []store.Read) {
	server, counter := x.link.server, x.came.Counter
	for i, w := range adds {
		var value int64
		a := send(w.Item, func() { value = server.Add(counter, w.Item, w.By, w.Expires) })
		switch {
		case a.err == nil:
			x.acknowledge(i, value)
		case a.rest:
			x.settle(a.err)
		default:
			x.settle(a.err)
			return
		}
	}
	for from, to := range x.link.c.s.store.partsOf(len(reads), x.op) {
		some := reads[from:to]
		a := send(some[0].Item, func() {
			for i := range some {
				some[i].Value = server.Read(counter, some[i].Item)
			}
		})
		if a.err != nil {
			x.settle(a.err)
			return
		}
		x.found(from, some)
	}
	x.settle(nil)
}

func (x *simExchange) acknowledge(i int, value int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over {
		x.came.Receipt, x.came.Writes[i].Result = store.Acknowledged(i+1), value
	}
}

func (x *simExchange) found(at int, reads []store.Read) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over {
		copy(x.came.Reads[at:], reads)
	}
}

func (x *simExchange) settle(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.over, x.err = true, err
	if err != nil {
		x.link.c.left.Store(true)
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.must {
		x.link.c.leave(x)
	}
	x.ended <- x.index
}

func (x *simExchange) isOver() bool {
	if x == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over
}

func (x *simExchange) GiveUp() { x.settle(errGivenUp) }

func (x *simExchange) End(op *store.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	copy(op.Writes, x.came.Writes)
	copy(op.Reads, x.came.Reads)
	op.Receipt, op.Err = x.came.Receipt, x.err
}
