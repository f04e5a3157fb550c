package ledger

import (
	"cmp"
	"encoding/base64"
	"errors"
	"hash/fnv"
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/counterd/counterd/internal/store"
)

// Slots is the number of slots. A slot is a part of all counters, by their hash; its counters have the same replicas.
const Slots = 4096

var errSlots = errors.New("ledger: not a set of slots")

// SlotOf returns the slot of a counter: the first 12 bits of its hash.
func SlotOf(h store.Hash) int { return int(h[0])<<4 | int(h[1]>>4) }

// SlotSet is a set of slots.
type SlotSet [Slots / 64]uint64

// Has reports whether the slot is in the set.
func (s *SlotSet) Has(slot int) bool { return s[slot/64]>>(slot%64)&1 != 0 }

// Add adds the slot.
func (s *SlotSet) Add(slot int) { s[slot/64] |= 1 << (slot % 64) }

// IsEmpty reports whether the set has no slot.
func (s *SlotSet) IsEmpty() bool { return *s == SlotSet{} }

// Len returns the number of slots in the set.
func (s *SlotSet) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// All returns the slots in ascending order.
func (s *SlotSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(64*i + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// every returns the set of all slots.
func every() (s SlotSet) {
	for i := range s {
		s[i] = math.MaxUint64
	}
	return s
}

func (s *SlotSet) union(other *SlotSet) (u SlotSet) {
	for i := range s {
		u[i] = s[i] | other[i]
	}
	return u
}

func (s *SlotSet) intersect(other *SlotSet) (common SlotSet) {
	for i := range s {
		common[i] = s[i] & other[i]
	}
	return common
}

func (s *SlotSet) minus(other *SlotSet) (rest SlotSet) {
	for i := range s {
		rest[i] = s[i] &^ other[i]
	}
	return rest
}

// MarshalText returns the set as a bitmap in base64: bit i of byte j is slot 8j+i.
func (s SlotSet) MarshalText() ([]byte, error) {
	var bitmap [Slots / 8]byte
	for slot := range s.All() {
		bitmap[slot/8] |= 1 << (slot % 8)
	}
	return base64.StdEncoding.AppendEncode(nil, bitmap[:]), nil
}

// UnmarshalText reads the text of MarshalText.
func (s *SlotSet) UnmarshalText(text []byte) error {
	bitmap, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(bitmap) != Slots/8 {
		return errSlots
	}
	*s = SlotSet{}
	for i, b := range bitmap {
		s[i/8] |= uint64(b) << (8 * (i % 8))
	}
	return nil
}

// List is the servers in use and the number of replicas. They determine the place of each slot. A List is immutable.
type List struct {
	servers  []string // sorted
	replicas int
	bySlot   [Slots][]string
	byServer map[string]*SlotSet
}

// NewList returns the list of the servers of these names. replicas is between 1 and store.MaxReplicas.
//
// Each slot is on the servers with the highest scores (rendezvous hashing: Thaler and Ravishankar, "Using Name-Based
// Mappings to Increase Hit Rates", 1998). So a server that joins or leaves moves one replica of its slots, and nothing
// else.
func NewList(servers []string, replicas int) *List {
	sorted := slices.Compact(slices.Sorted(slices.Values(servers)))
	l := &List{servers: sorted, replicas: replicas, byServer: map[string]*SlotSet{}}
	type candidate struct {
		server      string
		seed, score uint64
	}
	candidates := make([]candidate, len(l.servers))
	for i, s := range l.servers {
		h := fnv.New64a()
		h.Write([]byte(s))
		candidates[i] = candidate{server: s, seed: mix(h.Sum64())}
		l.byServer[s] = &SlotSet{}
	}
	for slot := range Slots {
		for i := range candidates {
			candidates[i].score = mix(candidates[i].seed ^ mix(uint64(slot)))
		}
		slices.SortFunc(candidates, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.server, b.server))
		})
		for _, c := range candidates[:min(replicas, len(candidates))] {
			l.bySlot[slot] = append(l.bySlot[slot], c.server)
			l.byServer[c.server].Add(slot)
		}
	}
	return l
}

// Servers returns the names of the servers in ascending order. The caller must not change them.
func (l *List) Servers() []string { return l.servers }

// Replicas returns the servers of the slot, the first of its order first. The caller must not change them.
func (l *List) Replicas(slot int) []string { return l.bySlot[slot] }

// Has reports whether the server is in the list.
func (l *List) Has(server string) bool { return l.byServer[server] != nil }

// Slots returns the slots that are placed on the server. The caller must not change them.
func (l *List) Slots(server string) *SlotSet {
	if s := l.byServer[server]; s != nil {
		return s
	}
	return &SlotSet{}
}

func (l *List) is(servers []string, replicas int) bool {
	return l.replicas == replicas && slices.Equal(l.servers, servers)
}

// mix is the finalizer of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014):
// each bit of x affects all bits of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
