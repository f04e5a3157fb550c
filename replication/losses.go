package replication

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxAhead is by how many seconds the clock of a marker's writer may be ahead. So much
	// younger than the oldest may the markers of a fleet be that was new.
	maxAhead = 5
	// A loss does not matter any more after the longest window, at the most longestWindow,
	// and a day.
	longestWindow = 32 * 24 * time.Hour
	day           = 24 * time.Hour
)

// Loss is what has become of what a server held.
type Loss int

const (
	Emptied  Loss = iota + 1 // it came back empty, a flush_all came, or it is new
	Evicting                 // it is full, and has dropped what had not expired
	Repaired                 // what it had lost was copied to it from other servers
)

// Stats are the statistics of a server that tell of losses.
type Stats struct {
	Items     int64
	Evictions int64 // items dropped, since its start, that had not expired
	Others    int64 // items that are none of a counter's
}

// Losses detects what the servers of a Placement have lost. It is safe for concurrent use.
type Losses struct {
	*Placement
	now       func() time.Time
	began     int64 // Unix second
	timeout   time.Duration
	retention func() time.Duration // or nil

	mu       sync.Mutex // of what follows, and of the servers' memories
	oldest   int64      // the second of the oldest marker seen; 0: none was
	held     bool       // a server that is no longer used held counters before this process
	memories map[*Memory]struct{}
}

// Memory is what is known of the losses of one server. The zero Memory detects none. It is
// safe for concurrent use.
type Memory struct {
	since  atomic.Int64 // the Unix second since which it is whole; 0: always, as far as is known
	all    *Losses      // nil: losses are not detected
	onLoss func(Loss)

	known       marker
	repaired    marker // what was lost before it was repaired, as far as it can be
	before      marker // the one before that: a process that reads it late reports no new loss
	from        int64  // the second of the known one, as far as it can be trusted
	seen        int64  // when it was read last
	lost        int64  // what was before is lost, and not repaired
	lostForGood int64  // what was before is lost on all replicas: too many servers lost it at once
	// wasEmpty: when this process began to use the server, it held no counter that the
	// process may not know: it was empty, or was added to the list.
	wasEmpty  bool
	evicting  bool // because the server is full
	counted   bool // its evictions were
	evictions int64
}

// Join returns the Memory of a server; added: the servers in use change to hold it. onLoss is
// called with what becomes of what the server holds, from any goroutine, and with no lock held.
func (l *Losses) Join(added bool, onLoss func(Loss)) *Memory {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &Memory{all: l, wasEmpty: added, onLoss: onLoss}
	l.memories[m] = struct{}{}
	return m
}

// Leave notes that the server is not used any more.
func (m *Memory) Leave() {
	if m.all == nil {
		return
	}
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	delete(m.all.memories, m)
	m.all.held = m.all.held || !m.wasEmpty
	m.all.weigh(m.all.now().Unix())
}

// Since returns the Unix second since which the server has lost nothing; 0: as far as is known
// it never has.
func (m *Memory) Since() int64 { return m.since.Load() }

// Whole reports whether the server has lost nothing, as far as is known.
func (m *Memory) Whole() bool { return m.Since() == 0 }

// Evicting reports whether what it has lost went because it is full.
func (m *Memory) Evicting() bool {
	if m.all == nil {
		return false
	}
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	since := m.Since()
	return since != 0 && m.evicting && since == m.lost
}

// Check reads the marker, and writes one where there is none. first is nil where it is not the
// first look at the whole fleet.
func (m *Memory) Check(item MarkerItem, first *Participant) error {
	if m.all == nil {
		return nil
	}
	read, own, err := m.fetch(item, first)
	if err != nil {
		return err
	}
	if read != (marker{}) && m.learn(read, own) {
		if err := item.Replace(read.marked().String()); err != nil {
			return err
		}
	}
	if first != nil {
		first.Arrive()
	}
	return nil
}

// fetch returns the marker, and whether it is this process's own: the server had none. It
// returns the zero marker where the server takes none, or has something else in its place.
func (m *Memory) fetch(item MarkerItem, first *Participant) (read marker, own bool, err error) {
	for range 3 { // another process may be putting one there at the same time
		text, found, err := item.Read()
		if found || err != nil {
			return parseMarker(text), false, err
		}
		if first != nil {
			first.wait()
		}
		anew := m.anew()
		switch added, err := item.Add(anew.String()); {
		case errors.Is(err, ErrRefused):
			return marker{}, false, nil
		case added || err != nil:
			return anew, true, err
		}
	}
	return marker{}, false, nil
}

// anew returns the marker for a server that has none.
func (m *Memory) anew() marker {
	now := m.all.now().Unix()
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	return newMarker(now, m.known != marker{} || m.all.oldest != 0 && now > m.all.oldest+maxAhead)
}

// learn takes in a marker that was read, or put there where there was none, and what it says
// of the others. It reports whether the marker has to be marked as one after a loss: a process
// that did not know of the loss was the first to write it.
func (m *Memory) learn(read marker, own bool) (mark bool) {
	now := m.all.now().Unix()
	m.all.mu.Lock()
	if m.known != (marker{}) && read != m.known && read != m.before && !read.afterLoss {
		read, mark = read.marked(), true // also where an earlier try did not arrive
	}
	if read == m.known {
		m.seen = now
	}
	if read == m.known || read == m.before {
		m.all.mu.Unlock()
		return mark
	}
	m.all.Gap() // the repair under way began before this loss
	m.from = read.second
	if read.second > now+maxAhead {
		m.from = now
	}
	if m.known != (marker{}) {
		m.lost, m.evicting = max(m.from, m.seen), false
		if other := m.known; !other.afterLoss && read == other.marked() {
			m.wasEmpty = false // there were counters before this process began
		}
	} else {
		m.wasEmpty = m.wasEmpty || own
	}
	m.before, m.known, m.seen = m.known, read, now
	if m.all.oldest == 0 || m.from < m.all.oldest {
		m.all.oldest = m.from
	}
	news := m.all.weigh(now)
	m.all.mu.Unlock()
	tell(news)
	return mark
}

// Count takes in the statistics.
func (m *Memory) Count(stats Stats) {
	if m.all == nil {
		return
	}
	now := m.all.now().Unix()
	m.all.mu.Lock()
	grown := stats.Evictions - m.evictions
	if grown < 0 {
		grown = stats.Evictions // it began again
	}
	if m.counted && grown > 0 && now > m.lost {
		m.lost, m.evicting = now, true
	}
	if !m.counted && m.before == (marker{}) { // it has lost nothing before the first look
		m.wasEmpty = stats.Evictions == 0 && (m.wasEmpty || stats.Items <= stats.Others)
	}
	m.counted, m.evictions = true, stats.Evictions
	m.all.forget(now - m.all.lasts())
	news := m.all.weigh(now)
	m.all.mu.Unlock()
	tell(news)
}

// unrepaired returns the Unix second of the latest loss that was not repaired; 0: there is
// none. The memories are locked.
func (m *Memory) unrepaired() int64 {
	// The server came back empty before this process began to look; or it was added, and
	// others had its counters.
	if m.known != m.repaired && (m.known.afterLoss || m.from > m.all.oldest+maxAhead) {
		return max(m.lost, m.from)
	}
	return m.lost
}

// settle ends a loss that a repair has followed. What was not there to be repaired stays
// lost. The memories are locked.
func (m *Memory) settle(repaired bool) {
	if !repaired {
		m.lostForGood = max(m.lostForGood, m.unrepaired())
	}
	m.repaired, m.lost = m.known, 0
}

// weigh finds since when each server is whole, with mu held. It returns the ones that have
// lost more than was known.
func (l *Losses) weigh(now int64) (news []*Memory) {
	latest := int64(0)
	for m := range l.memories {
		since := max(m.unrepaired(), m.lostForGood)
		if since < now-l.lasts() {
			since = 0
		}
		if since > m.since.Swap(since) {
			news = append(news, m)
		}
		latest = max(latest, since)
	}
	l.latestLoss.Store(latest)
	return news
}

func tell(news []*Memory) {
	for _, m := range news {
		if m.Evicting() {
			m.onLoss(Evicting)
		} else {
			m.all.Gap()
			m.onLoss(Emptied)
		}
	}
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

// Repaired notes that the replicas of all counters that this process knows were compared, and
// made good, for all reasons up to that number of Gaps. So servers that came back empty,
// or are new, count as whole again: those of which this process knew, when they lost what
// they held, all counters that matter. Where so many had lost something, and it was not made
// good in between, that counters may have lost all their replicas, they do not; but what comes
// later is not held against them.
func (l *Losses) Repaired(gaps uint64) {
	if l.replicas < 2 || !l.lookAtAll() {
		return // a server that does not answer may lack counts
	}
	for _, m := range l.repair(gaps) {
		m.onLoss(Repaired)
	}
}

// lookAtAll looks at all servers, which are up if it returns true: that one has lost
// something while counters were compared is known then. Where one does not answer counters
// are to be compared again.
func (l *Losses) lookAtAll() bool {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	var failed atomic.Bool
	var looks sync.WaitGroup
	for _, s := range l.Servers() {
		looks.Go(func() {
			if !s.Up() {
				failed.Store(true) // when it is back counters are compared
			} else if err := s.Look(ctx); err != nil {
				failed.Store(true)
				l.Gap()
			}
		})
	}
	looks.Wait()
	return !failed.Load()
}

// repair ends the losses that are repaired, and the ones that cannot be. It returns those of
// the servers that count as whole again.
func (l *Losses) repair(gaps uint64) (whole []*Memory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now().Unix()
	var lossy []*Memory
	losses := 0
	for _, s := range l.Servers() {
		m := s.Memory()
		if lost := m.unrepaired(); lost != 0 && lost >= now-l.lasts() {
			lossy = append(lossy, m)
			if !l.joined(s) { // else what it lacks has moved to it
				losses++
			}
		}
	}
	if moved := l.changed.Load(); moved != 0 && !l.knewAll(moved) {
		return nil
	}
	repaired := l.settle(losses, gaps)
	if l.Gaps() != gaps {
		return nil
	}
	for _, m := range lossy {
		// A full server goes on to drop what it is given.
		if m.evicting || !l.knewAll(m.unrepaired()) {
			continue
		}
		m.settle(repaired)
		whole = append(whole, m)
	}
	l.weigh(now)
	return slices.DeleteFunc(whole, func(m *Memory) bool { return !m.Whole() })
}

// knewAll reports whether this process knew, in that second, all counters that matter: it
// had run for as long as any is remembered; or no server held any when it began. The
// memories are locked.
func (l *Losses) knewAll(second int64) bool {
	if second-l.began >= int64(l.longest()/time.Second) {
		return true
	}
	wasEmpty := !l.held
	for m := range l.memories { // those too that are being closed
		wasEmpty = wasEmpty && m.wasEmpty
	}
	return wasEmpty && second >= l.began
}
