package ledger

import (
	"cmp"
	"slices"
	"time"
)

// Copy is a copy of some slots from one server to another.
type Copy struct {
	Source, Target string
	Slots          SlotSet
	list           *List
	source, target *Marker // as the copy was planned
}

// Plan returns the copy of most slots that the target needs now, or nil (rule 13). Each slot is copied from the replica
// with the lowest number. A number that is not in the past is left alone: a process may still count without the target.
func (l *Ledger) Plan(target string, now time.Time) *Copy {
	to := l.view(target).marker
	if l.list.replicas < 2 || !l.IsSteady(target, now) || len(to.Since) == 0 || now.Unix() < to.Evicted+calm {
		return nil
	}
	type source struct {
		server string
		number Number
	}
	var sources []source
	for _, server := range without(l.list.servers, target) {
		if l.IsSteady(server, now) {
			for _, n := range l.view(server).marker.numbers(l.list.Slots(server)) {
				sources = append(sources, source{server, n})
			}
		}
	}
	slices.SortStableFunc(sources, func(a, b source) int { return cmp.Compare(a.number.Second, b.number.Second) })
	copies := map[string]*Copy{}
	for _, n := range to.numbers(l.list.Slots(target))[1:] {
		if now.Unix() <= n.Second {
			continue
		}
		for _, s := range sources {
			if s.number.Second >= n.Second {
				break
			}
			slots := n.Slots.intersect(&s.number.Slots)
			n.Slots = n.Slots.minus(&slots)
			if copies[s.server] == nil {
				from := l.view(s.server).marker
				copies[s.server] = &Copy{Source: s.server, Target: target, list: l.list, source: from, target: to}
			}
			copies[s.server].Slots = copies[s.server].Slots.union(&slots)
		}
	}
	var most *Copy
	for _, server := range l.list.servers {
		if c := copies[server]; c != nil && !c.Slots.IsEmpty() && (most == nil || c.Slots.Len() > most.Slots.Len()) {
			most = c
		}
	}
	return most
}

// Remaining returns the slots of the copy that are still valid: their numbers on both servers are as they were when it
// was planned, and no list has changed since.
func (l *Ledger) Remaining(c *Copy) (slots SlotSet) {
	to, from := l.view(c.Target).marker, l.view(c.Source).marker
	if l.list != c.list || l.uses != c.list || to == nil || from == nil {
		return SlotSet{}
	}
	slots = to.same(c.target)
	slots = slots.intersect(&c.Slots)
	same := from.same(c.source)
	return slots.intersect(&same)
}

// Lower returns the target's marker after the copy, given the marker that was read last. It returns nil if no slot of
// the copy is left (rule 14).
func (l *Ledger) Lower(c *Copy, read *Marker) *Marker {
	slots, same := l.Remaining(c), read.same(c.target)
	slots = slots.intersect(&same)
	if slots.IsEmpty() || l.listOf(read) != c.list {
		return nil
	}
	m := read.clone()
	for _, n := range c.source.numbers(&slots) {
		m.lower(n.Second, n.Slots)
	}
	return m
}
