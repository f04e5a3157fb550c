package copies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// trip is one trip to all copies of a counter.
type trip struct {
	set      *Set
	topology *topology
	counter  Counter
	adds     int
	began    time.Time
	deadline time.Time
	list     [MaxReplicas]Server
	copies   []Server
	parts    [MaxReplicas]part
	ended    chan int // which part has
	underway int
	timer    *time.Timer
}

// part is the trip to one copy.
type part struct {
	exchange Exchange // nil: it was not asked
	values   []int64
	landed   int
	over     bool
	err      error
}

func newTrip() *trip { return &trip{ended: make(chan int, MaxReplicas)} }

// Start begins a trip to all copies that are up, which ends by the deadline, and does not
// wait for it: wait does. It has to be called, once; values are the trip's until it has
// returned.
func (s *Set) Start(ctx context.Context, began, deadline time.Time, c Counter, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (wait func() (landed int, err error)) {
	if len(adds) > maxAdds {
		return func() (int, error) { return 0, fmt.Errorf("%w: %d of %d", errTooMany, len(adds), maxAdds) }
	}
	t := s.trips.Get().(*trip)
	t.set, t.topology, t.counter, t.adds, t.began, t.deadline = s, s.topology.Load(), c, len(adds), began, deadline
	t.copies = t.topology.of(c.Hash, &t.list)
	for i, server := range t.copies {
		p := &t.parts[i]
		p.values = slices.Grow(p.values[:0], len(values))[:len(values)]
		if !server.Up() {
			continue
		}
		t.underway++
		p.exchange = server.Start(ctx, deadline, c, by, adds, expires, reads, i, t.ended)
	}
	return func() (int, error) {
		defer t.free()
		t.wait()
		return t.merge(values)
	}
}

func (t *trip) free() {
	for i := range t.copies {
		p := &t.parts[i]
		*p = part{values: p.values}
	}
	t.list, t.copies, t.topology, t.counter = [MaxReplicas]Server{}, nil, nil, Counter{}
	set := t.set
	t.set = nil
	set.trips.Put(t)
}

// wait waits for all parts. Once what is answered is enough, the others have until half of
// the time is over: a server that does not answer must not take what the decision needs
// for its next trip.
func (t *trip) wait() {
	var impatient <-chan time.Time
	for t.underway > 0 {
		select {
		case i := <-t.ended:
			p := &t.parts[i]
			t.underway--
			p.over = true
			p.landed, p.err = p.exchange.End(p.values)
			if t.underway > 0 && impatient == nil && t.isEnough() {
				impatient = t.patience()
			}
		case <-impatient:
			for i := range t.copies {
				if p := &t.parts[i]; p.exchange != nil && !p.over {
					p.exchange.GiveUp()
				}
			}
		}
	}
	if impatient != nil {
		t.timer.Stop()
	}
}

// isEnough reports whether what has been answered is enough to decide on: a copy has made
// the whole trip that has forgotten nothing, or there is none such under way.
func (t *trip) isEnough() bool {
	answered, better := false, false
	for i := range t.copies {
		p := &t.parts[i]
		switch {
		case p.exchange == nil:
		case !p.over:
			better = better || t.copies[i].Whole()
		case p.err == nil:
			if t.copies[i].Whole() {
				return true
			}
			answered = true
		}
	}
	return answered && !better
}

func (t *trip) patience() <-chan time.Time {
	all := t.deadline.Sub(t.began)
	left := max(all/2-time.Since(t.began), all/8)
	if t.timer == nil {
		t.timer = time.NewTimer(left)
	} else {
		t.timer.Reset(left)
	}
	return t.timer.C
}

// merge makes one outcome of those of the parts: of each value the largest. Copies that
// have forgotten what they had are not enough where another was asked in vain: then it
// fails, until that one is known to be down.
func (t *trip) merge(values []int64) (landed int, err error) {
	var counts [MaxReplicas]int
	var faults []error
	whole, differ, bad := 0, false, false
	knowing, missed := false, false // one that has forgotten nothing has answered, or has not
	for i := range t.copies {
		p := &t.parts[i]
		counts[i] = p.landed
		switch {
		case p.exchange == nil:
		case p.err != nil:
			faults = append(faults, p.err)
			missed = missed || t.copies[i].Whole()
			bad = bad || errors.Is(p.err, strconv.ErrSyntax)
		case whole == 0:
			whole++
			knowing = t.copies[i].Whole()
			copy(values, p.values)
		default:
			whole++
			knowing = knowing || t.copies[i].Whole()
			for k, value := range p.values {
				differ = differ || k >= t.adds && value != values[k]
				values[k] = max(values[k], value)
			}
		}
	}
	if differ || bad && whole > 0 {
		t.set.differs(t.counter)
	}
	landed = t.topology.pack(counts[:len(t.copies)])
	switch {
	case whole > 0 && (knowing || !missed):
		return landed, nil
	case len(faults) == 0:
		return 0, errDown
	}
	return landed, errors.Join(faults...)
}
