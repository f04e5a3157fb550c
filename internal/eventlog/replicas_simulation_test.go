package eventlog

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
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

// The simulation of replicas: processes decide hits on one counter that two or three servers keep.
// Each command to each server goes by itself, in any order. One server is sound: it answers, and
// loses nothing. The others may be down, cut off from some processes, frozen, so that commands land
// late or their answers are lost, and may return empty. Then, after one hit that reaches all of
// them, another one is sound, and the first returns empty. Resets go on beside all that.

// simReplicas is the store of a process.
type simReplicas struct {
	*storetest.Solo
	w *replicaSimulation
	p int
}

func (s simReplicas) Capabilities() store.Capabilities {
	return store.Capabilities{Writes: store.KindsOf(store.Append), Replicas: len(s.w.items), Background: s.w.background}
}

func (s simReplicas) Do(ctx context.Context, ops ...*store.Op) {
	call := ctx.Value(simCallKey{}).(simCall)
	if call.background {
		s.w.tidied++
	}
	for _, op := range ops {
		if op.Server == "" && len(op.Reads) > 0 && s.w.now > call.until { // it comes too late, and is not sent
			op.Err, op.Receipt, op.Replicas, s.w.untidy = errSimLost, store.Receipt{}, nil, true
			continue
		}
		s.w.do(s.p, []*store.Op{op}, call.pause)
	}
}

type replicaSimulation struct {
	rnd      *rand.Rand
	sabotage string
	limits   []limiter.Limit
	now      int64
	engines  []*Engine
	skew     []int64

	items   []simItem
	sound   int
	faulty  bool
	calm    bool // no time is lost
	down    []bool
	cut     [][]bool             // by process and server
	delayed []func()             // commands that are on their way
	later   []iter.Seq[struct{}] // what sessions have left to do

	admitted, increments []simEvent
	resets               int // that have begun, and that have ended
	resetting            int // are under way
	undone               int // resets that were not acknowledged
	step                 int
	denied, repairs      int
	tidied               int // round trips of repairs
	rewrites, empty      int
	untidy               bool                                 // a hit was given up: what it appended may stay
	landed               func(server int, data []byte) []byte // makes of what is appended what lands; nil: the same
	replaced             func(server int, value []byte)       // is called with a log that replaces another; nil: it is not
	faults               map[simFault]string
}

// simEvent is a hit that was admitted, or an increment.
type simEvent struct {
	time, cost int64
	ended      int  // the step
	epoch      int  // between which resets it was; -1: beside one
	gone       bool // by a reset
	doubtful   bool // a reset may have forgotten it, or not
}

// epoch returns between which resets a call is.
func (w *replicaSimulation) epoch() int {
	if w.resetting > 0 {
		return -1
	}
	return w.resets
}

// event returns an event that began in that epoch and ends now.
func (w *replicaSimulation) event(epoch int, time, cost int64) simEvent {
	if epoch != w.epoch() {
		epoch = -1
	}
	w.step++
	return simEvent{time: time, cost: cost, ended: w.step, epoch: epoch, doubtful: epoch < 0}
}

// reset resets the counter, as process p does, unless another one does. What ended before it is gone, if it
// is acknowledged.
func (w *replicaSimulation) reset(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		if w.resetting > 0 {
			return
		}
		l := w.open(p)
		defer l.close()
		w.resets++
		w.resetting++
		began := w.step
		err := l.resetReplicas(simCall{pause: func() { yield(struct{}{}) }, until: math.MaxInt64}.in())
		w.resets++
		w.resetting--
		if err != nil {
			w.undone++
		}
		for _, list := range [][]simEvent{w.admitted, w.increments} {
			for i := range list {
				if e := &list[i]; e.ended <= began {
					e.gone, e.doubtful = e.gone || err == nil, e.doubtful || err != nil
				}
			}
		}
	}
}

func (w *replicaSimulation) fail(kind simFault, format string, args ...any) {
	if _, known := w.faults[kind]; !known {
		w.faults[kind] = fmt.Sprintf(format, args...)
	}
}

func (w *replicaSimulation) chance(p float64) bool { return w.rnd.Float64() < p }

// do makes the round trips of process p.
func (w *replicaSimulation) do(p int, ops []*store.Op, pause func()) {
	for _, op := range ops {
		if op.Server != "" {
			var server int
			_, _ = fmt.Sscan(op.Server, &server)
			w.repairs++
			w.part(p, server, op, pause)
			continue
		}
		op.Replicas, op.Receipt = make([]store.Op, len(w.items)), store.Receipt{}
		order := w.rnd.Perm(len(w.items))
		if w.sabotage == "voids to one replica" && len(op.Reads) == 0 {
			order = order[:1]
		}
		for _, server := range order {
			part := &op.Replicas[server]
			*part = store.Op{Counter: op.Counter, Server: fmt.Sprint(server), Data: true, Writes: slices.Clone(op.Writes), Reads: slices.Clone(op.Reads)}
			for i := range part.Reads {
				part.Reads[i].Data = nil
			}
			w.part(p, server, part, pause)
		}
		op.Err = errSimLost
		for _, server := range w.rnd.Perm(len(w.items)) {
			part := &op.Replicas[server]
			op.Receipt.Acknowledged[server] = part.Receipt.Acknowledged[0]
			if w.sabotage == "judges by one replica" && op.Err == nil {
				part.Err = errSimLost
			}
			if part.Err == nil && op.Err != nil {
				op.Err = nil
				copy(op.Writes, part.Writes)
			}
		}
	}
}

// part makes a round trip to one server.
func (w *replicaSimulation) part(p, server int, op *store.Op, pause func()) {
	op.Err, op.Receipt = nil, store.Receipt{}
	pause()
	if server != w.sound && w.faulty && (w.down[server] || w.cut[p][server] || w.chance(.02)) {
		op.Err = errSimLost
		return
	}
	if server != w.sound && w.faulty && w.chance(.05) { // it lands late
		op.Err = errSimLost
		late := store.Op{Writes: slices.Clone(op.Writes), Reads: slices.Clone(op.Reads)}
		for i := range late.Writes {
			late.Writes[i].Data = slices.Clone(late.Writes[i].Data)
		}
		w.delayed = append(w.delayed, func() { w.land(server, &late, func() {}) })
		return
	}
	w.land(server, op, pause)
	op.Receipt = store.Acknowledged(len(op.Writes))
	if server != w.sound && w.faulty && w.chance(.05) { // its answer is lost
		op.Err, op.Receipt = errSimLost, store.Receipt{}
	}
}

// land has the commands of an op reach a server, one by one.
func (w *replicaSimulation) land(server int, op *store.Op, pause func()) {
	item := &w.items[server]
	for i := range op.Writes {
		if i > 0 {
			pause()
		}
		write := &op.Writes[i]
		if item.value != nil && w.now/second >= item.expires {
			item.value = nil
		}
		write.Result = 0
		switch {
		case write.Kind == store.Append && item.value != nil:
			data := write.Data
			if w.landed != nil {
				data = w.landed(server, data)
			}
			item.value = append(slices.Clip(item.value), data...)
		case write.Kind == store.Create && item.value == nil:
			item.value, item.expires = slices.Clone(write.Data), write.Expires
		case write.Kind == store.Swap && item.value != nil && (item.version == write.Version || w.sabotage == "no compare-and-swap"):
			item.value, item.expires = slices.Clone(write.Data), write.Expires
			w.rewrites++
		case write.Kind == store.Put:
			w.put(item, write)
		default:
			continue
		}
		item.version++
		write.Result = 1
		if w.replaced != nil && write.Kind != store.Append {
			w.replaced(server, item.value)
		}
	}
	for i := range op.Reads {
		pause()
		read := &op.Reads[i]
		if item.value != nil && w.now/second >= item.expires {
			item.value = nil
		}
		read.Version, read.Data = 0, nil
		if item.value != nil {
			read.Version, read.Data = item.version, slices.Clone(item.value)
		}
	}
}

// put has a reset overwrite the log of a server.
func (w *replicaSimulation) put(item *simItem, write *store.Write) {
	item.value, item.expires = slices.Clone(write.Data), write.Expires
	switch w.sabotage {
	case "resets delete":
		item.value = nil
	case "resets are forgotten":
		var log journal.Log
		_ = log.Read(write.Data, journal.Question{})
		head := log.Head()
		head.Reset = 0
		item.value, _ = journal.AppendNew(nil, head, w.now)
	}
}

// open returns the log as process p opens it.
func (w *replicaSimulation) open(p int) *log {
	l := w.engines[p].open(events.Counter{Retention: simRetention}, "0", time.UnixMilli(w.now+w.skew[p]), 0)
	for _, limit := range w.limits {
		l.view.rules.add(limit.Limit, limit.Ceiling, limit.Enforced, limit.Rule.Revision)
	}
	return l
}

// tally returns a tally of the hits.
func (w *replicaSimulation) tally(adds ...limiter.Addition) *limiter.Tally {
	t := &limiter.Tally{ID: "0", Counter: events.Counter{Retention: simRetention}, Limits: slices.Clone(w.limits), Adds: adds}
	for _, add := range adds {
		t.Demand += add.Cost
	}
	return t
}

// simFits reports whether the limits of the tally have room for its next hit.
func simFits(t *limiter.Tally, add *limiter.Addition) bool {
	fits := t.Err == nil && !add.Refused
	for i := range t.Limits {
		limit := &t.Limits[i]
		fits = fits && (!limit.Enforced || limit.Count+t.Taken+add.Cost <= limit.Ceiling)
	}
	return fits
}

// timeOf returns when the hits of a session count: a reset by a clock that is ahead has moved them.
func timeOf(s limiter.Session) int64 { return s.(*session).trips.logs[0].batch.at }

// batch is a batch of hits of process p.
func (w *replicaSimulation) batch(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		call := simCall{pause: func() { yield(struct{}{}) }, until: w.now + simGrace/2}
		began, epoch, now := w.now, w.epoch(), time.UnixMilli(w.now+w.skew[p])
		var adds []limiter.Addition
		for range testkit.Pick(w.rnd, 1, 1, 2, 4) {
			adds = append(adds, limiter.Addition{Cost: 1 + w.rnd.Int64N(5)/4, Shared: w.chance(.3), Counts: w.chance(.03)})
		}
		s, t := w.engines[p].NewSession(), w.tally(adds...)
		s.Add(call.in(), limiter.Moment{Time: now, Second: now.Unix(), Latest: now.Unix()}, []*limiter.Tally{t})
		late, voided := w.now-began > simGrace/2, int64(0)
		w.untidy = w.untidy || late || t.Err != nil
		for i := range t.Adds {
			add := &t.Adds[i]
			fits := !late && (!add.Shared || w.chance(.7)) && simFits(t, add) // another counter denies it
			a := w.event(epoch, timeOf(s), add.Cost)
			switch {
			case add.Counts && t.Err == nil:
				w.increments = append(w.increments, a)
			case fits:
				w.admitted = append(w.admitted, a)
			default:
				w.denied++
				voided += add.Cost
				continue
			}
			add.Kept = true
			t.Taken += add.Cost
		}
		call.until = math.MaxInt64
		_ = s.Undo(call.in())
		w.untidy = w.untidy || w.now-began > simGrace
		if beside := w.event(epoch, timeOf(s), voided); beside.doubtful { // a reset may have forgotten the voids alone
			w.increments = append(w.increments, beside)
		}
	}
}

// background notes what is left to do after an answer.
func (w *replicaSimulation) background(do func(context.Context)) {
	w.later = append(w.later, func(yield func(struct{}) bool) {
		do(simCall{pause: func() { yield(struct{}{}) }, until: math.MaxInt64}.in())
	})
}

// finish does what is left to do.
func (w *replicaSimulation) finish() {
	for len(w.later) > 0 {
		later := w.later
		w.later = nil
		for _, one := range later {
			for range one {
			}
		}
	}
}

// late is an increment of the past.
func (w *replicaSimulation) late(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		call := simCall{pause: func() { yield(struct{}{}) }, until: w.now + simGrace/2}
		epoch, l := w.epoch(), w.open(p)
		defer l.close()
		l.batch.at = l.view.time - w.rnd.Int64N(60*second)
		l.take([]limiter.Addition{{Cost: 1, Counts: true}})
		batch := trips{engine: l.engine, logs: []*log{l}}
		batch.settle(call.in())
		if l.err == nil {
			l.startTidying()
			w.increments = append(w.increments, w.event(epoch, l.batch.at, 1))
			return
		}
		w.untidy, call.until = true, math.MaxInt64
		_ = l.undo(call.in())
	}
}

// repair repairs the log in the background, as process p does.
func (w *replicaSimulation) repair(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		call := simCall{pause: func() { yield(struct{}{}) }, until: math.MaxInt64, background: true}
		_, _ = w.engines[p].Repair(call.in(), "0", simRetention)
	}
}

// befall has time pass, and servers fail.
func (w *replicaSimulation) befall(pace float64) {
	w.now += int64(w.rnd.ExpFloat64() * pace / 5)
	if !w.calm && w.chance(.005) {
		w.now += w.rnd.Int64N(8 * second)
	}
	if !w.calm && w.chance(.001) {
		w.now += w.rnd.Int64N(150 * second)
	}
	if len(w.delayed) > 0 && w.chance(.05) {
		i := w.rnd.IntN(len(w.delayed))
		late := w.delayed[i]
		w.delayed = slices.Delete(w.delayed, i, i+1)
		late()
	}
	if server := w.rnd.IntN(len(w.items)); w.faulty && server != w.sound {
		if w.chance(.02) {
			w.down[server] = !w.down[server]
		}
		if p := w.rnd.IntN(len(w.cut)); w.chance(.02) {
			w.cut[p][server] = !w.cut[p][server]
		}
		if w.chance(.003) {
			w.lose(server)
		}
	}
}

// lose has a server return empty.
func (w *replicaSimulation) lose(server int) {
	if w.items[server].value != nil {
		w.items[server].value = nil
		w.empty++
	}
}

// held returns what the truth holds in the window of a limit that ends at now, and what is later: at the
// least and at the most.
func (w *replicaSimulation) held(limit limiter.Limit, now int64) (least, most int64) {
	if limit.Burst > 0 { // it depends on the order
		return 0, math.MaxInt32
	}
	return w.sum(func(a simEvent) bool {
		return simShare(limit, a.time, now) || a.time > now
	})
}

// sum returns the cost of events that no reset has forgotten.
func (w *replicaSimulation) sum(has func(simEvent) bool) (least, most int64) {
	for _, a := range slices.Concat(w.admitted, w.increments) {
		if a.gone || !has(a) {
			continue
		}
		if most += a.cost; !a.doubtful {
			least += a.cost
		}
	}
	return least, most
}

// rest has one hit reach all servers while nothing else goes on. It is admitted if there is room.
func (w *replicaSimulation) rest() {
	for _, late := range w.delayed {
		late()
	}
	faulty := w.faulty
	w.delayed, w.faulty = nil, false
	w.finish()
	if w.chance(.3) { // instead of a hit
		for range w.repair(0) {
		}
		w.account()
	}
	if w.chance(.2) { // nothing is left, also of hits that were given up
		for range w.reset(0) {
		}
		w.untidy = false
		w.account()
	}
	for len(w.admitted)+w.denied > 0 {
		w.now += 3 * simGrace
		admitted, want := len(w.admitted), true
		now := w.now + w.skew[0]
		for _, limit := range w.limits {
			_, most := w.held(limit, now)
			want = want && most+2 <= limit.Ceiling
		}
		for range w.batch(0) {
		}
		w.finish()
		if len(w.admitted) > admitted || !want || w.untidy || w.chance(.5) {
			break
		}
	}
	w.alone()
	w.faulty = faulty
	clear(w.down)
}

// alone has one more hit that meets no other: it is admitted exactly if there is room.
func (w *replicaSimulation) alone() {
	w.now += simGrace
	call := simCall{pause: func() {}, until: math.MaxInt64}
	now, want, may := time.UnixMilli(w.now+w.skew[0]), true, true
	for _, limit := range w.limits {
		least, most := w.held(limit, now.UnixMilli())
		want, may = want && most+1 <= limit.Ceiling, may && least+1 <= limit.Ceiling
	}
	s, t := w.engines[0].NewSession(), w.tally(limiter.Addition{Cost: 1})
	s.Add(call.in(), limiter.Moment{Time: now, Second: now.Unix(), Latest: now.Unix()}, []*limiter.Tally{t})
	if t.Err != nil {
		w.fail(simFails, "%v", t.Err)
		return
	}
	fits := simFits(t, &t.Adds[0])
	if (want && !fits || fits && !may) && !w.untidy {
		w.fail(simDiffers, "alone at %d: %t", now.UnixMilli(), fits)
	}
	if t.Adds[0].Kept = fits; fits {
		w.admitted = append(w.admitted, w.event(w.epoch(), timeOf(s), 1))
	}
	_ = s.Undo(call.in())
	w.finish()
}

// account holds each log against what was admitted. It knows what it retains, also if it has expired
// and a session that was stalled has created it again.
func (w *replicaSimulation) account() {
	for i := range w.items {
		var log journal.Log
		if w.items[i].value == nil {
			continue
		}
		if err := log.Read(w.items[i].value, journal.Question{}); err != nil {
			w.fail(simFails, "server %d: %v", i, err)
			continue
		}
		since := max(log.Head().Since, w.now-simRetention.Milliseconds())/second*second + second
		least, most := w.sum(func(a simEvent) bool { return a.time >= since })
		switch held := log.Sum(since, 1<<46); {
		case held < least:
			w.fail(simLoses, "server %d holds %d of %d", i, held, least)
		case held > most && !w.untidy:
			w.fail(simLeaks, "server %d holds %d, not %d", i, held, most)
		}
	}
}

const simRetention = 2 * time.Minute

const simLoses simFault = "a log lacks what was admitted"

// measureBucket looks for an interval between two resets, which ends at the time of the hit, in which a token
// bucket admitted more than its burst and what its rate adds.
func (w *replicaSimulation) measureBucket(limit limiter.Limit, x simEvent) {
	var all []simEvent
	for _, y := range w.admitted {
		if x.epoch >= 0 && y.epoch == x.epoch && y.time <= x.time {
			all = append(all, y)
		}
	}
	slices.SortFunc(all, func(a, b simEvent) int { return int(b.time - a.time) })
	sum, window := int64(0), limit.Window.Milliseconds()
	for _, y := range all {
		if sum += y.cost; sum*window > limit.Ceiling*window+(x.time-y.time)*limit.N {
			w.fail(simOverrun, "%d from %d to %d, of %d in %s with a burst of %d", sum, y.time, x.time, limit.N, limit.Window, limit.Burst)
		}
	}
}

// measure looks for a window between two resets that holds more than its limit.
func (w *replicaSimulation) measure() {
	for _, x := range w.admitted {
		for _, limit := range w.limits {
			if limit.Burst > 0 {
				w.measureBucket(limit, x)
				continue
			}
			sum := int64(0)
			for _, y := range w.admitted {
				later := y.time > x.time && (limit.Window < time.Minute || y.time/second > x.time/second)
				if x.epoch >= 0 && x.epoch == y.epoch && !later && simShare(limit, y.time, x.time) {
					sum += y.cost
				}
			}
			if sum > limit.Ceiling {
				w.fail(simExceeded, "the window of %s to %d holds %d of %d", limit.Window, x.time, sum, limit.Ceiling)
			}
		}
	}
}

// simulateReplicas runs one seed.
func simulateReplicas(seed uint64, sabotage string, sets [][][]limiter.Limit) *replicaSimulation {
	rnd := rand.New(rand.NewPCG(seed, 17))
	w := &replicaSimulation{rnd: rnd, sabotage: sabotage, now: simStart, faulty: rnd.IntN(3) > 0, calm: rnd.IntN(2) == 0, faults: map[simFault]string{}}
	w.limits = sets[rnd.IntN(len(sets))][0]
	servers := 2 + rnd.IntN(2)
	w.items, w.down = make([]simItem, servers), make([]bool, servers)
	for p := range 1 + rnd.IntN(4) {
		w.skew = append(w.skew, rnd.Int64N(simGrace/4))
		w.cut = append(w.cut, make([]bool, servers))
		e, err := New(engine.Base{Store: simReplicas{w: w, p: p}, Grace: simGrace * time.Millisecond, Clock: func() time.Time { return time.UnixMilli(w.now + w.skew[p]) }})
		if err != nil {
			w.fail(simFails, "%v", err)
			return w
		}
		e.process = uint32(p+1) * 0x9E3779B1
		w.engines = append(w.engines, e)
	}
	pace := []float64{1, 4, 20, 100}[rnd.IntN(4)]
	resets := testkit.Pick(rnd, 0, 0, .02, .1)
	for range 1 + rnd.IntN(4) {
		begin := func() iter.Seq[struct{}] {
			if n := len(w.later); n > 0 && w.chance(.4) {
				i := rnd.IntN(n)
				later := w.later[i]
				w.later = slices.Delete(w.later, i, i+1)
				return later
			}
			p := rnd.IntN(len(w.skew))
			switch {
			case w.chance(.06):
				return w.late(p)
			case w.chance(.06):
				return w.repair(p)
			case w.chance(resets):
				return w.reset(p)
			}
			return w.batch(p)
		}
		testkit.Interleave(rnd, 20+rnd.IntN(50), 3*len(w.skew), .3, begin, func() { w.befall(pace) })
		w.rest()
		w.account()
		before := w.sound
		w.sound = (before + 1 + rnd.IntN(servers-1)) % servers
		w.lose(before)
	}
	w.measure()
	return w
}

// simShared are rules of token buckets that share a log with a window, which remembers what was admitted.
var simShared = [][][]limiter.Limit{
	{{simBucket(1, 10, 3), simLimit(60, 1000)}},
	{{simBucket(60, 90, 5), simLimit(90, 20)}},
	{{simBucket(20, 7, 2), simBucket(1, 2, 1), simLimit(1, 50)}},
	{{simBucket(90, 9, 3), simLimit(90, 1000)}},
}

// No window and no token bucket exceeds its limit while every hit reaches a replica that loses nothing.
// Nothing is lost, and nothing counts twice.
func TestSimulationOfReplicas(t *testing.T) {
	for name, sets := range map[string][][][]limiter.Limit{"windows": simRules, "token buckets": simShared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var admitted, denied, rewrites, repairs, background, empty, tidy, resets, undone int
			for seed := range testkit.Seeds(10_000) {
				w := simulateReplicas(seed, "", sets)
				require.Empty(t, w.faults, "seed %d", seed)
				background, resets, undone = background+w.tidied, resets+w.resets/2, undone+w.undone
				admitted, denied, rewrites, repairs, empty = admitted+len(w.admitted), denied+w.denied, rewrites+w.rewrites, repairs+w.repairs, empty+w.empty
				if !w.untidy {
					tidy++
				}
			}
			t.Logf("%d admitted, %d denied, %d rewrites, %d repairs, %d in the background, %d returned empty, %d resets, %d of them failed; %d runs are accounted for", admitted, denied, rewrites, repairs, background, empty, resets, undone, tidy)
			require.NotZero(t, min(admitted, denied, rewrites, repairs, background, empty, resets, undone, tidy))
		})
	}
}

// Each sabotage shows itself by the fault that is characteristic of it.
func TestSimulationOfReplicasFindsSabotage(t *testing.T) {
	t.Parallel()
	for sabotage, want := range map[string]simFault{
		"no compare-and-swap":   simLoses,
		"voids to one replica":  simLeaks,
		"judges by one replica": simExceeded,
		"resets delete":         simLeaks,
		"resets are forgotten":  simLeaks,
	} {
		t.Run(sabotage, func(t *testing.T) { findsInReplicas(t, sabotage, want, simRules) })
	}
	t.Run("token buckets, judges by one replica", func(t *testing.T) { findsInReplicas(t, "judges by one replica", simOverrun, simShared) })
}

func findsInReplicas(t *testing.T, sabotage string, want simFault, sets [][][]limiter.Limit) {
	testkit.FindFault(t, rareSeeds[t.Name()], 20_000, func(seed uint64) (string, bool) {
		found, ok := simulateReplicas(seed, sabotage, sets).faults[want]
		return found, ok
	})
}
