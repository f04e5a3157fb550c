package journal

import (
	"fmt"
	"iter"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	testkit "github.com/counterd/counterd/internal/testkit/simulate"
)

const (
	young = 4 * second // twice the grace
	skews = second / 2
)

// ruleSets are what a fleet may have: the rules of one run, oldest first. Their longest window
// below a minute is the same, because sums are rounded by it.
var ruleSets = [][][]Limit{
	{{{Window: 8 * second, Ceiling: 3}}},
	{{{Window: 30 * second, Ceiling: 5}}, {{Window: 30 * second, Ceiling: 2}}, {{Window: 30 * second, Ceiling: 6}}},
	{{{Window: second, Ceiling: 2}, {Window: 90 * second, Ceiling: 7}}},
	{{{Window: 5 * second, Ceiling: 3}, {Window: 20 * second, Ceiling: 6}, {Window: 60 * second, Ceiling: 9}}},
	{{{Window: 60 * second, Ceiling: 6}}, {{Window: 120 * second, Ceiling: 5}}, {{Window: 60 * second, Ceiling: 3}}},
	{{{Window: 250, Ceiling: 1}, {Window: 20 * second, Ceiling: 6}}, {{Window: 20 * second, Ceiling: 4}, {Window: 60 * second, Ceiling: 8}}},
}

// simulated is when simulations begin.
var simulated = time.Date(2026, 4, 4, 14, 59, 0, 0, time.UTC).UnixMilli()

// bucketSets are rules with token buckets, whose rates stay: a log that gets another rate begins with
// what it knows.
var bucketSets = [][][]Limit{
	{{bucket10}},
	{{{Window: second, Rate: 3, Ceiling: 4}}, {{Window: second, Rate: 3, Ceiling: 2}}, {{Window: second, Rate: 3, Ceiling: 9}}},
	{{{Window: 700, Rate: 1, Ceiling: 2}, {Window: 20 * second, Rate: 7, Ceiling: 5}}},
	{{{Window: 60 * second, Rate: 90, Ceiling: 3}, {Window: 8 * second, Ceiling: 5}, {Window: second, Rate: 1, Ceiling: 1, Shadow: true}}},
}

var bucket10 = Limit{Window: 10 * second, Rate: 7, Ceiling: 3}

// event is one thing that befalls the item: an entry lands, or its header changes.
type event struct {
	entry  Entry
	head   *Head // of a new item, or of a rewrite
	fresh  bool
	losses int // of the item, before the entry landed
}

// decided is a hit that its writer let through.
type decided struct {
	place    int // in the order of the log
	time     int64
	cost     int64
	limits   []Limit // of its writer
	revision uint64  // of the log
	losses   int
	refunded bool
}

// world is one Memcached item, and the processes that write to it. Each yield of a process lets the
// others go on.
type world struct {
	rnd      *rand.Rand
	sabotage string
	rules    [][]Limit
	alone    bool
	now      int64
	skew     []int64
	revision []uint64 // of each process

	value   []byte // nil: there is no item
	cas     uint64
	expires int64
	before  [][]byte // former values of the item

	order    []event
	admitted []*decided
	read     map[int]int64 // what counts of an entry, as its writer read it, by place
	missed   map[int]bool  // entries that their writers did not find, by place

	sequence                  uint64
	losses, rewrites, expired int
	faults                    map[fault]string // the first of each
}

// fault is a kind of what may go wrong.
type fault string

const (
	failed   fault = "an operation fails"
	missing  fault = "a writer does not find its entry"
	differs  fault = "a verdict is not that of a sequential limiter"
	exceeded fault = "a window holds more than its limit"
	overrun  fault = "a token bucket admits more than its rate and burst"
)

func (w *world) fail(kind fault, format string, args ...any) {
	if _, known := w.faults[kind]; !known {
		w.faults[kind] = fmt.Sprintf(format, args...)
	}
}

func (w *world) chance(p float64) bool { return w.rnd.Float64() < p }

func (w *world) limits(p int) []Limit { return w.rules[w.revision[p]-1] }

// expire drops an item whose time is over.
func (w *world) expire() {
	if w.value != nil && w.now >= w.expires {
		w.value = nil
		w.expired++
	}
}

func (w *world) store(value []byte) {
	w.before = append(w.before, w.value)
	w.value = value
	w.cas++
}

// retention is the longest window of any rules: what newer rules count is then still known.
func (w *world) retention() (window int64) {
	for _, limits := range w.rules {
		window = max(window, LongestWindow(limits))
		for _, l := range limits {
			if l.isBucket() {
				window = max(window, l.refill())
			}
		}
	}
	return window
}

// ttl is how many seconds an item lives that nothing extends.
func (w *world) ttl() int64 { return (w.retention()+young)/second + 2 }

// create adds an item if there is none.
func (w *world) create(p int) {
	if w.expire(); w.value != nil {
		return
	}
	now := w.now + w.skew[p]
	head := Head{Limits: w.limits(p), Revision: w.revision[p], TTL: w.ttl(), Floor: now - young}
	if w.sabotage == "creation without a floor" {
		head.Floor = 0
	}
	value, err := AppendNew(nil, head, now)
	if err != nil {
		w.fail(failed, "new: %v", err)
	}
	w.store(value)
	w.before = nil
	w.expires = w.now + head.TTL*second
	w.order = append(w.order, event{head: &head, fresh: true})
}

// append lands an entry, and returns its place, or -1 if there is no item.
func (w *world) append(e Entry) int {
	if w.expire(); w.value == nil {
		return -1
	}
	value, err := AppendEntry(slices.Clone(w.value), e)
	if err != nil {
		w.fail(failed, "append: %v", err)
	}
	w.store(value)
	w.order = append(w.order, event{entry: e, losses: w.losses})
	return len(w.order) - 1
}

func (w *world) identity(p int) ID {
	w.sequence++
	if w.sabotage == "short identities" {
		return ID(w.rnd.IntN(8))
	}
	return NewID(uint32(p+1)*0x9E3779B1, w.sequence)
}

// hit is one hit of process p.
func (w *world) hit(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		pause := func() { yield(struct{}{}) }
		cost, count := int64(1+w.rnd.IntN(5)/4), int64(1)
		if w.chance(.1) {
			count = int64(2 + w.rnd.IntN(2))
		}
		if w.chance(.02) {
			cost = 20
		}
		elsewhere := w.chance(.15) // another counter denies it
		e := Entry{Kind: Hit, ID: w.identity(p), Time: w.now + w.skew[p], Cost: cost, Count: count, Pending: elsewhere || w.chance(.3)}
		void := Entry{Kind: Void, ID: e.ID, Time: e.Time}
		pause()
		if w.expire(); w.value == nil {
			pause()
			w.create(p)
			pause()
		}
		if w.sabotage == "reads before it appends" {
			l := Log{}
			if value, err := AppendEntry(slices.Clone(w.value), e); w.value != nil && err == nil && l.Read(value, Question{Keys: []ID{e.ID}}) == nil {
				pause()
				if place := w.append(e); place >= 0 {
					w.admit(p, place, w.judging(place), e, l.Verdict(0).Admitted)
				}
			}
			return
		}
		if w.chance(.06) { // the append is late: its writer has given it up, and voids it
			w.append(void)
			for range 1 + w.rnd.IntN(15) {
				pause()
			}
			w.append(e)
			return
		}
		created := w.creations()
		place := w.append(e)
		if place < 0 {
			return
		}
		pause()
		if w.chance(.06) { // the answer is lost
			switch {
			case w.sabotage == "trusts a lost answer":
				w.admit(p, place, w.judging(place), e, e.Count)
				return
			case w.chance(.5):
				w.append(void)
				return
			case w.creations() == created && !w.alone:
				w.append(e) // once more, which counts once
				pause()
			}
		}
		for w.chance(.1) {
			pause()
		}
		if w.expire(); w.value == nil || w.creations() != created {
			return
		}
		value, cas := w.value, w.cas
		w.touch()
		pause()
		w.decide(p, place, e, value, cas, elsewhere, pause)
	}
}

// creations is how many items there have been.
func (w *world) creations() (n int) {
	for _, e := range w.order {
		if e.fresh {
			n++
		}
	}
	return n
}

// touch extends the life of the item, as sessions do by rewrites.
func (w *world) touch() {
	l := Log{}
	if l.Read(w.value, Question{}) == nil {
		w.expires = max(w.expires, w.now+max(l.head.TTL, w.ttl())*second)
	}
}

func (w *world) decide(p, place int, e Entry, value []byte, cas uint64, elsewhere bool, pause func()) {
	l := Log{}
	limits, revision := w.limits(p), w.revision[p]
	if w.sabotage == "voids return nothing" {
		value = withoutVoids(value)
	}
	err := l.Read(value, Question{Keys: []ID{e.ID}, Limits: limits, Revision: revision})
	if err != nil {
		w.fail(failed, "read: %v", err)
		return
	}
	v := l.Verdict(0)
	switch {
	case v.Found:
		w.read[place] = v.Counted
	case e.Time > l.head.Floor:
		w.missed[place] = true
		if place = w.append(e); place >= 0 && w.alone {
			w.decide(p, place, e, w.value, w.cas, elsewhere, pause)
		}
		return
	}
	if !elsewhere && v.Admitted > 0 {
		w.admit(p, place, l.head.Revision, e, v.Admitted)
	}
	if elsewhere && v.Counted > 0 || v.Admitted < v.Counted {
		pause()
		void := Entry{Kind: Void, ID: e.ID, Time: w.now + w.skew[p], Count: v.Admitted}
		if elsewhere {
			void.Count = 0
		}
		w.append(void)
		if w.chance(.2) {
			pause()
			w.append(void)
		}
	} else if v.Admitted > 0 && w.chance(.05) { // a refund
		mine := w.admitted[len(w.admitted)-1]
		pause()
		mine.refunded = true
		w.append(Entry{Kind: Void, ID: e.ID, Time: w.now + w.skew[p]})
	}
	if l.head.Outdated(revision) || len(l.judge.list) > 8 && w.chance(.7) {
		w.rewrite(p, &l, value, cas, limits, revision, pause)
	}
}

// judging returns the revision of the limits that judge what is at a place.
func (w *world) judging(place int) uint64 {
	for place--; w.order[place].head == nil; place-- {
	}
	return w.order[place].head.Revision
}

// admit notes a hit that its writer lets through, by a log whose limits were of that revision.
func (w *world) admit(p, place int, read uint64, e Entry, count int64) {
	if count == 0 {
		return
	}
	revision := w.judging(place)
	if e.Pending { // its writer has decided it, by what it has read
		revision = min(read, uint64(len(w.rules)))
	}
	w.admitted = append(w.admitted, &decided{place: place, time: e.Time, cost: count * e.Cost, limits: w.limits(p), revision: revision, losses: w.order[place].losses})
}

// late is an increment, of now or of the past.
func (w *world) late(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		e := Entry{Kind: Increment, ID: w.identity(p), Time: w.now + w.skew[p], Cost: 1, Count: 1}
		if w.chance(.5) {
			e.Time, e.Appended = e.Time-w.rnd.Int64N(60*second), e.Time
		}
		yield(struct{}{})
		w.create(p)
		yield(struct{}{})
		w.append(e)
		for w.chance(.3) { // repeated, which counts once
			yield(struct{}{})
			w.append(e)
		}
	}
}

// rewrite swaps the value which was read for a shorter one.
func (w *world) rewrite(p int, l *Log, value []byte, cas uint64, limits []Limit, revision uint64, pause func()) {
	r := Rewrite{Limits: limits, Revision: revision, TTL: w.ttl(), Now: w.now + w.skew[p], Young: young, Retain: w.retention(), Alone: w.alone}
	next := w.spoil(l, value, r)
	for pause(); w.chance(.4); { // the hit is answered: it lands at any time, or never
		pause()
	}
	if w.expire(); w.value == nil || w.cas != cas && w.sabotage != "no compare-and-swap" && w.sabotage != "a lagging rewrite" {
		return
	}
	w.store(next)
	w.rewrites++
	after := Log{}
	if err := after.Read(next, Question{}); err != nil {
		w.fail(failed, "rewritten: %v", err)
		return
	}
	w.order = append(w.order, event{head: &Head{Revision: max(w.judging(len(w.order)), revision), Floor: max(l.head.Floor, r.Now-r.Young)}})
}

// spoil returns the value of a rewrite, which a sabotage makes wrong.
func (w *world) spoil(l *Log, value []byte, r Rewrite) []byte {
	keep := func(Entry) bool { return true }
	switch w.sabotage {
	case "a lagging rewrite":
		if n := len(w.before); n > 3 && w.before[n-3] != nil {
			_ = l.Read(w.before[n-3], Question{})
		}
	case "dropped too early":
		for i, time := range l.judge.counted.times {
			if time <= r.Now-max(young, LongestWindow(l.head.Limits)/2) {
				l.judge.counted.add(time, l.judge.counted.upTo(i)-l.judge.counted.upTo(i+1))
			}
		}
	case "rounded too early":
		for i := range l.judge.counted.times {
			if time := l.judge.counted.times[i]; time <= r.Now-young {
				cost := l.judge.counted.upTo(i+1) - l.judge.counted.upTo(i)
				l.judge.counted.add(time, -cost)
				l.judge.counted.add(time-time%second, cost)
			}
		}
	case "judged by the new limits":
		h := l.head
		h.Limits, h.Revision = r.Limits, r.Revision
		_ = l.Read(append(appendHead(nil, h, &timeline{}), value[l.offset:]...), Question{})
	case "stale rules win":
		r.Revision = l.head.Revision + 1
	case "no increments", "no pending hits":
		for i, record := range l.judge.list {
			if record.Kind == Increment && w.sabotage == "no increments" || record.isPending() && w.sabotage == "no pending hits" {
				l.judge.counted.add(record.Time, -record.counts*record.Cost)
				l.judge.list[i].counts = 0
			}
		}
	case "no young denied entries":
		keep = func(e Entry) bool { return e.Kind != denied }
	case "no young settled entries":
		keep = func(e Entry) bool { return e.Kind != settled && e.Kind != former }
	case "no early voids":
		keep = func(e Entry) bool { return e.Kind != Void }
	}
	next, err := l.AppendRewrite(nil, r)
	if err != nil {
		w.fail(failed, "rewrite: %v", err)
	}
	after := Log{}
	if err := after.Read(next, Question{}); err != nil {
		w.fail(failed, "rewritten: %v", err)
		return next
	}
	switch w.sabotage {
	case "levels of the last rewrite", "levels of now":
		h := after.head
		for i := range h.Limits {
			if b := l.judge.buckets.of(h.Limits[i]); b != nil && w.sabotage == "levels of now" {
				h.Limits[i].level = b.level.at(b.Limit, h.Floor)
			} else if b != nil {
				h.Limits[i].level = b.floor.at(b.Limit, h.Floor)
			}
		}
		kept := appendHead(nil, h, &timeline{})
		for _, record := range after.judge.list {
			kept = encode(kept, record.Entry)
		}
		return kept
	case "judged again":
		next = withoutKept(next)
		for _, record := range l.judge.list {
			if record.Kind != 0 && record.appended() > after.head.Floor && (record.Kind < settled || record.counts > 0) {
				next = encode(next, record.Entry)
			}
		}
		return next
	case "no floor":
		h := after.head
		h.Floor = 0
		var was Head
		var sums timeline
		_, _ = readHead(next, &was, &sums)
		h.kept = was.kept
		return appendHead(nil, h, &sums)
	}
	if w.sabotage == "" {
		return next
	}
	kept := withoutKept(next)
	for _, record := range after.judge.list {
		if record.Kind != 0 && keep(record.Entry) {
			kept = encode(kept, record.Entry)
		}
	}
	return kept
}

// counted is an entry as it is judged, or the floor of a rewrite.
type counted struct {
	Entry
	left  int64
	floor bool
	least map[[2]int64]*big.Rat // of a floor: when buckets are full again at the earliest
}

// judge holds what the writers have read against a sequential limiter that sees all entries in the
// order of the log, forgets none, and computes each window anew.
func (w *world) judge() {
	var entries []*counted
	var named map[ID]*counted
	var head Head
	sum := func(l Limit, now int64) (sum int64) {
		for _, c := range entries {
			if within(l, c.Time, now) || c.Time > now {
				sum += c.left * c.Cost
			}
		}
		return sum
	}
	for place, happened := range w.order {
		if happened.head != nil {
			if happened.fresh {
				entries, named = nil, map[ID]*counted{}
			}
			head = *happened.head
			entries = afterRewrite(head.Floor, entries, w.rules[head.Revision-1])
			for id, c := range named {
				if c.appended() <= head.Floor || w.alone && c.left == 0 && c.Kind != Void {
					delete(named, id)
				}
			}
			continue
		}
		c := &counted{Entry: happened.entry, left: happened.entry.Count}
		known := named[c.ID]
		switch {
		case known != nil && known.Kind == Void:
			if c.Kind != Void {
				c.left = min(c.left, known.Count)
				named[c.ID] = c
			}
		case known != nil:
			if c.Kind == Void {
				known.left = min(known.left, c.Count)
			}
			continue
		default:
			named[c.ID] = c
		}
		if c.Kind == Void {
			continue
		}
		if c.Kind == Hit && !c.Pending {
			for _, l := range w.rules[head.Revision-1] {
				switch {
				case l.isBucket() && !l.Shadow:
					c.left = min(c.left, admits(l, entries, c))
				case !l.isBucket():
					c.left = max(0, min(c.left, (l.Ceiling-sum(l, c.Time))/c.Cost))
				}
			}
		}
		if c.appended() <= head.Floor {
			c.left = 0
		}
		if w.missed[place] && (c.left > 0 || !w.alone) {
			w.fail(missing, "the entry at place %d is missing", place)
		}
		if read, ok := w.read[place]; ok && read != c.left {
			w.fail(differs, "place %d: %d of %+v are admitted, not %d", place, read, c.Entry, c.left)
		}
		entries = append(entries, c)
	}
}

// within reports whether a time is in the window of a later one.
func within(l Limit, first, last int64) bool {
	if l.Window < minute {
		return first > last-l.Window
	}
	return first/second > last/second-l.Window/second
}

// measure looks for a window that holds more than its limit.
func (w *world) measure() {
	for _, x := range w.admitted {
		if x.refunded {
			continue
		}
		for _, l := range w.rules[x.revision-1] {
			if l.isBucket() {
				continue
			}
			sum := int64(0)
			for _, y := range w.admitted {
				if !y.refunded && y.revision == x.revision && y.losses == x.losses && y.time/l.slides() <= x.time/l.slides() && within(l, y.time, x.time) {
					sum += y.cost
				}
			}
			if sum > l.Ceiling {
				w.fail(exceeded, "the window of %d ms to %d holds %d of %d", l.Window, x.time, sum, l.Ceiling)
			}
		}
		for _, l := range x.limits {
			if l.isBucket() {
				w.measureBucket(l, x)
				continue
			}
			sum := x.cost
			for _, y := range w.admitted {
				if !y.refunded && y.place < x.place && y.losses == x.losses && within(l, y.time, x.time) {
					sum += y.cost
				}
			}
			if sum > l.Ceiling {
				w.fail(exceeded, "by the limits of its writer, the window of %d ms to %d holds %d of %d", l.Window, x.time, sum, l.Ceiling)
			}
		}
	}
}

// measureBucket looks for a time that ends with the hit, of its writer's bucket, in which more passed than
// the burst and what the rate adds.
func (w *world) measureBucket(l Limit, x *decided) {
	var before []*decided
	for _, y := range w.admitted {
		if !y.refunded && y.place < x.place && y.losses == x.losses {
			before = append(before, y)
		}
	}
	slices.SortFunc(before, func(a, b *decided) int { return int(b.time - a.time) })
	sum, first := x.cost, x.time
	for i := 0; ; i++ {
		if sum*l.Window > l.Ceiling*l.Window+max(x.time-first, 0)*l.Rate && !l.Shadow {
			w.fail(overrun, "%d from %d to %d, of %+v", sum, first, x.time, l)
		}
		if i == len(before) {
			return
		}
		sum, first = sum+before[i].cost, before[i].time
	}
}

// simulate runs one seed.
func simulate(seed uint64, sabotage string, sets [][][]Limit) *world {
	rnd := rand.New(rand.NewPCG(seed, 15))
	w := &world{rnd: rnd, sabotage: sabotage, now: simulated, alone: rnd.IntN(2) == 0, read: map[int]int64{}, missed: map[int]bool{}, faults: map[fault]string{}}
	w.rules = sets[rnd.IntN(len(sets))]
	for range 1 + rnd.IntN(5) {
		w.skew = append(w.skew, rnd.Int64N(2*skews)-skews)
		w.revision = append(w.revision, 1)
	}
	pace := []float64{20, 100, 500, 2500}[rnd.IntN(4)]
	begin := func() iter.Seq[struct{}] {
		p := rnd.IntN(len(w.skew))
		next := w.hit(p)
		if w.chance(.08) {
			next = w.late(p)
		}
		return next
	}
	testkit.Interleave(rnd, 30+rnd.IntN(90), 4*len(w.skew), .4, begin, func() {
		w.now += int64(rnd.ExpFloat64() * pace / 5)
		if w.chance(.01) {
			w.now += rnd.Int64N(8 * second)
		}
		if w.chance(.001) {
			w.now += rnd.Int64N(150 * second)
		}
		if w.chance(.002) && w.value != nil {
			w.value = nil // evicted
			w.losses++
		}
		if p := rnd.IntN(len(w.revision)); w.chance(.01) && w.revision[p] < uint64(len(w.rules)) {
			w.revision[p]++
		}
	})
	w.judge()
	w.measure()
	return w
}

// TestSimulation interleaves appends, reads, lost answers, voids, stalled writers, rewrites, losses
// and rule changes. No window and no token bucket exceeds its limit, and every verdict is that of a
// sequential limiter.
func TestSimulation(t *testing.T) {
	for name, sets := range map[string][][][]Limit{"windows": ruleSets, "token buckets": bucketSets} {
		t.Run(name, func(t *testing.T) {
			var hits, admitted, rewrites, losses, expired int
			for seed := range testkit.Seeds(10_000) {
				w := simulate(seed, "", sets)
				require.Empty(t, w.faults, "seed %d", seed)
				hits, admitted, rewrites = hits+len(w.read), admitted+len(w.admitted), rewrites+w.rewrites
				losses, expired = losses+w.losses, expired+w.expired
			}
			t.Logf("%d hits, %d admitted, %d rewrites, %d losses, %d expired", hits, admitted, rewrites, losses, expired)
			require.NotZero(t, min(hits-admitted, rewrites, losses, expired))
		})
	}
}

// Each sabotage shows itself by the fault that is characteristic of it.
func TestSimulationFindsSabotage(t *testing.T) {
	for sabotage, want := range map[string]fault{
		"no compare-and-swap":      exceeded,
		"a lagging rewrite":        exceeded,
		"dropped too early":        exceeded,
		"rounded too early":        exceeded,
		"judged again":             exceeded,
		"judged by the new limits": differs,
		"stale rules win":          exceeded,
		"no increments":            differs,
		"no pending hits":          exceeded,
		"no young denied entries":  missing,
		"no young settled entries": missing,
		"no early voids":           differs,
		"no floor":                 exceeded,
		"creation without a floor": exceeded,
		"short identities":         exceeded,
		"trusts a lost answer":     exceeded,
		"reads before it appends":  exceeded,
	} {
		t.Run(sabotage, func(t *testing.T) { finds(t, sabotage, want, ruleSets) })
	}
	for sabotage, want := range map[string]fault{
		"no compare-and-swap":        overrun,
		"a lagging rewrite":          overrun,
		"levels of the last rewrite": overrun,
		"levels of now":              differs,
		"voids return nothing":       differs,
		"judged again":               overrun,
		"no pending hits":            overrun,
		"no increments":              differs,
		"no floor":                   overrun,
		"short identities":           overrun,
		"trusts a lost answer":       overrun,
		"reads before it appends":    overrun,
	} {
		t.Run("token buckets, "+sabotage, func(t *testing.T) { finds(t, sabotage, want, bucketSets) })
	}
}

// rareSeeds are the first seeds that find the sabotages that few seeds find.
var rareSeeds = map[string]uint64{
	"TestSimulationFindsSabotage/judged_again":             1469,
	"TestSimulationFindsSabotage/rounded_too_early":        43,
	"TestSimulationFindsSabotage/creation_without_a_floor": 61,
}

func finds(t *testing.T, sabotage string, want fault, sets [][][]Limit) {
	testkit.FindFault(t, rareSeeds[t.Name()], 20_000, func(seed uint64) (string, bool) {
		found, ok := simulate(seed, sabotage, sets).faults[want]
		return found, ok
	})
}
