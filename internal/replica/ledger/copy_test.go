package ledger

import (
	"slices"
	"time"
)

const (
	// stillness is longer than a hit and its undo take (C4).
	stillness = 2*timeout + timeout/2
	// claimFor is how long a process may copy without claiming the server again.
	claimFor = 10 * time.Second
	batch    = 96 // items in one round trip
)

// repair copies to servers that lack something, as far as no other process does.
func (p *process) repair(t *task) {
	for turn := 0; p.w.replicas > 1; turn++ {
		t.sleep(800*ms + p.w.upTo(400*ms))
		servers := p.list.Servers()
		for i := range servers {
			target := servers[(i+turn)%len(servers)]
			if !p.leaving && p.led.Plan(target, p.time()) != nil && p.claim(t, target) {
				p.copyTo(t, target)
				p.release(t, target)
				break
			}
		}
	}
}

func (p *process) claim(t *task, target string) bool {
	c, err := p.connect(t, target)
	if err != nil {
		return false
	}
	claimed, err := c.claim(p.id, claimFor)
	return claimed && err == nil
}

// release gives the claim of this process up.
func (p *process) release(t *task, target string) {
	if c, err := p.connect(t, target); err == nil {
		_ = c.send(func(s *server) {
			if s.claimant == p.id {
				s.claimed = 0
			}
		})
	}
}

// copyTo copies to the target until it lacks nothing that a copy can restore. It begins after a rest, and with a look
// at both servers: by then each process has read the number, and counts by it.
func (p *process) copyTo(t *task, target string) {
	t.sleep(2*timeout + time.Second)
	for {
		planned := p.led.Plan(target, p.time())
		if planned == nil || p.lookAt(t, planned.Source) != nil || p.lookAt(t, target) != nil {
			return
		}
		again := p.led.Plan(target, p.time())
		if again == nil || again.Source != planned.Source {
			return
		}
		c := &copying{Copy: again, p: p, t: t, finest: map[int]int{}}
		if !c.run() {
			return
		}
		p.w.tally.copies++
	}
}

// copying is a copy under way.
type copying struct {
	*Copy
	p      *process
	t      *task
	finest map[int]int // finest level of each counter among the keys
}

func (c *copying) run() bool {
	c.p.w.trace("p%d copies %s -> %s", c.p.id, c.Source, c.Target)
	keys, ok := c.keys()
	for try := 0; ok && len(keys) > 0; try++ {
		if remaining := c.p.led.Remaining(c.Copy); remaining.IsEmpty() || try > 400 {
			return false
		}
		if keys, ok = c.pass(keys, try > 0); ok {
			ok = c.p.claim(c.t, c.Target)
		}
	}
	// Items that the source has dropped by now have raised its numbers.
	return ok && c.p.lookAt(c.t, c.Source) == nil && c.lower()
}

// lower writes the lower numbers to the target's marker (rule 14).
func (c *copying) lower() bool {
	for range 8 {
		conn, err := c.p.connect(c.t, c.Target)
		if err != nil {
			return false
		}
		text, version, _, err := conn.marker()
		if err != nil {
			return false
		}
		m, err := c.p.w.parse(text, c.p.unix())
		if err != nil {
			return false
		}
		next := c.p.led.Lower(c.Copy, m)
		if next == nil {
			return false
		}
		if version, err = conn.swapMarker(next.Text(), version); err != nil {
			return false
		}
		if version != 0 {
			c.p.w.trace("p%d copied %s -> %s: %s", c.p.id, c.Source, c.Target, describe(next))
			return c.p.lookAt(c.t, c.Target) == nil
		}
	}
	return false
}

// keys returns the items of the slots on the source, finest level first.
func (c *copying) keys() (keys []key, ok bool) {
	conn, err := c.p.connect(c.t, c.Source)
	if err != nil {
		return nil, false
	}
	if keys, err = conn.keys(&c.Slots); err != nil {
		return nil, false
	}
	slices.SortFunc(keys, compareKeys)
	for _, k := range keys {
		if level, found := c.finest[k.counter]; !found || k.level < level {
			c.finest[k.counter] = k.level
		}
	}
	return keys, true
}

func (c *copying) read(server string, keys []key) ([]item, bool) {
	for range 4 {
		if conn, err := c.p.connect(c.t, server); err == nil {
			if items, err := conn.read(keys); err == nil {
				for i, k := range keys {
					if items[i].bad {
						c.p.spoil(server, map[key]uint64{k: items[i].version})
					}
				}
				return items, true
			}
		}
		c.t.sleep(100 * ms)
	}
	return nil, false
}

// pair is an item on both servers.
type pair struct{ source, target item }

// pass raises the items on the target that are quiet, and returns the others. If rollUp is set, it then raises those to
// the sums of their children.
//
// An item is quiet if both versions stay for longer than anything is under way. Then the larger value has all adds but
// those that reached the target alone (interleaving C). A is complete, B was emptied, and is copied from A:
//  1. A bucket has 30 on A and 12 on B.
//  2. P adds 2; A misses them: 30 and 14.
//  3. The bucket is quiet on both, and B gets 30.
//  4. P's hint reaches A: 32. B has 30, its number goes to 0, and it lacks 2 for ever.
//
// P recorded its debt against A before it answered, so within a timeout of 2. The copy waits longer than that, reads
// the markers, finds the debt, and leaves the bucket for later. If it was paid by then, the hint has changed A's
// version.
func (c *copying) pass(keys []key, rollUp bool) (busy []key, ok bool) {
	var first []pair
	for part := range slices.Chunk(keys, batch) {
		source, ok1 := c.read(c.Source, part)
		target, ok2 := c.read(c.Target, part)
		if !ok1 || !ok2 {
			return nil, false
		}
		for i := range part {
			first = append(first, pair{source[i], target[i]})
		}
	}
	c.t.sleep(stillness)
	c.t.together(c.p.list.Servers(), func(t *task, s string) { _ = c.p.lookAt(t, s) })
	if !c.p.led.IsSteady(c.Source, c.p.time()) {
		c.t.sleep(500 * ms)
		return keys, true
	}
	for len(keys) > 0 {
		n := min(len(keys), batch)
		left, ok := c.raise(keys[:n], first[:n])
		if !ok {
			return nil, false
		}
		busy = append(busy, left...)
		keys, first = keys[n:], first[n:]
	}
	if rollUp {
		return c.rollUpAll(busy)
	}
	return busy, true
}

// raise raises the items that have stayed as they were first to the larger value. It returns the others. The target is
// read first: an add to it since then keeps its item from being raised.
func (c *copying) raise(keys []key, first []pair) (busy []key, ok bool) {
	target, ok1 := c.read(c.Target, keys)
	source, ok2 := c.read(c.Source, keys)
	if !ok1 || !ok2 {
		return nil, false
	}
	var writes []swapping
	for i, k := range keys {
		was, from, to := first[i], source[i], target[i]
		stayed := was.source.version == from.version && was.target.version == to.version
		switch {
		case from.version == 0 || from.bad || to.bad: // the number of the slot is raised, or the item has ended
		case !stayed:
			busy = append(busy, k)
		case to.version == 0 || to.value < from.value:
			writes = append(writes, swapping{k: k, value: max(from.value, to.value), version: to.version})
		}
	}
	if len(writes) == 0 {
		return busy, true
	}
	conn, err := c.p.connect(c.t, c.Target)
	if err == nil {
		err = conn.swap(writes)
	}
	for _, x := range writes {
		if err != nil || !x.written {
			busy = append(busy, x.k)
		}
	}
	slices.SortFunc(busy, compareKeys)
	return busy, true
}

// rollUpAll raises items that are not quiet to the sums of their children, unless a child waits itself.
func (c *copying) rollUpAll(keys []key) (left []key, ok bool) {
	waits := map[key]bool{}
	for _, k := range keys {
		ready := !waits[k] && k.level > c.finest[k.counter] && keyOf(k.counter, k.level-1, k.first()).expires() > c.p.unix()+2
		if ready {
			done, ok := c.rollUp(k)
			if !ok {
				return nil, false
			}
			if done {
				continue
			}
		}
		left = append(left, k)
		if k.level+1 < len(seconds) {
			waits[keyOf(k.counter, k.level+1, k.first())] = true
		}
	}
	return left, true
}

// rollUp raises an item on the target to the sum of its children there, which are good by now. Adds reach children
// first and undos reach them last, so the sum has all that the item has, lacks, and has under way. The sum is at least
// the source's value, or the item is left. An item that seems to have enough must not have changed either:
//  1. An item has 10 on the target, of them 3 of a hit that is about to be denied. It lacks 2.
//  2. The copy reads 10. The undo takes 3 from the item and from its child.
//  3. The copy reads the child: 9. The item has 7, not 10.
func (c *copying) rollUp(k key) (done, ok bool) {
	from, err := c.p.connect(c.t, c.Source)
	if err != nil {
		return false, false
	}
	source, err := from.read([]key{k})
	if err != nil {
		return false, false
	}
	to, err := c.p.connect(c.t, c.Target)
	if err != nil {
		return false, false
	}
	before, children, err := to.readWithChildren(k)
	if err != nil {
		return false, false
	}
	sum := int64(0)
	for _, i := range children {
		if i.bad {
			return false, true
		}
		sum += i.value
	}
	if sum < source[0].value {
		return false, true
	}
	write := []swapping{{k: k, value: max(sum, before.value), version: before.version}}
	err = to.swap(write)
	if write[0].written {
		c.p.w.tally.rolledUp++
	}
	return write[0].written, err == nil
}

// readWithChildren reads an item, and then its children, one by one.
func (c connection) readWithChildren(k key) (parent item, children []item, err error) {
	commands := []func(*server){func(s *server) { parent = s.get(k) }}
	for _, child := range k.children() {
		commands = append(commands, func(s *server) { children = append(children, s.get(child)) })
	}
	err = c.send(commands...)
	return parent, children, err
}
