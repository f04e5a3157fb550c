package replica

import (
	"context"
	"errors"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// trip is one round trip of adds and reads, or of data, to all copies of a counter.
type trip struct {
	set      *Set
	topology *topology
	counter  Counter
	began    time.Time
	deadline time.Time
	list     [MaxReplicas]Server
	replicas []Server
	parts    [MaxReplicas]part
	ended    chan int // which part has
	underway int
	timer    *time.Timer
}

// part is the round trip to one copy.
type part struct {
	exchange Exchange // nil: it was not asked
	op       store.Op
	over     bool
}

func newTrip() *trip { return &trip{ended: make(chan int, MaxReplicas)} }

// Start begins a round trip of adds and reads, or of data, to all copies that are up, which ends by the
// deadline, and does not wait for it: wait does. It has to be called, once.
func (s *Set) Start(ctx context.Context, began, deadline time.Time, c Counter, op *store.Op) (wait func()) {
	t := s.trips.Get().(*trip)
	t.set, t.topology, t.counter, t.began, t.deadline = s, s.topology.Load(), c, began, deadline
	t.replicas = t.topology.of(c.Hash, &t.list)
	for i, server := range t.replicas {
		p := &t.parts[i]
		p.op = p.partOf(op, server)
		if !server.Up() {
			continue
		}
		t.underway++
		p.exchange = server.Start(ctx, deadline, c, &p.op, i, t.ended, s)
	}
	return func() {
		defer t.free()
		t.wait()
		if op.Data {
			t.mergeData(op)
		} else {
			t.merge(op)
		}
	}
}

func (t *trip) free() {
	for i := range t.replicas {
		p := &t.parts[i]
		*p = part{op: store.Op{Writes: p.op.Writes[:0], Reads: p.op.Reads[:0]}}
	}
	t.list, t.replicas, t.topology, t.counter = [MaxReplicas]Server{}, nil, nil, Counter{}
	set := t.set
	t.set = nil
	set.trips.Put(t)
}

// wait waits for all parts. Once what is answered is enough, the others have until half of
// the time is over: a server that does not answer must not take what the decision needs
// for its next trip.
func (t *trip) wait() {
	var timeout <-chan time.Time
	for t.underway > 0 {
		select {
		case i := <-t.ended:
			p := &t.parts[i]
			t.underway--
			p.over = true
			p.exchange.End(&p.op)
			if t.underway > 0 && timeout == nil && t.isEnough() {
				timeout = t.startMaxWait()
			}
		case <-timeout:
			for i := range t.replicas {
				if p := &t.parts[i]; p.exchange != nil && !p.over {
					p.exchange.GiveUp()
				}
			}
		}
	}
	if timeout != nil {
		t.timer.Stop()
	}
}

// isEnough reports whether what has been answered is enough to decide on: a copy has made
// the whole trip that has forgotten nothing, or there is none such under way.
func (t *trip) isEnough() bool {
	answered, better := false, false
	for i := range t.replicas {
		p := &t.parts[i]
		switch {
		case p.exchange == nil:
		case !p.over:
			better = better || t.isWhole(i)
		case p.op.Err == nil:
			if t.isWhole(i) {
				return true
			}
			answered = true
		}
	}
	return answered && !better
}

// isWhole reports whether the replica has lost nothing of the counter.
func (t *trip) isWhole(i int) bool { return t.replicas[i].Memory().isWhole(t.counter.Hash, t.replicas) }

func (t *trip) startMaxWait() <-chan time.Time {
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
func (t *trip) merge(op *store.Op) {
	var faults []error
	whole, differ, bad := 0, false, false
	knowing, missed := false, false // one that has forgotten nothing has answered, or has not
	op.Receipt = store.Receipt{List: t.topology.version}
	for i := range t.replicas {
		p := &t.parts[i]
		op.Receipt.Acknowledged[i] = p.op.Receipt.Acknowledged[0]
		if len(op.Writes) == 0 && p.exchange != nil && p.op.Err == nil {
			op.Receipt.Acknowledged[i] = 1
		}
		switch {
		case p.exchange == nil:
		case p.op.Err != nil:
			faults = append(faults, p.op.Err)
			missed = missed || t.isWhole(i)
			bad = bad || errors.Is(p.op.Err, store.ErrNoCount)
		case whole == 0:
			whole++
			knowing = t.isWhole(i)
			p.copyTo(op)
		default:
			whole++
			knowing = knowing || t.isWhole(i)
			differ = p.raise(op) || differ
		}
	}
	if differ || bad && whole > 0 {
		t.set.differing.note(t.counter.Name)
	}
	switch {
	case whole > 0 && (knowing || !missed):
		op.Err = nil
	case len(faults) == 0:
		op.Receipt, op.Err = store.Receipt{}, errDown
	default:
		op.Err = errors.Join(faults...)
	}
}

// copyTo makes the results of the part those of the op.
func (p *part) copyTo(op *store.Op) {
	for i := range op.Writes {
		op.Writes[i].Result = p.op.Writes[i].Result
	}
	for i := range op.Reads {
		op.Reads[i].Value = p.op.Reads[i].Value
	}
}

// raise makes the results of the op those of the part where these are larger. It reports
// whether reads differ.
func (p *part) raise(op *store.Op) (differ bool) {
	for i := range op.Writes {
		op.Writes[i].Result = max(op.Writes[i].Result, p.op.Writes[i].Result)
	}
	for i := range op.Reads {
		differ = differ || op.Reads[i].Value != p.op.Reads[i].Value
		op.Reads[i].Value = max(op.Reads[i].Value, p.op.Reads[i].Value)
	}
	return differ
}
