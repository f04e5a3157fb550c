package replication

import (
	"encoding/binary"
	"hash/fnv"
)

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
