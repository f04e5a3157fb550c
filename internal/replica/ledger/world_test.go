package ledger

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The world of the simulation: virtual time, servers, and what happens in which order. All follows from the seed: one
// task runs at a time. Faults are in faults_test.go, the network is in network_test.go.

const (
	allServers = 8
	counters   = 12
	timeout    = 100 * time.Millisecond // of a round trip
	retention  = 40                     // seconds that a counter remembers
	slowClock  = 6                      // seconds by which a number of a wrong clock is too early at most
	longest    = 60                     // seconds after which a number is in no window
	epoch      = 1_000_000              // Unix second at which a simulation begins
	ms         = time.Millisecond
)

// seconds are the lengths of the buckets of each level.
var seconds = [3]int64{1, 4, 16}

// key is an item of a counter: a bucket.
type key struct {
	counter, level int
	number         int64
}

func keyOf(counter, level int, second int64) key { return key{counter, level, second / seconds[level]} }

func (k key) first() int64   { return k.number * seconds[k.level] }
func (k key) last() int64    { return k.first() + seconds[k.level] - 1 }
func (k key) expires() int64 { return k.last() + 1 + retention + seconds[k.level] + 3 }

// children returns the buckets of the next finer level.
func (k key) children() (list []key) {
	for second := k.first(); second <= k.last(); second += seconds[k.level-1] {
		list = append(list, keyOf(k.counter, k.level-1, second))
	}
	return list
}

func compareKeys(a, b key) int {
	return cmp.Or(a.level-b.level, a.counter-b.counter, cmp.Compare(a.number, b.number))
}

func sortedKeys(items map[key]item) (keys []key) {
	for k := range items {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

type item struct {
	value   int64
	version uint64
	bad     bool // another client wrote it: it holds no count
}

// world is one simulation.
type world struct {
	rng     *rand.Rand
	mode    string
	now     time.Duration
	events  events
	pushed  uint64
	servers map[string]*server
	names   []string // of all servers
	list    []string // servers in use, as configured, sorted
	left    []string // servers that have left the list
	lists   map[string]*List
	parsed  map[string]*Marker
	procs   []*process
	started int

	replicas int
	slots    [counters]int
	finest   [counters]int           // finest level of each counter
	coarser  [counters]time.Duration // when a counter loses its finest level
	maxHints int
	gaps     float64 // share of commands that are followed by a pause of the server
	gap      time.Duration
	busy     bool  // one counter has most hits
	idle     bool  // few hits
	quiet    bool  // no process starts or ends any more
	parted   bool  // a process decides without the complete server
	spoiled  bool  // another client has written into items
	early    int64 // seconds by which numbers may be too early: a process with a slow clock was alone

	oracle   oracle
	fault    string        // the first broken promise
	faultAt  time.Duration // when a fault came or went last
	unseen   time.Duration // when a server lost something that breaks no connection
	tracing  bool
	tally    tally
	traceLog []string
}

// tally counts what happened in simulations.
type tally struct{ hits, faults, repairs, copies, rolledUp, marked, unrecorded, tooHigh, items int }

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return x
}

// after runs f later.
func (w *world) after(d time.Duration, f func()) {
	w.pushed++
	heap.Push(&w.events, event{w.now + max(d, 0), w.pushed, f})
}

// run lets time pass, unless a promise is broken.
func (w *world) run(d time.Duration) {
	end := w.now + d
	for w.fault == "" && len(w.events) > 0 && w.events[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.run()
	}
	w.now = max(w.now, end)
}

func (w *world) chance(p float64) bool              { return w.rng.Float64() < p }
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }
func pick[T any](w *world, list ...T) T             { return list[w.rng.IntN(len(list))] }

// unix returns the second by the right clock.
func (w *world) unix() int64 { return epoch + int64(w.now/time.Second) }

func (w *world) trace(format string, args ...any) {
	if w.tracing {
		w.traceLog = append(w.traceLog, fmt.Sprintf("%8.3f ", w.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

// violate records that a promise is broken.
func (w *world) violate(promise, format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf("%s at %.3f s: ", promise, w.now.Seconds()) + fmt.Sprintf(format, args...)
		w.trace("%s", w.fault)
	}
}

// listOf returns the list of the servers. Lists are shared, since each takes long to make.
func (w *world) listOf(servers []string) *List {
	name := fmt.Sprint(servers)
	if w.lists[name] == nil {
		w.lists[name] = NewList(servers, w.replicas)
	}
	return w.lists[name]
}

// parse is Parse, which the processes of a simulation do once for each text.
func (w *world) parse(text string, now int64) (*Marker, error) {
	if m := w.parsed[text]; m != nil {
		return m, nil
	}
	m, err := Parse(text, now)
	if err == nil {
		w.parsed[text] = m
	}
	return m, err
}

// judgeWrong notes a raise by a process with a wrong clock. The next look of another process corrects it (rule 2), if
// that one has looked before. If there is none, the number stays too early by what the clock is behind.
func (w *world) judgeWrong(s *server, text string) {
	before, err := w.parse(s.marker, w.unix())
	after, fault := w.parse(text, w.unix())
	if err == nil && fault == nil && before.Raised == after.Raised && slices.Equal(before.Since, after.Since) {
		return
	}
	w.unseen = w.now
	if !slices.ContainsFunc(w.ready(), func(p *process) bool {
		l := p.links[s.name]
		return !p.wrong && l != nil && l.up && !l.cut && p.led.Marker(s.name) != nil
	}) {
		w.early = slowClock
	}
}

// server is a fake Memcached server.
type server struct {
	w         *world
	name      string
	boot      int // counts its memories that broke connections
	down      bool
	frozen    bool
	waiting   []func() // commands that came while it was frozen
	slow      time.Duration
	deaf      float64 // share of answers that are lost
	version   uint64  // of the last write
	items     map[key]item
	marker    string
	markerVer uint64 // 0: there is no marker
	evictions int64
	claimant  int // process that copies to the server
	claimed   time.Duration
}

func (s *server) get(k key) item {
	i, found := s.items[k]
	if found && k.expires() <= s.w.unix() {
		delete(s.items, k)
		return item{}
	}
	return i
}

func (s *server) set(k key, value int64) {
	s.version++
	s.items[k] = item{value: value, version: s.version}
}

// add adds to the item. It reports whether the item holds a count.
func (s *server) add(k key, by int64) (old item) {
	if k.expires() > s.w.unix() {
		if old = s.get(k); !old.bad {
			s.set(k, old.value+by)
		}
	}
	return old
}

// subtract subtracts from the item, if it exists.
func (s *server) subtract(k key, by int64) {
	if old := s.get(k); old.version != 0 && !old.bad {
		s.set(k, max(old.value-by, 0))
	}
}

func (s *server) setMarker(text string) {
	s.version++
	s.marker, s.markerVer = text, s.version
}

// wipe empties the server.
func (s *server) wipe() {
	s.items, s.marker, s.markerVer, s.claimed = map[key]item{}, "", 0, 0
}

func (s *server) kill() {
	s.down, s.frozen, s.waiting, s.evictions = true, false, nil, 0
	s.boot++
	s.wipe()
	for _, p := range s.w.procs {
		if l := p.links[s.name]; l != nil && !l.cut {
			for _, c := range l.inFlight {
				s.w.after(s.w.upTo(2*ms), func() { c.end(errBroken) })
			}
		}
	}
}

func (s *server) thaw() {
	waiting := s.waiting
	s.frozen, s.waiting = false, nil
	for _, f := range waiting {
		f()
	}
}
