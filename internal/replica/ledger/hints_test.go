package ledger

import (
	"slices"
	"time"
)

// hintKey names the adds of a counter in one finest bucket that a server did not acknowledge.
type hintKey struct {
	server string
	finest key
}

type hint struct {
	adds []add
	by   int64         // sum of the hits' costs
	due  time.Duration // two timeouts after the adds: an undo and a late answer come before
}

// hint records that the server did not acknowledge the adds. If there are too many hints, those of the server are
// dropped, and it is raised (rule 7).
func (p *process) hint(server string, adds []add) {
	if !p.led.isServer(server) || p.led.IsLosing(server) {
		return
	}
	p.led.Miss(server, p.time())
	k := hintKey{server, finestOf(adds)}
	h := p.hints[k]
	if h == nil {
		if len(p.hints) >= p.w.maxHints {
			p.led.Lose(server, "missed")
			p.dropHints(server)
			return
		}
		h = &hint{adds: adds}
		p.hints[k] = h
	}
	h.by += adds[0].by
	h.due = p.w.now + 2*timeout
}

// cancel takes adds from their hint: the server acknowledged them late, or they were undone.
func (p *process) cancel(server string, adds []add) {
	if len(adds) > 0 {
		p.reduce(hintKey{server, finestOf(adds)}, adds[0].by)
	}
}

func (p *process) reduce(k hintKey, by int64) {
	h := p.hints[k]
	if h == nil {
		return
	}
	h.by -= by
	if h.by > 0 {
		return
	}
	delete(p.hints, k)
	if len(p.hintsOf(k.server)) == 0 {
		p.led.Delivered(k.server)
	}
}

func (p *process) hintsOf(server string) (keys []hintKey) {
	for k := range p.hints {
		if k.server == server {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b hintKey) int { return compareKeys(a.finest, b.finest) })
	return keys
}

// dropHints drops the hints for a server.
func (p *process) dropHints(server string) {
	for _, k := range p.hintsOf(server) {
		delete(p.hints, k)
	}
	p.led.Delivered(server)
}

// deliver makes the adds of hints that are due, with backoff.
func (p *process) deliver(t *task) {
	type backoff struct{ wait, next time.Duration }
	backoffs := map[string]*backoff{}
	for {
		t.sleep(50 * ms)
		for _, s := range slices.Clone(p.led.Servers()) {
			b := backoffs[s]
			if b == nil {
				b = &backoff{}
				backoffs[s] = b
			}
			if l := p.links[s]; l == nil || !l.up || p.w.now < b.next {
				continue
			}
			if p.deliverTo(t, s) {
				b.wait = 0
			} else {
				b.wait = min(max(2*b.wait, 100*ms), 2*time.Second)
				b.next = p.w.now + b.wait
			}
		}
	}
}

// deliverTo makes the adds of some hints for the server. It returns false after the first failure.
func (p *process) deliverTo(t *task, server string) bool {
	var due []hintKey
	for _, k := range p.hintsOf(server) {
		if p.hints[k].due <= p.w.now {
			due = append(due, k)
		}
	}
	for _, k := range due[:min(len(due), 8)] {
		h := p.hints[k]
		if h == nil {
			continue
		}
		by, bad := h.by, map[key]uint64{}
		c, err := p.connect(t, server)
		if err == nil {
			err = c.add(h.adds, by, bad)
		}
		p.spoil(server, bad)
		if err != nil || len(bad) > 0 {
			return false
		}
		if p.hints[k] == h {
			p.reduce(k, by)
		}
	}
	return true
}

// add makes the adds with another cost. It fills in the items that hold no count.
func (c connection) add(adds []add, by int64, bad map[key]uint64) error {
	var commands []func(*server)
	for _, a := range adds {
		commands = append(commands, func(s *server) {
			if old := s.add(a.k, by); old.bad {
				bad[a.k] = old.version
			}
		})
	}
	return c.send(commands...)
}
