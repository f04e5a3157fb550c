package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/store"
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
	Replicas int           // copies of each counter: 1 to MaxReplicas
	Timeout  time.Duration // the longest that the replay of a hint may take
	// MaxHints bounds the hints, each of the adds of a counter in one second; 0:
	// DefaultMaxHints. What is beyond it is dropped, and Gaps says so.
	MaxHints int
	Clock    func() time.Time // nil: time.Now
	// Hash returns the hash of a counter's name, on which its place depends.
	Hash func(counter string) Hash
}

// Set are servers, with the copies of each counter on some of them. It is safe for
// concurrent use.
type Set struct {
	replicas int
	timeout  time.Duration
	hash     func(counter string) Hash
	topology atomic.Pointer[topology]
	gaps     atomic.Uint64
	// trips is not a part of the set, which the runtime would hold on to with it.
	trips *sync.Pool
	now   func() time.Time
	hints *hintQueue

	mu        sync.Mutex
	former    []former
	forgot    int64        // the Unix second until which the latest list was that is remembered no more
	repaired  uint32       // the version of the list before which what moved was repaired
	changed   atomic.Int64 // the Unix second of the last change of the list that matters; 0: none does
	differing map[string]bool
}

// New returns a Set without servers: Use gives it some. Close ends what it does in the
// background.
func New(config Config) *Set {
	s := &Set{replicas: min(max(config.Replicas, 1), MaxReplicas), timeout: config.Timeout, differing: map[string]bool{}, now: config.Clock, hash: config.Hash}
	if s.now == nil {
		s.now = time.Now
	}
	s.topology.Store(newTopology(0, s.replicas, nil))
	s.trips = &sync.Pool{New: func() any { return newTrip() }}
	s.hints = newHintQueue(s, cmp.Or(config.MaxHints, DefaultMaxHints))
	return s
}

// Use has the set keep counters on these servers from here on. One that was in the list
// before has to be the same value, whose state goes on. It is for one caller at a time.
func (s *Set) Use(servers []Server) {
	before := s.topology.Load()
	version := before.version
	if len(before.members) > 0 {
		version++
	}
	after := newTopology(version, s.replicas, servers)
	if version == before.version {
		s.topology.Store(after)
		return
	}
	s.mu.Lock()
	s.Gap() // the repair under way began before this change
	now := s.now().Unix()
	s.former = append(s.former, former{before, now})
	if len(s.former) > formerLists {
		s.forgot = s.former[0].until
		s.former = slices.Delete(s.former, 0, 1)
	}
	s.changed.Store(now)
	s.mu.Unlock()
	s.topology.Store(after)
	for _, m := range before.members {
		if !after.has(m.Server) {
			s.hints.dropServer(m.Server)
		}
	}
	s.Gap()
}

// Close ends the replay of hints, and waits for it. Hints that are left are dropped.
func (s *Set) Close() { s.hints.close() }

// Servers returns the list in use.
func (s *Set) Servers() []Server {
	t := s.topology.Load()
	list := make([]Server, len(t.members))
	for i := range list {
		list[i] = t.members[i].Server
	}
	return list
}

// First returns the server that is the first of the counter's order, and the version of the
// list of servers. There has to be one.
func (s *Set) First(h Hash) (server Server, version uint32) {
	t := s.topology.Load()
	return t.first(h), t.version
}

// FirstOf returns the first server under the list of that version; nil: it is forgotten.
func (s *Set) FirstOf(h Hash, version uint32) Server {
	if t := s.at(version); t != nil {
		return t.first(h)
	}
	return nil
}

// Named returns the server of that name in the list in use; nil: there is none.
func (s *Set) Named(name string) Server {
	t := s.topology.Load()
	for i := range t.members {
		if t.members[i].Name() == name {
			return t.members[i].Server
		}
	}
	return nil
}

// NotListed is the error of an op that names a server which is not in the list.
func NotListed(name string) error {
	return fmt.Errorf("%w: server %s is not in the list any more", store.ErrUnsupported, name)
}

// at returns the list of servers of that version; nil: it is forgotten.
func (s *Set) at(version uint32) *topology {
	if t := s.topology.Load(); t.version == version {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.former {
		if f.version == version {
			return f.topology
		}
	}
	return nil
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

// Of returns the servers that have the counter, the first of its order first.
func (s *Set) Of(h Hash) []Server {
	var list [MaxReplicas]Server
	return slices.Clone(s.topology.Load().of(h, &list))
}

// Gap notes that a server may have missed something: it was away, came back empty, is
// new, or its hints were dropped. Gaps returns how often that was.
func (s *Set) Gap() { s.gaps.Add(1) }

// Gaps returns a number that grows with each reason to compare the copies of counters.
func (s *Set) Gaps() uint64 { return s.gaps.Load() }

// PendingHints returns how many adds are to be replayed, to how many servers.
func (s *Set) PendingHints() (adds, servers int) { return s.hints.size() }

// Differing returns the names of counters whose copies were seen to differ, each once;
// the next call those seen since. They are bounded.
func (s *Set) Differing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.differing))
	clear(s.differing)
	return names
}

func (s *Set) noteDiffering(c Counter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.differing) < maxDiffering {
		s.differing[c.Name] = true
	}
}

// Do makes the round trips of the ops: see package store.
func (s *Set) Do(ctx context.Context, ops ...*store.Op) {
	var others []*store.Op
	var waits []func()
	now := time.Now()
	for _, op := range ops {
		if op.Server != "" || op.Kind() != 0 && op.Kind() != store.Add {
			others = append(others, op)
			continue
		}
		deadline, err := s.deadline(ctx, now, len(ops) > 1)
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
		Replicas: s.replicas,
		Writes:   store.KindsOf(store.Add, store.Subtract, store.Hint, store.Delete, store.Create, store.Swap),
	}
}

func (s *Set) counterOf(op *store.Op) Counter { return Counter{op.Counter, s.hash(op.Counter)} }

// deadline returns when a round trip that begins now has to end: after the timeout, or when
// the context does if that is sooner. Of several that are started at once some wait for long
// until it is their turn, so each has all the time of the context.
func (s *Set) deadline(ctx context.Context, now time.Time, several bool) (time.Time, error) {
	deadline := now.Add(s.timeout)
	if end, bounded := ctx.Deadline(); bounded && (several || end.Before(deadline)) {
		deadline = end
	}
	return deadline, ctx.Err()
}

// do makes a round trip of another kind than adds and reads.
func (s *Set) do(ctx context.Context, op *store.Op) {
	c := s.counterOf(op)
	switch {
	case op.Server != "":
		s.doOn(ctx, c, op)
	case op.Kind() == store.Subtract:
		s.rollBack(ctx, c, op)
	case op.Kind() == store.Hint:
		s.hint(c, op)
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
	if errors.Is(op.Err, store.ErrNoCount) && op.Versions && s.isWholeBeside(c, server) {
		op.Err = nil
	}
}

// isWholeBeside reports whether the counter has a copy on another server that is up and has
// forgotten nothing.
func (s *Set) isWholeBeside(c Counter, server Server) bool {
	return slices.ContainsFunc(s.Of(c.Hash), func(other Server) bool {
		return other != server && other.Up() && other.Whole()
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

// hint has the copies that did not acknowledge all adds get the rest later, as much as stays
// of it.
func (s *Set) hint(c Counter, op *store.Op) {
	op.Err = nil
	receipt := op.Receipt
	t := s.at(receipt.List)
	if t == nil { // too long ago: rather twice than not at all
		t, receipt = s.topology.Load(), store.Receipt{}
	}
	var list [MaxReplicas]Server
	for i, server := range t.of(c.Hash, &list) {
		if n := receipt.On(i); n < len(op.Writes) {
			s.hints.add(server, c.Hash, op.Writes[n:])
		}
	}
}

// Acknowledge notes that a replica has acknowledged all adds of a trip after its caller
// left: its hint drops them. A slow server would count twice for ever.
func (s *Set) Acknowledge(server Server, h Hash, adds []store.Write) {
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
