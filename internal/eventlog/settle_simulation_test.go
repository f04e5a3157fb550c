package eventlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
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

// The simulation of what is settled: processes take leases, renew and release them, or reserve and settle,
// by calls of the engine, each on any process. Each command to the one server, or to each of several, goes
// by itself. Clients crash, commands and answers are lost, clocks differ, logs are rewritten. With several
// servers one is sound, as in the simulation of replicas.

const (
	simLease   = 7 * time.Second
	simLeases  = 3
	simReserve = 20 * second

	simLost   simFault = "less is counted than was truly used"
	simOver   simFault = "more is counted than was settled"
	simStuck  simFault = "a lease that has ended is not free"
	simTwice  simFault = "a settlement is not the first one"
	simRefuse simFault = "an undisturbed call fails"
)

type settleSimulation struct {
	replicaSimulation
	leases  bool
	shadow  bool           // the limit is
	shorter []bool         // the processes that have rules with a shorter lease
	extends map[uint64]int // the order of the last extension of an entry on the sound server
	order   int            // of appends
	landing map[uint64]int // of entries on the sound server
	// elsewhere are entries that it did not have when they came to others.
	elsewhere []journal.ID
	taken     []*simLeaseTaken
	alone     int // nothing else goes on
	failed    int // renewals without an answer
	voided    int
	renewed   int
	settled   int
	measured  int // token buckets that lack something in the end
}

// simLeaseTaken is a lease or a reservation that its client knows of.
type simLeaseTaken struct {
	engine.Reserved
	listed   bool  // it is on an allow list
	first    int64 // when it ended first
	unknown  int64 // when it ends by a renewal of which its client has not learned
	renewals []simRenewal
	decided  int // when it was, in the order of appends; 0: by its place
	freed    int // when its release began
	tried    []simSettlement
	answered []simSettlement // were acknowledged
}

// simSettlement is a call of Settle, between two steps.
type simSettlement struct {
	cost         int64
	began, ended int
}

// simRenewal is a renewal that was granted: of a lease that ended by then, until another time.
type simRenewal struct {
	order, decided int
	from, ends     int64
}

// simShorter is the lease of newer rules.
const simShorter = simLease / 2

// simServers is the store of a process.
type simServers struct {
	*storetest.Solo
	w *settleSimulation
	p int
}

func (s simServers) Capabilities() store.Capabilities {
	can := store.Capabilities{Writes: store.KindsOf(store.Append), Background: s.w.background}
	if len(s.w.items) > 1 {
		can.Replicas = len(s.w.items)
	}
	return can
}

func (s simServers) Do(ctx context.Context, ops ...*store.Op) {
	call, w := ctx.Value(simCallKey{}).(simCall), s.w
	for _, op := range ops {
		switch {
		case w.now > call.until && len(op.Reads) > 0:
			op.Err, w.untidy = errSimLost, true
		case len(w.items) > 1:
			w.do(s.p, []*store.Op{op}, call.pause)
			w.untidy = w.untidy || op.Err != nil
		default:
			w.one(op, call.pause)
		}
	}
}

// one makes a round trip to the only server.
func (w *settleSimulation) one(op *store.Op, pause func()) {
	op.Err, op.Receipt = errSimLost, store.Receipt{}
	w.untidy = w.untidy || w.faulty
	if pause(); w.faulty && w.chance(.02) {
		return
	}
	w.land(0, op, pause)
	if w.faulty && w.chance(.03) {
		return
	}
	op.Err, op.Receipt = nil, store.Acknowledged(len(op.Writes))
}

// note notes the order of entries that land, and spoils them.
func (w *settleSimulation) note(server int, data []byte) []byte {
	w.order++
	for rest := data; len(rest) > 0; {
		id, size := simEntry(rest)
		if _, known := w.landing[id]; (!known || w.forgot(id)) && rest[0]>>5 != byte(journal.Void) {
			if server == w.sound {
				w.landing[id] = w.order
			} else if !slices.Contains(w.elsewhere, journal.ID(id)) {
				w.elsewhere = append(w.elsewhere, journal.ID(id))
			}
		}
		if server == w.sound && rest[0]>>5 != byte(journal.Void) {
			w.extends[id] = w.order
		}
		rest = rest[size:]
	}
	return w.spoil(server, data)
}

// forgot reports whether a rewrite of the only server has forgotten an entry that was denied: it comes again.
func (w *settleSimulation) forgot(id uint64) bool {
	var log journal.Log
	return len(w.items) == 1 && log.Read(w.items[0].value, journal.Question{Keys: []journal.ID{journal.ID(id)}}) == nil && !log.Verdict(0).Found
}

// bring notes the order of entries that a rewrite brings to the sound server from others.
func (w *settleSimulation) bring(server int, value []byte) {
	w.elsewhere = slices.DeleteFunc(w.elsewhere, func(id journal.ID) bool { return w.landing[uint64(id)] != 0 })
	var log journal.Log
	if server != w.sound || log.Read(value, journal.Question{Keys: w.elsewhere}) != nil {
		return
	}
	w.order++
	for i, id := range w.elsewhere {
		if log.Verdict(i).Found {
			w.landing[uint64(id)] = w.order
		}
	}
}

// simEntry returns the identity of an encoded entry, and its size.
func simEntry(data []byte) (id uint64, size int) {
	if size = 15; data[0]&15 == 0 {
		size = 21
		for _, flag := range []byte{0x80, 0x40} {
			if data[17]&flag != 0 {
				size += 5
			}
		}
	}
	return binary.BigEndian.Uint64(data[5:]) & (1<<56 - 1), size
}

// spoil makes of the entries what a sabotage does.
func (w *settleSimulation) spoil(server int, data []byte) []byte {
	if w.sabotage == "" || len(data) == 0 {
		return data
	}
	isVoid := data[0]>>5 == byte(journal.Void)
	switch w.sabotage {
	case "releases are lost":
		id, size := simEntry(data)
		if isVoid && slices.ContainsFunc(w.taken, func(l *simLeaseTaken) bool { return l.ID == id }) {
			return data[size:]
		}
	case "renewals take another place":
		if id, size := simEntry(data); !isVoid && w.leases && w.landing[id] != w.order {
			void, _ := journal.AppendEntry(nil, journal.Entry{Kind: journal.Void, ID: journal.ID(id), Time: w.now})
			return append(void, data[size:]...)
		}
	case "renewals are lost":
		if id, size := simEntry(data); !isVoid && w.leases && w.landing[id] != w.order {
			return data[size:]
		}
	case "no ends":
		var all []byte
		for rest := data; len(rest) > 0; {
			_, size := simEntry(rest)
			all = append(all, w.again(rest[:size], func(e *journal.Entry) { e.Ends, e.Cost = 0, max(e.Cost, 1) })...)
			rest = rest[size:]
		}
		return all
	case "the last settlement counts":
		if isVoid && server == w.sound {
			return w.supersede(data)
		}
	case "settlements are several":
		if _, size := simEntry(data); isVoid && len(data) > size {
			return append(slices.Clone(data), w.again(data[size:], func(e *journal.Entry) { e.ID = journal.ID(w.rnd.Uint64N(1 << 55)) })...)
		}
	}
	return data
}

// supersede has the settlement of an entry replace one before.
func (w *settleSimulation) supersede(data []byte) []byte {
	_, size := simEntry(data)
	if item := &w.items[w.sound]; len(data) > size {
		if at := bytes.LastIndex(item.value, data[size+6:size+13]); at > 6 && item.value[at-6]>>5 == byte(journal.Increment) {
			item.value = append(slices.Clone(item.value[:at-6]), item.value[at-6+simSize(item.value[at-6:]):]...)
		}
	}
	return data
}

func simSize(data []byte) int {
	_, size := simEntry(data)
	return size
}

// again encodes an entry once more, with a change.
func (w *settleSimulation) again(data []byte, change func(*journal.Entry)) []byte {
	value, _ := journal.AppendNew(nil, journal.Head{}, w.now)
	id, _ := simEntry(data)
	if data[0]>>5 == byte(journal.Void) {
		return data
	}
	var log journal.Log
	if log.Read(append(value, data...), journal.Question{Keys: []journal.ID{journal.ID(id)}}) != nil || !log.Verdict(0).Found {
		return data
	}
	e := log.Entry(0)
	change(&e)
	next, err := journal.AppendEntry(nil, e)
	if err != nil {
		return data
	}
	return next
}

// context returns that of a call which begins now.
func (w *settleSimulation) context(pause func()) context.Context {
	return simCall{pause: pause, until: w.now + simGrace/2}.in()
}

// rules returns the limits that process p has.
func (w *settleSimulation) rules(p int) []limiter.Limit {
	if !w.shorter[p] {
		return w.limits
	}
	limits := slices.Clone(w.limits)
	limits[0].Window, limits[0].Rule = simShorter, &events.Rule{Revision: 2}
	return limits
}

// take takes a lease, or reserves, as process p. It returns nil if that was denied.
func (w *settleSimulation) take(p int, cost int64, pause func()) *simLeaseTaken {
	e, began, now := w.engines[p], w.now, time.UnixMilli(w.now+w.skew[p])
	t := &limiter.Tally{ID: "0", Counter: events.Counter{Retention: time.Hour}, Limits: slices.Clone(w.rules(p)), Demand: cost}
	t.Adds = []limiter.Addition{{Cost: cost, Shared: w.chance(.2)}}
	add := &t.Adds[0]
	if !w.leases {
		add.Ends = now.UnixMilli() + simReserve
	} else if w.alone == 0 {
		add.Counts = w.chance(.05)
	}
	s := e.NewSession()
	s.Add(w.context(pause), limiter.Moment{Time: now, Second: now.Unix(), Latest: now.Unix()}, []*limiter.Tally{t})
	err := t.Err
	fits := err == nil && w.now-began <= simGrace/2 && (!add.Shared || w.chance(.7)) && (w.shadow || add.Counts || simFits(t, add))
	add.Kept = fits
	if !fits && add.Shared && w.leases && w.faulty && w.chance(.1) { // its process ends
		w.denied, w.untidy = w.denied+1, true
		return nil
	}
	_ = s.Undo(simCall{pause: pause, until: math.MaxInt64}.in())
	if !fits {
		w.denied++
		w.untidy = w.untidy || err != nil || w.now-began > simGrace/2
		return nil
	}
	l := &simLeaseTaken{Reserved: add.Reserved, listed: add.Counts, freed: math.MaxInt}
	if add.Shared || len(w.items) > 1 {
		l.decided = w.order
	}
	if l.ID == 0 {
		w.fail(simRefuse, "nothing is reserved")
	}
	l.Retention, l.first = time.Hour, l.Ends
	w.taken = append(w.taken, l)
	return l
}

// client takes a lease, uses it, and releases it, if it does not crash.
func (w *settleSimulation) client(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		pause := func() { yield(struct{}{}) }
		l := w.take(p, 1, pause)
		for l != nil {
			w.use(pause)
			q := w.rnd.IntN(len(w.engines))
			switch {
			case w.chance(.15): // it crashes
				return
			case w.chance(.4):
				if !w.renew(q, l, pause) {
					return
				}
				continue
			}
			l.freed = w.order
			for again := true; again; again = w.chance(.1) {
				err := w.engines[q].Settle(w.context(pause), l.Reserved, 0)
				if err != nil && !errors.Is(err, engine.ErrEnded) && !w.untidy {
					w.fail(simRefuse, "a release: %v", err)
				}
				w.untidy = w.untidy || err != nil
				w.voided++
			}
			return
		}
	}
}

// use goes on for some time, now and then for long.
func (w *settleSimulation) use(pause func()) {
	for long := testkit.Pick(w.rnd, .7, .7, .98); w.chance(long); {
		pause()
	}
}

// renew renews a lease as process q, and reports whether its client has it yet. A call that the store fails, or
// of which the answer is lost, is repeated, or not; the lease is as it was, or ends later.
func (w *settleSimulation) renew(q int, l *simLeaseTaken, pause func()) bool {
	by := testkit.Pick(w.rnd, simLease, simLease, simLease/2)
	before, order, began := l.Reserved, w.order, w.now+w.skew[q]
	by = min(by, l.Lease)
	r, err := w.engines[q].Renew(w.context(pause), l.Reserved, by)
	now := w.now + w.skew[q]
	switch {
	case errors.Is(err, engine.ErrEnded):
		if now < w.inForce(&before) {
			w.fail(simLost, "a lease that ends at %d has ended at %d: %v", before.Ends, now, err)
		}
		l.freed = order
		return false
	case err != nil:
		w.untidy, w.failed = true, w.failed+1
		w.holds(l)
		return true
	}
	w.renewed++
	if least := min(by, w.shortest()); r.Ends < began+least.Milliseconds() {
		w.fail(simRefuse, "a lease that is renewed at %d by %s ends at %d", began, by, r.Ends)
	}
	if w.chance(.1) { // its client does not learn of it, and goes on with what it had
		l.unknown = max(l.unknown, r.Ends)
		w.holds(l)
		return true
	}
	l.Reserved = r
	l.renewals = append(l.renewals, simRenewal{max(order, w.extends[l.ID]), w.order, w.inForce(&before), w.inForce(&r)})
	w.holds(l)
	return true
}

// shortest returns the shortest lease of any rules.
func (w *settleSimulation) shortest() time.Duration {
	if slices.Contains(w.shorter, true) {
		return simShorter
	}
	return simLease
}

// inForce returns when a lease ends by the shortest lease of any rules.
func (w *settleSimulation) inForce(r *engine.Reserved) int64 {
	return r.Ends - max(r.Lease-w.shortest(), 0).Milliseconds()
}

// holds holds that the sound server has the lease for as long as its client thinks.
func (w *settleSimulation) holds(l *simLeaseTaken) {
	var log journal.Log
	err := log.Read(w.items[w.sound].value, journal.Question{Keys: []journal.ID{journal.ID(l.ID)}})
	if w.now+simGrace/4 >= w.inForce(&l.Reserved) {
		return
	}
	if err != nil || log.Verdict(0).Counted == 0 {
		w.fail(simLost, "the lease %x, which ends at %d, is not there at %d: %v", l.ID, l.Ends, w.now, err)
	} else if e := log.Entry(0); e.Ends < l.Ends {
		w.fail(simLost, "the lease %x ends at %d, not at %d", l.ID, e.Ends, l.Ends)
	}
}

// spender reserves, and settles, once or several times, also with another cost, if it does not crash.
func (w *settleSimulation) spender(p int) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		pause := func() { yield(struct{}{}) }
		l := w.take(p, 1+w.rnd.Int64N(6), pause)
		if l == nil {
			return
		}
		if w.use(pause); w.chance(.15) {
			return
		}
		cost := w.rnd.Int64N(8)
		for again := true; again; again = w.chance(.3) {
			w.settle(l, cost, pause)
			for w.chance(.5) {
				pause()
			}
			if w.chance(.1) {
				cost = w.rnd.Int64N(8)
			}
		}
	}
}

// rival settles one of the last reservations, beside the process that has it.
func (w *settleSimulation) rival(l *simLeaseTaken) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) { w.settle(l, w.rnd.Int64N(8), func() { yield(struct{}{}) }) }
}

// settle settles a reservation on any process.
func (w *settleSimulation) settle(l *simLeaseTaken, cost int64, pause func()) {
	w.step++
	call := simSettlement{cost: cost, began: w.step}
	l.tried = append(l.tried, call)
	err := w.engines[w.rnd.IntN(len(w.engines))].Settle(w.context(pause), l.Reserved, cost)
	w.step++
	call.ended = w.step
	switch {
	case err == nil:
		for _, one := range l.answered {
			if one.cost != cost && !w.beside(l, one, call) {
				w.fail(simTwice, "%d after %d", cost, one.cost)
			}
		}
		l.answered = append(l.answered, call)
		w.settled++
	case errors.Is(err, engine.ErrSettled):
		for _, one := range l.answered {
			if one.cost == cost && one.ended < call.began && !slices.ContainsFunc(l.tried, func(other simSettlement) bool { return other.cost > cost && w.beside(l, one, other) }) {
				w.fail(simTwice, "%v, after the same cost", err)
			}
		}
	case errors.Is(err, engine.ErrEnded):
	case !w.untidy:
		w.fail(simRefuse, "a settlement: %v", err)
	}
}

// beside reports whether, while a replica fails, two settlements with different costs may both have been
// acknowledged: they were under way at once. The larger counts then.
func (w *settleSimulation) beside(l *simLeaseTaken, one, other simSettlement) bool {
	return w.faulty && len(w.items) > 1 && (other.began < one.ended && one.began < other.ended ||
		other.cost > one.cost && slices.ContainsFunc(l.tried, func(try simSettlement) bool { return try.cost == other.cost && try.began < one.ended }))
}

// used returns the least and the most that a reservation may have used.
func (l *simLeaseTaken) used() (least, most int64) {
	if len(l.tried) == 0 {
		return l.Cost, l.Cost
	}
	if len(l.answered) > 0 {
		settled := slices.MaxFunc(l.answered, simByCost).cost
		return settled, settled
	}
	return min(l.Cost, slices.MinFunc(l.tried, simByCost).cost), max(l.Cost, slices.MaxFunc(l.tried, simByCost).cost)
}

func simByCost(a, b simSettlement) int { return cmp.Compare(a.cost, b.cost) }

// measureLeases looks for a lease that was taken, or renewed, beside as many as the limit allows. Those on
// an allow list are not limited.
func (w *settleSimulation) measureLeases() {
	for _, x := range w.taken {
		if x.listed || w.shadow {
			continue
		}
		live := int64(0)
		for _, y := range w.taken {
			if y == x || w.landing[y.ID] < w.landing[x.ID] && y.isLive(w, x.Time, w.landing[x.ID], x.decided) {
				live++
			}
		}
		if live > simLeases {
			w.fail(simExceeded, "%d leases at %d", live, x.Time)
		}
		for _, renewal := range x.renewals {
			moments := []int64{renewal.from}
			for _, y := range w.taken {
				moments = append(moments, y.Time)
			}
			for _, moment := range moments {
				if moment < renewal.from || moment >= renewal.ends {
					continue
				}
				live := int64(1)
				for _, y := range w.taken {
					came := max(w.landing[y.ID], y.decided) <= max(renewal.order, renewal.decided) // else it was decided beside the renewed one
					if y != x && y.Time <= moment && came && y.isLive(w, moment, renewal.order, renewal.decided) {
						live++
					}
				}
				if live > simLeases {
					w.fail(simExceeded, "%d leases at %d, of which one was renewed", live, moment)
				}
			}
		}
	}
}

// isLive reports whether the lease is live at a moment, as it was when another one came, and was decided.
func (l *simLeaseTaken) isLive(w *settleSimulation, moment int64, came, decided int) bool {
	if l.listed || l.freed < max(came, decided) {
		return false
	}
	ends := l.first
	for _, renewal := range l.renewals {
		if renewal.order >= came { // a shorter lease may have ended it before
			return min(ends, renewal.from) > moment
		}
		ends = max(ends, renewal.ends)
	}
	return min(ends, w.inForce(&l.Reserved)) > moment
}

// measureCosts holds the log against what was truly used.
func (w *settleSimulation) measureCosts() {
	log := w.union()
	if log == nil {
		return
	}
	least, most := int64(0), int64(0)
	for _, l := range w.taken {
		few, many := l.used()
		least, most = least+few, most+many
	}
	switch held := log.Sum(0, maxSimTime); {
	case held < least:
		w.fail(simLost, "%d of %d", held, least)
	case held > most && !w.untidy:
		w.fail(simOver, "%d, not %d", held, most)
	}
	w.measureTokens(log)
}

// measureTokens holds the token bucket against what was truly used, in the order of time: it lacks no less.
func (w *settleSimulation) measureTokens(log *journal.Log) {
	bucket := journal.LimitFrom(w.limits[1].Limit, w.limits[1].Ceiling)
	slices.SortFunc(w.taken, func(a, b *simLeaseTaken) int { return cmp.Compare(a.Time, b.Time) })
	least, last := int64(0), int64(0)
	for _, l := range w.taken {
		cost, _ := l.used()
		least, last = max(0, least-(l.Time-last)*bucket.Rate)+cost*bucket.Window, l.Time
	}
	now := w.now + simGrace
	if least = max(0, least-(now-last)*bucket.Rate); least > 0 {
		w.measured++
	}
	if held := log.Held(bucket, now).Level; held < least {
		w.fail(simLost, "a bucket lacks %d, not %d", held, least)
	}
}

const maxSimTime = 1 << 46

// union returns what the servers hold together.
func (w *settleSimulation) union() *journal.Log {
	var values [][]byte
	for i := range w.items {
		values = append(values, w.items[i].value)
	}
	merged := journal.Merge(values, nil, maxSimTime)
	var log journal.Log
	if merged.Value == nil || log.Read(merged.Value, journal.Question{}) != nil {
		return nil
	}
	return &log
}

// free takes all leases that there may be, once all have ended, or were released, and one more.
func (w *settleSimulation) free() {
	for _, late := range w.delayed {
		late()
	}
	faulty, untidy := w.faulty, w.untidy
	w.delayed, w.faulty = nil, false
	clear(w.down)
	w.finish()
	w.alone++
	live := 0
	for _, l := range w.taken {
		if l.unknown > w.now+w.skew[0] || l.freed == math.MaxInt && l.Ends > w.now+w.skew[0] {
			live++
		}
	}
	for n := range simLeases - live {
		if !untidy && w.takeAlone() == nil {
			w.fail(simLeaks, "the lease %d of %d is not free, of which %d live", n+1, simLeases, live)
		}
	}
	w.now += simLease.Milliseconds() + simGrace
	for n := range simLeases {
		if w.takeAlone() == nil {
			w.fail(simStuck, "the lease %d of %d", n+1, simLeases)
		}
	}
	if w.takeAlone() != nil && !w.shadow {
		w.fail(simExceeded, "one more than %d", simLeases)
	}
	w.faulty = faulty
}

// takeAlone takes a lease while nothing else goes on.
func (w *settleSimulation) takeAlone() (l *simLeaseTaken) {
	for try := 0; l == nil && try < 20; try++ { // another counter may have denied it
		l = w.take(0, 1, func() {})
	}
	w.finish()
	return l
}

func simulateSettling(seed uint64, sabotage string, leases bool) *settleSimulation {
	rnd := rand.New(rand.NewPCG(seed, 17))
	w := &settleSimulation{leases: leases, landing: map[uint64]int{}, extends: map[uint64]int{}}
	w.replicaSimulation = replicaSimulation{rnd: rnd, sabotage: sabotage, now: 1_000_000_000, faults: map[simFault]string{}, calm: true}
	w.landed, w.replaced = w.note, w.bring
	w.faulty = rnd.IntN(2) == 0
	w.items = make([]simItem, 1+rnd.IntN(3))
	w.down, w.cut = make([]bool, len(w.items)), nil
	w.limits = []limiter.Limit{{Limit: events.Limit{N: simLeases, Window: simLease}, Rule: &events.Rule{Revision: 1}, Ceiling: simLeases, Enforced: true}}
	newEngine := NewLeases
	if !leases {
		newEngine = New
		w.limits = []limiter.Limit{simLimit(90, 40), simBucket(60, 90, 60)}
	}
	if w.shadow = leases && rnd.IntN(10) == 0; w.shadow {
		w.limits[0].Enforced = false
	}
	for p := range 1 + rnd.IntN(4) {
		w.shorter = append(w.shorter, false)
		w.skew = append(w.skew, rnd.Int64N(simGrace/4))
		w.cut = append(w.cut, make([]bool, len(w.items)))
		e, err := newEngine(engine.Base{
			Store: simServers{w: w, p: p}, Grace: simGrace * time.Millisecond, Changes: new(engine.Changes),
			Clock: func() time.Time { return time.UnixMilli(w.now + w.skew[p]) },
		})
		if err != nil {
			w.fail(simFails, "%v", err)
		}
		e.process = uint32(p+1) * 0x9E3779B1
		w.engines = append(w.engines, e)
	}
	reload := leases && rnd.IntN(4) == 0
	pace := []float64{5, 50, 200, 500}[rnd.IntN(4)]
	begin := func() iter.Seq[struct{}] {
		if n := len(w.later); n > 0 && w.chance(.4) {
			i := rnd.IntN(n)
			later := w.later[i]
			w.later = slices.Delete(w.later, i, i+1)
			return later
		}
		if leases {
			return w.client(rnd.IntN(len(w.skew)))
		}
		if n := len(w.taken); n > 0 && w.chance(.3) {
			return w.rival(w.taken[max(0, n-1-rnd.IntN(3))])
		}
		return w.spender(rnd.IntN(len(w.skew)))
	}
	testkit.Interleave(rnd, 40+rnd.IntN(100), 3*len(w.skew), .3, begin, func() {
		w.befall(pace)
		if w.chance(.003) {
			w.now += rnd.Int64N(4 * second)
		}
		if reload && w.chance(.01) {
			w.shorter[rnd.IntN(len(w.shorter))] = true
		}
		if w.sabotage == "a short life" && w.chance(.02) {
			w.items[0].value = nil
		}
	})
	w.finish()
	if leases {
		w.free()
		w.measureLeases()
	} else {
		w.measureCosts()
	}
	return w
}

// There are never more leases than the limit allows, all are free once they have ended or were released, and
// what was not released is free within the lease.
func TestSimulationOfLeases(t *testing.T) {
	t.Parallel()
	var taken, denied, released, renewed, failed, rewrites, tidy int
	for seed := range testkit.Seeds(10_000) {
		w := simulateSettling(seed, "", true)
		require.Empty(t, w.faults, "seed %d", seed)
		taken, denied, released, renewed, rewrites = taken+len(w.taken), denied+w.denied, released+w.voided, renewed+w.renewed, rewrites+w.rewrites
		failed += w.failed
		if !w.untidy {
			tidy++
		}
	}
	t.Logf("%d taken, %d denied, %d released, %d renewed, %d without an answer, %d rewrites; %d runs are accounted for", taken, denied, released, renewed, failed, rewrites, tidy)
	require.NotZero(t, min(taken, denied, released, renewed, failed, rewrites, tidy))
}

// What is counted is never less than what was truly used, and exactly that if all was settled.
func TestSimulationOfSettlements(t *testing.T) {
	t.Parallel()
	var taken, denied, settled, rewrites, tidy, measured int
	for seed := range testkit.Seeds(10_000) {
		w := simulateSettling(seed, "", false)
		require.Empty(t, w.faults, "seed %d", seed)
		taken, denied, settled, rewrites, measured = taken+len(w.taken), denied+w.denied, settled+w.settled, rewrites+w.rewrites, measured+w.measured
		if !w.untidy {
			tidy++
		}
	}
	t.Logf("%d reserved, %d denied, %d settled, %d rewrites; %d runs are accounted for, %d with tokens", taken, denied, settled, rewrites, tidy, measured)
	require.NotZero(t, min(taken, denied, settled, rewrites, tidy, measured))
}

// Each sabotage shows itself by the fault that is characteristic of it.
func TestSimulationsFindSabotageOfSettlements(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sabotage string
		leases   bool
		want     simFault
		seed     uint64 // the first that finds it
	}{
		{"no compare-and-swap", true, simExceeded, 16},
		{"a short life", true, simExceeded, 2},
		{"renewals take another place", true, simLost, 1},
		{"renewals are lost", true, simRefuse, 1},
		{"releases are lost", true, simLeaks, 25},
		{"no ends", true, simLeaks, 93},
		{"no compare-and-swap", false, simLost, 0},
		{"releases are lost", false, simOver, 27},
		{"no ends", false, simOver, 40},
		{"settlements are several", false, simOver, 27},
		{"the last settlement counts", false, simTwice, 1},
	} {
		t.Run(test.sabotage, func(t *testing.T) {
			testkit.FindFault(t, test.seed, 20_000, func(seed uint64) (string, bool) {
				found, ok := simulateSettling(seed, test.sabotage, test.leases).faults[test.want]
				return found, ok
			})
		})
	}
}
