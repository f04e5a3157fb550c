package replication

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
)

// formerLists is how many lists of servers are remembered.
const formerLists = 8

// Placement is where counters are among the servers in use, and where they were under the
// lists before. It is safe for concurrent use.
type Placement struct {
	gapCount
	replicas   int
	hash       func(counter string) Hash
	topology   atomic.Pointer[topology]
	changed    atomic.Int64 // the Unix second of the last change of the list that matters; 0: none does
	latestLoss atomic.Int64 // the Unix second of the latest loss of a server; 0: none has lost anything

	mu       sync.Mutex
	former   []former
	forgot   int64  // the Unix second until which the latest list was that is remembered no more
	repaired uint32 // the version of the list before which what moved was repaired
}

// former is a list of servers that was in use until a Unix second.
type former struct {
	*topology
	until int64
}

// gapCount counts the reasons to compare the replicas of counters.
type gapCount struct{ n atomic.Uint64 }

// Gap notes that a server may have missed something: it was away, came back empty, is
// new, or its hints were dropped.
func (g *gapCount) Gap() { g.n.Add(1) }

// Gaps returns a number that grows with each reason to compare the replicas of counters.
func (g *gapCount) Gaps() uint64 { return g.n.Load() }

func newPlacement(replicas int, hash func(counter string) Hash) *Placement {
	p := &Placement{replicas: replicas, hash: hash}
	p.topology.Store(newTopology(0, replicas, nil))
	return p
}

// use places counters on these servers from the Unix second on, and returns the servers that
// go. It is for one caller at a time.
func (p *Placement) use(servers []Server, now int64) (gone []Server) {
	before := p.topology.Load()
	if len(before.members) == 0 {
		p.topology.Store(newTopology(before.version, p.replicas, servers))
		return nil
	}
	after := newTopology(before.version+1, p.replicas, servers)
	p.mu.Lock()
	p.Gap() // the repair under way began before this change
	p.former = append(p.former, former{before, now})
	if len(p.former) > formerLists {
		p.forgot = p.former[0].until
		p.former = slices.Delete(p.former, 0, 1)
	}
	p.changed.Store(now)
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
func (p *Placement) First(h Hash) (server Server, version uint32) {
	t := p.topology.Load()
	return t.first(h), t.version
}

// FirstOf returns the first server under the list of that version; nil: it is forgotten.
func (p *Placement) FirstOf(h Hash, version uint32) Server {
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
func (p *Placement) Of(h Hash) []Server {
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
			return f.topology
		}
	}
	return nil
}

// Since returns the Unix second since which nothing of the counter was lost with its
// servers, nor by moving to others; 0: as far as is known nothing ever was. Of a loss it is
// that of the server's clock and of the moment when it was noticed, whichever is later.
// With several replicas nothing is lost as long as one that is up has it all.
func (p *Placement) Since(counter string) int64 {
	if p.latestLoss.Load() == 0 && p.changed.Load() == 0 {
		return 0
	}
	h := p.hash(counter)
	var list [MaxReplicas]Server
	since := int64(-1)
	servers := p.topology.Load().of(h, &list)
	for _, server := range servers {
		if server.Up() {
			since = earlier(since, max(server.Memory().Since(), p.movedTo(server, h)))
		}
	}
	if since >= 0 {
		return since
	}
	for _, server := range servers { // none is up: what they will have when they are back
		since = earlier(since, max(server.Memory().Since(), p.movedTo(server, h)))
	}
	return max(since, 0)
}

func earlier(a, b int64) int64 {
	if a < 0 {
		return b
	}
	return min(a, b)
}

// movedTo returns the Unix second in which the counter got a copy on the server; 0: as
// far as is known it always had.
func (p *Placement) movedTo(server Server, h Hash) int64 {
	if p.changed.Load() == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var list [MaxReplicas]Server
	for i := len(p.former) - 1; i >= 0; i-- {
		if p.former[i].version < p.repaired {
			return 0
		}
		had := false
		for _, other := range p.former[i].of(h, &list) {
			had = had || other == server
		}
		if !had {
			return p.former[i].until
		}
	}
	return p.forgot
}

// settle forgets that counters have moved: a repair has copied to their new replicas what
// these lacked, for all reasons up to that number of Gaps. It cannot have, and nothing is
// forgotten, where there is another reason since, or where so many servers came, went, or
// lost what they had that some counters may have lost all of their replicas. It reports
// whether it did.
func (p *Placement) settle(lossy int, gaps uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Gaps() != gaps {
		return false
	}
	now := p.topology.Load()
	lost := lossy // of any one counter's copies, at the most
	for i, f := range p.former {
		if f.version < p.repaired {
			continue
		}
		next := now
		if i+1 < len(p.former) {
			next = p.former[i+1].topology
		}
		lost += max(f.without(next), next.without(f.topology))
	}
	if lost >= p.replicas {
		return false
	}
	p.repaired = now.version
	p.forgot = 0
	p.changed.Store(0)
	return true
}

// joined reports whether the server has come to the list by a change after which counters
// were not repaired yet.
func (p *Placement) joined(server Server) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.former {
		if f.version >= p.repaired && !f.has(server) {
			return true
		}
	}
	return false
}

// without returns how many servers of the list the other one has not.
func (t *topology) without(other *topology) (n int) {
	for i := range t.members {
		if !other.has(t.members[i].Server) {
			n++
		}
	}
	return n
}

// forget drops the lists of servers that were in use until before the Unix second: no
// caller asks for counts of that time.
func (p *Placement) forget(before int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forgot < before {
		p.forgot = 0
	}
	if p.changed.Load() < before {
		p.changed.Store(0)
	}
	for i := range p.former {
		if p.former[i].until < before {
			p.repaired = max(p.repaired, p.former[i].version+1)
		}
	}
}

// topology is a list of servers, and where each counter is among them.
type topology struct {
	version  uint32 // counts the lists
	replicas int    // copies of a counter, as many as there are servers for
	members  []member
}

type member struct {
	Server
	seed uint64
}

func newTopology(version uint32, replicas int, servers []Server) *topology {
	t := &topology{version: version, replicas: min(replicas, len(servers))}
	for _, s := range servers {
		t.members = append(t.members, member{s, seedOf(s.Name())})
	}
	return t
}

// first returns the server with the highest score. So a server that is added takes
// its share evenly from the others and moves nothing else (rendezvous hashing: Thaler
// and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998).
func (t *topology) first(h Hash) Server {
	place := h.place()
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
func (t *topology) of(h Hash, list *[MaxReplicas]Server) []Server {
	var scores [MaxReplicas]uint64
	place, n := h.place(), 0
	for i := range t.members {
		score := mix(t.members[i].seed ^ place)
		if n == t.replicas && score < scores[n-1] {
			continue
		}
		if n < t.replicas {
			n++
		}
		at := n - 1
		for ; at > 0 && score >= scores[at-1]; at-- {
			scores[at], list[at] = scores[at-1], list[at-1]
		}
		scores[at], list[at] = score, t.members[i].Server
	}
	return list[:n]
}

func (t *topology) has(s Server) bool {
	for i := range t.members {
		if t.members[i].Server == s {
			return true
		}
	}
	return false
}

// place returns the part of the hash that chooses the servers.
func (h Hash) place() uint64 { return binary.BigEndian.Uint64(h[:8]) }

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
