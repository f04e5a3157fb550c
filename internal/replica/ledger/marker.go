package ledger

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/counterd/counterd/internal/store"
)

const (
	// Margin is the number of seconds that a raise adds to now: clocks differ by up to 0.5 s, and a second is whole.
	Margin = 2
	// markerBytes divides the length of a marker's text: Memcached keeps a page of memory for each size of items.
	markerBytes = 1 << 10
	// MaxNumbers bounds the numbers of a marker. See [Marker.assign].
	MaxNumbers = 8
	// Bounds on a marker that another client may have written. Memcached stores no item above maxText.
	maxText    = 1 << 20
	maxServers = 1000
	maxName    = 512
	maxDebts   = 16_384
	maxAhead   = 24 * 60 * 60 // seconds between now and any second in the marker
)

// UnknownEvictions is the value of Marker.Evictions until the server's statistics have been read.
const UnknownEvictions = -1

var errMarker = errors.New("ledger: not a marker")

// Marker is the item of a server that contains its numbers and the table of debts. Processes write it with
// compare-and-swap only. A Marker that was read or written is immutable.
type Marker struct {
	ID        uint64   `json:"id"`               // random: another ID is another memory
	Created   int64    `json:"created"`          // Unix second, as all times here
	Why       string   `json:"why,omitempty"`    // cause of the last raise, for people
	Servers   []string `json:"list"`             // the list that places slots, sorted
	Replicas  int      `json:"replicas"`         // of that list
	Listed    int64    `json:"listed,omitempty"` // when the list changed last
	Since     []Number `json:"since,omitempty"`  // ascending, disjoint; a slot in none has number 0 and lacks nothing
	Raised    int64    `json:"raised,omitempty"` // when all numbers were raised last; it settles earlier debts
	Evictions int64    `json:"evictions"`        // the server's counter of evictions when it was read last
	Evicted   int64    `json:"evicted,omitempty"`
	Debts     Debts    `json:"debts,omitempty"`
}

// Number is the second since when a server is complete for some slots.
type Number struct {
	Second int64   `json:"second"`
	Slots  SlotSet `json:"slots"`
}

// Text returns the text of the item.
func (m *Marker) Text() string {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // no field has a value that JSON lacks
	}
	return string(text) + strings.Repeat(" ", markerBytes-1-(len(text)-1)%markerBytes)
}

// Parse returns the marker of the text. It returns an error if no process can have written it by now: the text is of
// another client.
func Parse(text string, now int64) (*Marker, error) {
	m := &Marker{}
	if len(text) > maxText || json.Unmarshal([]byte(text), m) != nil || !m.isPossible(now+maxAhead) {
		return nil, errMarker
	}
	return m, nil
}

// isPossible reports whether the marker is within its bounds, and none of its seconds is later than latest.
func (m *Marker) isPossible(latest int64) bool {
	for i, name := range m.Servers {
		if name == "" || len(name) > maxName || i > 0 && name <= m.Servers[i-1] {
			return false
		}
	}
	var seen SlotSet
	for i := range m.Since {
		n := &m.Since[i]
		common := seen.intersect(&n.Slots)
		ascends := n.Second > 0 && (i == 0 || n.Second > m.Since[i-1].Second)
		if !ascends || n.Second > latest || n.Slots.IsEmpty() || !common.IsEmpty() {
			return false
		}
		seen = seen.union(&n.Slots)
	}
	for d, v := range m.Debts {
		if v == 0 || v < -latest || v > latest || d.Server == "" || len(d.Server) > maxName {
			return false
		}
	}
	for _, second := range []int64{m.Created, m.Listed, m.Raised, m.Evicted} {
		if second < 0 || second > latest {
			return false
		}
	}
	return m.ID != 0 && m.Created > 0 && len(m.Why) <= maxName && m.Evictions >= UnknownEvictions &&
		0 < len(m.Servers) && len(m.Servers) <= maxServers && 0 < m.Replicas && m.Replicas <= store.MaxReplicas &&
		len(m.Since) <= MaxNumbers && len(m.Debts) <= maxDebts
}

func (m *Marker) clone() *Marker {
	c := *m
	c.Since, c.Debts = slices.Clone(m.Since), maps.Clone(m.Debts)
	return &c
}

func (m *Marker) equal(other *Marker) bool {
	return m.ID == other.ID && m.Created == other.Created && m.Why == other.Why && m.Replicas == other.Replicas &&
		m.Listed == other.Listed && m.Raised == other.Raised && slices.Equal(m.Servers, other.Servers) &&
		m.Evictions == other.Evictions && m.Evicted == other.Evicted &&
		slices.Equal(m.Since, other.Since) && maps.Equal(m.Debts, other.Debts)
}

// Number returns the second since when the server is complete for the slot.
func (m *Marker) Number(slot int) int64 {
	for i := range m.Since {
		if n := &m.Since[i]; n.Slots.Has(slot) {
			return n.Second
		}
	}
	return 0
}

// numbers returns the numbers of the placed slots in ascending order, beginning with 0.
func (m *Marker) numbers(placed *SlotSet) []Number {
	complete := *placed
	list := []Number{{}}
	for i := range m.Since {
		n := Number{Second: m.Since[i].Second, Slots: placed.intersect(&m.Since[i].Slots)}
		complete = complete.minus(&n.Slots)
		list = append(list, n)
	}
	list[0].Slots = complete
	return list
}

// raise records that any count before now may be missing in the placed slots.
func (m *Marker) raise(now int64, placed *SlotSet, why string) {
	m.raiseSlots(now, *placed)
	m.Raised, m.Why = max(m.Raised, now), why
}

// raiseSlots raises the numbers of the slots to now and the margin. Numbers that are higher stay.
func (m *Marker) raiseSlots(now int64, slots SlotSet) {
	for i := range m.Since {
		if m.Since[i].Second >= now+Margin {
			slots = slots.minus(&m.Since[i].Slots)
		}
	}
	m.assign(now+Margin, slots)
}

// assign sets the numbers of the slots. If that makes a ninth number, the slots of the second highest get the highest:
// in a raise that is the new one, so of all numbers the latest becomes too high by the least.
func (m *Marker) assign(second int64, slots SlotSet) {
	if slots.IsEmpty() {
		return
	}
	for i := range m.Since {
		m.Since[i].Slots = m.Since[i].Slots.minus(&slots)
	}
	i := slices.IndexFunc(m.Since, func(n Number) bool { return n.Second >= second })
	switch {
	case second == 0:
	case i < 0:
		m.Since = append(m.Since, Number{Second: second, Slots: slots})
	case m.Since[i].Second == second:
		m.Since[i].Slots = m.Since[i].Slots.union(&slots)
	default:
		m.Since = slices.Insert(m.Since, i, Number{Second: second, Slots: slots})
	}
	m.Since = slices.DeleteFunc(m.Since, func(n Number) bool { return n.Slots.IsEmpty() })
	if last := len(m.Since) - 1; last == MaxNumbers {
		m.Since[last].Slots = m.Since[last].Slots.union(&m.Since[last-1].Slots)
		m.Since = slices.Delete(m.Since, last-1, last)
	}
}

// lower sets the numbers of the slots to a lower second. If that would make a ninth number, they get the next higher
// one of the marker.
func (m *Marker) lower(second int64, slots SlotSet) {
	i := slices.IndexFunc(m.Since, func(n Number) bool { return n.Second >= second })
	if second > 0 && len(m.Since) == MaxNumbers && i >= 0 {
		second = m.Since[i].Second
	}
	m.assign(second, slots)
}

// relist replaces the list (rule 10). A slot that the former list did not place on the server lacks all before now. A
// slot that the new list does not place there has number 0.
func (m *Marker) relist(now int64, server string, before, after *List) {
	placed := after.Slots(server)
	for i := range m.Since {
		m.Since[i].Slots = m.Since[i].Slots.intersect(placed)
	}
	m.Since = slices.DeleteFunc(m.Since, func(n Number) bool { return n.Slots.IsEmpty() })
	m.assign(now+Margin, placed.minus(before.Slots(server)))
	m.Servers, m.Replicas, m.Listed = after.servers, after.replicas, now
}

// same returns the slots whose numbers are the same as in the other marker. If that is of another memory, or its list
// has changed, it returns none.
func (m *Marker) same(other *Marker) (slots SlotSet) {
	if m.ID != other.ID || m.Listed != other.Listed {
		return SlotSet{}
	}
	all := every()
	for _, n := range m.numbers(&all) {
		for _, o := range other.numbers(&n.Slots) {
			if o.Second == n.Second {
				slots = slots.union(&o.Slots)
			}
		}
	}
	return slots
}

// grown returns the slots whose number is higher than before, and below the second.
func (m *Marker) grown(before *Marker, second int64) (slots SlotSet) {
	for _, n := range m.Since {
		if n.Second < second {
			for i := range before.Since {
				if before.Since[i].Second >= n.Second {
					n.Slots = n.Slots.minus(&before.Since[i].Slots)
				}
			}
			slots = slots.union(&n.Slots)
		}
	}
	return slots
}

// Debt names a process that has not delivered all of its adds to a server, or may soon not have.
type Debt struct {
	Server  string
	Process uint64
}

// MarshalText returns the process, as a hexadecimal number, and the server.
func (d Debt) MarshalText() ([]byte, error) {
	return append(strconv.AppendUint(nil, d.Process, 16), " "+d.Server...), nil
}

// UnmarshalText reads the text of MarshalText.
func (d *Debt) UnmarshalText(text []byte) (err error) {
	process, server, _ := strings.Cut(string(text), " ")
	d.Server = server
	d.Process, err = strconv.ParseUint(process, 16, 64)
	return err
}

// Debts is the table of debts, which is the same on all servers. A value is the Unix second until which the entry is
// good. It is negative if the debt was paid.
type Debts map[Debt]int64

// merge adds the entries of another table. Of two values the one with the larger absolute value wins, and of equal ones
// the paid one. So the order of merges does not matter, and no server can bring an old entry back.
func (t Debts) merge(other Debts) {
	for d, v := range other {
		if now := t[d]; magnitude(v) > magnitude(now) || magnitude(v) == magnitude(now) && v < now {
			t[d] = v
		}
	}
}

func magnitude(v int64) int64 { return max(v, -v) }
