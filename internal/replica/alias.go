package replica

import (
	"context"
	"slices"
)

// alias returns the last, by name, of this memory and another one of the list that has the same marker, or nil if there
// is none. A name that led to another server before is none: it may lead there again. The memories are locked.
func (m *Memory) alias() *Memory {
	for _, other := range m.all.memories {
		same := other != m && other.known != nil && other.known.ID == m.known.ID && m.earlier == 0 && other.earlier == 0
		if same && slices.Contains(m.all.list, m.name) && slices.Contains(m.all.list, other.name) {
			first, last := m, other
			if other.name < m.name {
				first, last = other, m
			}
			last.sameAs = first.name
			return last
		}
	}
	return nil
}

// NameFaults reports whether the name of the server leads to several servers, which count apart, and returns another
// name that leads to the same server, or none.
func (m *Memory) NameFaults() (several bool, sameAs string) {
	if m.all == nil {
		return false, ""
	}
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	return m.several, m.sameAs
}

// LeadsElsewhere reports whether a name that led to the server called used leads to a server that is not in the list.
// item is the marker of the server to which the name leads now.
//
// The marker is read before and after a look at the servers of the list. Otherwise the new marker of a server that has just
// been restarted, written by another process, would be taken for that of another server.
func (l *Losses) LeadsElsewhere(ctx context.Context, item MarkerItem, used string) (bool, error) {
	before, readable, err := markerID(item)
	if err != nil || !readable {
		return false, err
	}
	servers := l.Servers()
	if slices.ContainsFunc(servers, func(s Server) bool { return s.Name() == used && !s.Up() }) {
		return false, nil
	}
	servers = slices.DeleteFunc(servers, func(s Server) bool { return !s.Up() })
	if err := onEach(servers, func(_ int, s Server) error { return s.Look(ctx) }); err != nil {
		return false, err
	}
	after, readable, err := markerID(item)
	return err == nil && readable && after == before && !l.inUse(before), err
}

// markerID returns the ID of a marker, 0 if there is none, and reports whether it can be read.
func markerID(item MarkerItem) (id uint64, readable bool, err error) {
	text, _, found, err := item.Read()
	if err != nil || !found {
		return 0, err == nil, err
	}
	k := parseMarker(text)
	if k == nil {
		return 0, false, nil
	}
	return k.ID, true, nil
}

// inUse reports whether a server of the list has the marker with that ID.
func (l *Losses) inUse(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.list {
		if m := l.memories[name]; m != nil && m.known != nil && m.known.ID == id {
			return true
		}
	}
	return false
}
