package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
)

// The simulation: processes decide hits on two counters by sessions of their own, as a limiter
// does, and increment them. Each write and each read is a command of its own, between which other processes go on. A
// command or its answer may be lost, an append refused, an item lost; clocks differ, rules change.
// All of it follows from the seed. Then the admitted hits are held against the limits.

const simGrace = 2000 // milliseconds

// simRules are the rules of a run, oldest first, of both counters.
var simRules = [][][]limiter.Limit{
	{{simLimit(8, 3)}},
	{{simLimit(1, 2), simLimit(90, 7)}},
	{{simLimit(5, 3), simLimit(20, 6), simLimit(60, 9)}},
	{{simLimit(30, 5)}, {simLimit(30, 2)}, {simLimit(30, 6)}},
	{{simLimit(60, 6)}, {simLimit(120, 5)}, {simLimit(60, 3)}},
}

// simStart is when simulations begin.
var simStart = time.Date(2026, 4, 4, 14, 59, 0, 0, time.UTC).UnixMilli()

// simShare reports whether a time is in the window of a later one.
func simShare(limit limiter.Limit, first, last int64) bool {
	window := limit.Window.Milliseconds()
	if limit.Window < time.Minute {
		return first > last-window
	}
	return first/second > last/second-window/second
}

// simBuckets are the same with token buckets, whose rates stay.
var simBuckets = [][][]limiter.Limit{
	{{simBucket(1, 10, 3)}},
	{{simBucket(1, 3, 4)}, {simBucket(1, 3, 2)}, {simBucket(1, 3, 9)}},
	{{simBucket(60, 90, 5), simLimit(20, 6)}, {simBucket(60, 90, 3), simLimit(30, 5)}},
	{{simBucket(20, 7, 2), simBucket(1, 2, 1)}},
}

// simQueues are the same with leaky buckets, whose hits are on one counter each: a turn is that of one hit.
var simQueues = [][][]limiter.Limit{
	{{simQueue(1, 5, 4)}},
	{{simQueue(3, 7, 3), simLimit(20, 9)}},
	{{simQueue(2, 3, 2), simQueue(1, 2, 6)}},
	{{simQueue(1, 3, 3)}, {simQueue(1, 3, 1)}, {simQueue(1, 3, 8)}},
}

// simQueue is a leaky bucket in which so many hits wait for turns, n of them in so many seconds.
func simQueue(seconds, n, queue int64) limiter.Limit {
	limit := simBucket(seconds, n, queue+1)
	limit.Algorithm = events.LeakyBucket
	return limit
}

// simBucket is a token bucket of that burst, to which n tokens return in so many seconds.
func simBucket(seconds, n, burst int64) limiter.Limit {
	limit := simLimit(seconds, n)
	limit.Burst, limit.Ceiling, limit.Algorithm = burst, burst, events.TokenBucket
	return limit
}

func simLimit(seconds, n int64) limiter.Limit {
	return limiter.Limit{Limit: events.Limit{N: n, Window: time.Duration(seconds) * time.Second}, Rule: &events.Rule{Revision: 1}, Ceiling: n, Enforced: true}
}

// simItem is the log of one counter, and what has befallen it.
type simItem struct {
	value   []byte // nil: there is none
	version uint64
	expires int64
	places  int // appends so far
	late    int // of them those of the past: increments, and what a process sends that was stalled
	losses  int
}

// simAdmitted is a hit on one counter that was admitted.
type simAdmitted struct {
	counter    int
	place      int // in the order of the appends
	losses     int
	time, cost int64
	limits     []limiter.Limit // of its writer
	revision   uint64          // of the log
	turns      []int64         // by each of its limits; nil: a rewrite may have put ahead of it what came later
	swaps      int             // rewrites before it
}

// simFault is a kind of what may go wrong.
type simFault string

const (
	simExceeded simFault = "a window holds more than its limit"
	simOverrun  simFault = "a token bucket admits more than its rate and burst"
	simCrowded  simFault = "turns of a leaky bucket are closer than its rate"
	simDiffers  simFault = "a verdict is not that of the log ahead"
	simLeaks    simFault = "a log does not hold what was admitted"
	simFails    simFault = "an undisturbed session fails"
)

type simulation struct {
	rnd       *rand.Rand
	sabotage  string
	rules     [][]limiter.Limit
	alone     bool // hits are on one counter
	undone    bool // what was added was rolled back: the next gets its turn, and is closer to those between
	now       int64
	items     [2]simItem
	engines   []*Engine
	skew      []int64
	revision  []uint64
	faulty    bool // commands are lost, appends refused
	retention time.Duration
	later     []iter.Seq[struct{}] // what sessions have left to do

	admitted   []*simAdmitted
	increments []*simAdmitted
	denied     int
	rewrites   int
	expired    int
	untidy     bool // what was appended may stay
	faults     map[simFault]string
}

func (w *simulation) fail(kind simFault, format string, args ...any) {
	if _, known := w.faults[kind]; !known {
		w.faults[kind] = fmt.Sprintf(format, args...)
	}
}

func (w *simulation) chance(p float64) bool { return w.rnd.Float64() < p }

// simLog is a log of a session, and what became of it.
type simLog struct {
	limiter.Tally
	item    *simItem
	counter int
	began   int64
	isPast  bool // what is appended counts at another time
	decided int
	turns   []int64 // of the last hit, by each of the limits
	swaps   int     // rewrites when it appended

	place    int // of what it appended last
	appends  int
	revision uint64
	late     int
	losses   int
	ahead    journal.Log // what was ahead of it
	read     uint64      // the revision of the log that it has read
}

// simCall is a call under way: each of its commands is a pause, and none is sent that comes too late.
type simCall struct {
	pause func()
	until int64
	logs  []*simLog // by counter; none: no hit waits

	background bool // it is a repair
}

type simCallKey struct{}

// in returns the context of the call.
func (c simCall) in() context.Context {
	return context.WithValue(context.Background(), simCallKey{}, c)
}

// simStore is the store of the processes.
type simStore struct {
	*storetest.Solo
	w *simulation
}

func (s simStore) Capabilities() store.Capabilities {
	return store.Capabilities{Writes: store.KindsOf(store.Append), Background: func(do func(context.Context)) {
		s.w.later = append(s.w.later, func(yield func(struct{}) bool) {
			do(simCall{pause: func() { yield(struct{}{}) }, until: math.MaxInt64}.in())
		})
	}}
}

func (s simStore) Do(ctx context.Context, ops ...*store.Op) {
	call := ctx.Value(simCallKey{}).(simCall)
	for _, op := range ops {
		counter, _ := strconv.Atoi(op.Counter)
		l := &simLog{item: &s.w.items[counter]}
		if call.logs != nil {
			l = call.logs[counter]
		}
		if len(op.Reads) > 0 && s.w.now > call.until {
			op.Err, op.Receipt, s.w.untidy = errSimLost, store.Receipt{}, true // it is not sent
			continue
		}
		s.w.do(l, op, call.pause)
		if op.Kind() == store.Append && len(op.Reads) == 0 { // it voids
			s.w.untidy = s.w.untidy || s.w.now-l.began > simGrace
		}
	}
}

var errSimLost = errors.New("the answer was lost")

func (w *simulation) expire(item *simItem) {
	if item.value != nil && w.now/second >= item.expires {
		item.value = nil
		w.expired++
	}
}

// do makes a round trip, command by command.
func (w *simulation) do(s *simLog, op *store.Op, pause func()) {
	op.Err, op.Receipt = nil, store.Receipt{}
	// Memcached gets times to live, which begin when a command lands.
	sent := w.now / second
	lives := func(expires int64) int64 { return expires - sent + w.now/second }
	if w.sabotage == "reads before it appends" && op.Kind() == store.Append && len(op.Reads) > 0 {
		w.read(s, op, lives)
		defer func(read store.Read) { op.Reads[0].Data = append(slices.Clone(read.Data), op.Writes[0].Data...) }(op.Reads[0])
	}
	for i := range op.Writes {
		pause()
		if w.faulty && w.chance(.02) { // the command is lost
			op.Err, w.untidy = errSimLost, true
			return
		}
		w.write(s, &op.Writes[i], len(op.Reads) > 0, lives)
		if w.faulty && w.chance(.02) {
			op.Err, w.untidy = errSimLost, true
			return
		}
		op.Receipt = store.Acknowledged(i + 1)
	}
	if len(op.Reads) == 0 {
		return
	}
	pause()
	if w.faulty && w.chance(.02) {
		op.Err = errSimLost
		return
	}
	w.read(s, op, lives)
}

func (w *simulation) read(s *simLog, op *store.Op, lives func(int64) int64) {
	item, read := s.item, &op.Reads[0]
	w.expire(item)
	read.Version, read.Data = 0, read.Data[:0]
	if item.value == nil {
		return
	}
	read.Version, read.Data = item.version, append(read.Data, item.value...)
	var log journal.Log
	if err := log.Read(item.value, journal.Question{}); err != nil {
		w.fail(simFails, "the log: %v", err)
	}
	s.read = log.Head().Revision
}

func (w *simulation) write(s *simLog, write *store.Write, decides bool, lives func(int64) int64) {
	item := s.item
	w.expire(item)
	write.Result = 0
	switch write.Kind {
	case store.Append:
		if item.value == nil || decides && w.faulty && w.chance(.01) {
			return
		}
		if journal.Kind(write.Data[0]>>5) == journal.Void { // also one that comes with other entries
			w.undone = true
		}
		if decides {
			if err := s.ahead.Read(item.value, journal.Question{}); err != nil {
				w.fail(simFails, "the log: %v", err)
			}
			item.places++
			s.appends++
			if s.isPast || w.now-s.began > simGrace {
				item.late++
			}
			s.place, s.revision, s.late, s.losses, s.swaps = item.places, s.ahead.Head().Revision, item.late, item.losses, w.rewrites
		}
		item.value = append(slices.Clip(item.value), write.Data...)
	case store.Create:
		if item.value != nil {
			return
		}
		item.value, item.expires = slices.Clone(write.Data), lives(write.Expires)
	case store.Swap:
		if item.value == nil || item.version != write.Version && w.sabotage != "no compare-and-swap" {
			return
		}
		item.value, item.expires = slices.Clone(write.Data), lives(write.Expires)
		w.rewrites++
	}
	item.version++
	write.Result = 1
	if w.sabotage == "a short life" {
		item.expires = min(item.expires, w.now/second+5)
	}
}

// begin returns a call of process p, with tallies of both counters.
func (w *simulation) begin(p int, pause func()) simCall {
	call := simCall{pause: pause, until: w.now + simGrace/2}
	for i := range w.items {
		l := &simLog{item: &w.items[i], began: w.now, counter: i}
		l.ID, l.Counter, l.Limits = fmt.Sprint(i), events.Counter{Retention: w.retention}, slices.Clone(w.rules[w.revision[p]-1])
		revision := w.revision[p]
		switch w.sabotage {
		case "rules without revisions":
			revision = 1
		case "stale rules win":
			revision = uint64(len(w.rules)) - revision + 1
		}
		for j := range l.Limits {
			l.Limits[j].Rule = &events.Rule{Revision: revision}
		}
		call.logs = append(call.logs, l)
	}
	return call
}

// held holds that the store has not failed a call that nothing disturbs.
func (w *simulation) held(l *simLog) {
	if l.Err != nil && !w.faulty && l.item.losses == 0 && w.sabotage == "" && !errors.Is(l.Err, journal.ErrTooLarge) && w.now-l.began <= simGrace/2 {
		w.fail(simFails, "%v; now %d, expires %d", l.Err, w.now, l.item.expires)
	}
}

// batch is a batch of hits of process p.
func (w *simulation) batch(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		began, now := w.now, time.UnixMilli(w.now+w.skew[p])
		call := w.begin(p, func() { yield(struct{}{}) })
		type hit struct {
			cost int64
			on   []*simLog
		}
		var hits []hit
		for range testkit.Pick(w.rnd, 1, 1, 2, 4) {
			h := hit{cost: 1 + w.rnd.Int64N(5)/4, on: testkit.Pick(w.rnd, call.logs[:1], call.logs[1:], call.logs)}
			if w.alone {
				h.on = h.on[:1]
			}
			for _, l := range h.on {
				l.Adds = append(l.Adds, limiter.Addition{Cost: h.cost, Shared: len(h.on) > 1, Counts: len(h.on) == 1 && w.chance(.03)})
				l.Demand += h.cost
			}
			hits = append(hits, h)
		}
		var tallies []*limiter.Tally
		for _, l := range call.logs {
			if len(l.Adds) > 0 {
				tallies = append(tallies, &l.Tally)
			}
		}
		s, at := w.engines[p].NewSession(), limiter.Moment{Time: now, Second: now.Unix(), Latest: now.Unix()}
		if w.chance(.2) {
			s.Check(call.in(), at, tallies)
		}
		s.Add(call.in(), at, tallies)
		late := w.now-began > simGrace/2
		for _, l := range call.logs {
			w.held(l)
		}
		for _, h := range hits {
			fits := !late
			for _, l := range h.on {
				fits = fits && l.Err == nil && w.fits(l, h.cost, now)
			}
			for _, l := range h.on {
				add := &l.Adds[l.decided]
				counts := add.Counts && (l.Err == nil || l.appends > 0)
				l.decided++
				if !fits && !counts {
					w.denied++
					continue
				}
				add.Kept = true
				l.Taken += h.cost
				a := &simAdmitted{
					counter: l.counter, place: l.place, losses: l.losses, time: now.UnixMilli(), cost: h.cost, limits: l.Limits, revision: l.revision, turns: l.turns, swaps: l.swaps,
				}
				if add.Shared { // the session has decided it, by what it has read
					a.revision = l.read
				}
				if counts {
					w.increments = append(w.increments, a)
				} else {
					w.admitted = append(w.admitted, a)
				}
			}
		}
		if w.sabotage == "no voids" {
			return
		}
		call.until = math.MaxInt64
		_ = s.Undo(call.in())
	}
}

// increment is an increment of process p on one counter, or on both, most of them late.
func (w *simulation) increment(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		now := w.now + w.skew[p]
		call := w.begin(p, func() { yield(struct{}{}) })
		by, at := 1+w.rnd.Int64N(3), now-testkit.Pick(w.rnd, 0, -simGrace, w.rnd.Int64N(5*second), w.rnd.Int64N(90*second))
		batch := trips{engine: w.engines[p]}
		defer batch.close()
		for _, l := range testkit.Pick(w.rnd, call.logs[:1], call.logs[1:], call.logs) {
			l.isPast = at != now
			opened := w.engines[p].open(l.Counter, l.ID, time.UnixMilli(now), 0)
			for _, limit := range l.Limits {
				opened.view.rules.add(limit.Limit, limit.Ceiling, limit.Enforced, limit.Rule.Revision)
			}
			opened.batch.at = at
			opened.take([]limiter.Addition{{Cost: by, Counts: true}})
			batch.logs = append(batch.logs, opened)
		}
		batch.settle(call.in())
		call.until = math.MaxInt64
		for _, opened := range batch.logs {
			counter, _ := strconv.Atoi(opened.trip.op.Counter)
			l := call.logs[counter]
			if opened.err == nil {
				opened.startTidying()
				w.increments = append(w.increments, &simAdmitted{counter: counter, place: l.place, losses: l.losses, time: at, cost: by})
				continue
			}
			_ = opened.undo(call.in())
			w.untidy, w.undone = true, true // a void of a late entry may come too late
		}
	}
}

// fits reports whether the next hit of the tally fits.
func (w *simulation) fits(l *simLog, cost int64, now time.Time) bool {
	add, hasRoom := &l.Adds[l.decided], true
	l.turns = nil
	for i := range l.Limits {
		limit := &l.Limits[i]
		if l.swaps == w.rewrites && l.appends == 1 {
			wait := journal.LimitFrom(limit.Limit, limit.Ceiling).Wait(limit.Level, l.Taken)
			l.turns = append(l.turns, now.UnixMilli()+wait)
		}
		hasRoom = hasRoom && limit.Count+l.Taken+cost <= limit.Ceiling
	}
	fits := hasRoom && (!add.Refused || w.sabotage == "no refusals")
	// A rewrite may put what is of the past ahead of a hit that it followed.
	if l.decided == 0 && !add.Counts && l.appends == 1 && l.late == l.item.late && w.sabotage == "" {
		room := true
		for _, limit := range l.ahead.Head().Limits {
			room = room && l.ahead.Held(limit, now.UnixMilli()).Count+cost <= limit.Ceiling
		}
		own := room
		for i := range l.Limits {
			limit := journal.LimitFrom(l.Limits[i].Limit, l.Limits[i].Ceiling)
			own = own && l.ahead.Held(limit, now.UnixMilli()).Count+cost <= limit.Ceiling
		}
		// What is ahead of a pending hit may be void by now.
		if fits && !room && !add.Shared || !hasRoom && l.Settled && own {
			w.fail(simDiffers, "%d at %d: %t, with %v ahead", l.counter, now.UnixMilli(), fits, l.ahead.Head())
		}
	}
	return fits
}

// measureBucket looks for a time that ends with the hit in which more passed than the burst of a token bucket
// and what its rate adds. It is the last of them in the log.
func (w *simulation) measureBucket(limit limiter.Limit, x *simAdmitted, is func(y *simAdmitted) bool) {
	var before []*simAdmitted
	for _, y := range w.admitted {
		if y.counter == x.counter && y.losses == x.losses && y.place < x.place && is(y) {
			before = append(before, y)
		}
	}
	slices.SortFunc(before, func(a, b *simAdmitted) int { return int(b.time - a.time) })
	for i, sum, first := 0, x.cost, x.time; ; i++ {
		if window := limit.Window.Milliseconds(); sum*window > limit.Ceiling*window+max(x.time-first, 0)*limit.N {
			w.fail(simOverrun, "%d from %d to %d, of %d in %s with a burst of %d", sum, first, x.time, limit.N, limit.Window, limit.Burst)
		}
		if i == len(before) {
			return
		}
		sum, first = sum+before[i].cost, before[i].time
	}
}

// measureTurns looks for a hit whose turn is closer to that of one before in the log than the rate of a leaky
// bucket allows. It is the n-th that was admitted.
func (w *simulation) measureTurns(n int) {
	x := w.admitted[n]
	for i, limit := range x.limits {
		if limit.Algorithm != events.LeakyBucket || x.turns == nil {
			continue
		}
		for m, y := range w.admitted {
			if y.turns == nil {
				continue
			}
			ahead := y.place < x.place || y.place == x.place && m < n
			free := y.turns[i] + y.cost*limit.Window.Milliseconds()/limit.N
			if y.counter == x.counter && y.losses == x.losses && ahead && x.turns[i] < free {
				w.fail(simCrowded, "%d, not %d, after %d", x.turns[i], free, y.turns[i])
			}
		}
	}
}

// measure looks for a window that holds more than its limit.
func (w *simulation) measure() {
	for n, x := range w.admitted {
		if !w.undone {
			w.measureTurns(n)
		}
		for _, limit := range w.rules[x.revision-1] {
			if limit.Burst > 0 {
				w.measureBucket(limit, x, func(y *simAdmitted) bool { return y.revision == x.revision })
				continue
			}
			sum := int64(0)
			for _, y := range w.admitted {
				if y.counter == x.counter && y.revision == x.revision && y.losses == x.losses && y.time <= x.time && simShare(limit, y.time, x.time) {
					sum += y.cost
				}
			}
			if sum > limit.Ceiling {
				w.fail(simExceeded, "the window of %s to %d holds %d of %d", limit.Window, x.time, sum, limit.Ceiling)
			}
		}
		for _, limit := range x.limits {
			if limit.Burst > 0 {
				w.measureBucket(limit, x, func(*simAdmitted) bool { return true })
			}
		}
		if w.retention < 2*time.Minute {
			continue // what limits of other rules count may be forgotten
		}
		for _, limit := range x.limits {
			if limit.Burst > 0 {
				continue
			}
			sum := x.cost
			for _, y := range w.admitted {
				if y.counter == x.counter && y.place < x.place && y.losses == x.losses && simShare(limit, y.time, x.time) {
					sum += y.cost
				}
			}
			if sum > limit.Ceiling {
				w.fail(simExceeded, "by the limits of its writer, the window of %s to %d holds %d of %d", limit.Window, x.time, sum, limit.Ceiling)
			}
		}
	}
}

// account holds the logs against what was admitted, if nothing was lost.
func (w *simulation) account() {
	if w.untidy {
		return
	}
	for i := range w.items {
		item := &w.items[i]
		var log journal.Log
		if item.value == nil || log.Read(item.value, journal.Question{}) != nil {
			continue
		}
		since, all, young := log.Head().Since/second*second+second, int64(0), int64(0)
		for _, a := range slices.Concat(w.admitted, w.increments) {
			if a.counter != i || a.losses != item.losses {
				continue
			}
			if all += a.cost; a.time >= since {
				young += a.cost
			}
		}
		if held := log.Sum(since, 1<<46); held < young {
			w.fail(simExceeded, "the log holds %d of %d", held, young)
		}
		if held := log.Sum(0, 1<<46); held > all {
			w.fail(simLeaks, "the log holds %d, not %d", held, all)
		}
	}
}

// simulate runs one seed.
func simulate(seed uint64, sabotage string, sets [][][]limiter.Limit) *simulation {
	rnd := rand.New(rand.NewPCG(seed, 16))
	w := &simulation{rnd: rnd, sabotage: sabotage, now: simStart, faulty: rnd.IntN(3) == 0, faults: map[simFault]string{}}
	w.rules = sets[rnd.IntN(len(sets))]
	w.alone = w.rules[0][0].Algorithm == events.LeakyBucket
	losing := rnd.IntN(3) == 0
	w.retention = testkit.Pick(rnd, time.Second, 2*time.Minute)
	for p := range 1 + rnd.IntN(5) {
		w.skew = append(w.skew, rnd.Int64N(simGrace/4))
		w.revision = append(w.revision, 1)
		e, err := New(engine.Base{Store: simStore{w: w}, Grace: simGrace * time.Millisecond, Clock: func() time.Time { return time.UnixMilli(w.now + w.skew[p]) }})
		if err != nil {
			w.fail(simFails, "%v", err)
		}
		e.process = uint32(p+1) * 0x9E3779B1
		if sabotage == "short identities" {
			e.process = 0
			e.sequence.Store(rnd.Uint64N(4))
		}
		w.engines = append(w.engines, e)
	}
	pace := []float64{5, 20, 100, 500}[rnd.IntN(4)]
	increments := testkit.Pick(rnd, 0, 0, .1)
	begin := func() iter.Seq[struct{}] {
		if n := len(w.later); n > 0 && w.chance(.4) { // else a process has ended before
			i := rnd.IntN(n)
			later := w.later[i]
			w.later = slices.Delete(w.later, i, i+1)
			return later
		}
		p := rnd.IntN(len(w.skew))
		if w.chance(increments) {
			return w.increment(p)
		}
		return w.batch(p)
	}
	testkit.Interleave(rnd, 40+rnd.IntN(80), 3*len(w.skew), .3, begin, func() {
		w.now += int64(rnd.ExpFloat64() * pace / 5)
		if w.chance(.005) {
			w.now += rnd.Int64N(8 * second)
		}
		if w.chance(.001) {
			w.now += rnd.Int64N(150 * second)
		}
		if item := &w.items[rnd.IntN(2)]; losing && w.chance(.002) && item.value != nil {
			item.value = nil
			item.losses++
		}
		if p := rnd.IntN(len(w.revision)); w.chance(.01) && w.revision[p] < uint64(len(w.rules)) {
			w.revision[p]++
		}
	})
	w.measure()
	w.account()
	return w
}

// No window and no token bucket exceeds its limit, whatever is interleaved and lost; what is denied had no
// room; a log holds what was admitted.
func TestSimulation(t *testing.T) {
	for name, sets := range map[string][][][]limiter.Limit{"windows": simRules, "token buckets": simBuckets, "leaky buckets": simQueues} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var admitted, denied, rewrites, expired, tidy, turns int
			for seed := range testkit.Seeds(10_000) {
				w := simulate(seed, "", sets)
				require.Empty(t, w.faults, "seed %d", seed)
				admitted, denied, rewrites, expired = admitted+len(w.admitted), denied+w.denied, rewrites+w.rewrites, expired+w.expired
				if !w.untidy {
					tidy++
				}
				if w.alone && !w.undone {
					turns += len(w.admitted)
				}
			}
			t.Logf("%d admitted, %d denied, %d rewrites, %d expired; %d runs are accounted for; %d hits were turns", admitted, denied, rewrites, expired, tidy, turns)
			require.NotZero(t, min(admitted, denied, rewrites, expired, tidy))
			require.Equal(t, name == "leaky buckets", turns > 0)
		})
	}
}

// Each sabotage shows itself by the fault that is characteristic of it.
func TestSimulationFindsSabotage(t *testing.T) {
	t.Parallel()
	for sabotage, want := range map[string]simFault{
		"no compare-and-swap":     simExceeded,
		"reads before it appends": simExceeded,
		"a short life":            simExceeded,
		"no refusals":             simExceeded,
		"short identities":        simExceeded,
		"rules without revisions": simExceeded,
		"stale rules win":         simExceeded,
		"no voids":                simLeaks,
	} {
		t.Run(sabotage, func(t *testing.T) { finds(t, sabotage, want, simRules) })
	}
	for sabotage, want := range map[string]simFault{
		"no compare-and-swap":     simOverrun,
		"reads before it appends": simOverrun,
		"no refusals":             simOverrun,
		"short identities":        simOverrun,
		"rules without revisions": simOverrun,
		"stale rules win":         simOverrun,
		"no voids":                simLeaks,
	} {
		t.Run("token buckets, "+sabotage, func(t *testing.T) { finds(t, sabotage, want, simBuckets) })
	}
	for _, sabotage := range []string{"no compare-and-swap", "reads before it appends", "short identities"} {
		t.Run("leaky buckets, "+sabotage, func(t *testing.T) { finds(t, sabotage, simCrowded, simQueues) })
	}
}

// rareSeeds are the first seeds that find the sabotages that few seeds find.
var rareSeeds = map[string]uint64{
	"TestSimulationFindsSabotage/rules_without_revisions":        152,
	"TestSimulationOfReplicasFindsSabotage/resets_are_forgotten": 55,
}

func finds(t *testing.T, sabotage string, want simFault, sets [][][]limiter.Limit) {
	testkit.FindFault(t, rareSeeds[t.Name()], 20_000, func(seed uint64) (string, bool) {
		found, ok := simulate(seed, sabotage, sets).faults[want]
		return found, ok
	})
}
