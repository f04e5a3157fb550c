package ledger

import (
	"cmp"
	"slices"
	"time"
)

// part is a round trip to one replica.
type part struct {
	server string
	call   *call // nil: the server is down
	over   bool  // no answer is expected
	bad    map[key]uint64
	values []int64
	added  bool // the server acknowledged the adds
}

// trip is a round trip to all replicas of a counter.
type trip struct {
	p       *process
	counter int
	adds    []add
	parts   []*part
	began   time.Duration
	values  []int64 // the largest of each item
	since   int64   // before which counts may be missing
	err     error
}

// do makes a round trip to all replicas that are up. A replica that did not acknowledge the adds gets a hint.
func (p *process) do(t *task, counter int, adds []add, reads []key) *trip {
	x := &trip{p: p, counter: counter, adds: adds, began: p.w.now}
	for _, s := range p.led.Counts().Replicas(p.w.slots[counter]) {
		q := &part{server: s, bad: map[key]uint64{}}
		x.parts = append(x.parts, q)
		x.send(t, q, reads)
	}
	x.wait(t)
	answered := x.decide()
	if x.err != nil || len(adds) == 0 || p.w.replicas < 2 {
		return x
	}
	var missed []string
	for _, q := range x.parts {
		if !q.added {
			p.hint(q.server, adds)
			missed = append(missed, q.server)
		}
	}
	if !p.record(t, missed, answered, x.began+timeout) {
		p.w.tally.unrecorded++
		x.err = errDown
		for _, s := range missed {
			p.cancel(s, adds)
		}
	}
	return x
}

// send begins the round trip to one replica.
func (x *trip) send(t *task, q *part, reads []key) {
	p := x.p
	l := p.links[q.server]
	if !l.up {
		return
	}
	if !l.connected && (p.dial(t, l) != nil || p.links[q.server] != l || !l.up || !l.connected) {
		q.over = true
		q.call = &call{err: errTimeout, done: true}
		return
	}
	var commands []func(*server)
	for _, a := range x.adds {
		commands = append(commands, func(s *server) {
			if old := s.add(a.k, a.by); old.bad {
				q.bad[a.k] = old.version
			}
		})
	}
	if len(reads) > 0 {
		commands = append(commands, func(s *server) {
			for _, k := range reads {
				i := s.get(k)
				if i.bad {
					q.bad[k] = i.version
				}
				q.values = append(q.values, i.value)
			}
		})
	}
	q.call = l.start(t, l.boot, func() { p.cancel(q.server, x.adds) }, commands...)
}

// isComplete reports whether the number of the server is 0.
func (x *trip) isComplete(server string) bool {
	return x.p.led.Number(server, x.p.w.slots[x.counter], x.p.time()) == 0
}

// wait waits for the replicas. Once one has answered whose number is 0, or no other one has number 0, the others have
// until half of the timeout.
func (x *trip) wait(t *task) {
	w := x.p.w
	for set := false; ; t.park() {
		waiting, enough, better, answered := false, false, false, false
		for _, q := range x.parts {
			switch {
			case q.call == nil || q.over:
			case !q.call.done:
				waiting = true
				better = better || x.isComplete(q.server)
			case q.call.err == nil && len(q.bad) == 0:
				answered = true
				enough = enough || x.isComplete(q.server)
			}
		}
		enough = enough || answered && !better
		if !waiting {
			return
		}
		if enough && !set {
			set = true
			w.after(max(x.began+timeout/2-w.now, timeout/8), t.wake)
		}
		if set && enough && w.now >= x.began+timeout/2 {
			for _, q := range x.parts {
				if q.call != nil && !q.over {
					q.call.giveUp()
				}
			}
			return
		}
	}
}

// decide folds the answers. A replica with a raised number does not decide while one with number 0 was asked in vain
// (P5). It returns the servers that answered.
func (x *trip) decide() (answered []string) {
	p := x.p
	complete, inVain := false, false
	for _, q := range x.parts {
		switch {
		case q.call == nil:
			continue
		case q.call.err == nil && len(q.bad) == 0:
			q.added = len(x.adds) > 0
			answered = append(answered, q.server)
			complete = complete || x.isComplete(q.server)
			if x.values == nil {
				x.values = slices.Clone(q.values)
			}
			for i, v := range q.values {
				x.values[i] = max(x.values[i], v)
			}
			continue
		case q.call.err == nil:
			p.spoil(q.server, q.bad)
		}
		x.err = cmp.Or(q.call.err, errBad)
		inVain = inVain || x.isComplete(q.server)
	}
	if len(answered) > 0 && (complete || !inVain) {
		x.err = nil
		x.since = p.led.Since(answered, p.w.slots[x.counter], p.time())
	} else {
		x.err = cmp.Or(x.err, errDown)
	}
	return answered
}

// undo subtracts the adds that were acknowledged, coarsest level first, and takes the others from the hints. It sends
// nothing two timeouts after the adds, since a copy may have taken the item for quiet (C4):
//  1. An add reaches the target of a copy and misses the source: 30 and 14.
//  2. The hit is denied. Its hint goes, and its debt is paid.
//  3. The item is quiet, and the target gets 30.
//  4. The undo reaches the target: 28, which is too low.
func (x *trip) undo(t *task) {
	p := x.p
	var commands []func(*server)
	for _, a := range slices.Backward(x.adds) {
		commands = append(commands, func(s *server) { s.subtract(a.k, a.by) })
	}
	var added []string
	for _, q := range x.parts {
		if q.added {
			added = append(added, q.server)
		} else if x.err == nil {
			p.cancel(q.server, x.adds)
		}
	}
	if p.w.now > x.began+2*timeout {
		return
	}
	t.together(added, func(t *task, s string) {
		if l := p.links[s]; l != nil && l.up && l.connected {
			_ = connection{t, l, l.boot}.send(commands...)
		}
	})
}
