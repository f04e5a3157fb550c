package replica

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/counterd/counterd/internal/store"
)

// formerLists is how many lists of servers are remembered.
const formerLists = 8

// Placement is where counters are among the servers in use. It is safe for concurrent use.
type Placement struct {
	replicas int
	hash     func(counter string) store.Hash
	topology atomic.Pointer[topology]
	gaps     atomic.Uint64

	mu     sync.Mutex
	former []*topology
}

// Gap notes that a server may have missed something.
func (p *Placement) Gap() { p.gaps.Add(1) }

// Gaps returns a number that grows with each reason to compare the replicas of counters: a server
// may have missed something, was away, came back empty, or is new.
func (p *Placement) Gaps() uint64 { return p.gaps.Load() }

func newPlacement(replicas int, hash func(counter string) store.Hash) *Placement {
	p := &Placement{replicas: replicas, hash: hash}
	p.topology.Store(newTopology(0, replicas, nil))
	return p
}

// use places counters on these servers, and returns the servers that go. It is for one caller at
// a time.
func (p *Placement) use(servers []Server) (gone []Server) {
	before := p.topology.Load()
	if len(before.members) == 0 {
		p.topology.Store(newTopology(before.version, p.replicas, servers))
		return nil
	}
	after := newTopology(before.version+1, p.replicas, servers)
	p.mu.Lock()
	p.former = append(p.former, before)
	if len(p.former) > formerLists {
		p.former = slices.Delete(p.former, 0, 1)
	}
	p.mu.Unlock()
	p.topology.Store(after)
	for _, m := range before.members {
		if !after.has(m.Server) {
			gone = append(gone, m.Server)
		}
	}
	p.Gap()
	return gone
}

// Servers returns the list in use.
func (p *Placement) Servers() []Server {
	t := p.topology.Load()
	list := make([]Server, len(t.members))
	for i := range list {
		list[i] = t.members[i].Server
	}
	return list
}

// First returns the server that is the first of the counter's order, and the version of the
// list of servers. There has to be one.
func (p *Placement) First(h store.Hash) (server Server, version uint32) {
	t := p.topology.Load()
	return t.first(h), t.version
}

// FirstOf returns the first server under the list of that version; nil: it is forgotten.
func (p *Placement) FirstOf(h store.Hash, version uint32) Server {
	if t := p.at(version); t != nil {
		return t.first(h)
	}
	return nil
}

// Named returns the server of that name in the list in use; nil: there is none.
func (p *Placement) Named(name string) Server {
	t := p.topology.Load()
	for i := range t.members {
		if t.members[i].Name() == name {
			return t.members[i].Server
		}
	}
	return nil
}

// Of returns the servers that have the counter, the first of its order first.
func (p *Placement) Of(h store.Hash) []Server {
	var list [MaxReplicas]Server
	return slices.Clone(p.topology.Load().of(h, &list))
}

// at returns the list of servers of that version; nil: it is forgotten.
func (p *Placement) at(version uint32) *topology {
	if t := p.topology.Load(); t.version == version {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.former {
		if f.version == version {
			return f
		}
	}
	return nil
}

// topology is a list of servers, and where each counter is among them.
type topology struct {
	version  uint32 // counts the lists
	replicas int    // copies of a counter, as many as there are servers for
	members  []member
}

type member struct {
	Server // nil in a list of former names
	name   string
	seed   uint64
}

func newTopology(version uint32, replicas int, servers []Server) *topology {
	t := &topology{version: version, replicas: min(replicas, len(servers))}
	for _, s := range servers {
		t.members = append(t.members, member{s, s.Name(), seedOf(s.Name())})
	}
	return t
}

// formerly returns the list of the servers of these names, for holds alone.
func formerly(replicas int, names []string) *topology {
	t := &topology{replicas: min(replicas, len(names))}
	for _, name := range names {
		t.members = append(t.members, member{nil, name, seedOf(name)})
	}
	return t
}

// first returns the server with the highest score. So a server that is added takes
// its share evenly from the others and moves nothing else (rendezvous hashing: Thaler
// and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998).
func (t *topology) first(h store.Hash) Server {
	place := placeBits(h)
	best, bestScore := 0, uint64(0)
	for i := range t.members {
		if score := mix(t.members[i].seed ^ place); score >= bestScore {
			best, bestScore = i, score
		}
	}
	return t.members[best].Server
}

// of puts the servers that have the counter into list, the first of its order first.
// A server that is added or goes changes one of them at the most.
func (t *topology) of(h store.Hash, list *[MaxReplicas]Server) []Server {
	var order [MaxReplicas]int
	n := t.order(h, &order)
	for i := range n {
		list[i] = t.members[order[i]].Server
	}
	return list[:n]
}

// holds reports whether the counter is on the server of that name.
func (t *topology) holds(h store.Hash, name string) bool {
	var order [MaxReplicas]int
	for _, i := range order[:t.order(h, &order)] {
		if t.members[i].name == name {
			return true
		}
	}
	return false
}

// order puts the members that have the counter into list, and returns how many these are.
func (t *topology) order(h store.Hash, list *[MaxReplicas]int) int {
	var scores [MaxReplicas]uint64
	place, n := placeBits(h), 0
	for i := range t.members {
		score := mix(t.members[i].seed ^ place)
		if n == t.replicas && (n == 0 || score < scores[n-1]) {
			continue
		}
		if n < t.replicas {
			n++
		}
		at := n - 1
		for ; at > 0 && score >= scores[at-1]; at-- {
			scores[at], list[at] = scores[at-1], list[at-1]
		}
		scores[at], list[at] = score, i
	}
	return n
}

func (t *topology) has(s Server) bool {
	for i := range t.members {
		if t.members[i].Server == s {
			return true
		}
	}
	return false
}

// placeBits returns the part of the hash that chooses the servers.
func placeBits(h store.Hash) uint64 { return binary.BigEndian.Uint64(h[:8]) }

// seedOf depends on the server's name alone, so that all processes place alike.
func seedOf(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return mix(h.Sum64())
}

// mix is the finalizer of splitmix64 (Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014): every bit of x bears on every bit of
// the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
