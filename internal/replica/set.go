package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/store"
)

const (
	// MaxReplicas is the most copies that a counter can have.
	MaxReplicas = store.MaxReplicas
	// DefaultMaxHints is the default of Config.MaxHints.
	DefaultMaxHints = 100_000
	// maxDiffering bounds the counters that wait to be looked at.
	maxDiffering = 4096
)

var (
	errDown          = errors.New("replication: no server of the counter is up")
	errListForgotten = errors.New("replication: the list of servers has changed since: what should have been rolled back stays")
)

// Config sets up a Set.
type Config struct {
	Replicas int // replicas of each counter: 1 to MaxReplicas
	// Timeout is the longest that a round trip may take, also the replay of a hint, and a look
	// at all servers.
	Timeout time.Duration
	// MaxHints bounds the hints, each of the adds of a counter in one second; 0:
	// DefaultMaxHints. What is beyond it is dropped, and Gaps says so.
	MaxHints int
	Clock    func() time.Time // nil: time.Now
	// Hash returns the hash of a counter's name, on which its place depends.
	Hash func(counter string) store.Hash
	// Retention returns the longest for which any counter is remembered: so long, and a day, a
	// loss is of interest; nil: 32 days.
	Retention func() time.Duration
}

// Set are servers, with the replicas of each counter on some of them, and what these have lost.
// It is safe for concurrent use.
type Set struct {
	*Losses
	// trips is not a part of the set, which the runtime would hold on to with it.
	trips     *sync.Pool
	hints     *hintQueue
	differing names
	missing   missing
	turn      atomic.Uint32 // of claims
}

// New returns a Set without servers: Use gives it some. Close ends what it does in the
// background.
func New(config Config) *Set {
	l := &Losses{
		Placement: newPlacement(min(max(config.Replicas, 1), MaxReplicas), config.Hash), now: config.Clock,
		timeout: config.Timeout, retention: config.Retention, memories: map[string]*Memory{}, process: rand.Uint64(),
	}
	if l.now == nil {
		l.now = time.Now
	}
	s := &Set{Losses: l, trips: &sync.Pool{New: func() any { return newTrip() }}}
	s.hints = newHintQueue(s, cmp.Or(config.MaxHints, DefaultMaxHints))
	l.pending = func(server Server) bool { return s.hints.hasAny(server) || s.missing.isAny(server) }
	s.differing.most = maxDiffering
	return s
}

// Use has the set keep counters on these servers from here on. One that was in the list
// before has to be the same value, whose state goes on. It is for one caller at a time.
func (s *Set) Use(servers []Server) {
	s.relist(servers)
	for _, gone := range s.use(servers) {
		s.hints.dropServer(gone)
		s.missing.drop(gone)
	}
}

// GiveUp has the markers of servers that are up say that they lack what there are hints for. Of servers that are
// down the others' markers say that they were away for this process.
func (s *Set) GiveUp(ctx context.Context) {
	for _, server := range s.Servers() {
		if s.pending(server) && server.Up() {
			server.Memory().Missed()
			_ = server.Look(ctx) // what cannot be reached is soon known to be down
		}
	}
}

// Close ends the replay of hints, and waits for it and what else is in the background. Hints that
// are left are dropped.
func (s *Set) Close() { s.hints.close() }

// NotListed is the error of an op that names a server which is not in the list.
func NotListed(name string) error {
	return fmt.Errorf("%w: server %s is not in the list any more", store.ErrUnsupported, name)
}

// ServersUp returns the names of the servers that have the counter and are up.
func (s *Set) ServersUp(counter string) (names []string) {
	for _, server := range s.Of(s.hash(counter)) {
		if server.Up() {
			names = append(names, server.Name())
		}
	}
	return names
}

// PendingHints returns how many adds are to be replayed, to how many servers.
func (s *Set) PendingHints() (adds, servers int) {
	s.hints.mu.Lock()
	defer s.hints.mu.Unlock()
	return s.hints.n, len(s.hints.pending)
}

// Differing returns the names of counters whose replicas were seen to differ, each once;
// the next call those seen since. They are bounded.
func (s *Set) Differing() []string { return s.differing.take() }

// Missed returns the names of counters of which a server that is up now did not acknowledge bytes, each
// once; the next call those since. Settle says of one that its replicas are equal again: until it does for
// all, the server has not got what it missed. There are at most maxMissing for all servers; beyond
// them the server's marker says that it has missed something.
func (s *Set) Missed() []string { return s.missing.take() }

// Settle notes that the replicas of a counter that Missed has returned are equal.
func (s *Set) Settle(counter string) { s.missing.settle(counter) }

// miss notes that the server did not acknowledge bytes of a counter.
func miss(s *Set, c Counter, server Server, err error) {
	if err != nil && !s.missing.note(server, c.Name) {
		server.Memory().Missed()
	}
}

// names are the names of counters, bounded.
type names struct {
	mu    sync.Mutex
	names map[string]bool
	most  int
}

// note adds a name, and reports whether there was room.
func (n *names) note(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names == nil {
		n.names = map[string]bool{}
	}
	if len(n.names) < n.most {
		n.names[name] = true
	}
	return n.names[name]
}

func (n *names) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := slices.Sorted(maps.Keys(n.names))
	clear(n.names)
	return names
}

// Do makes the round trips of the ops: see package store.
func (s *Set) Do(ctx context.Context, ops ...*store.Op) {
	var others []*store.Op
	var waits []func()
	now := time.Now()
	for _, op := range ops {
		if op.Data && op.Server == "" {
			if op.Err = checkData(op); op.Err != nil {
				continue
			}
		} else if op.Server != "" || op.Kind() != 0 && op.Kind() != store.Add {
			others = append(others, op)
			continue
		}
		deadline, err := deadlineOf(ctx, now.Add(s.timeout), len(ops) > 1)
		if err != nil || len(op.Writes)+len(op.Reads) == 0 {
			op.Receipt, op.Err = store.Receipt{}, err
			continue
		}
		waits = append(waits, s.Start(ctx, now, deadline, s.counterOf(op), op))
	}
	if len(others) > 0 {
		store.SideBySide(others, func(op *store.Op) { s.do(ctx, op) })
	}
	for _, wait := range waits {
		wait()
	}
}

// Capabilities returns what the set can do besides round trips.
func (s *Set) Capabilities() store.Capabilities {
	return store.Capabilities{
		Replicas: s.replicas, Since: s.Since, Background: s.hints.background,
		Writes: store.KindsOf(store.Add, store.Subtract, store.Hint, store.Delete, store.Create, store.Swap, store.Append),
	}
}

func (s *Set) counterOf(op *store.Op) Counter { return Counter{op.Counter, s.hash(op.Counter)} }

// deadlineOf returns when a round trip has to end: by then, or when the context does if that is
// sooner. Of several that are started at once some wait for long until it is their turn, so
// each has all the time of the context.
func deadlineOf(ctx context.Context, deadline time.Time, several bool) (time.Time, error) {
	if end, bounded := ctx.Deadline(); bounded && (several || end.Before(deadline)) {
		deadline = end
	}
	return deadline, ctx.Err()
}

// do makes a round trip of another kind than adds and reads.
func (s *Set) do(ctx context.Context, op *store.Op) {
	if op.Err = store.Check(op); op.Err != nil {
		return
	}
	c := s.counterOf(op)
	switch {
	case op.Server != "":
		s.doOn(ctx, c, op)
	case op.Kind() == store.Subtract:
		s.rollBack(ctx, c, op)
	case op.Kind() == store.Hint:
		s.hints.follow(c, op)
	default:
		s.delete(ctx, c, op)
	}
}

// doOn makes the round trip to the server that the op names. An item that holds no count is
// read as 0, with its version, if another server of the counter is whole: then the count of
// that one replaces it. Else nothing says what the count was, and it stays an error.
func (s *Set) doOn(ctx context.Context, c Counter, op *store.Op) {
	server := s.Named(op.Server)
	if server == nil {
		op.Err = NotListed(op.Server)
		return
	}
	server.Do(ctx, c, op)
	if op.Data && op.Kind() != 0 {
		miss(s, c, server, op.Err)
	}
	if errors.Is(op.Err, store.ErrNoCount) && op.Versions && isWholeBeside(server, c.Hash, s.Of(c.Hash)) {
		op.Err = nil
	}
}

// isWholeBeside reports whether one of the counter's servers beside that one is up and has lost
// nothing.
func isWholeBeside(server Server, h store.Hash, servers []Server) bool {
	return slices.ContainsFunc(servers, func(other Server) bool {
		return other != server && other.Up() && other.Memory().isWhole(h, servers)
	})
}

// rollBack subtracts from the items of adds, on each replica from the ones that it
// acknowledged.
func (s *Set) rollBack(ctx context.Context, c Counter, op *store.Op) {
	op.Err = nil
	if op.Receipt.None() {
		return
	}
	t := s.at(op.Receipt.List)
	if t == nil {
		op.Err = errListForgotten
		return
	}
	var list [MaxReplicas]Server
	op.Err = onEach(t.of(c.Hash, &list), func(i int, server Server) error {
		n := min(op.Receipt.On(i), len(op.Writes))
		if n == 0 {
			return nil
		}
		return writeOn(ctx, server, c, op.Writes[len(op.Writes)-n:])
	})
}

// delete removes items on every copy. That a copy did not acknowledge it is an error.
func (s *Set) delete(ctx context.Context, c Counter, op *store.Op) {
	s.hints.drop(c.Hash, op.Writes)
	var list [MaxReplicas]Server
	op.Err = onEach(s.topology.Load().of(c.Hash, &list), func(_ int, server Server) error {
		return writeOn(ctx, server, c, op.Writes)
	})
}

// writeOn makes the writes on one server.
func writeOn(ctx context.Context, server Server, c Counter, writes []store.Write) error {
	part := store.Op{Counter: c.Name, Writes: slices.Clone(writes)}
	part.Receipt = store.Acknowledged(len(writes))
	server.Do(ctx, c, &part)
	return part.Err
}

// Acknowledge notes that a replica has acknowledged all adds of a trip after its caller
// left: its hint drops them. A slow server would count twice for ever.
func (s *Set) Acknowledge(server Server, h store.Hash, adds []store.Write) {
	s.hints.acknowledge(server, h, adds)
}

// onEach does something to all servers at once, and returns what went wrong.
func onEach(servers []Server, do func(i int, server Server) error) error {
	if len(servers) == 1 {
		return do(0, servers[0])
	}
	faults := make([]error, len(servers))
	var all sync.WaitGroup
	for i, server := range servers {
		all.Go(func() { faults[i] = do(i, server) })
	}
	all.Wait()
	return errors.Join(faults...)
}
