package ledger

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const never = time.Duration(math.MaxInt64 / 2)

const (
	// hearing is how long it takes until processes learn of losses while faults overlap: two looks.
	hearing = 2500 * ms
	// noticing is how long it takes until a process marks a loss that breaks no connection: two looks and a round trip.
	noticing = 1300 * ms
)

// oracle knows what was acknowledged.
type oracle struct{ adds [counters][]acknowledged }

type acknowledged struct {
	counter, finest int
	second, by      int64
	at              time.Duration
}

func (o *oracle) acknowledge(w *world, a acknowledged) {
	list := append(o.adds[a.counter], a)
	if len(list) > 4000 {
		list = slices.DeleteFunc(list, func(a acknowledged) bool { return a.second < w.unix()-longest-20 })
	}
	o.adds[a.counter] = list
}

// sum returns the adds to the seconds that were acknowledged before the time.
func (o *oracle) sum(counter int, first, last int64, before time.Duration) (sum int64) {
	for _, a := range o.adds[counter] {
		if a.second >= first && a.second <= last && a.at < before {
			sum += a.by
		}
	}
	return sum
}

// hearing returns the age that writes have when they are held against P1 while faults overlap.
func (w *world) hearing() time.Duration {
	if w.mode == "storm" || w.mode == "heirs" || w.mode == "copies" || w.parted {
		return hearing
	}
	return 0
}

// reading is a count that a process reads, and the sum that it has at least.
type reading struct {
	p           *process
	counter     int
	first, last int64
	least       int64
	began       time.Duration
}

func (r reading) String() string {
	first, last := r.first-epoch, r.last-epoch
	return fmt.Sprintf("p%d reads counter %d in %d..%d, began %.3f", r.p.id, r.counter, first, last, r.began.Seconds())
}

// check holds P1, P3 and P5 against the values of the round trip.
func (r reading) check(x *trip) {
	w, p, sum := r.p.w, r.p, int64(0)
	for _, v := range x.values {
		sum += v
	}
	if sum >= r.least || p.wrong {
		return
	}
	unnoticed := r.began-w.unseen < noticing
	marked := x.since > r.first-w.early
	slot := w.slots[r.counter]
	completeAsked := slices.ContainsFunc(x.parts, func(q *part) bool {
		return q.call != nil && p.led.Since([]string{q.server}, slot, p.time()) == 0
	})
	if marked {
		w.tally.marked++
	}
	switch {
	case w.busy && completeAsked && !unnoticed:
		w.violate("P5", "%v: %d of %d, marked %v", r, sum, r.least, marked)
	case marked && w.mode == "turn" && !w.spoiled && w.now-w.unseen > noticing:
		w.violate("P3", "%v: %d of %d, although one server failed at a time", r, sum, r.least)
	case !marked && (w.mode == "turn" || !unnoticed):
		w.violate("P1", "%v: %d of %d, not marked, since %d", r, sum, r.least, x.since-epoch)
	}
}

// isComplete reports whether the process says that all servers are reachable and lack nothing.
func (p *process) isComplete() bool {
	lacks := func(server string) bool { return !p.led.IsComplete(server, p.time()) }
	return p.ready && !p.dead && !p.wrong && !slices.ContainsFunc(p.list.Servers(), lacks)
}

// inspect holds P2 against the servers, again and again.
func (w *world) inspect() {
	for _, p := range w.procs {
		if p.isComplete() && w.now-w.faultAt > 4*time.Second { // it has noticed all faults
			w.checkHolds(p)
			break
		}
	}
	w.after(700*ms, w.inspect)
}

// checkHolds holds P2 against a process that calls all servers complete: each has all adds that are three seconds old.
func (w *world) checkHolds(p *process) {
	for counter := range counters {
		sums := map[key]int64{}
		for _, a := range w.oracle.adds[counter] {
			if a.at <= w.now-3*time.Second && a.second >= w.unix()-retention {
				for _, x := range addsOf(counter, a.finest, a.second, a.by) {
					sums[x.k] += a.by
				}
			}
		}
		for _, name := range p.list.Replicas(w.slots[counter]) {
			if s := w.servers[name]; !s.down && !s.frozen {
				w.checkItems(p, s, sums)
			}
		}
	}
}

func (w *world) checkItems(p *process, s *server, sums map[key]int64) {
	for k, sum := range sums {
		i := s.get(k)
		if i.bad || i.version == 0 && k.expires() <= w.unix() { // a bad item is noticed when it is read
			continue
		}
		w.tally.items++
		if i.value > sum && k.first() >= w.unix()-retention {
			w.tally.tooHigh++
		}
		if i.value < sum {
			second := k.first() - epoch
			w.violate("P2", "p%d calls all reachable, and %s holds %d of %d of %v at %d", p.id, s.name, i.value, sum, k, second)
		}
	}
}

// await waits until one process says that all is complete (P4), and holds P2 against it.
func (w *world) await(most time.Duration) bool {
	for end := w.now + most; w.now < end && w.fault == ""; {
		w.run(100*ms + w.upTo(200*ms))
		ready := w.ready()
		if !slices.ContainsFunc(ready, func(p *process) bool { return !p.wrong }) {
			w.start()
			continue
		}
		if p := pick(w, ready...); p.list == w.listOf(w.list) && p.isComplete() {
			w.tally.repairs++
			w.checkHolds(p)
			return w.fault == ""
		}
	}
	w.violate("P4", "not complete after %v: %s", most, w.states())
	return false
}

// agree holds against all processes that they say the same (P4).
func (w *world) agree() {
	w.run(5 * time.Second)
	for _, p := range w.ready() {
		if !p.wrong && !w.spoiled && !p.isComplete() {
			w.violate("P4", "p%d does not agree: %s", p.id, w.states())
		}
	}
}

// checkExact holds P6: nothing failed, and each replica holds what was acknowledged, and not one more.
func (w *world) checkExact() {
	w.quiet = true
	for _, p := range w.procs {
		p.leaving = true // no more hits
	}
	w.run(7 * time.Second)
	w.tally.tooHigh = 0
	for _, p := range w.procs {
		if p.ready && !p.isComplete() {
			w.violate("P6", "p%d does not call all complete although nothing failed: %s", p.id, w.states())
		}
		w.checkHolds(p)
	}
	if w.tally.tooHigh > 0 {
		w.violate("P6", "%d items are too high although nothing failed", w.tally.tooHigh)
	}
}

func (w *world) states() string {
	var text strings.Builder
	for _, p := range w.ready() {
		for _, s := range p.list.Servers() {
			v := p.led.view(s)
			fmt.Fprintf(&text, "p%d %s up %v owed %v %s; ", p.id, s, v.up, p.led.owed(s, p.time()), describe(v.marker))
		}
	}
	return text.String()
}

// describe returns the marker in short, for a trace.
func describe(m *Marker) string {
	if m == nil {
		return "no marker"
	}
	text := fmt.Sprintf("list %v raised %d (%s) since", m.Servers, m.Raised-epoch, m.Why)
	for _, n := range m.Since {
		text += fmt.Sprintf(" %d:%d", n.Slots.Len(), n.Second-epoch)
	}
	for d, v := range m.Debts {
		text += fmt.Sprintf(" p%d->%s:%d", d.Process, d.Server, v)
	}
	return text
}
