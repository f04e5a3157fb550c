package ledger

import (
	"math/rand/v2"
	"time"
)

// newWorld returns the simulation of a seed in a mode: see modes.
func newWorld(seed uint64, mode string) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 99)), mode: mode, replicas: 2, busy: mode == "busy", gaps: 0.12, gap: 3 * ms,
		servers: map[string]*server{}, lists: map[string]*List{}, parsed: map[string]*Marker{}, unseen: -100 * time.Second,
	}
	if w.chance(0.25) {
		w.replicas = 3
	}
	if (mode == "storm" || mode == "calm") && w.chance(0.1) {
		w.replicas = 1
	}
	for c := range counters {
		w.slots[c] = w.rng.IntN(Slots)
		if w.chance(0.2) {
			w.finest[c] = 1
		}
	}
	servers := max(w.replicas, 2+w.rng.IntN(3))
	if w.busy {
		w.replicas, servers = 2, 2+w.rng.IntN(2)
		w.gaps, w.gap = pick(w, 0.12, 0.5), pick(w, 3*ms, 12*ms)
		if w.chance(0.2) {
			w.gaps, w.gap = 0.12, 25*ms
		}
	}
	for i := range allServers {
		name := string(rune('A' + i))
		w.names = append(w.names, name)
		w.servers[name] = &server{w: w, name: name, items: map[key]item{}}
	}
	w.list = w.names[:servers:servers]
	w.maxHints = pick(w, 8, 40, 1000)
	w.now = w.upTo(16 * time.Second)
	for c := range counters {
		w.coarser[c] = never
		if w.busy && w.finest[c] == 0 && w.chance(0.3) {
			w.coarser[c] = w.now + (young+6)*time.Second + w.upTo(30*time.Second)
		}
	}
	for range 1 + w.rng.IntN(3) {
		w.after(w.upTo(50*ms), w.start)
	}
	return w
}

// modes are what happens to the servers and processes of a simulation, once its fleet is not new any more.
var modes = map[string]func(*world){
	"calm": func(w *world) {
		w.churn()
		w.run(40 * time.Second)
		w.checkExact()
	},
	"turn": func(w *world) {
		w.churn()
		w.turn()
	},
	"storm": func(w *world) {
		w.churn()
		w.storm()
	},
	"heirs":  (*world).heirs,
	"copies": (*world).underCopies,
	"busy":   (*world).load,
}

// simulate runs the simulation. It ends at the first broken promise.
func (w *world) simulate() {
	defer w.crashAll()
	w.idle = true
	w.run((young - 4) * time.Second)
	w.idle = false
	w.run(10 * time.Second)
	w.after(0, w.inspect)
	modes[w.mode](w)
}

// mostLeft is how long it takes until all is complete if no complete replica was left: until no number is in a window.
const mostLeft = (longest + 40) * time.Second

// awaitRepair waits until all is complete, with few hits as long as evictions delay it.
func (w *world) awaitRepair(most time.Duration) bool {
	if last := w.lastEviction() + calm - w.unix(); last > 0 {
		w.idle = true
		w.run(time.Duration(min(last, longest)) * time.Second)
		w.idle = false
	}
	if !w.await(most) {
		return false
	}
	return true
}

// lastEviction returns when a server in use evicted last, by the markers.
func (w *world) lastEviction() (second int64) {
	for _, name := range w.list {
		if m, err := w.parse(w.servers[name].marker, w.unix()); err == nil {
			second = max(second, m.Evicted)
		}
	}
	return second
}

// turn makes faults one after the other, each after a process has said that all is complete, as in a rolling restart:
// nothing may be lost (P3).
func (w *world) turn() {
	for range 4 {
		if w.chance(0.3) {
			w.change()
		} else {
			lift := w.strike(w.pick(nil))
			w.run(w.upTo(pick(w, time.Second, 4*time.Second, 9*time.Second, 25*time.Second)))
			lift()
		}
		w.run(5 * time.Second)
		most := 75 * time.Second
		if w.spoiled { // an item may be lost on all servers
			most = mostLeft + 20*time.Second
		}
		if !w.awaitRepair(most) {
			return
		}
	}
}

// storm makes faults follow one another, whether or not the last one was repaired. One server is away at a time.
func (w *world) storm() {
	for range 10 {
		if w.chance(0.25) {
			w.change()
			w.run(6 * time.Second)
			continue
		}
		lift := w.strike(w.pick(nil))
		w.run(w.upTo(pick(w, time.Second, 4*time.Second, 9*time.Second, 22*time.Second)))
		lift()
		w.run(3*time.Second + w.upTo(6*time.Second))
	}
	w.quiet = true
	w.run(10 * time.Second)
	if w.awaitRepair(mostLeft) {
		w.agree()
	}
}

// two starts processes until there are two.
func (w *world) two() {
	for len(w.ready()) < 2 && w.fault == "" {
		w.start()
		w.run(time.Second)
	}
}

// inDebt reports whether a process has debts, or may have had some just now.
func (w *world) inDebt() bool {
	for _, p := range w.procs {
		for _, s := range p.led.Servers() {
			if p.led.owes(s) {
				return true
			}
		}
	}
	for _, name := range w.list {
		if m, err := w.parse(w.servers[name].marker, w.unix()); err == nil {
			for _, v := range m.Debts {
				if v > 0 {
					return true
				}
			}
		}
	}
	return false
}

// heirs makes a process miss a server, and die, stall or reach it again. Then another server fails, from which alone
// others may have known of it.
func (w *world) heirs() {
	for range 4 {
		w.two()
		if w.fault != "" {
			return
		}
		if w.chance(0.2) && !w.inDebt() {
			w.loseWithoutProcesses()
		} else {
			w.inherit()
		}
		w.faultAt = w.now
		w.run(5 * time.Second)
		if !w.awaitRepair(mostLeft) {
			return
		}
	}
}

// loseWithoutProcesses makes a server lose all that it held while no process runs.
func (w *world) loseWithoutProcesses() {
	w.crashAll()
	s := w.pick(nil)
	w.tally.faults++
	w.trace("%s is killed, and back", s.name)
	s.kill()
	s.down = false
	w.unseen = w.now
	w.start()
}

func (w *world) inherit() {
	s, p := w.pick(nil), pick(w, w.ready()...)
	w.tally.faults++
	heal := w.cut(p, s)
	w.run(100*ms + w.upTo(pick(w, 300*ms, 2*time.Second, 5*time.Second)))
	heard := hearing
	switch w.rng.IntN(5) {
	case 0, 1:
		p.crash()
	case 2:
		w.stall(p, 20*time.Second)
	case 3:
		heal()
		heard = w.upTo(time.Second)
		if w.chance(0.5) {
			w.run(w.upTo(700 * ms))
			p.crash()
			heard = hearing
		}
	default: // none is there to learn of it
		w.crashAll()
		heard = 0
	}
	w.faultAt = w.now
	w.run(heard)
	if l := p.links[s.name]; l != nil && l.cut && !p.dead { // C3: while it misses one server, others miss no other one
		heal()
	}
	other := w.pick(s)
	var lift func()
	if heard == 0 { // only that server knows, and a process that starts does not reach it
		w.tally.faults++
		lift = w.freeze(other)
	} else {
		lift = w.strike(other)
	}
	if len(w.ready()) == 0 || w.chance(0.5) {
		w.start()
	}
	w.run(w.upTo(pick(w, time.Second, 4*time.Second, 12*time.Second)))
	lift()
	if l := p.links[s.name]; l != nil && l.cut {
		heal()
	}
}

// flicker cuts a process off from a server a few times.
func (w *world) flicker(p *process, s *server, pause time.Duration) {
	for range 4 {
		heal := w.cut(p, s)
		w.run(50*ms + w.upTo(pick(w, 300*ms, 2*time.Second)))
		heal()
		w.run(w.upTo(pause))
	}
}

// underCopies empties a server. While it is copied to, a process misses another one, or the list changes.
func (w *world) underCopies() {
	for range 6 {
		w.two()
		if w.fault != "" {
			return
		}
		s := w.pick(nil)
		w.tally.faults += 2
		w.flush(s)
		w.run(hearing + w.upTo(2500*ms))
		if w.chance(0.5) {
			w.change()
		} else if ready := w.ready(); len(ready) > 0 {
			w.flicker(pick(w, ready...), w.pick(s), 700*ms)
			w.faultAt = w.now
		}
		w.run(5 * time.Second)
		if !w.awaitRepair(mostLeft) {
			return
		}
	}
}

// load empties a server while one counter is busy. The source of its copy is slow, or cut off from a process.
func (w *world) load() {
	for range 3 {
		s := w.pick(nil)
		w.tally.faults++
		if w.chance(0.5) {
			w.flush(s)
		} else {
			s.kill()
			w.run(w.upTo(time.Second))
			s.down = false
		}
		w.faultAt = w.now
		w.run(2*time.Second + w.upTo(3*time.Second))
		other := w.pick(s)
		switch ready := w.ready(); {
		case w.chance(1.0 / 3):
			other.slow = 54 * ms
			w.run(w.upTo(3 * time.Second))
			other.slow = 0
		case w.chance(0.5) && len(ready) > 0:
			w.parted = true
			w.flicker(pick(w, ready...), other, time.Second)
		}
		w.faultAt = w.now
		w.run(5 * time.Second)
		w.parted = false
		if !w.awaitRepair(60 * time.Second) {
			return
		}
	}
}
