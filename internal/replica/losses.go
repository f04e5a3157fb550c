package replica

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/store"
)

const (
	// A loss does not matter any more after the longest window, at the most longestWindow,
	// and a day.
	longestWindow = 32 * 24 * time.Hour
	day           = 24 * time.Hour
	// refreshAway is how often a process says that it cannot reach a server. One that has not
	// said so for staleAway has ended, and another one says what the server has missed.
	refreshAway = 5 * time.Second
	staleAway   = 15 * time.Second
	// foundingFor is how long a process that founds a fleet waits for the markers of all servers.
	foundingFor = time.Second
	// calmAfter is how long after its last eviction a server is worth copying to.
	calmAfter = 10 * time.Minute
)

// Loss is what has become of what a server held.
type Loss int

const (
	Emptied  Loss = iota + 1 // it came back empty, a flush_all came, or it is new
	Evicting                 // it is full, and has dropped what had not expired
	Repaired                 // what it had lost or missed was copied to it from other servers
	Several                  // nothing of that: its name leads to several servers, by turns
	Same                     // nor that: another name in the list, which sorts before its own, leads to the same server
)

// Losses is what the servers of a Placement have lost, by their markers. It is safe for concurrent
// use.
type Losses struct {
	*Placement
	now       func() time.Time
	timeout   time.Duration
	retention func() time.Duration // or nil
	process   uint64               // random
	lossy     atomic.Bool          // a server has lost something
	pending   func(Server) bool    // whether there are hints for it

	mu       sync.Mutex // of what follows, and of the servers' memories
	memories map[string]*Memory
	list     []string // the names of the servers in use, in order
	gone     departed // from the list of this process
}

// Memory is what is known of the losses of one server. The zero Memory detects none. It is
// safe for concurrent use.
type Memory struct {
	state  atomic.Pointer[state] // nil: it has lost nothing, as far as is known
	all    *Losses               // nil: losses are not detected
	name   string
	onLoss func(Loss)
	items  atomic.Int64 // by its statistics

	known    *marker   // as it was read last; nil: it was not, or there is none
	asked    bool      // it was read, or there was none
	seen     time.Time // when this one was read first
	earlier  uint64    // the ID of the marker before that
	several  bool      // a marker has come back: the name leads to several servers
	sameAs   string    // another name in the list that leads to the same server, for the name that is not used
	asserted uint64    // the ID of the marker into which the list in use was written, or where it was found
	fewer    bool      // the last statistics had fewer evictions
	// behind: it was away, and there may be hints of what it missed. lacks: it has missed
	// something without a hint, and its marker is to say so.
	behind, lacks bool
	heard         map[string]map[uint64]heard // what other servers' markers say of its absence, by processes
	// moved is a change of this process's list by which counters moved here, until the marker says so: another process may
	// have changed its list before, and this one has counted in the old places since. writing is a moved that is in the
	// marker which is being written.
	moved, writing *formerServers
}

// heard is what a process has said of the absence of a server, and since when that is known.
type heard struct {
	second int64
	at     time.Time
}

// state is what of a marker decides are made with. It does not change.
type state struct {
	name     string
	lost     int64 // all counters may be incomplete before
	former   []formerTopology
	copied   map[string]copied
	away     func() int64 // the Unix second of now: it misses something; nil: it does not, or its marker says so
	full     bool
	missed   bool
	left     bool // what was lost cannot be copied
	percent  int
	replicas int
}

type formerTopology struct {
	until int64
	*topology
}

// Join returns the Memory of a server; added: the servers in use change to hold it. onLoss is
// called with what becomes of what the server holds, from any goroutine, and with no lock held.
func (l *Losses) Join(name string, added bool, onLoss func(Loss)) *Memory {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &Memory{all: l, name: name, onLoss: onLoss, heard: map[string]map[uint64]heard{}}
	if added {
		m.publish(&marker{Former: []formerServers{{Until: l.now().Unix(), Servers: l.list}}}, l.now().Unix())
	}
	l.memories[name] = m
	return m
}

// Leave notes that the server is not used any more.
func (m *Memory) Leave() {
	if m.all == nil {
		return
	}
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	if m.all.memories[m.name] == m {
		delete(m.all.memories, m.name)
	}
	m.heed()
}

// relist notes the list in use from now on. What moves is known before the markers say so.
func (l *Losses) relist(servers []Server) {
	now := l.now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	former := l.list
	l.list = nil
	for _, s := range servers {
		l.list = append(l.list, s.Name())
	}
	slices.Sort(l.list)
	if slices.Equal(former, l.list) {
		return
	}
	for _, name := range former {
		if !slices.Contains(l.list, name) {
			l.gone.note(name, now)
		}
	}
	for _, m := range l.memories {
		m.asserted = 0
		if len(former) == 0 {
			continue
		}
		if slices.Contains(l.list, m.name) && (lacking(former, l.list) > 0 || !slices.Contains(former, m.name)) {
			m.moved = &formerServers{now, former}
		}
		k := &marker{}
		if m.known != nil {
			k = m.known.clone()
			m.assert(k, now)
		}
		m.publish(k, now)
	}
}

// assert has the marker name the list in use, once: the writer of the next one may have another list. A process with fewer replicas than others only looks on.
func (m *Memory) assert(k *marker, now int64) (changed bool) {
	if m.asserted == k.ID || !slices.Contains(m.all.list, m.name) || k.Replicas > m.all.replicas {
		return false
	}
	changed = k.Replicas != m.all.replicas
	if k.Replicas = m.all.replicas; slices.Equal(k.Servers, m.all.list) {
		return changed
	}
	before := k.Servers
	k.Servers = m.all.list
	for _, name := range before {
		if !slices.Contains(k.Servers, name) {
			k.Gone.note(name, now)
		}
	}
	if lacking(before, k.Servers) > 0 || !slices.Contains(before, m.name) && len(before) > 0 { // else nothing has moved here
		k.changed(before, now)
	}
	return true
}

// missedSince returns when the server left the list, if it is back with what it held then, and its marker does not
// say so yet; 0: it did not.
func (m *Memory) missedSince(k *marker) int64 {
	gone := m.all.gone[m.name]
	for _, other := range m.all.memories {
		if other != m && other.known != nil {
			gone = max(gone, other.known.Gone[m.name])
		}
	}
	if gone < k.Returned {
		return 0
	}
	return gone
}

// Since returns the Unix second before which counters of the server may be incomplete; 0: as far as
// is known it has lost nothing.
func (m *Memory) Since() int64 {
	s := m.state.Load()
	switch {
	case s == nil:
		return 0
	case s.away != nil:
		return s.away()
	}
	return s.lost
}

// Lost is what a server is known to have lost.
type Lost struct {
	Since     int64 // all before this Unix second; 0: nothing
	Evicted   bool  // because it is full
	Missed    bool  // because it was away
	Repairing bool  // it is being copied, or counters have moved to the server since the list changed
	Percent   int   // so much of it was copied
	Left      bool  // it cannot be copied: other servers have lost it, too
}

// Lost returns what the server has lost.
func (m *Memory) Lost() Lost {
	s := m.state.Load()
	if s == nil {
		return Lost{}
	}
	return Lost{m.Since(), s.full, s.missed || s.away != nil, s.replicas > 1 && !s.left, s.percent, s.left}
}

// isWhole reports whether the server has lost nothing of a counter with these servers. One that is away
// for another process, or for which there are hints, still has most of it.
func (m *Memory) isWhole(h store.Hash, servers []Server) bool {
	s := m.state.Load()
	return s == nil || s.lostOf(h, servers) == 0
}

// sinceOf returns the Unix second since which the server has all of the counter; 0: always, as far
// as is known.
func (m *Memory) sinceOf(h store.Hash, servers []Server) int64 {
	s := m.state.Load()
	if s == nil {
		return 0
	}
	if s.away != nil {
		return s.away()
	}
	return s.lostOf(h, servers)
}

// lostOf is the same without what the server has missed and its marker does not tell yet.
func (s *state) lostOf(h store.Hash, servers []Server) int64 {
	since := s.lost
	for _, f := range s.former {
		if f.until > since && !f.holds(h, s.name) {
			since = f.until
		}
	}
	for _, other := range servers {
		if c, found := s.copied[other.Name()]; found {
			since = min(since, c.since())
		}
	}
	return since
}

// publish makes the marker what decisions are made with. The memories are locked.
func (m *Memory) publish(k *marker, now int64) {
	if m.moved != nil {
		k = k.clone()
		k.changed(m.moved.Servers, m.moved.Until)
	}
	s := &state{name: m.name, copied: k.Copied, replicas: m.all.replicas, full: k.Evicted != 0, missed: k.Missed, percent: k.percent()}
	if m.isAway() {
		s.away = func() int64 { return m.all.now().Unix() }
	}
	if m.missedSince(k) > 0 {
		s.lost = now
	}
	before := now - m.all.lasts()
	for _, f := range k.Former {
		switch f.Until = min(f.Until, now); {
		case f.Until < before:
		case slices.Contains(f.Servers, m.name):
			s.former = append(s.former, formerTopology{f.Until, formerly(m.all.replicas, f.Servers)})
		default:
			s.lost = max(s.lost, f.Until)
		}
	}
	s.full = s.full && s.lost != 0 && k.Evicted >= s.lost
	s.left = len(k.Copied) > 0 && len(k.Copied) >= len(k.Servers)-1
	if s.lost == 0 && len(s.former) == 0 && s.away == nil {
		s = nil
	}
	m.state.Store(s)
	lossy := false
	for _, other := range m.all.memories {
		lossy = lossy || other.state.Load() != nil
	}
	m.all.lossy.Store(lossy || s != nil)
}

// isAway reports whether a process cannot reach the server, or could not and has not said yet what
// it missed. The memories are locked.
func (m *Memory) isAway() bool {
	away := m.behind
	for _, other := range m.all.memories {
		away = away || other != m && other.known != nil && len(other.known.Away[m.name]) > 0
	}
	return away && m.all.replicas > 1
}

// Away notes that this process cannot reach the server. Until it can, and has replayed its hints, the
// server lacks something, and others' markers say so.
func (m *Memory) Away() { m.miss(false) }

// Missed notes that the server has missed something of which there is no hint.
func (m *Memory) Missed() { m.miss(true) }

func (m *Memory) miss(lacks bool) {
	if m.all == nil || m.all.replicas < 2 {
		return
	}
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	if m.behind && (m.lacks || !lacks) {
		return
	}
	m.behind, m.lacks = true, lacks
	k := m.known
	if k == nil {
		k = &marker{}
	}
	m.publish(k, m.all.now().Unix())
	m.all.Gap()
}

// Check reads the marker, and writes one where there is none. It writes into it what this process
// knows: that the server has missed something, which others it cannot reach, and the list in use.
func (m *Memory) Check(item MarkerItem) error {
	if m.all == nil {
		return nil
	}
	return quietly(m.update(item, nil))
}

// errContended is why a marker was not written: other processes wrote it all the time.
var errContended = errors.New("replication: other processes change the marker all the time")

// quietly makes errContended none: the next look tries again.
func quietly(err error) error {
	if errors.Is(err, errContended) {
		return nil
	}
	return err
}

// update changes the marker, with what this process has to say as well. change reports whether
// there is anything to write; nil: it changes nothing.
func (m *Memory) update(item MarkerItem, change func(*marker) bool) error {
	founds := false
	for range 8 { // other processes may be changing it at the same time
		text, version, found, err := item.Read()
		if err != nil {
			return err
		}
		k := parseMarker(text)
		switch {
		case found && k == nil && version == 0:
			m.all.noteAsked(m)
			return nil // it refuses
		case found && k == nil: // another client wrote it: what it said is not known
			m.all.noteAsked(m)
			if _, err := item.Swap(m.replaced().String(), version); err != nil {
				return err
			}
			continue
		case !found:
			m.all.noteAsked(m)
			m.all.readOthers()
			added, err := item.Add(m.anew().String())
			if errors.Is(err, store.ErrRefused) {
				return nil
			}
			if err != nil {
				return err
			}
			if founds = added; added {
				m.all.Gap()
			}
			continue
		}
		changed, marked := m.reconcile(k)
		if change != nil {
			changed = change(k) || changed
		}
		if changed {
			swapped, err := item.Swap(k.String(), version)
			if err != nil {
				return err
			}
			if !swapped {
				continue
			}
		}
		if m.learn(k, marked); founds {
			m.all.readOthers()
		}
		return nil
	}
	return errContended
}

// noteAsked notes that the marker was asked for.
func (l *Losses) noteAsked(m *Memory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.asked = true
}

// readOthers reads the markers that were not read yet: a server without one has lost it if another one
// has an old one. It ends the founding of a fleet where all have one.
func (l *Losses) readOthers() {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	var looks sync.WaitGroup
	for _, s := range l.Servers() {
		l.mu.Lock()
		m := l.memories[s.Name()]
		due := m != nil && (!m.asked || m.known != nil && m.known.Founding)
		l.mu.Unlock()
		if due && s.Up() {
			looks.Go(func() { _ = s.Look(ctx) }) // one that does not answer has nothing to say
		}
	}
	looks.Wait()
}

// anew returns the marker for a server that has none.
func (m *Memory) anew() *marker {
	now := m.all.now().Unix()
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	// A fleet is new if another server says so, and none says otherwise.
	founding, alone := m.known == nil, true
	for _, name := range without(m.all.list, m.name) {
		if other := m.all.memories[name]; other != nil && other.asked {
			founding, alone = founding && (other.known == nil || other.known.Founding), false
		}
	}
	single := len(m.all.list) < 2
	founding = founding && (!alone || single)
	k := newMarker(founding && !single, m.all.list, m.all.replicas)
	for _, other := range m.all.memories {
		if other.known != nil {
			k.Gone.join(other.known.Gone)
		}
	}
	if !founding {
		k.lose(m.name, now)
	}
	return &k
}

// replaced returns the marker in place of one that cannot be read: the server may lack anything.
func (m *Memory) replaced() *marker {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	k := newMarker(false, m.all.list, m.all.replicas)
	k.lose(m.name, m.all.now().Unix())
	k.Missed = true
	return &k
}

// reconcile has the marker say what this process knows. It reports whether there is anything to write,
// and whether that the server has missed something is a part of it.
func (m *Memory) reconcile(k *marker) (changed, marked bool) {
	now := m.all.now().Unix()
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	changed = k.limit(now)
	if m.known != nil && m.known.version() != k.version() { // by a clock that may be behind
		changed = k.extend(now) || changed
	}
	if m.known != nil && m.known.ID != k.ID && len(k.Former) == 0 { // its writer did not know of the loss
		k.lose(m.name, now)
		changed = true
	}
	if k.Founding && (m.all.allKnown(m) || m.known != nil && m.known.ID == k.ID && time.Since(m.seen) >= foundingFor) {
		k.Founding = false
		changed = true
	}
	changed = m.assert(k, now) || changed
	if m.writing = m.moved; m.moved != nil && k.Replicas <= m.all.replicas {
		k.changed(m.moved.Servers, m.moved.Until)
		changed = true
	}
	m.all.gone.forget(now - m.all.lasts())
	changed = k.Gone.join(m.all.gone) || changed
	if gone := m.missedSince(k); gone > 0 {
		k.lose(m.name, now)
		k.Returned = max(now, gone) + 1
		changed = true
	}
	for _, other := range m.all.memories {
		if other != m && !other.isUp() {
			other.heed()
		}
	}
	switch {
	case !m.behind || !m.isUp():
	case !m.lacks && !m.all.pending(m.all.Named(m.name)):
		m.behind = false // its hints were replayed
	case m.lacks:
		marked = true
		lost, _ := k.lost(m.name)
		missed := lost == 0 || k.Missed
		k.lose(m.name, now)
		k.Missed = missed
		changed = true
	}
	if m.all.replicas > 1 {
		changed = m.announce(k, now) || changed
	}
	return k.forget(now-m.all.lasts()) || changed, marked
}

// allKnown reports whether the others' markers were read.
func (l *Losses) allKnown(but *Memory) bool {
	for _, other := range l.memories {
		if other != but && other.known == nil {
			return false
		}
	}
	return true
}

// announce has the marker say which other servers this process cannot reach, or has hints for. What a
// process has said that has ended meanwhile it takes over.
func (m *Memory) announce(k *marker, now int64) (changed bool) {
	own := m.all.process
	for name := range k.Away { // also of servers that are in use no more
		if !slices.Contains(m.all.list, name) {
			delete(k.Away, name)
			changed = true
		}
	}
	for _, other := range m.all.memories {
		if other == m || !slices.Contains(m.all.list, other.name) {
			continue
		}
		other.behind = other.behind || !other.isUp()
		said, found := k.Away[other.name][own]
		switch {
		case other.behind && (!found || now-said >= int64(refreshAway/time.Second) || said > now):
			k.sayAway(other.name, own, now)
			changed = true
		case !other.behind && found:
			k.sayNoMore(other.name, own)
			changed = true
		}
		maps.DeleteFunc(other.heard[m.name], func(process uint64, _ heard) bool {
			_, says := k.Away[other.name][process]
			return !says
		})
		for process, second := range k.Away[other.name] {
			if process == own {
				continue
			}
			h := other.heard[m.name][process]
			switch {
			case h.second != second:
				if other.heard[m.name] == nil {
					other.heard[m.name] = map[uint64]heard{}
				}
				other.heard[m.name][process] = heard{second, time.Now()}
			case time.Since(h.at) >= staleAway && other.isUp():
				other.behind, other.lacks = true, true
				k.sayNoMore(other.name, process)
				k.sayAway(other.name, own, now)
				changed = true
			}
		}
		if len(k.Away[other.name]) == 0 {
			delete(other.heard, m.name)
		}
	}
	return changed
}

// heed takes over what the marker says of servers that are away: it must not be lost with it. The
// memories are locked.
func (m *Memory) heed() {
	if m.known == nil || m.all.replicas < 2 {
		return
	}
	for name, by := range m.known.Away {
		delete(by, m.all.process)
		if other := m.all.memories[name]; other != nil && other != m && len(by) > 0 {
			other.behind, other.lacks = true, true
		}
	}
	clear(m.known.Away)
}

// isUp reports whether the server is up.
func (m *Memory) isUp() bool {
	s := m.all.Named(m.name)
	return s != nil && s.Up()
}

// learn takes in a marker that was read or written.
func (m *Memory) learn(k *marker, marked bool) {
	now := m.all.now().Unix()
	m.all.mu.Lock()
	before := m.known
	m.asked = true
	if before == nil || before.ID != k.ID {
		m.seen = time.Now()
	}
	if before == nil || before.version() != k.version() {
		m.all.Gap()
	}
	several := false
	if before != nil && before.ID != k.ID {
		several = k.ID == m.earlier && !m.several
		m.earlier, m.several = before.ID, m.several || several
		m.heed()
	}
	if slices.Equal(k.Servers, m.all.list) {
		m.asserted = k.ID
	}
	if m.moved == m.writing && k.Replicas <= m.all.replicas { // no change of the list came between
		m.moved = nil
	}
	if marked && m.isUp() {
		m.behind, m.lacks = false, false
	}
	m.known = k.clone()
	m.publish(k, now)
	for _, other := range m.all.memories { // of which it may say that they are away, or were
		if other != m && other.known != nil && (len(k.Away)+len(k.Gone) > 0 || before != nil && len(before.Away) > 0) {
			other.publish(other.known, now)
		}
	}
	loss := k.lossSince(before, m.name, now-m.all.lasts())
	alias := m.alias()
	m.all.mu.Unlock()
	if alias != nil {
		alias.onLoss(Same)
	}
	if several {
		m.onLoss(Several)
	}
	if loss != 0 {
		m.onLoss(loss)
	}
}

// Count takes in statistics of the server: how many items it holds, and how many it has dropped
// since its start that had not expired. The marker keeps those, so that a process that starts
// later knows of them.
func (m *Memory) Count(item MarkerItem, items, evictions int64) error {
	if m.all == nil {
		return nil
	}
	m.items.Store(items)
	m.all.mu.Lock()
	due := m.known != nil && evictions != m.known.Evictions
	if due && evictions < m.known.Evictions { // another process has counted since, or the statistics were reset
		due = m.fewer
		m.fewer = !m.fewer
	}
	m.all.mu.Unlock()
	if !due {
		return nil
	}
	return quietly(m.update(item, func(k *marker) bool {
		if evictions == k.Evictions {
			return false
		}
		if evictions > k.Evictions && k.Evictions != unknown {
			k.Evicted = m.all.now().Unix()
			k.lose(m.name, k.Evicted)
		}
		k.Evictions = evictions
		return true
	}))
}

// longest returns for how long any counter is remembered.
func (l *Losses) longest() time.Duration {
	if l.retention != nil {
		return l.retention()
	}
	return longestWindow
}

// lasts returns for how many seconds a loss can affect a window.
func (l *Losses) lasts() int64 { return int64((l.longest() + day) / time.Second) }

// Since returns the Unix second since which nothing of the counter was lost with its
// servers, nor by moving to others; 0: as far as is known nothing ever was. Of a loss it is
// when it was noticed. With several replicas nothing is lost as long as one that is up has it all.
func (l *Losses) Since(counter string) int64 {
	if !l.lossy.Load() {
		return 0
	}
	h := l.hash(counter)
	var list [MaxReplicas]Server
	since := int64(-1)
	servers := l.topology.Load().of(h, &list)
	for _, server := range servers {
		if server.Up() {
			since = earlier(since, server.Memory().sinceOf(h, servers))
		}
	}
	if since >= 0 {
		return since
	}
	for _, server := range servers { // none is up: what they will have when they are back
		since = earlier(since, server.Memory().sinceOf(h, servers))
	}
	return max(since, 0)
}

func earlier(a, b int64) int64 {
	if a < 0 {
		return b
	}
	return min(a, b)
}
