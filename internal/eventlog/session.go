package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
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
	replacing        // puts an empty log in the place of what no process writes
	confirming       // reads the log, now that all replicas have the entries
)

const (
	// maxTrips bounds the round trips of a step: a log that changes all the time ends it.
	maxTrips = 6
	// maxConfirms bounds how often it reads the log only to see that its entries have what they need.
	maxConfirms = 16
	// maxBlind is the most bytes that are appended to a log that was not read before, and maxEntries
	// the most entries if it has little room: they take half its bound at the most.
	maxBlind   = 1 << 10
	maxEntries = 300
)

var (
	errNoRoom  = fmt.Errorf("slidinglog: no room for the log: %w", engine.ErrStore)
	errMissing = fmt.Errorf("slidinglog: the log was lost again, or changes all the time: %w", engine.ErrStore)
)

// session decides the hits of one batch on one counter: it says which round trip is next.
type session struct {
	windows
	trip
	replicas
	engine  *Engine
	counter events.Counter
	noted   *noted

	step     phase
	after    phase // of a rewrite
	later    phase // for which no hit waits: rewriting, repairing or idle
	trips    int
	confirms int // reads of the step confirming, which are not among them

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
	if use := e.base.OnUse; use != nil && !moment.Alone {
		use(id, counter, moment.Now)
	}
	s := sessions.Get().(*session)
	s.engine, s.counter, s.noted = e, counter, e.places.of(id, moment.Alone)
	s.step, s.later, s.trips, s.confirms, s.fault = idle, idle, 0, 0, nil
	s.windows.begin(moment, counter.Remembered())
	s.leases = e.leases()
	if s.leases { // what leases there were is of no use
		s.retention = 0
	}
	s.batch.begin(id, s.time, e)
	s.op.Counter, s.op.Data, s.op.Versions = id, true, true
	s.trip.item, s.replicas.item = e.item, e.item
	return s
}

// End gives the session back.
func (s *session) End() {
	s.windows.end()
	s.batch.end()
	s.replicas.clear()
	s.engine, s.counter, s.noted, s.op.Counter = nil, events.Counter{}, nil, ""
	sessions.Put(s)
}

// Look reads the log, which holds what the windows hold. After the hits were added that is known.
func (s *session) Look() {
	if s.step, s.trips, s.confirms = looking, 0, 0; s.batch.decided {
		s.step = idle
	}
}

// Add appends an entry for each run of equal hits and reads the log. If the log may be full, it
// is read before.
func (s *session) Add(hits []engine.Hit, _ int64) {
	s.later, s.trips, s.confirms = idle, 0, 0
	s.batch.full = !s.batch.isOfAnother() && int(s.noted.size.Load()) > journal.MaxSize/2
	if s.engine.leases() && !s.batch.extends {
		s.batch.lease = s.question.Limits
	}
	s.batch.take(hits, func(int) (int64, bool) { return 0, false })
	s.data, s.fault = s.batch.encode(s.data[:0])
	s.step = appending
	if len(s.data) > maxBlind || int(s.noted.size.Load())+len(s.data) > journal.MaxSize/2 {
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
		s.noted.size.Add(uint32(len(s.data))) // others do not wait for what is read
		s.write(store.Write{Kind: store.Append, Data: s.data})
		s.read()
	case creating:
		s.write(store.Write{Kind: store.Create, Data: s.next, Expires: lifeOf(s).expires()})
		s.write(store.Write{Kind: store.Append, Data: s.data})
		s.read()
	case rewriting:
		if s.after != confirming {
			s.trips++
		}
		return s.replicas.rewrite(s.op.Counter, s.next, lifeOf(s).expires())
	case repairing:
		return s.replicas.repair(s.op.Counter, s.data, lifeOf(s).expires())
	case replacing:
		s.trips++
		return s.replicas.allSent()
	case confirming:
		s.confirms++
		s.read()
		return s.trip.all()
	}
	s.trips++
	return s.trip.all()
}

// Absorb takes in what the round trip has found.
func (s *session) Absorb() error {
	step := s.step
	s.step = idle
	switch step {
	case rewriting:
		return s.rewritten()
	case repairing: // whatever became of it
		return s.again(confirming)
	case replacing: // whatever became of it
		return s.again(s.after)
	case appending, creating:
		s.appended = s.trip.landed()
	}
	if s.fault != nil {
		return s.fault
	}
	if errors.Is(s.op.Err, store.ErrNoData) {
		return s.replace(step)
	}
	if s.op.Err != nil {
		return engine.StoreError(s.op.Err)
	}
	found, err := s.decode()
	switch {
	case errors.Is(err, journal.ErrCorrupt):
		return s.replace(step)
	case err != nil:
		return err
	case !found:
		return s.absent(step)
	}
	switch {
	case step == looking:
		s.hold()
		s.shortenLater()
	case step == probing:
		return s.probed()
	case !s.appended && s.largest+len(s.data) <= journal.MaxSize && s.trips < maxTrips/2:
		s.step = appending // another process has created the log since, if it was lost or reset
	case !s.appended:
		return s.rewrite(appending)
	case !s.log.Verdict(0).Found, s.batch.reserves() && s.time <= s.log.Head().Floor: // it was lost or reset since, or the clock is behind
		return s.append(s.log.Head().Floor)
	case s.lackKeys():
		s.step = repairing
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
		return true, s.noted.failed(fmt.Errorf("%w: %w", engine.ErrStore, err))
	case err != nil:
		return true, s.noted.failed(fmt.Errorf("%w: %w", engine.ErrBadCounter, err))
	}
	s.noted.size.Store(uint32(s.largest))
	return true, nil
}

// absent goes on where there is no log.
func (s *session) absent(step phase) error {
	s.log.Clear()
	s.noted.size.Store(0)
	switch {
	case step == looking:
		clear(s.base)
		return nil
	case step == creating && !s.appended && s.op.Writes[0].Result == 0 && s.trips >= maxTrips:
		return errNoRoom // else a reset may have been between the creation and the append
	}
	s.appended = false
	if err := empty(s, 0, s.since()); err != nil {
		return err
	}
	return s.again(creating)
}

// replace goes on where no process has written what the log holds: it is replaced by an empty one, which knows no
// events before now.
func (s *session) replace(step phase) error {
	if err := empty(s, 0, s.time); err != nil {
		return err
	}
	s.replicas.clear()
	expires := lifeOf(s).expires()
	parts := s.op.Replicas
	if len(parts) == 0 {
		parts = []store.Op{s.op}
	}
	for _, op := range parts {
		to, write := replica{server: op.Server}, store.Write{Kind: store.Put, Data: s.next, Expires: expires}
		switch read := &op.Reads[0]; {
		case errors.Is(op.Err, store.ErrNoData):
		case op.Err != nil || read.Version == 0 || !errors.Is(s.log.Read(read.Data, journal.Question{}), journal.ErrCorrupt):
			continue
		default:
			write.Kind, write.Version = store.Swap, read.Version
		}
		s.replicas.send(s.op.Counter, &to, write)
	}
	s.log.Clear()
	s.noted.size.Store(uint32(len(s.next)))
	if s.after = appending; step == looking {
		s.after = looking
	}
	return s.again(replacing)
}

// empty makes an empty log the next one, which knows all events since that time. Nothing counts in it that was appended
// up to a reset.
func empty(s *session, reset, since int64) (err error) {
	s.log.Clear()
	life := lifeOf(s)
	head := journal.Head{
		Revision: s.revision, Limits: s.question.Newest, TTL: life.ttl, Until: life.until,
		Floor: s.time - s.engine.grace.young(), Since: since, Reset: reset,
	}
	if s.next, err = journal.AppendNew(s.next[:0], head, s.time); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrStore, err)
	}
	return nil
}

// again has the step go on, unless it has made too many round trips.
func (s *session) again(step phase) error {
	if s.trips >= maxTrips || s.confirms >= maxConfirms {
		return errMissing
	}
	s.step = step
	return nil
}

// shorten returns a shorter log. While replicas hold different entries, these keep their identity,
// unless the log grows too large.
func shorten(s *session, dst []byte) ([]byte, error) {
	life := lifeOf(s)
	rewrite := journal.Rewrite{
		Limits: s.question.Newest, Revision: s.revision, TTL: life.ttl, Until: life.until,
		Since: s.kept(), Now: s.time, Young: s.young(), Retain: s.retained().Milliseconds(), Alone: s.alone(),
	}
	if !s.mayShrink() {
		rewrite.Young = s.time
	}
	return s.log.AppendRewrite(dst, rewrite)
}

// young is for how long, in milliseconds, an entry keeps its identity.
func (s *session) young() int64 {
	return journal.Youth(s.engine.grace.young(), s.turns.Milliseconds(), s.largest)
}

// alone reports whether nothing looks for what is void: it is a lease, and no other replica may have it yet.
func (s *session) alone() bool { return s.engine.leases() && !s.engine.replicated }

// mayShrink reports whether a rewrite may make sums of entries. A settlement, which has no limits, does not
// know for how long hits wait for their turns.
func (s *session) mayShrink() bool {
	if len(s.limits) == 0 && s.log.Drained() > s.time && s.largest <= journal.MaxSize/2 {
		return false
	}
	return s.replicas.mayShrink()
}

// rewrite swaps the log for a shorter one, and goes on with the step after it.
func (s *session) rewrite(after phase) error {
	var err error
	s.next, err = shorten(s, s.next[:0])
	if err == nil && after == appending && len(s.next)+len(s.data) > s.batch.bound() {
		err = journal.ErrTooLarge
	}
	if err != nil && after == idle || errors.Is(err, journal.ErrTooLarge) && s.leaveOut(true) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrStore, err)
	}
	s.after = after
	return s.again(rewriting)
}

// shortenLater has the log shortened of which many entries are no longer young: a step that only reads it is
// followed by no other rewrite.
func (s *session) shortenLater() {
	if s.mayShrink() && s.log.DueBy(s.time-s.young(), s.alone()) {
		s.later = rewriting
	}
}

// probed goes on after a read of the log ahead of the entries. Of a log over half its bound it appends
// no more of them than have room, so what is denied does not fill it.
func (s *session) probed() error {
	if s.largest+len(s.data) > journal.MaxSize/2 && s.leaveOut(false) {
		s.shortenLater()
		return nil
	}
	if s.largest+len(s.data) > s.batch.bound() {
		return s.rewrite(appending)
	}
	return s.again(appending)
}

// leaveOut has hits not appended for which the limits have no room, by the log that was read, and
// those behind too many others, which come again. It reports whether none is left. An increment stays,
// unless all increments that are denied are to be left out, too: a flood of hits that are counted
// although they are denied does not pass by on_error.
func (s *session) leaveOut(increments bool) (all bool) {
	if s.batch.decided || s.batch.isOfAnother() {
		return false
	}
	s.hold()
	s.probe = append(s.probe[:0], s.base...)
	ahead := int64(0)
	s.batch.take(s.hits, func(hit int) (behind int64, out bool) {
		h := &s.hits[hit]
		switch denied := s.denies(ahead, h.Cost); {
		case h.Counts && !(denied && increments):
			return 0, false
		case denied:
			return ahead, true
		case len(s.entries) > maxEntries:
			return -1, true
		}
		ahead += h.Cost
		return 0, false
	})
	s.data, s.fault = s.batch.encode(s.data[:0])
	s.batch.decided = len(s.entries) == 0
	return s.batch.decided
}

// append has the entries appended once more; if they are stale, as others, with the time after the floor.
func (s *session) append(floor int64) error {
	if s.time <= floor {
		if e := s.entries[0]; s.batch.release != 0 && e.Ends <= floor {
			return engine.ErrEnded // by the log's time, or a reset
		}
		void := s.batch.appendVoids(s.data[:0], func(int) int64 { return 0 }) // of what counts in spite of that
		if !s.batch.reserves() {
			void = void[:0]
		}
		if s.at == s.time {
			s.at = floor + 1
			s.batch.postpone(s.at - s.time)
		}
		s.time = floor + 1
		s.batch.rename()
		s.data, s.fault = s.batch.encode(void)
	}
	return s.again(appending)
}

// rewritten goes on after a rewrite. A hit that has been decided is, whatever became of it, unless
// its entries need it.
func (s *session) rewritten() error {
	all, err := s.replicas.rewritten()
	if all {
		s.noted.size.Store(uint32(len(s.next)))
	}
	switch {
	case s.after == idle || s.after == confirming && all:
		return nil
	case err != nil:
		return engine.StoreError(err)
	case s.after == confirming:
		return s.again(confirming)
	case !all:
		return s.again(probing)
	}
	return s.again(appending)
}

// life is how long a log is to live that is written now.
type life struct {
	ttl     int64 // seconds
	need    int64 // the time until which the entries of the session need it; 0: none of them counts
	until   int64 // the time that its header says
	renewal int64 // a hit extends it that needs it until less than so much before it ends
}

// lifeOf returns how long the log is to live; by older limits only until newer ones rewrite it.
func lifeOf(s *session) (l life) {
	head := s.log.Head()
	if l.ttl = s.engine.grace.ttl(s.needed()); s.isOutdated() {
		head.TTL, head.Until = 0, 0
	}
	l.ttl = max(l.ttl, head.TTL)
	now := max(s.time, s.engine.now().UnixMilli())
	spare, renewal := journal.Spare(l.ttl*second, s.log.Age(now))
	if s.batch.total > 0 {
		l.need = s.time + l.ttl*second
	}
	if ends := s.batch.ends(); ends > 0 {
		l.need = max(l.need, ends+s.engine.grace.young())
		if s.buckets > 0 { // what it takes returns from then on
			l.need = max(l.need, ends+l.ttl*second)
		}
	}
	l.until, l.renewal = max(head.Until, now+l.ttl*second+spare, l.need), renewal
	if drained := s.log.Drained() + s.engine.grace.young(); drained > l.until { // increments took more than a burst
		l.need, l.until = max(l.need, drained), drained+spare
	}
	return l
}

// expires returns the Unix second when the item expires.
func (l life) expires() int64 { return l.until/second + 1 }

// isOutdated reports whether the log is to be rewritten under the session's newer rules: they have other limits, or
// need it for another time.
func (s *session) isOutdated() bool {
	head := s.log.Head()
	return head.Outdated(s.revision) && !(s.log.IsOfReader() && head.TTL == s.engine.grace.ttl(s.needed()))
}

// settle takes in the verdicts of the entries.
func (s *session) settle() error {
	for i := range s.base {
		s.base[i] = s.log.Ahead(0, i)
	}
	s.batch.decide(&s.log, !s.log.IsOfReader())
	older := s.log.Head().Outdated(s.revision) && !s.log.IsOfReader()
	if older && s.batch.isDenied() && s.trips < maxTrips/2 && s.rewrite(appending) == nil {
		// By limits that are no longer in force: the entries are void, and come again.
		s.data = s.batch.appendVoids(s.data[:0], func(int) int64 { return 0 })
		s.batch.rename()
		s.data, s.fault = s.batch.encode(s.data)
		return nil
	}
	life, until := lifeOf(s), s.log.Head().Until
	if until < life.need || s.batch.release != 0 && s.disagree() { // it may expire, or be lost, before its entries have left their windows
		return s.rewrite(confirming)
	}
	switch lackSums := s.whole && s.replicas.lackSums(); {
	case lackSums || s.isOutdated() || s.mayShrink() && s.log.Due(),
		until < life.need+life.renewal, s.log.Head().Since < s.kept():
		if s.later = rewriting; lackSums || s.voids() { // a void would change the log first
			s.later = idle
			return s.rewrite(idle)
		}
	case s.replicas.lack():
		s.later = repairing
	}
	return nil
}

// Later returns what rewrites the log that was read, if that is due, or else gives replicas what they
// lack. The hits are decided, whatever becomes of it: a log that has changed since stays as it is. Of
// each log one session of a process does it at a time.
func (s *session) Later() func(context.Context, store.Store) {
	later, noted := s.later, s.noted
	s.later = idle
	if later == rewriting && s.RollBack() != nil { // another counter has denied a hit
		if later = idle; s.replicas.lack() {
			later = repairing
		}
	}
	if later == idle || noted.busy.Load() {
		return nil
	}
	next, expires := []byte(nil), lifeOf(s).expires()
	to := replicas{list: s.replicas.list, value: slices.Clone(s.value), item: s.replicas.item}
	if later == repairing {
		to.repair(s.op.Counter, slices.Clone(s.data), expires)
	} else {
		var err error
		if next, err = shorten(s, nil); err != nil {
			return nil
		}
		to.rewrite(s.op.Counter, next, expires)
	}
	to.list, to.value = nil, nil
	e := s.engine
	late := e.now().Add(time.Duration(e.grace) * time.Millisecond) // what it repairs may be void, and forgotten, later
	return func(ctx context.Context, st store.Store) {
		if later == repairing && e.now().After(late) || !noted.busy.CompareAndSwap(false, true) {
			return
		}
		defer noted.busy.Store(false)
		st.Do(ctx, to.sent...)
		if all, _ := to.rewritten(); all && next != nil {
			noted.size.Store(uint32(len(next)))
		}
	}
}

// trip is a round trip to the log.
type trip struct {
	item uint64 // the log
	op   store.Op
	ops  [1]*store.Op
}

func (t *trip) clear() {
	t.op.Writes, t.op.Reads, t.op.Replicas, t.op.Receipt = t.op.Writes[:0], t.op.Reads[:0], nil, store.Receipt{}
}

func (t *trip) write(w store.Write) {
	w.Item = t.item
	t.op.Writes = append(t.op.Writes, w)
}

// read reads the log into the memory of the read before.
func (t *trip) read() {
	t.op.Reads = slices.Grow(t.op.Reads, 1)[:1]
	t.op.Reads[0] = store.Read{Item: t.item, Data: t.op.Reads[0].Data}
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
