package slidinglog

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/journal"
	"github.com/counterd/counterd/store"
)

// phase is what a session's next round trip is for.
type phase uint8

const (
	idle       phase = iota
	looking          // reads the log
	probing          // reads the log, to see whether it has room for the entries
	appending        // appends the entries and reads the log
	creating         // creates the log, too
	rewriting        // swaps the log for a shorter one
	repairing        // gives replicas what they lack
	confirming       // reads the log, now that all replicas have the entries
)

const (
	// maxTrips bounds the round trips of a step: a log that changes all the time ends it.
	maxTrips = 6
	// spareLife is for how long, in milliseconds, a log lives at least when it is not needed any more.
	spareLife = 10_000
	// maxBlind is the most bytes that are appended to a log that was not read before.
	maxBlind = 1 << 10
)

var (
	errNoRoom  = fmt.Errorf("slidinglog: no room for the log: %w", engine.ErrStore)
	errMissing = fmt.Errorf("slidinglog: the log was lost again, or the clock is far behind those of other processes: %w", engine.ErrStore)
)

// session decides the hits of one batch on one counter: it says which round trip is next.
type session struct {
	windows
	trip
	replicas
	engine  *Engine
	counter events.Counter
	size    *atomic.Uint32 // of the log when it was read last

	step  phase
	after phase // of a rewrite, or of a repair
	trips int

	data  []byte // to be appended
	next  []byte // the log that a rewrite writes, or an empty one
	fault error  // of the hits
}

var sessions = sync.Pool{New: func() any { return new(session) }}

// Begin returns a session on the counter.
func (e *Engine) Begin(counter events.Counter, id string, moment engine.Moment) engine.Session {
	return e.begin(counter, id, moment)
}

func (e *Engine) begin(counter events.Counter, id string, moment engine.Moment) *session {
	s := sessions.Get().(*session)
	s.engine, s.counter, s.size = e, counter, e.sizes.of(id, moment.Alone)
	s.step, s.trips, s.fault = idle, 0, nil
	s.windows.begin(moment, counter.Remembered())
	s.batch.begin(id, s.time, e.replicated)
	s.op.Counter, s.op.Data, s.op.Versions = id, true, true
	return s
}

// End gives the session back.
func (s *session) End() {
	s.windows.end()
	s.batch.end()
	s.replicas.clear()
	s.engine, s.counter, s.size, s.op.Counter = nil, events.Counter{}, nil, ""
	sessions.Put(s)
}

// Look reads the log, which holds what the windows hold. After the hits were added that is known.
func (s *session) Look() {
	s.step, s.trips = looking, 0
	if s.batch.decided {
		s.step = idle
	}
}

// Add appends an entry for each run of equal hits and reads the log. If the log may be full, it
// is read before.
func (s *session) Add(hits []engine.Hit, _ int64) {
	s.trips = 0
	s.batch.take(hits, s.engine.identity)
	s.data, s.fault = s.batch.encode(s.data[:0])
	s.step = appending
	if seen := s.size.Load(); s.fault != nil || len(s.data) > maxBlind || int(seen)+len(s.data) > journal.MaxSize {
		s.step = probing
	}
}

// Next returns the step's next round trip.
func (s *session) Next(now time.Time) []*store.Op {
	s.trip.clear()
	switch s.step {
	case idle:
		return nil
	case looking, probing:
		s.read()
	case appending:
		s.write(store.Write{Kind: store.Append, Data: s.data})
		s.read()
	case creating:
		s.write(store.Write{Kind: store.Create, Data: s.next, Expires: s.expires()})
		s.write(store.Write{Kind: store.Append, Data: s.data})
		s.read()
	case rewriting:
		s.trips++
		return s.replicas.rewrite(s.op.Counter, s.next, s.expires())
	case repairing:
		return s.replicas.repair(s.op.Counter, s.data, s.expires())
	case confirming:
		s.read()
	}
	s.trips++
	return s.trip.all()
}

// ttl returns for how many seconds the log is to live from now on; by older limits only until newer
// ones rewrite it.
func (s *session) ttl() int64 {
	own := s.engine.grace.ttl(s.longest)
	if s.log.Head().Outdated(s.revision) {
		return own
	}
	return max(s.log.Head().TTL, own)
}

// until returns until when a log lives that is written now: so much longer than it has to that few
// hits need it for longer.
func (s *session) until() int64 {
	ttl := s.ttl() * 1000
	return max(s.time, s.engine.now().UnixMilli()) + ttl + max(ttl/4, spareLife)
}

// expires returns until in seconds, rounded up.
func (s *session) expires() int64 { return s.until()/1000 + 1 }

// Absorb takes in what the round trip has found.
func (s *session) Absorb() error {
	err := s.absorb()
	if err != nil {
		s.step = idle
	}
	return err
}

func (s *session) absorb() error {
	step := s.step
	s.step = idle
	switch step {
	case rewriting:
		return s.rewritten()
	case repairing: // whatever became of it
		if s.after == confirming {
			return s.again(confirming)
		}
		return nil
	case appending, creating:
		s.appended = s.trip.landed()
	}
	if s.op.Err != nil {
		return noted(s.size, engine.StoreError(s.op.Err))
	}
	if s.fault != nil {
		return s.fault
	}
	found, err := s.decode()
	switch {
	case err != nil:
		return err
	case !found:
		return s.absent(step)
	}
	switch {
	case step == looking:
		for i, limit := range s.question.Limits {
			s.base[i] = s.log.Held(limit, s.time)
		}
	case step == probing && s.largest+len(s.data) <= journal.MaxSize:
		s.step = appending
	case step != probing && !s.appended && s.largest+len(s.data) <= journal.MaxSize && s.trips < maxTrips/2:
		s.step = appending // another process has created the log since, if it was lost or reset
	case step == probing || !s.appended:
		return s.rewrite(appending)
	case !s.log.Verdict(0).Found: // it was lost since
		return s.again(appending)
	case s.lackKeys():
		s.step, s.after = repairing, confirming
	default:
		return s.settle()
	}
	return nil
}

// decode reads the log, of replicas what they hold together. It reports whether there is one.
func (s *session) decode() (found bool, err error) {
	value := s.replicas.take(&s.trip, s.batch.keys, s.time-s.engine.grace.undecided())
	if value == nil && s.replicas.fault == nil {
		return false, nil
	}
	if err = s.replicas.fault; err == nil {
		s.question.Keys, s.question.Revision = s.batch.keys, s.revision
		s.question.Pending = max(s.time-s.engine.grace.undecided(), 1)
		err = s.log.Read(value, s.question)
	}
	switch {
	case errors.Is(err, journal.ErrVersion):
		return true, noted(s.size, fmt.Errorf("%w: %w", engine.ErrStore, err))
	case err != nil:
		return true, noted(s.size, fmt.Errorf("%w: %w", engine.ErrBadCounter, err))
	}
	s.size.Store(uint32(s.largest))
	return true, nil
}

// absent goes on where there is no log.
func (s *session) absent(step phase) error {
	s.log.Clear()
	s.size.Store(0)
	switch {
	case step == looking:
		clear(s.base)
		return nil
	case step == creating && !s.appended && s.op.Writes[0].Result == 0 && s.trips >= maxTrips/2:
		return errNoRoom // else a reset may have been between the creation and the append
	}
	s.appended = false
	head := journal.Head{Revision: s.revision, Limits: s.enforced(), TTL: s.ttl(), Until: s.until(), Floor: s.time - s.engine.grace.young(), Since: s.since()}
	var err error
	if s.next, err = journal.AppendNew(s.next[:0], head, s.time); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrStore, err)
	}
	return s.again(creating)
}

// again has the step go on, unless it has made too many round trips.
func (s *session) again(step phase) error {
	if s.trips >= maxTrips {
		return errMissing
	}
	s.step = step
	return nil
}

// rewrite swaps the log for a shorter one, and goes on with the step after it. While replicas hold
// different entries, these keep their identity, unless the log grows too large.
func (s *session) rewrite(after phase) error {
	rewrite := journal.Rewrite{
		Limits: s.enforced(), Revision: s.revision, TTL: s.engine.grace.ttl(s.longest), Until: s.until(),
		Now: s.time, Young: s.engine.grace.young(), Retain: s.counter.Remembered().Milliseconds(),
	}
	if !s.mayShrink() {
		rewrite.Young = s.time
	}
	var err error
	s.next, err = s.log.AppendRewrite(s.next[:0], rewrite)
	if err == nil && after == appending && len(s.next)+len(s.data) > journal.MaxSize {
		err = journal.ErrTooLarge
	}
	if err != nil && after == idle || errors.Is(err, journal.ErrTooLarge) && s.refuse() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrStore, err)
	}
	s.after = after
	return s.again(rewriting)
}

// refuse decides hits for which the log has no room if the limits have none either, and reports whether
// that is so of all: a flood of hits that are denied and counted does not pass by on_error.
func (s *session) refuse() bool {
	if s.batch.decided {
		return false
	}
	for i, limit := range s.question.Limits {
		s.base[i] = s.log.Held(limit, s.time)
	}
	s.refused = !slices.ContainsFunc(s.hits, func(h engine.Hit) bool { return !s.denies(0, h.Cost) })
	return s.refused
}

// rewritten goes on after a rewrite. A hit that has been decided is, whatever became of it.
func (s *session) rewritten() error {
	swapped, err := s.replicas.rewritten()
	if swapped {
		s.size.Store(uint32(len(s.next)))
	}
	switch {
	case s.after == idle || s.after == confirming && swapped:
		return nil
	case err != nil:
		return engine.StoreError(err)
	case s.after == confirming:
		return s.again(confirming)
	case !swapped:
		return s.again(probing)
	}
	return s.again(appending)
}

// settle takes in the verdicts of the entries.
func (s *session) settle() error {
	for i := range s.base {
		s.base[i] = s.log.Ahead(0, i)
	}
	s.batch.decide(&s.log, s.log.Head().Revision != s.revision)
	switch {
	case s.log.Head().Outdated(s.revision) && s.batch.isDenied() && s.trips < maxTrips/2:
		// By limits that are no longer in force: the entries are void, and come again.
		if s.rewrite(appending) == nil {
			s.data = s.batch.appendVoids(s.data[:0], func(int) int64 { return 0 })
			s.batch.rename(s.engine.identity)
			s.data, s.fault = s.batch.encode(s.data)
		}
	case s.batch.total > 0 && s.log.Head().Until < s.time+s.ttl()*1000:
		// It may expire before its entries have left their windows.
		if err := s.rewrite(confirming); err != nil {
			return err
		}
	case s.log.Head().Outdated(s.revision) || s.mayShrink() && s.log.Due() || s.whole && s.replicas.lackSums():
		_ = s.rewrite(idle) // the hits are decided, whatever becomes of it
	}
	if s.step == idle && s.replicas.lack() {
		s.step, s.after = repairing, idle
	}
	return nil
}

// trip is a round trip to the log.
type trip struct {
	op  store.Op
	ops [1]*store.Op
}

func (t *trip) clear() {
	t.op.Writes, t.op.Reads, t.op.Replicas, t.op.Receipt = t.op.Writes[:0], t.op.Reads[:0], nil, store.Receipt{}
}

func (t *trip) write(w store.Write) {
	w.Item = logItem
	t.op.Writes = append(t.op.Writes, w)
}

// read reads the log into the memory of the read before.
func (t *trip) read() {
	t.op.Reads = slices.Grow(t.op.Reads, 1)[:1]
	t.op.Reads[0] = store.Read{Item: logItem, Data: t.op.Reads[0].Data}
}

// landed reports whether the last write, an append, has found the log of any replica.
func (t *trip) landed() bool {
	has := func(op *store.Op) bool {
		last := len(op.Writes) - 1
		return op.Receipt.On(0) == last+1 && op.Writes[last].Result == 1
	}
	if len(t.op.Replicas) == 0 {
		return has(&t.op)
	}
	for i := range t.op.Replicas {
		if has(&t.op.Replicas[i]) {
			return true
		}
	}
	return false
}

func (t *trip) all() []*store.Op {
	t.ops[0] = &t.op
	return t.ops[:]
}
