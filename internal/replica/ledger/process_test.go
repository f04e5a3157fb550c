package ledger

import (
	"slices"
	"time"
)

// process is a process of counterd in the simulation.
type process struct {
	w       *world
	id      int
	skew    time.Duration // of its clock
	wrong   bool          // its clock is outside of C1, and it marks all of its decisions
	dead    bool
	stalled time.Duration // it does not run until then
	tasks   map[*task]bool
	links   map[string]*link
	list    *List // as configured
	led     *Ledger
	hints   map[hintKey]*hint
	bad     map[string]map[key]uint64 // by server, items that hold no count, and their versions
	doomed  map[string]*doomed

	ready      bool
	leaving    bool
	announcing bool
	hits       int // under way
}

func (p *process) time() time.Time { return time.Unix(epoch, 0).Add(p.w.now + p.skew) }
func (p *process) unix() int64     { return p.time().Unix() }

// start starts a process with the configured list.
func (w *world) start() {
	w.started++
	p := &process{
		w: w, id: w.started, tasks: map[*task]bool{}, links: map[string]*link{}, list: w.listOf(w.list),
		hints: map[hintKey]*hint{}, bad: map[string]map[key]uint64{}, doomed: map[string]*doomed{},
		skew: w.upTo(500*ms) - 250*ms,
	}
	if w.mode == "storm" && w.chance(0.1) {
		p.skew, p.wrong = pick(w, -5*time.Second, -time.Second, time.Second), true
	}
	p.led = New(uint64(p.id), p.list, longest)
	for _, s := range p.list.Servers() {
		p.join(s)
	}
	w.procs = append(w.procs, p)
	w.trace("p%d starts", p.id)
	p.spawn(func(t *task) {
		t.together(p.list.Servers(), func(t *task, s string) {
			l := p.links[s]
			if p.dial(t, l) != nil && l.up {
				l.trip()
			}
		})
		p.announce(t)
		p.ready = true
		p.spawn(p.traffic)
		p.spawn(p.deliver)
		p.spawn(p.repair)
	})
}

// join begins to look at a server.
func (p *process) join(server string) {
	l := &link{p: p, s: p.w.servers[server], up: true}
	p.links[server] = l
	p.spawn(func(t *task) {
		for p.links[server] == l {
			t.sleep(450*ms + p.w.upTo(300*ms))
			if p.links[server] == l && l.up {
				_ = p.lookAt(t, server)
			}
		}
	})
}

// leave forgets a server.
func (p *process) leave(server string) {
	delete(p.links, server)
	delete(p.bad, server)
	delete(p.doomed, server)
	p.dropHints(server)
}

func (p *process) crash() {
	p.w.trace("p%d crashes", p.id)
	p.dead = true
	for t := range p.tasks {
		if !t.ended && t.parked {
			t.stop()
		}
	}
	p.w.procs = slices.DeleteFunc(p.w.procs, func(o *process) bool { return o == p })
}

// end ends the process in order: it delivers hints for up to three seconds, and pays its debts.
func (p *process) end() {
	if p.leaving || p.dead {
		return
	}
	p.leaving = true
	p.w.trace("p%d ends", p.id)
	p.spawn(func(t *task) {
		for i := 0; i < 300 && (p.hits > 0 || len(p.hints) > 0); i++ {
			t.sleep(10 * ms)
		}
		p.led.Close()
		for range 3 { // servers that join, the list where others have another one, debts that are paid
			for _, s := range p.list.Servers() {
				if p.links[s].up {
					_ = p.lookAt(t, s)
				}
			}
		}
		for _, s := range p.list.Servers() {
			p.release(t, s)
		}
		p.w.after(0, p.crash)
		t.sleep(time.Second)
	})
}

// traffic makes hits.
func (p *process) traffic(t *task) {
	w := p.w
	for !p.leaving {
		switch {
		case w.idle:
			t.sleep(time.Second + w.upTo(2*time.Second))
		case w.busy:
			t.sleep(2*ms + w.upTo(40*ms))
		default:
			t.sleep(20*ms + w.upTo(180*ms))
		}
		if p.leaving || w.quiet && w.chance(0.5) {
			continue
		}
		n := 1
		if w.chance(0.1) {
			n = 4
		}
		for range n {
			p.hits++
			p.spawn(func(t *task) {
				p.hit(t)
				p.hits--
			})
		}
	}
}

// add is one add to an item.
type add struct {
	k  key
	by int64
}

// addsOf returns the adds of a hit, finest level first.
func addsOf(counter, finest int, second, by int64) (adds []add) {
	for level := finest; level < len(seconds); level++ {
		adds = append(adds, add{keyOf(counter, level, second), by})
	}
	return adds
}

// finestOf returns the finest item.
func finestOf(adds []add) key {
	return slices.MinFunc(adds, func(a, b add) int { return a.k.level - b.k.level }).k
}

// coverOf returns the buckets that tile the seconds.
func coverOf(counter, finest int, first, last int64) (cover []key) {
	for second := keyOf(counter, finest, first).first(); second <= last; {
		level := finest
		for level+1 < len(seconds) {
			if k := keyOf(counter, level+1, second); k.first() < second || k.last() > last {
				break
			}
			level++
		}
		k := keyOf(counter, level, second)
		cover = append(cover, k)
		second = k.last() + 1
	}
	return cover
}

// hit makes one hit, and holds the count that it reads against the promises.
func (p *process) hit(t *task) {
	w := p.w
	w.tally.hits++
	counter := w.rng.IntN(counters)
	if w.chance(0.4) || w.busy && w.chance(0.8) {
		counter = 0
	}
	finest := w.finest[counter]
	if w.now > w.coarser[counter]+time.Duration(p.id%3)*300*ms { // rules were loaded
		finest = 1
	}
	by, now := 1+w.rng.Int64N(3), p.unix()
	stamp := now
	if w.chance(0.04) {
		stamp -= w.rng.Int64N(retention - 8)
	}
	step := finest
	if w.coarser[counter] != never {
		step = 1
	}
	first := keyOf(counter, step, now-w.rng.Int64N(retention-2)).first()
	r := reading{p: p, counter: counter, first: first, last: now, began: w.now}
	r.least = w.oracle.sum(counter, first, now, w.now-w.hearing())
	var adds []add
	if w.chance(0.85) {
		adds = addsOf(counter, finest, stamp, by)
	}
	denied := w.chance(0.3) || w.busy && w.chance(0.4)
	x := p.do(t, counter, adds, coverOf(counter, step, first, now))
	if (x.err != nil || denied) && len(adds) > 0 {
		x.undo(t)
	}
	if x.err != nil {
		return
	}
	if len(adds) > 0 && !denied {
		w.oracle.acknowledge(w, acknowledged{counter: counter, second: stamp, by: by, finest: finest, at: w.now})
	}
	r.check(x)
}
