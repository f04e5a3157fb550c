package ledger

import (
	"maps"
	"math"
	"slices"
	"time"
)

const (
	fresh    = 3 * time.Second        // a marker that was read is believed for this long
	apart    = 500 * time.Millisecond // Margin less a whole second and the most that clocks differ
	rests    = time.Second            // from the last miss of a server until a debt to it is paid
	lease    = 15                     // seconds for which a debt is good
	renewal  = 9                      // a debt is renewed when fewer seconds are left
	buried   = 60                     // seconds for which a paid debt is kept
	listRest = 3                      // seconds from a change of the list in a marker until the server is copied
	young    = 60                     // seconds for which a fleet is new
	calm     = 600                    // seconds from an eviction until anything is copied to the server
)

// Ledger is the state of one process: its conclusions from the markers of all servers. It is not safe for concurrent
// use.
//
//	rule  event                                        conclusion                                     function
//	1     a server has no marker                       its first one, raised unless the fleet is new  Create
//	2     another memory, or a number of a slow clock  raise                                          doubt
//	3     the server evicts                            raise                                          Reconcile
//	4, 5  a replica missed an add, or is away          a debt in another server's marker              Recorded, renew
//	6     all hints are delivered                      pay the debt                                   renew
//	7     hints overflow                               raise                                          Lose
//	8     a debt has run out                           raise                                          Reconcile
//	9     a debt is paid                               read the server's marker again                 hear
//	10    the list changes                             announce it, raise the slots that move         Relist, name
//	11    an item holds no count                       raise its slot                                 Spoil
//	12    a number is in no window any more            0                                              Reconcile
//	13    another replica has a lower number           copy from it                                   Plan
//	14    the copy is done                             lower the number                               Lower
type Ledger struct {
	process uint64
	longest int64 // seconds after which a number is in no window
	list    *List // as configured, and written to markers
	uses    *List // by which this process counts: the former list until all markers contain the new one. Nil at first
	foreign *List // the last other list found in a marker
	views   map[string]*view
	debts   Debts // the merge of all tables that were read
	closing bool
}

// view is the state of a server, to this process.
type view struct {
	up       bool
	hinted   bool    // hints wait for the server
	marker   *Marker // as read or written last. Nil until then
	version  uint64
	looked   time.Time // of the last look
	believed bool      // no debt was paid since that look began
	payments int       // debts to the server that were seen to be paid
	missed   time.Time // when the server missed an add last
	losses   int       // reasons to raise that the marker does not contain yet
	why      string    // the last of them
	spoiled  SlotSet   // slots with an item that holds no count, which the marker does not contain yet
	told     time.Time // when the marker contained the new list last
	met      *List     // the other list in the marker, after whose discovery joining servers are raised
}

// New returns the ledger of a process without any knowledge. process is a random number. longest is the number of
// seconds of the longest window, and a day.
func New(process uint64, list *List, longest int64) *Ledger {
	return &Ledger{process: process, longest: longest, list: list, views: map[string]*view{}, debts: Debts{}}
}

func (l *Ledger) view(server string) *view {
	v := l.views[server]
	if v == nil {
		v = &view{up: true}
		l.views[server] = v
	}
	return v
}

// Counts returns the list by which the process counts, or nil before the first list is in use.
func (l *Ledger) Counts() *List { return l.uses }

// Servers returns the servers of the configured list, and those of the list in use.
func (l *Ledger) Servers() []string {
	if l.uses == nil || l.uses == l.list {
		return l.list.servers
	}
	all := slices.Concat(l.list.servers, l.uses.servers)
	slices.Sort(all)
	return slices.Compact(all)
}

// isServer reports whether the server is one of Servers.
func (l *Ledger) isServer(server string) bool {
	return l.list.Has(server) || l.uses != nil && l.uses.Has(server)
}

// without returns the servers but that one.
func without(servers []string, server string) []string {
	return slices.DeleteFunc(slices.Clone(servers), func(s string) bool { return s == server })
}

// listOf returns the list in the marker.
func (l *Ledger) listOf(m *Marker) *List {
	for _, list := range []*List{l.list, l.uses, l.foreign} {
		if list != nil && list.is(m.Servers, m.Replicas) {
			return list
		}
	}
	l.foreign = NewList(m.Servers, m.Replicas)
	return l.foreign
}

// SetUp records whether the process can reach the server.
func (l *Ledger) SetUp(server string, up bool) { l.view(server).up = up }

// Miss records that the server did not acknowledge an add, for which there is a hint now.
func (l *Ledger) Miss(server string, now time.Time) {
	v := l.view(server)
	v.missed, v.hinted = now, true
}

// Delivered records that no hint for the server is left.
func (l *Ledger) Delivered(server string) { l.view(server).hinted = false }

// Lose records a reason to raise the numbers of the server, which its next look writes. The caller drops its hints for
// the server: the raise covers them.
func (l *Ledger) Lose(server, why string) {
	v := l.view(server)
	v.losses++
	v.why = why
}

// IsLosing reports whether the numbers of the server are to be raised, so that it needs no hints.
func (l *Ledger) IsLosing(server string) bool { return l.view(server).losses > 0 }

// Spoil records that an item of the slot holds no count (rule 11).
func (l *Ledger) Spoil(server string, slot int) { l.view(server).spoiled.Add(slot) }

// Close records that the process ends: it makes no more hits, and pays its debts at once.
func (l *Ledger) Close() { l.closing = true }

// owes reports whether the server lacks an add of this process, or may soon (rules 4 and 5).
func (l *Ledger) owes(server string) bool {
	v := l.view(server)
	return l.list.replicas > 1 && (v.losses > 0 || !v.spoiled.IsEmpty() || !v.up || v.hinted)
}

// renew brings the entries of this process in the table up to date (rules 5 and 6). A debt is paid only after a rest,
// since another miss may follow. An entry is larger than the last one of the process, so that it wins.
func (l *Ledger) renew(now time.Time) {
	for _, server := range l.Servers() {
		d := Debt{Server: server, Process: l.process}
		v := l.debts[d]
		switch {
		case l.owes(server) && v < now.Unix()+renewal:
			l.debts[d] = max(magnitude(v)+1, now.Unix()+lease)
		case !l.owes(server) && v > 0 && (now.Sub(l.view(server).missed) > rests || l.closing):
			l.debts[d] = -v
		}
	}
}

// stands reports whether the entry is that of a server which lacks adds without a raised number.
func (l *Ledger) stands(d Debt, v int64) bool {
	if v <= 0 {
		return false
	}
	w := l.views[d.Server]
	return w == nil || w.marker == nil || v > w.marker.Raised
}

// Recorded reports whether the marker of another server contains the debt of this process to the server. A hit that the
// server missed is answered only then (rule 4): if this process dies, others learn of the debt.
//
// The entry must be larger than the last one that was paid (interleaving B):
//  1. P misses B and records 24 in the markers of A and C.
//  2. The hit is denied, its hint goes, and P pays: -24 in A. C still has 24.
//  3. P misses B again, finds 24 in C, and would answer without a record.
//  4. P dies. Q merges 24 and -24: paid. B lacks the second hit, and nobody knows.
func (l *Ledger) Recorded(server string, now time.Time) bool {
	d := Debt{Server: server, Process: l.process}
	least := max(now.Unix()+Margin, -l.debts[d])
	for _, other := range l.Servers() {
		if v := l.view(other); other != server && v.marker != nil && v.up && v.marker.Debts[d] > least {
			return true
		}
	}
	return false
}

// owed reports whether the server may lack adds without a raised number.
func (l *Ledger) owed(server string, now time.Time) bool {
	v := l.view(server)
	if v.losses > 0 || !v.spoiled.IsEmpty() || v.hinted || !v.believed || now.Sub(v.looked) > fresh {
		return true
	}
	if l.list.replicas < 2 {
		return false
	}
	for d, v := range l.debts {
		if d.Server == server && d.Process != l.process && l.stands(d, v) {
			return true
		}
	}
	return !l.vouched(server)
}

// vouched reports whether all debts to the server are known (interleaving E, with two replicas):
//  1. P misses B and records it in the marker of A.
//  2. All processes die, and A stops answering.
//  3. S starts and reads the marker of B: number 0, no debt.
//
// S never read the marker of A, and B's has no debt against A. So no process was there when A went away, and S must
// not believe B. If Q had been there, Q would have merged P's debt into B's marker with its own against A.
func (l *Ledger) vouched(server string) bool {
	for _, other := range l.list.servers {
		if other == server || l.view(other).marker != nil {
			continue
		}
		found := false
		if m := l.view(server).marker; m != nil {
			for d, v := range m.Debts {
				found = found || d.Server == other && d.Process != l.process && v > 0
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// Create returns the marker of a server that has none (rule 1). others are the markers of the other servers. known
// reports whether all of these were asked, and the server's own item is missing and not another client's.
func (l *Ledger) Create(server string, id uint64, others []*Marker, known bool, now time.Time) *Marker {
	m := &Marker{
		ID: id, Created: now.Unix(), Servers: l.list.servers, Replicas: l.list.replicas, Evictions: UnknownEvictions,
	}
	if l.view(server).marker != nil {
		known = false
	}
	for _, o := range others {
		if o.Created < now.Unix()-young || o.Raised > 0 {
			known = false
		}
	}
	if !known {
		m.raise(now.Unix(), l.list.Slots(server), "emptied")
	}
	return m
}

// Look is one look at a server: the marker is read, reconciled, and written if it changed.
type Look struct {
	Server    string
	payments  int // as the look began
	losses    int // reasons that the marker contains when it is written
	announced bool
	Spoiled   SlotSet // slots whose numbers the marker raises for items that hold no count
}

// Begin begins a look, before the marker is read.
func (l *Ledger) Begin(server string) Look {
	return Look{Server: server, payments: l.view(server).payments}
}

// Reconcile returns the marker with all that this process has concluded. It reports whether it differs from read and
// must be written. If the write loses to another one, the caller reads and reconciles again. evictions is the server's
// counter, read after the marker.
func (l *Ledger) Reconcile(look *Look, read *Marker, evictions int64, now time.Time) (m *Marker, changed bool) {
	m = read.clone()
	v, second := l.view(look.Server), now.Unix()
	*look = Look{Server: look.Server, payments: look.payments}
	l.doubt(v, m, look.Server, second)
	if evictions > m.Evictions && m.Evictions >= 0 { // rule 3
		m.raise(second, l.listOf(m).Slots(look.Server), "evicted")
		m.Evicted = second
	}
	if evictions != UnknownEvictions {
		m.Evictions = evictions
	}
	l.name(look.Server, m, second)
	placed := l.listOf(m).Slots(look.Server)
	if l.uses != l.list && l.listOf(m) == l.list {
		if l.uses != nil { // raised again and again until the process counts there
			m.raiseSlots(second, placed.minus(l.uses.Slots(look.Server)))
		}
		look.announced = true
	}
	if v.losses > 0 {
		m.raise(second, placed, v.why)
		look.losses = v.losses
	}
	m.raiseSlots(second, v.spoiled.intersect(placed))
	look.Spoiled = v.spoiled
	if l.list.replicas > 1 {
		l.hear(m.Debts)
		l.renew(now)
		for d, v := range l.debts { // rule 8
			if d.Server == look.Server && v > m.Raised && v < second {
				m.raise(second, placed, "missed")
			}
		}
		l.share(m, second)
	}
	m.Since = slices.DeleteFunc(m.Since, func(n Number) bool { return n.Second < second-l.longest }) // rule 12
	return m, !m.equal(read)
}

// doubt raises what a writer could not know (rule 2): it did not know the former marker, or its clock is behind. Its
// raise is then at a second before this process's last look at the server, when the numbers were still lower.
func (l *Ledger) doubt(v *view, m *Marker, server string, now int64) {
	if v.marker == nil {
		return
	}
	looked, placed := v.looked.Unix(), l.listOf(m).Slots(server)
	if (m.ID != v.marker.ID || m.Raised > v.marker.Raised) && m.Raised < looked {
		m.raise(now, placed, "emptied")
	}
	grown := m.grown(v.marker, looked+Margin)
	m.raiseSlots(now, grown.intersect(placed))
}

// hear merges a table of debts. When a debt of another process is paid, the marker of its server counts as not read,
// and a look that began before counts neither (rule 9, interleaving A):
//  1. P missed adds to B, dropped its hints, and reaches B again. Q reads B's marker: number 0, and P's debt stands.
//  2. P raises B.
//  3. P pays its debt in A's marker.
//  4. Q reads A's marker: no debt.
//  5. A fails. Q answers from B alone: it remembers number 0, and marks nothing.
//
// P raises before it pays, so the next read of B's marker has the number.
func (l *Ledger) hear(table Debts) {
	for d, v := range table {
		if was := l.debts[d]; d.Process != l.process && v < 0 && was > 0 && -v >= was {
			if w := l.views[d.Server]; w != nil {
				w.payments++
				w.believed = false
			}
		}
	}
	l.debts.merge(table)
}

// share makes the marker contain the table of debts, without entries that no server needs: of servers in no list, paid
// long ago, settled by a raise, and of those that have run out all but the latest of each server.
func (l *Ledger) share(m *Marker, now int64) {
	overdue := map[string]int64{}
	for d, v := range l.debts {
		if v < now {
			overdue[d.Server] = max(overdue[d.Server], v)
		}
	}
	maps.DeleteFunc(l.debts, func(d Debt, v int64) bool {
		gone := !l.isServer(d.Server) && !slices.Contains(m.Servers, d.Server)
		return gone || v < 0 && -v < now-buried || v > 0 && v < now && (!l.stands(d, v) || v < overdue[d.Server])
	})
	if !maps.Equal(m.Debts, l.debts) {
		m.Debts = maps.Clone(l.debts)
	}
}

// Learn records the marker that a look has read or written, and its version.
//
// The debts of a former marker stay, also if the server has another memory now. Other servers have them as soon as one
// look has merged them there, so that no simulation finds a fault without this rule. Before that, with two replicas:
//  1. P misses B, records it in the marker of A, and dies.
//  2. Q reads A's marker. A is emptied before Q's next look at B.
//  3. Q reads A's new marker, which lacks the debt. If Q forgot it, nobody would know, and Q would believe B.
func (l *Ledger) Learn(look Look, m *Marker, version uint64, now time.Time) {
	v := l.view(look.Server)
	if v.marker != nil && v.marker.ID == m.ID && version < v.version {
		return
	}
	l.hear(m.Debts)
	v.losses -= look.losses
	v.spoiled = v.spoiled.minus(&look.Spoiled)
	if look.announced {
		v.told = now
	}
	v.marker, v.version, v.looked = m, version, now
	v.believed = v.payments == look.payments
}

// Number returns the number of the server for a slot as its marker contains it.
func (l *Ledger) Number(server string, slot int, now time.Time) int64 {
	m := l.view(server).marker
	if m == nil || !l.listOf(m).Slots(server).Has(slot) {
		return now.Unix() + Margin
	}
	return m.Number(slot)
}

// Since returns the second since when the servers together are complete for a slot: the lowest number of those that
// answered. The number of a server that may lack adds counts as now.
func (l *Ledger) Since(answered []string, slot int, now time.Time) int64 {
	since := int64(math.MaxInt64)
	for _, server := range answered {
		if l.owed(server, now) {
			since = min(since, now.Unix()+Margin)
		} else {
			since = min(since, l.Number(server, slot, now))
		}
	}
	return since
}

// IsSteady reports whether the numbers of the server contain all that it may lack, and all processes count by one list.
//
// A process with another list that looks in time flips the list in the marker within a second. That voids a copy, which
// takes longer, so that no simulation finds a fault without the rest of three seconds. It is for a process that looks
// late: its flip must not come after the copy has lowered a number (interleaving D).
func (l *Ledger) IsSteady(server string, now time.Time) bool {
	v := l.view(server)
	return v.marker != nil && v.up && l.uses == l.list && l.listOf(v.marker) == l.list &&
		now.Unix() >= v.marker.Listed+listRest && !l.owed(server, now)
}

// IsComplete reports whether the server lacks nothing, as far as any process knows: it is reachable.
func (l *Ledger) IsComplete(server string, now time.Time) bool {
	return l.IsSteady(server, now) && len(l.view(server).marker.Since) == 0
}

// Marker returns the marker of the server as read or written last, or nil.
func (l *Ledger) Marker(server string) *Marker { return l.view(server).marker }
