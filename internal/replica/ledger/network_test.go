package ledger

import (
	"errors"
	"iter"
	"slices"
	"time"
)

var (
	errBroken  = errors.New("the connection is broken")
	errTimeout = errors.New("timeout")
	errDown    = errors.New("down")
	errBad     = errors.New("the item holds no count")
	errKilled  = errors.New("the process is dead")
)

// task is a goroutine of a process. It runs until it waits.
type task struct {
	p      *process
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	parked bool
	ended  bool
}

// spawn starts a task.
func (p *process) spawn(f func(t *task)) {
	t := &task{p: p, parked: true}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			t.ended = true
			delete(p.tasks, t)
			if r := recover(); r != nil && r != any(errKilled) {
				panic(r)
			}
		}()
		f(t)
	})
	p.tasks[t] = true
	p.w.after(0, t.wake)
}

// together runs f for each name in tasks of their own, and waits for all.
func (t *task) together(names []string, f func(t *task, name string)) {
	p, running := t.p, len(names)
	for _, name := range names {
		p.spawn(func(child *task) {
			f(child, name)
			running--
			p.w.after(0, t.wake)
		})
	}
	for running > 0 {
		t.park()
	}
}

func (t *task) wake() {
	p := t.p
	if p.stalled > p.w.now {
		p.w.after(p.stalled-p.w.now, t.wake)
		return
	}
	if t.parked && !t.ended && !p.dead {
		t.parked = false
		t.next()
	}
}

func (t *task) park() {
	t.parked = true
	if !t.yield(struct{}{}) || t.p.dead {
		panic(errKilled)
	}
}

func (t *task) sleep(d time.Duration) {
	w := t.p.w
	end := w.now + d
	w.after(d, t.wake)
	for w.now < end {
		t.park()
	}
}

// link is a server as a process reaches it: a circuit breaker and the network between them.
type link struct {
	p         *process
	s         *server
	cut       bool
	held      []func() // messages on their way while it is cut
	up        bool
	connected bool
	boot      int // memory of the server to which the connection leads
	opened    int // counts connections
	failures  int
	inFlight  []*call
}

// call is a message with some commands to a server, and its answer.
type call struct {
	l      *link
	t      *task
	boot   int
	opened int
	done   bool
	left   bool   // the caller has given up
	late   func() // called if the answer comes after that. May be nil
	err    error
	ends   time.Duration
}

func (c *call) end(err error) {
	p := c.l.p
	if p.stalled > p.w.now {
		p.w.after(p.stalled-p.w.now, func() { c.end(err) })
		return
	}
	c.l.drop(c)
	switch {
	case p.dead:
	case c.done:
		if err == nil && c.left && c.late != nil && c.opened == c.l.opened {
			c.late()
		}
	default:
		c.done, c.err = true, err
		c.l.judge(err)
		c.t.wake()
	}
}

// giveUp makes the caller leave.
func (c *call) giveUp() {
	if c.done {
		return
	}
	if c.late == nil {
		c.l.drop(c)
	}
	c.done, c.left, c.err = true, true, errTimeout
	if c.l.p.w.now >= c.ends {
		c.l.judge(errTimeout)
	}
}

func (l *link) drop(c *call) {
	l.inFlight = slices.DeleteFunc(l.inFlight, func(o *call) bool { return o == c })
}

// judge counts failures. After three the server is down.
func (l *link) judge(err error) {
	if err == nil {
		l.failures = 0
		return
	}
	if err == errBroken && l.connected {
		l.connected = false
		l.opened++
	}
	l.failures++
	if l.failures >= 3 && l.up {
		l.trip()
	}
}

// trip makes calls fail at once until a probe succeeds.
func (l *link) trip() {
	l.up, l.connected = false, false
	l.opened++
	p, w := l.p, l.p.w
	p.led.SetUp(l.s.name, false)
	w.trace("p%d: %s is down", p.id, l.s.name)
	for _, c := range l.inFlight {
		if !c.done {
			w.after(0, func() { c.end(errBroken) })
		}
	}
	p.spawn(func(t *task) {
		for {
			t.sleep(50*ms + w.upTo(400*ms))
			if p.links[l.s.name] != l {
				return
			}
			if p.dial(t, l) == nil {
				l.up, l.failures = true, 0
				p.led.SetUp(l.s.name, true)
				w.trace("p%d: %s is back", p.id, l.s.name)
				return
			}
		}
	})
}

func (l *link) latency() time.Duration {
	w := l.p.w
	d := 100*time.Microsecond + w.upTo(2*ms)
	if w.chance(0.02) {
		d += w.upTo(15 * ms)
	}
	if l.s.slow > 0 {
		d += w.upTo(l.s.slow)
	}
	return d
}

// start sends commands, which the server executes in their order. It does not wait for the answer. Commands of other
// calls may come between them.
func (l *link) start(t *task, boot int, late func(), commands ...func(s *server)) *call {
	w := l.p.w
	c := &call{l: l, t: t, opened: l.opened, boot: boot, late: late, ends: w.now + timeout}
	l.inFlight = append(l.inFlight, c)
	l.deliver(func() { l.execute(c, commands) })
	w.after(timeout, func() { l.expire(c) })
	return c
}

func (l *link) deliver(message func()) {
	if l.cut {
		l.held = append(l.held, message)
	} else {
		l.p.w.after(l.latency(), message)
	}
}

// execute has the server execute the commands, and answer.
func (l *link) execute(c *call, commands []func(s *server)) {
	s, w := l.s, l.p.w
	switch {
	case s.down || s.boot != c.boot:
		l.answer(c, errBroken)
		return
	case s.frozen:
		s.waiting = append(s.waiting, func() { l.execute(c, commands) })
		return
	}
	for i, command := range commands {
		command(s)
		if i+1 < len(commands) && w.chance(w.gaps) {
			w.after(w.upTo(w.gap), func() { l.execute(c, commands[i+1:]) })
			return
		}
	}
	l.answer(c, nil)
}

func (l *link) answer(c *call, err error) {
	if !l.cut && l.s.deaf > 0 && l.p.w.chance(l.s.deaf) {
		return
	}
	l.deliver(func() { c.end(err) })
}

func (l *link) expire(c *call) {
	p := l.p
	switch {
	case c.done || p.dead:
	case p.stalled > p.w.now:
		p.w.after(p.stalled-p.w.now, func() { l.expire(c) })
	default:
		c.giveUp()
		c.t.wake()
	}
}

// heal ends a cut. Some of the messages that were on their way arrive now.
func (l *link) heal() {
	held := l.held
	l.cut, l.held = false, nil
	for _, f := range held {
		if l.p.w.chance(0.6) {
			l.p.w.after(l.p.w.upTo(5*ms), f)
		}
	}
}

// dial opens a connection. Before anything else the marker is read on it: so a loss that breaks connections is known
// from the first answer on.
func (p *process) dial(t *task, l *link) error {
	boot := l.s.boot
	err := p.look(t, connection{t, l, boot}, l.s.name)
	if err == nil && !l.connected {
		l.connected, l.boot = true, boot
		l.opened++
	}
	return err
}

// connect returns a connection to the server, or an error if it cannot be reached.
func (p *process) connect(t *task, server string) (connection, error) {
	l := p.links[server]
	if l == nil || !l.up {
		return connection{}, errDown
	}
	if !l.connected {
		if err := p.dial(t, l); err != nil {
			return connection{}, err
		}
	}
	return connection{t, l, l.boot}, nil
}

// connection makes round trips to a server. Its methods are what look.go, hints.go and copy.go need of a server.
type connection struct {
	t    *task
	l    *link
	boot int
}

// send makes one round trip.
func (c connection) send(commands ...func(s *server)) error {
	call := c.l.start(c.t, c.boot, nil, commands...)
	for !call.done {
		c.t.park()
	}
	return call.err
}

// marker reads the marker, and then the statistics. Version 0 means that there is no marker.
func (c connection) marker() (text string, version uint64, evictions int64, err error) {
	err = c.send(func(s *server) { text, version = s.marker, s.markerVer }, func(s *server) { evictions = s.evictions })
	return text, version, evictions, err
}

// swapMarker writes the marker if it still has the version. It returns the new one, or 0 if it did not write.
func (c connection) swapMarker(text string, version uint64) (written uint64, err error) {
	err = c.send(func(s *server) {
		if s.markerVer == version {
			if c.l.p.wrong {
				s.w.judgeWrong(s, text)
			}
			s.setMarker(text)
			written = s.markerVer
		}
	})
	return written, err
}

// read reads items, some in each command.
func (c connection) read(keys []key) ([]item, error) {
	items := make([]item, 0, len(keys))
	var commands []func(*server)
	for part := range slices.Chunk(keys, 12) {
		commands = append(commands, func(s *server) {
			for _, k := range part {
				items = append(items, s.get(k))
			}
		})
	}
	err := c.send(commands...)
	return items, err
}

// swapping is a write of an item that still has a version.
type swapping struct {
	k       key
	value   int64
	version uint64 // 0: it does not exist
	written bool
}

func (c connection) swap(list []swapping) error {
	var commands []func(*server)
	for i := range list {
		commands = append(commands, func(s *server) {
			if x := &list[i]; s.get(x.k).version == x.version {
				s.set(x.k, x.value)
				x.written = true
			}
		})
	}
	return c.send(commands...)
}

// remove deletes items that still have their versions.
func (c connection) remove(versions map[key]uint64) error {
	return c.send(func(s *server) {
		for k, version := range versions {
			if s.get(k).version == version {
				delete(s.items, k)
			}
		}
	})
}

// keys lists the items of the slots. The list is not of one moment.
func (c connection) keys(slots *SlotSet) (list []key, err error) {
	half := func(odd int64) func(*server) {
		return func(s *server) {
			for _, k := range sortedKeys(s.items) {
				if k.number%2 == odd && slots.Has(s.w.slots[k.counter]) && s.get(k).version != 0 {
					list = append(list, k)
				}
			}
		}
	}
	err = c.send(half(0), half(1))
	return list, err
}

// claim takes or keeps the item by which one process copies to the server. It reports whether it did.
func (c connection) claim(process int, lasting time.Duration) (claimed bool, err error) {
	err = c.send(func(s *server) {
		if s.claimed <= s.w.now || s.claimant == process {
			s.claimant, s.claimed, claimed = process, s.w.now+lasting, true
		}
	})
	return claimed && err == nil, err
}
