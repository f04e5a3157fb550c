package copies

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxReplicas is the most copies that a counter can have.
	MaxReplicas = 5
	// DefaultMaxDebts bounds what is owed to servers where nothing else is set.
	DefaultMaxDebts = 100_000
	// maxDiffering bounds the counters that wait to be looked at.
	maxDiffering = 4096
)

var (
	errDown    = errors.New("copies: no server of the counter is up")
	errForgot  = errors.New("copies: the list of servers has changed since: what should have been taken back stays")
	errTooMany = errors.New("copies: too many adds in one trip")
)

// Config sets up a Set.
type Config struct {
	Replicas int           // copies of each counter: 1 to MaxReplicas
	Timeout  time.Duration // the longest that making up for a debt may take
	// MaxDebts bounds what is owed: the adds of so many seconds of counters; 0:
	// DefaultMaxDebts. What is beyond it is dropped, and Gaps says so.
	MaxDebts int
	Clock    func() time.Time // nil: time.Now
}

// Set are servers, with the copies of each counter on some of them. It is safe for
// concurrent use.
type Set struct {
	replicas int
	timeout  time.Duration
	topology atomic.Pointer[topology]
	gaps     atomic.Uint64
	// trips is not a part of the set, which the runtime would hold on to with it.
	trips *sync.Pool
	now   func() time.Time
	debts *ledger

	mu        sync.Mutex
	former    []former
	forgot    int64        // the Unix second until which the latest list was that is remembered no more
	mended    int          // the generation of the list before which what moved was mended
	changed   atomic.Int64 // the Unix second of the last change of the list that matters; 0: none does
	differing map[string]bool
}

// New returns a Set without servers: Use gives it some. Close ends what it does in the
// background.
func New(config Config) *Set {
	s := &Set{replicas: min(max(config.Replicas, 1), MaxReplicas), timeout: config.Timeout, differing: map[string]bool{}, now: config.Clock}
	if s.now == nil {
		s.now = time.Now
	}
	s.topology.Store(newTopology(0, s.replicas, nil))
	s.trips = &sync.Pool{New: func() any { return newTrip() }}
	s.debts = newLedger(s, cmp.Or(config.MaxDebts, DefaultMaxDebts))
	return s
}

// Use has the set keep counters on these servers from here on. One that was in the list
// before has to be the same value, whose state goes on. It is for one caller at a time.
func (s *Set) Use(servers []Server) {
	before := s.topology.Load()
	generation := before.generation
	if len(before.members) > 0 {
		generation++
	}
	after := newTopology(generation, s.replicas, servers)
	if generation == before.generation {
		s.topology.Store(after)
		return
	}
	s.mu.Lock()
	s.Gap() // what is being mended now is not mended for this
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
			s.debts.forget(m.Server)
		}
	}
	s.Gap()
}

// Close ends the making up for debts, and waits for it. What is still owed is dropped.
func (s *Set) Close() { s.debts.close() }

// Servers returns the list in use.
func (s *Set) Servers() []Server {
	t := s.topology.Load()
	list := make([]Server, len(t.members))
	for i := range list {
		list[i] = t.members[i].Server
	}
	return list
}

// First returns the server that is the first of the counter's order, and the generation
// of the list of servers, for Alone. There has to be one.
func (s *Set) First(h Hash) (server Server, generation int) {
	t := s.topology.Load()
	return t.first(h), t.generation
}

// Of returns the servers that have the counter, the first of its order first.
func (s *Set) Of(h Hash) []Server {
	var list [MaxReplicas]Server
	return slices.Clone(s.topology.Load().of(h, &list))
}

// Gap notes that a server may have missed something: it was away, came back empty, is
// new, or what it was owed was dropped. Gaps returns how often that was.
func (s *Set) Gap() { s.gaps.Add(1) }

// Gaps returns a number that grows with each reason to compare the copies of counters.
func (s *Set) Gaps() uint64 { return s.gaps.Load() }

// Owed returns how many adds of how many servers have to be made up for.
func (s *Set) Owed() (adds, servers int) { return s.debts.size() }

// Differing returns the names of counters whose copies were seen to differ, each once;
// the next call those seen since. They are bounded.
func (s *Set) Differing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.differing))
	clear(s.differing)
	return names
}

func (s *Set) differs(c Counter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.differing) < maxDiffering {
		s.differing[c.Name] = true
	}
}

// RollBack subtracts from the buckets of the adds of a trip, on each copy those that
// it acknowledged.
func (s *Set) RollBack(ctx context.Context, c Counter, by int64, adds []uint64, landed int) error {
	if landed == 0 {
		return nil
	}
	t := s.at(landed)
	if t == nil {
		return errForgot
	}
	var list [MaxReplicas]Server
	return onEach(t.of(c.Hash, &list), func(i int, server Server) error {
		n := min(landedOn(landed, i), len(adds))
		if n == 0 {
			return nil
		}
		return server.RollBack(ctx, c, by, adds[:n])
	})
}

// Delete removes buckets on every copy. That a copy did not acknowledge it is an error.
func (s *Set) Delete(ctx context.Context, c Counter, buckets []uint64) error {
	s.debts.forgive(c.Hash, buckets)
	var list [MaxReplicas]Server
	return onEach(s.topology.Load().of(c.Hash, &list), func(_ int, server Server) error {
		return server.Delete(ctx, c, buckets)
	})
}

// Owe has the copies that did not acknowledge all adds of a trip get the rest later,
// as much as stays of it.
func (s *Set) Owe(c Counter, by int64, adds []uint64, expires []int64, landed int) {
	t := s.at(landed)
	if t == nil { // too long ago: rather twice than not at all
		t, landed = s.topology.Load(), 0
	}
	var list [MaxReplicas]Server
	for i, server := range t.of(c.Hash, &list) {
		if n := landedOn(landed, i); n < len(adds) {
			s.debts.owe(server, c.Hash, by, adds[n:], expires[n:])
		}
	}
}

// Credit notes that a copy has acknowledged all adds of a trip after nobody waited for it
// any more: it is not owed them. A slow server would count twice for ever.
func (s *Set) Credit(server Server, h Hash, by int64, adds []uint64) {
	s.debts.credit(server, h, by, adds)
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
