package ledger

import (
	"slices"
	"time"
)

// ready returns the processes that make hits.
func (w *world) ready() (ready []*process) {
	for _, p := range w.procs {
		if p.ready && !p.leaving && !p.dead && p.stalled <= w.now {
			ready = append(ready, p)
		}
	}
	return ready
}

// churn starts, stops, ends and crashes processes, again and again.
func (w *world) churn() {
	w.after(2*time.Second+w.upTo(14*time.Second), func() {
		if w.quiet {
			return
		}
		ready := w.ready()
		switch {
		case len(ready) < 1 || len(ready) < 4 && w.chance(0.45):
			w.start()
		case len(ready) == 1:
		case w.mode != "calm" && w.chance(0.2):
			w.stall(pick(w, ready...), pick(w, 300*ms, 3*time.Second, 20*time.Second))
		case w.mode != "calm" && w.chance(0.5):
			pick(w, ready...).crash()
			w.faultAt = w.now
		default:
			pick(w, ready...).end()
		}
		w.churn()
	})
}

func (w *world) stall(p *process, most time.Duration) {
	p.stalled = w.now + w.upTo(most)
	w.trace("p%d stalls until %.3f", p.id, p.stalled.Seconds())
}

func (w *world) crashAll() {
	for _, p := range slices.Clone(w.procs) {
		p.crash()
	}
}

// pick returns a server in use, but not the other one.
func (w *world) pick(other *server) *server {
	for {
		if s := w.servers[pick(w, w.list...)]; s != other {
			return s
		}
	}
}

// strike makes something befall a server, and returns the function that ends it.
func (w *world) strike(s *server) (lift func()) {
	w.tally.faults++
	end := w.befall(s)
	w.faultAt = w.now
	return func() {
		end()
		w.faultAt = w.now
	}
}

// isAnyCut reports whether a process is cut off from a server.
func (w *world) isAnyCut() bool {
	return slices.ContainsFunc(w.procs, func(p *process) bool {
		for _, l := range p.links {
			if l.cut {
				return true
			}
		}
		return false
	})
}

func (w *world) befall(s *server) (lift func()) {
	switch w.rng.IntN(10) {
	case 0, 1:
		w.trace("%s is killed", s.name)
		s.kill()
		return func() { s.down = false; w.trace("%s is back, empty", s.name) }
	case 2:
		return w.freeze(s)
	case 3:
		return w.cutAll(s)
	case 4:
		if ready := w.ready(); len(ready) > 0 && !w.isAnyCut() { // two of them would be outside of C3
			return w.cut(pick(w, ready...), s)
		}
	case 5:
		w.flush(s)
	case 6:
		w.evict(s)
	case 7:
		w.trace("%s: answers are lost", s.name)
		s.deaf = pick(w, 0.1, 0.3)
		return func() { s.deaf = 0; w.trace("%s: answers are lost no more", s.name) }
	case 8:
		w.trace("%s is slow", s.name)
		s.slow = pick(w, 60*ms, 90*ms, 130*ms)
		return func() { s.slow = 0; w.trace("%s is slow no more", s.name) }
	default:
		w.overwrite(s)
	}
	return func() {}
}

func (w *world) freeze(s *server) (lift func()) {
	w.trace("%s freezes", s.name)
	s.frozen = true
	return func() { w.trace("%s thaws", s.name); s.thaw() }
}

// cut cuts a process off from a server.
func (w *world) cut(p *process, s *server) (heal func()) {
	l := p.links[s.name]
	if l == nil {
		return func() {}
	}
	w.trace("%s is cut off from p%d", s.name, p.id)
	l.cut = true
	return func() { w.trace("p%d reaches %s again", p.id, s.name); l.heal() }
}

func (w *world) cutAll(s *server) (heal func()) {
	var heals []func()
	for _, p := range w.procs {
		heals = append(heals, w.cut(p, s))
	}
	return func() {
		for _, f := range heals {
			f()
		}
	}
}

func (w *world) flush(s *server) {
	w.trace("%s is flushed", s.name)
	s.wipe()
	w.unseen, w.faultAt = w.now, w.now
}

func (w *world) evict(s *server) {
	n := int64(0)
	for _, k := range sortedKeys(s.items) {
		if w.chance(0.3) {
			delete(s.items, k)
			n++
		}
	}
	w.trace("%s evicts %d items", s.name, n)
	if n > 0 {
		s.evictions += n
		w.unseen = w.now
	}
}

// overwrite makes another client write some items, or the marker.
func (w *world) overwrite(s *server) {
	if w.chance(0.3) {
		w.trace("another client writes the marker of %s", s.name)
		s.setMarker(pick(w, "", "{}", `{"id":1,"created":1,"list":["x"],"replicas":9}`))
		return
	}
	w.spoiled = true
	for _, k := range sortedKeys(s.items) {
		if w.chance(0.02) {
			s.version++
			s.items[k] = item{version: s.version, bad: true}
			w.trace("another client writes %v of %s", k, s.name)
		}
	}
}

// change changes the list by one server. Processes learn of it within four seconds, or are restarted with it.
func (w *world) change() {
	w.changeList()
	slices.Sort(w.list)
	w.trace("the list is %v", w.list)
	most := 4 * time.Second
	if w.replicas == 1 { // two lists at a time count in different places
		most = time.Nanosecond
	}
	w.faultAt = w.now + 4*time.Second
	list := w.listOf(w.list)
	for _, p := range w.ready() {
		w.after(w.upTo(most), func() {
			switch {
			case p.dead || p.leaving:
			case w.replicas > 1 && w.chance(0.3) && len(w.ready()) > 0:
				w.start()
				p.end()
			default:
				p.relist(list)
			}
		})
	}
	w.after(most, func() { // a process that was starting
		for _, p := range w.procs {
			if !p.leaving && p.list != list {
				p.relist(list)
			}
		}
	})
}

func (w *world) changeList() {
	n := len(w.list)
	remove := func() {
		i := w.rng.IntN(len(w.list))
		w.left = append(w.left, w.list[i])
		w.list = slices.Delete(slices.Clone(w.list), i, i+1)
	}
	join := func() { w.list = append(slices.Clone(w.list), w.spare()) }
	switch w.rng.IntN(4) {
	case 0:
		if n < allServers-2 {
			join()
		}
	case 1:
		if n > max(w.replicas, 2) {
			remove()
		}
	case 2:
		if n > 1 && n < allServers {
			join()
			i := w.rng.IntN(n) // not the one that joins
			w.left = append(w.left, w.list[i])
			w.list = slices.Delete(w.list, i, i+1)
		}
	default:
		if len(w.left) > 0 { // it returns with what it held
			i := w.rng.IntN(len(w.left))
			w.list = append(slices.Clone(w.list), w.left[i])
			w.left = slices.Delete(w.left, i, i+1)
		} else if n < allServers-2 {
			join()
		}
	}
}

// spare returns an empty server that is not in use.
func (w *world) spare() string {
	for _, name := range w.names {
		if !slices.Contains(w.list, name) && !slices.Contains(w.left, name) {
			w.servers[name].wipe()
			return name
		}
	}
	name := w.left[0]
	w.left = slices.Delete(slices.Clone(w.left), 0, 1)
	w.servers[name].wipe()
	w.servers[name].boot++
	return name
}
