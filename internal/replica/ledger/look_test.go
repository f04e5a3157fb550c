package ledger

import "time"

// lookAt looks at a server.
func (p *process) lookAt(t *task, server string) error {
	c, err := p.connect(t, server)
	if err != nil {
		return err
	}
	return p.look(t, c, server)
}

// look reads the marker of a server, and writes it if this process knows more.
func (p *process) look(t *task, c connection, server string) error {
	for range 8 {
		look := p.led.Begin(server)
		text, version, evictions, err := c.marker()
		if err != nil {
			return err
		}
		m, fault := p.w.parse(text, p.unix())
		if version == 0 || fault != nil {
			if err := p.create(t, c, server, version); err != nil {
				return err
			}
			continue
		}
		next, changed := p.led.Reconcile(&look, m, evictions, p.time())
		if changed {
			version, err = c.swapMarker(next.Text(), version)
			if err != nil {
				return err
			}
			if version == 0 { // another process wrote it
				continue
			}
			p.w.trace("%s: p%d writes %s", server, p.id, describe(next))
		}
		p.led.Learn(look, next, version, p.time())
		return p.clean(c, server, look)
	}
	return nil
}

// create writes the first marker of a server (rule 1). If there is a text of another client, it has that version.
func (p *process) create(t *task, c connection, server string, version uint64) error {
	known := version == 0
	var others []*Marker
	for _, o := range without(p.list.Servers(), server) {
		if m := p.led.Marker(o); m != nil {
			others = append(others, m)
			continue
		}
		m, err := p.peek(t, o)
		if err != nil {
			known = false
		}
		if m != nil {
			others = append(others, m)
		}
	}
	m := p.led.Create(server, 1+p.w.rng.Uint64(), others, known, p.time())
	p.w.trace("%s: p%d writes the first marker, raised %d", server, p.id, m.Raised)
	_, err := c.swapMarker(m.Text(), version)
	return err
}

// peek reads the marker of a server, and concludes nothing from it. It returns nil if there is none.
func (p *process) peek(t *task, server string) (*Marker, error) {
	l := p.links[server]
	if l == nil || !l.up {
		return nil, errDown
	}
	text, version, _, err := connection{t, l, l.s.boot}.marker()
	if err != nil || version == 0 {
		return nil, err
	}
	return p.w.parse(text, p.unix())
}

// announce writes the list to all markers, and makes the process count by it then (rule 10).
func (p *process) announce(t *task) {
	p.announcing = true
	for end := p.w.now + 4*time.Second; !p.led.IsAnnounced(p.time()) && p.w.now < end; {
		t.together(p.led.Servers(), func(t *task, s string) { _ = p.lookAt(t, s) })
		if !p.led.IsAnnounced(p.time()) {
			t.sleep(50 * ms)
		}
	}
	p.announcing = false
	for _, s := range without(p.led.Servers(), "") {
		if !p.list.Has(s) {
			p.leave(s)
		}
	}
	p.led.UseList()
	p.w.trace("p%d: uses the list %v", p.id, p.list.Servers())
}

// relist gives the process another list.
func (p *process) relist(list *List) {
	if p.dead || p.list == list {
		return
	}
	p.w.trace("p%d: the list is %v", p.id, list.Servers())
	p.list = list
	p.led.Relist(list)
	for _, s := range list.Servers() {
		if p.links[s] == nil {
			p.join(s)
		}
	}
	if !p.announcing && p.ready {
		p.spawn(p.announce)
	}
}

// record waits until another server's marker contains the debts to the servers that missed an add (rule 4). It reports
// whether it does by the deadline. If it does not, the hit must fail. The next look would record the debt anyway: only
// a process that answers and dies before that look, and then a failure of the replica that answered, would break P1.
func (p *process) record(t *task, missed, answered []string, deadline time.Duration) bool {
	for _, s := range missed {
		for p.led.isServer(s) && !p.led.Recorded(s, p.time()) {
			if p.w.now >= deadline {
				return false
			}
			t.together(answered, func(t *task, o string) {
				if p.led.isServer(o) {
					_ = p.lookAt(t, o)
				}
			})
			t.sleep(p.w.upTo(5 * ms))
		}
	}
	return true
}

// doomed are items that hold no count, whose slots are raised. They are deleted when all processes have read that.
type doomed struct {
	items map[key]uint64
	due   time.Duration
}

// spoil records items that hold no count (rule 11).
func (p *process) spoil(server string, bad map[key]uint64) {
	for k, version := range bad {
		p.led.Spoil(server, p.w.slots[k.counter])
		if p.bad[server] == nil {
			p.bad[server] = map[key]uint64{}
		}
		p.bad[server][k] = version
	}
}

// clean deletes the items that hold no count, when no process believes a marker any more that was read before a look
// has raised their slots. A process that was stalled for 2.5 s would believe it otherwise, and count without the item.
func (p *process) clean(c connection, server string, look Look) error {
	d := p.doomed[server]
	switch {
	case d == nil && !look.Spoiled.IsEmpty():
		p.doomed[server] = &doomed{items: p.bad[server], due: p.w.now + fresh + timeout}
		delete(p.bad, server)
	case d != nil && p.w.now >= d.due:
		delete(p.doomed, server)
		p.spoil(server, p.bad[server]) // the next ones
		return c.remove(d.items)
	}
	return nil
}
