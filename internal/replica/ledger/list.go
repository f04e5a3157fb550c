package ledger

import "time"

// Relist makes the process use another list. Its next looks announce it: they write it to the markers of all servers
// of both lists. The process counts by it after UseList.
//
// Two lists at a time would lose adds (rules 10 and 13, interleaving D). N joins, and a slot moves from A and B to B
// and N. Q has the new list, P the old one.
//  1. Q counts on B and N, P on A and B: N lacks P's adds, and A lacks Q's.
//  2. B was emptied before, and P copies the slot from A: by the larger value B loses what Q counted there.
//
// So Q first writes the new list to the markers of A, B and N. P finds it and writes the old one: they take turns, once
// a second. Each change raises the slots that move, so N's number is later than P's last add by the old list. Nothing
// is copied from or to a server whose marker changed its list within three seconds.
func (l *Ledger) Relist(list *List) {
	for _, server := range list.servers {
		if l.list.Has(server) {
			continue
		}
		if v := l.view(server); l.uses == nil || !l.uses.Has(server) {
			*v = view{up: v.up, hinted: v.hinted}
		}
		l.Lose(server, "joined")
	}
	l.list = list
	for _, v := range l.views {
		v.told = time.Time{}
	}
}

// IsAnnounced reports whether the markers of all servers that are up contained the new list a moment ago.
func (l *Ledger) IsAnnounced(now time.Time) bool {
	for _, server := range l.Servers() {
		if v := l.view(server); v.up && (v.losses > 0 || v.told.IsZero() || now.Sub(v.told) > apart) {
			return false
		}
	}
	return true
}

// UseList makes the process count by the configured list. It forgets the servers that are in it no more.
func (l *Ledger) UseList() {
	for server := range l.views {
		if !l.list.Has(server) {
			delete(l.views, server)
		}
	}
	l.uses = l.list
}

// name makes the marker contain the configured list. While processes have different lists they take turns, once a
// second. A server that joins is raised before the other markers name it: it may be back with its old items and marker.
func (l *Ledger) name(server string, m *Marker, now int64) {
	v, found := l.view(server), l.listOf(m)
	if found == l.list {
		v.met = nil
		return
	}
	var joining []string
	for _, other := range without(l.list.servers, server) {
		if !found.Has(other) {
			joining = append(joining, other)
		}
	}
	if v.met == nil || !v.met.is(m.Servers, m.Replicas) {
		v.met = found
		for _, other := range joining {
			l.Lose(other, "joined")
		}
	}
	for _, other := range joining {
		if l.view(other).losses > 0 {
			return
		}
	}
	if m.Listed < now {
		v.met = nil
		m.relist(now, server, found, l.list)
	}
}
