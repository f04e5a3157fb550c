package hierarchy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/mutant"
)

// The simulation: a few processes hit the same counters on one store, while their
// clocks differ. Every add, every part of a read, every subtraction and every
// deletion is a command that waits until a scheduler picks it, so that those of
// all hits interleave freely. The scheduler may lose a command or its answer, let
// time pass, set clocks, cancel hits, crash processes. All it does follows from
// the seed.
//
// Then the admitted hits are held against the limits: no window of any limit may
// hold more than its ceiling.

var (
	errLost  = errors.New("the answer was lost")
	errEnded = errors.New("the simulation has ended")
)

// command is one command to the store.
type command struct {
	by     *operation
	at     *simLink     // where a counter has copies: the server
	of     *simExchange // and the trip, if it is one's
	first  *float64     // its priority
	part   string       // with the operation and the bucket it names the command among the waiting ones
	bucket uint64
	run    func() // what the store does
	answer chan answer
}

func (c *command) compare(other *command) int {
	return cmp.Or(cmp.Compare(c.by.id, other.by.id), strings.Compare(c.part, other.part), cmp.Compare(c.bucket, other.bucket))
}

type answer struct {
	err  error
	rest bool // what was sent behind the command arrives too, though its answer was lost
}

// operation is what one caller does: some hits, or a reset.
type operation struct {
	id       int
	process  int
	hits     []limiter.Hit
	reset    *events.Counter
	results  []limiter.Result
	err      error
	begun    int // the scheduler's step
	ended    int // 0: it never did
	priority float64
	cancel   context.CancelFunc
	ahead    bool // of the clocks of other processes, too far
}

type operationKey struct{}

// simStore is the store of a simulation.
type simStore struct {
	mu      sync.Mutex
	waiting []*command
	late    atomic.Int64 // goroutines that send what arrives after its caller has gone
	parts   uint64       // seed of how reads are cut
	strict  bool         // it ends by the deadlines of the contexts
	storetest.Items
}

// do has the command wait for its turn.
func (s *simStore) do(ctx context.Context, part string, bucket uint64, run func()) answer {
	op := ctx.Value(operationKey{}).(*operation)
	a := s.send(&command{by: op, part: part, bucket: bucket, run: run, first: &op.priority})
	if a.err == nil && s.strict {
		a.err = ctx.Err()
	}
	return a
}

func (s *simStore) send(c *command) answer {
	c.answer = make(chan answer)
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()
	return <-c.answer
}

func (s *simStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		switch op.Kind() {
		case store.Subtract:
			op.Err = s.rollBack(ctx, op)
		case store.Delete:
			op.Err = s.delete(ctx, op)
		default:
			op.Err = s.trip(ctx, op)
		}
	})
}

func (s *simStore) Capabilities() store.Capabilities { return store.Capabilities{} }

func (s *simStore) trip(ctx context.Context, op *store.Op) error {
	for i := range op.Writes {
		op.Receipt = store.Acknowledged(i)
		w := &op.Writes[i]
		a := s.do(ctx, op.Counter, w.Item, func() { w.Result = s.Add(op.Counter, w.Item, w.By, w.Expires) })
		if a.err == nil {
			continue
		}
		if a.rest {
			s.sendLate(ctx, op.Counter, slices.Clone(op.Writes[i+1:]))
		}
		return a.err
	}
	op.Receipt = store.Acknowledged(len(op.Writes))
	parts := s.partsOf(len(op.Reads), ctx.Value(operationKey{}).(*operation))
	for from, to := range parts {
		a := s.do(ctx, op.Counter, op.Reads[from].Item, func() {
			for i := from; i < to; i++ {
				op.Reads[i].Value = s.Read(op.Counter, op.Reads[i].Item)
			}
		})
		if a.err != nil {
			return a.err
		}
	}
	return nil
}

// partsOf yields where the parts of a read begin and end. The server reads one bucket
// after the other; in a few parts is enough.
func (s *simStore) partsOf(n int, op *operation) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		rng := rand.New(rand.NewPCG(s.parts, uint64(op.id)))
		for from := 0; from < n; {
			to := n
			if rest := n - from; rest > 1 && rng.IntN(2) == 0 {
				to = from + 1 + rng.IntN(rest)
			}
			if !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// sendLate has adds arrive, in their order, without a caller that awaits the answers.
func (s *simStore) sendLate(ctx context.Context, counter string, adds []store.Write) {
	s.late.Add(1)
	ctx = context.WithValue(context.Background(), operationKey{}, ctx.Value(operationKey{})) // the round trip's ends with it
	go func() {
		defer s.late.Add(-1)
		for _, w := range adds {
			if s.do(ctx, counter+" late", w.Item, func() { s.Add(counter, w.Item, w.By, w.Expires) }).err != nil {
				return
			}
		}
	}()
}

func (s *simStore) rollBack(ctx context.Context, op *store.Op) error {
	for _, w := range op.Writes[len(op.Writes)-op.Receipt.On(0):] {
		a := s.do(ctx, op.Counter, w.Item, func() { s.Subtract(op.Counter, w.Item, w.By) })
		if a.err != nil {
			return a.err
		}
	}
	return nil
}

func (s *simStore) delete(ctx context.Context, op *store.Op) error {
	for _, w := range op.Writes {
		if a := s.do(ctx, op.Counter, w.Item, func() { s.Remove(op.Counter, w.Item) }); a.err != nil {
			return a.err
		}
	}
	return nil
}

// sabotage breaks the limiter in one way.
type sabotage struct {
	algorithm string // of all limits; empty: they slide
	zone      string // of the calendar of limits per hour, day, week and month; empty: of none
	store     func(*simulation, store.Store) store.Store
	copies    func(*simReplicas) // there are copies; it may break them
	setBack   bool               // the clock of one process is far ahead until it is set
	calm      bool               // nothing is lost, nobody crashes, resets or gives up, and clocks agree
}

// simulation is one run.
type simulation struct {
	rng       *rand.Rand
	store     *simStore
	copies    *simReplicas // nil: each counter is on the one store
	grace     time.Duration
	offset    atomic.Int64 // nanoseconds of the simulated time to that of the bubble
	event     *events.Event
	reloaded  *events.Event  // the same with other rules, which some hits have; or the same
	algorithm string         // of all limits; empty: they slide
	zone      *time.Location // of the calendar of limits per hour, day, week and month; nil: of none
	window    int64          // seconds of the window around which time moves
	phases    []int64        // when hits come, Unix seconds
	narrow    bool           // they all come at the end of one bucket as long as the window
	processes []*simProcess
	operation []*operation
	running   atomic.Int64
	pauses    atomic.Int64
	step      atomic.Int64
	faults    float64 // share of commands that go wrong
	crashes   float64
	hurry     float64 // share of steps that follow the priorities
	change    float64 // share of commands after which the priority is drawn anew
	ticks     float64 // share of steps in which time passes
	forgetful bool    // without memory of denials
	calm      bool
	trace     uint64
}

// simProcess is one process.
type simProcess struct {
	skew     atomic.Int64 // nanoseconds, from 0 to a quarter of the grace
	limiter  *limiter.Limiter
	counters *Counters
	crashed  bool
}

func (s *simulation) now() time.Time { return time.Now().Round(0).Add(time.Duration(s.offset.Load())) }

// chance reports true with that probability.
func (s *simulation) chance(p float64) bool { return s.rng.Float64() < p }

// newSimulation draws rules, clocks, and the moments at which things happen.
func newSimulation(seed uint64, broken sabotage) *simulation {
	s := &simulation{rng: rand.New(rand.NewPCG(seed, 1)), algorithm: broken.algorithm, calm: broken.calm}
	rng := s.rng
	s.grace = testkit.Pick(rng, 400*time.Millisecond, time.Second, 2*time.Second, 2*time.Second, 3*time.Second)
	s.window = testkit.Pick[int64](rng, 1, 2, 8, 60, 60, 61, 90, 900, 1800, 3600, 3600, 86400, 86400)
	if broken.zone != "" {
		s.zone, _ = time.LoadLocation(broken.zone)
		s.window = testkit.Pick[int64](rng, events.HourSeconds, events.DaySeconds, events.DaySeconds, events.WeekSeconds, events.MonthSeconds)
	} else if s.narrow = s.chance(0.3); s.narrow {
		s.window = testkit.Pick[int64](rng, 60, 60, 3600, 86400)
	}
	s.change = 0.05
	s.faults = testkit.Pick(rng, 0, 0, 0.02, 0.1)
	s.crashes = testkit.Pick(rng, 0, 0, 0, 0.01)
	s.hurry = testkit.Pick(rng, 0, 0.7, 0.9)
	s.ticks = testkit.Pick(rng, 0.03, 0.1, 0.2)
	if s.narrow { // a hit may be held up for long
		s.change, s.hurry, s.faults, s.crashes = 0.01, testkit.Pick(rng, 0.95, 1), 0, 0
	}
	if s.calm {
		s.faults, s.crashes = 0, 0
	}
	s.forgetful = s.chance(0.5)
	s.drawRules()
	s.drawReload()
	s.drawPhases()
	early := time.Second
	if s.narrow {
		early = s.grace / 4
	}
	s.offset.Store(int64(time.Until(time.Unix(s.phases[0], 0).Add(-time.Duration(rng.Int64N(int64(early)))))))
	s.store = &simStore{parts: rng.Uint64(), strict: s.chance(0.3) && !s.calm, Items: s.newItems()}
	var store store.Store = s.store
	if broken.store != nil {
		store = broken.store(s, store)
	}
	processes := 1 + rng.IntN(5)
	if broken.copies != nil {
		s.copies = newSimReplicas(s, seed, &processes, broken.copies)
	}
	cache := smallCache
	if broken.setBack {
		cache = -1 // the age of what is remembered is by the monotonic clock
		if s.chance(0.5) {
			processes = 1
		}
	}
	for i := range processes {
		p := &simProcess{}
		store := store
		if s.copies != nil {
			store = s.copies.nodes[i].store
		}
		p.skew.Store(s.drawSkew())
		if broken.setBack && i == 0 {
			p.skew.Add(testkit.Pick(rng, int64(s.grace), int64(20*time.Second), s.window*int64(time.Second)/2))
		}
		clock := func() time.Time { return s.now().Add(time.Duration(p.skew.Load())) }
		p.counters = NewCounters(Config{Store: store, Clock: clock, Grace: s.grace, CacheBytes: cache})
		share := rng.Float64() // of the longest pause
		p.limiter, _ = limiter.New(limiter.Config{Timeout: s.grace / 2, NoCachedDenials: s.forgetful, Random: func(below time.Duration) time.Duration {
			// No two at once: which is first would not follow from the seed.
			return time.Duration(share*float64(below)) + time.Duration(s.pauses.Add(1))
		}}, p.counters)
		s.processes = append(s.processes, p)
	}
	return s
}

func (s *simulation) newItems() storetest.Items {
	return storetest.Items{Now: s.now, Of: map[string]map[uint64]storetest.Item{}, Prolongs: s.reloaded != s.event}
}

func (s *simulation) drawSkew() int64 {
	if s.calm {
		return 0
	}
	most := int64(s.grace / 4)
	return testkit.Pick(s.rng, 0, most, s.rng.Int64N(most))
}

func (s *simulation) drawRules() {
	rng := s.rng
	s.event = &events.Event{Name: "e"}
	pers := [][]string{{"ip"}, {"user"}, {"ip", "user"}, {}}
	rng.Shuffle(len(pers), func(i, j int) { pers[i], pers[j] = pers[j], pers[i] })
	rules, more := testkit.Pick(rng, 1, 1, 2, 3), testkit.Pick(rng, 0, 0, 1, 2, 3)
	if s.narrow {
		rules, more = 1, 0
	}
	for i := range rules {
		rule := events.Rule{Per: pers[i], OnError: events.OnErrorDeny}
		windows := []int64{1, 8, 60, 900, 1800, 3600, 86400}
		rng.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
		windows = append([]int64{s.window}, windows[:more]...)
		slices.Sort(windows)
		n := int64(1 + rng.IntN(4))
		if s.narrow {
			n = int64(2 + rng.IntN(2))
		}
		for _, window := range slices.Compact(windows) {
			limit := s.limit(n, time.Duration(window)*time.Second)
			limit.Name = events.FormatRate(limit)
			rule.Limits = append(rule.Limits, limit)
			n += int64(rng.IntN(3))
		}
		kind := rng.IntN(12)
		if s.narrow {
			kind = -1
		}
		switch kind {
		case 0:
			rule.Throttle = events.Throttle{Kind: events.Soft, Percent: 50}
		case 1:
			rule.Throttle.Kind = events.Elastic
		case 2:
			rule.Count = events.CountAll
		case 3:
			rule.Shadow = true
		case 4:
			rule.OnError = events.OnErrorAllow
		}
		if shortest := rule.Limits[0].Window; shortest >= time.Minute && !s.narrow && s.chance(0.15) {
			rule.Precision = events.Minute
			if shortest >= time.Hour && s.chance(0.5) {
				rule.Precision = events.Hour
			}
		}
		s.event.Rules = append(s.event.Rules, rule)
	}
}

// limit returns a limit of a calendar if there is one and it has the window as a unit. Beside it
// others slide.
func (s *simulation) limit(n int64, window time.Duration) events.Limit {
	limit := events.Limit{N: n, Window: window, Algorithm: s.algorithm}
	switch {
	case s.zone == nil:
	case events.CalendarUnit(int64(window/time.Second)) != "":
		limit.Calendar = s.zone
	default:
		limit.Algorithm = ""
	}
	return limit
}

// drawReload draws what a reload has made of the rules: limits that were not there, of
// windows that need other levels, limits that are gone, hits that are counted otherwise.
func (s *simulation) drawReload() {
	s.reloaded = s.event
	if s.narrow || s.calm || !s.chance(0.2) {
		return
	}
	s.reloaded = &events.Event{Name: s.event.Name}
	for _, rule := range s.event.Rules {
		rule.Limits = slices.Clone(rule.Limits)
		switch s.rng.IntN(4) {
		case 0:
			rule.Limits = rule.Limits[:1]
		case 1:
			window := testkit.Pick(s.rng, time.Minute, time.Hour, 24*time.Hour, 48*time.Hour)
			limit := s.limit(int64(1+s.rng.IntN(4)), window)
			limit.Name = events.FormatRate(limit)
			if !slices.ContainsFunc(rule.Limits, func(other events.Limit) bool { return other.Window == window }) {
				rule.Limits = append(rule.Limits, limit)
			}
		case 2:
			rule.Count = events.CountAll - rule.Count
		}
		s.reloaded.Rules = append(s.reloaded.Rules, rule)
	}
}

// drawPhases chooses moments a window apart, mostly around the end of a bucket.
func (s *simulation) drawPhases() {
	rng := s.rng
	if s.narrow {
		edge := (20_000*86400+rng.Int64N(10*86400))/s.window*s.window + s.window
		s.phases = []int64{edge}
		return
	}
	unit := testkit.Pick[int64](rng, 1, 60, 3600, 86400)
	edge := (20_000*86400+rng.Int64N(10*86400))/unit*unit + unit
	if s.zone != nil { // a turn of the window, up to weeks later
		_, last := events.FixedWindowAround(edge+rng.Int64N(30*86400), s.window, s.zone)
		edge = last + 1
	}
	for _, i := range []int64{-1, 0, 1} {
		if i == 0 || s.chance(0.6) {
			s.phases = append(s.phases, edge+i*s.window+rng.Int64N(4)-2)
			if s.chance(0.2) {
				s.phases = append(s.phases, edge+i*s.window+s.window/2)
			}
		}
	}
	slices.Sort(s.phases)
}

// run runs the simulation to its end.
func (s *simulation) run() {
	for i, phase := range s.phases {
		if wait := time.Unix(phase, 0).Sub(s.now()) - time.Duration(s.rng.Int64N(int64(time.Second))); i > 0 && wait > 0 {
			s.pass(wait)
		}
		abandon := s.chance(0.2) && !s.calm
		for left := 3 + s.rng.IntN(5); ; {
			synctest.Wait()
			s.step.Add(1)
			if s.copies != nil {
				s.copies.advance(i, left)
			}
			waiting := s.waiting()
			alone := s.calm && s.running.Load() > 0 && s.chance(0.5) // no other hit begins now
			switch {
			case len(waiting) == 0 && left == 0 && !alone || left == 0 && abandon && s.chance(0.05):
			case left > 0 && !alone && (len(waiting) == 0 || s.chance(0.2)):
				left--
				s.start()
				continue
			case s.copies != nil && s.chance(s.copies.weather):
				s.copies.turn()
				continue
			case len(waiting) == 0 || s.chance(s.ticks):
				s.tick()
				continue
			case s.chance(s.crashes):
				s.processes[s.rng.IntN(len(s.processes))].crashed = true
				continue
			default:
				s.serve(waiting)
				continue
			}
			break
		}
	}
	for idle := 0; idle < 20; {
		synctest.Wait()
		s.step.Add(1)
		if waiting := s.waiting(); len(waiting) > 0 {
			s.serve(waiting)
			continue
		}
		idle++ // operations that wait for time to pass
		s.pass(s.grace / 10)
	}
	s.end()
}

// pass lets time pass.
func (s *simulation) pass(d time.Duration) {
	if s.copies == nil {
		time.Sleep(d)
	} else {
		s.copies.pass(d)
	}
}

// end ends the operations that still wait: the ones of crashed processes.
func (s *simulation) end() {
	s.step.Store(0)
	if s.copies != nil {
		s.copies.close()
	}
	for s.running.Load()+s.store.late.Load() > 0 {
		time.Sleep(s.grace) // for pausing operations
		synctest.Wait()
		s.store.mu.Lock()
		waiting := s.store.waiting
		s.store.waiting = nil
		s.store.mu.Unlock()
		for _, c := range waiting {
			c.answer <- answer{err: errEnded}
		}
	}
}

// waiting returns the commands that can go on, in an order that follows from the
// seed.
func (s *simulation) waiting() []*command {
	if s.copies != nil {
		s.copies.refuse()
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	slices.SortFunc(s.store.waiting, (*command).compare)
	var able []*command
	for _, c := range s.store.waiting {
		if !s.processes[c.by.process].crashed && !c.at.holds() {
			able = append(able, c)
		}
	}
	return able
}

// serve picks a command, and runs it or has it go wrong.
func (s *simulation) serve(waiting []*command) {
	c := waiting[s.rng.IntN(len(waiting))]
	if s.chance(s.hurry) {
		for _, other := range waiting {
			if *other.first > *c.first {
				c = other
			}
		}
	}
	if s.chance(s.change) {
		*c.first = s.rng.Float64()
	}
	s.store.mu.Lock()
	s.store.waiting = slices.DeleteFunc(s.store.waiting, func(other *command) bool { return other == c })
	s.store.mu.Unlock()
	hash := fnv.New64a()
	fmt.Fprint(hash, s.trace, c.by.id, c.part, c.bucket, s.now().UnixNano())
	s.trace = hash.Sum64()
	faults := s.faults
	if s.copies != nil {
		faults = s.copies.faultsAt(c.at)
	}
	if !s.chance(faults) {
		c.run()
		c.answer <- answer{}
		return
	}
	switch s.rng.IntN(3) {
	case 0: // it never arrived
		c.answer <- answer{err: errLost}
	case 1: // its answer was lost, and what came behind it
		c.run()
		c.answer <- answer{err: errLost}
	default:
		c.run()
		c.answer <- answer{err: errLost, rest: true}
	}
}

// tick lets time pass, up to the next second of some clock, or so much that hits
// in flight cannot be trusted any more; it may set a clock.
func (s *simulation) tick() {
	p := s.processes[s.rng.IntN(len(s.processes))]
	switch s.rng.IntN(8) {
	case 0, 1, 2:
		s.pass(time.Duration(s.rng.Int64N(int64(s.grace / 32))))
	case 3:
		s.pass(time.Duration(s.rng.Int64N(int64(s.grace / 4))))
	case 4:
		if d := time.Duration(s.rng.Int64N(int64(s.grace))); !s.calm {
			s.pass(d)
		}
	case 5, 6:
		now := s.now().Add(time.Duration(p.skew.Load()))
		s.pass(now.Truncate(time.Second).Add(time.Second).Sub(now))
	case 7:
		p.skew.Store(s.drawSkew())
	}
}

// start begins an operation.
func (s *simulation) start() {
	op := &operation{id: len(s.operation) + 1, process: s.rng.IntN(len(s.processes)), begun: int(s.step.Load()), priority: s.rng.Float64()}
	p := s.processes[op.process]
	op.ahead = len(s.processes) > 1 && p.skew.Load() > int64(s.grace/4)
	s.operation = append(s.operation, op)
	if p.crashed {
		return
	}
	features := func() events.Features {
		if s.narrow {
			return events.Features{"ip": "192.0.2.1", "user": "a"}
		}
		return events.Features{"ip": testkit.Pick(s.rng, "192.0.2.1", "192.0.2.1", "192.0.2.2"), "user": testkit.Pick(s.rng, "a", "a", "a", "b")}
	}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), operationKey{}, op))
	op.cancel = cancel
	if s.chance(0.02) && !s.calm {
		counters, _ := s.event.Counters(features())
		op.reset = &counters[s.rng.IntN(len(counters))]
		s.running.Add(1)
		go func() {
			defer s.running.Add(-1)
			op.err = p.counters.Reset(ctx, *op.reset)
			s.ended(op)
		}()
		return
	}
	for range testkit.Pick(s.rng, 1, 1, 1, 1, 3) {
		op.hits = append(op.hits, limiter.Hit{Event: testkit.Pick(s.rng, s.event, s.reloaded), Features: features(), Cost: testkit.Pick[int64](s.rng, 1, 1, 1, 1, 2, 3)})
	}
	if s.narrow {
		op.hits = op.hits[:1]
		op.hits[0].Cost = 1
	}
	cancelled := s.chance(0.05) && !s.calm
	s.running.Add(1)
	go func() {
		defer s.running.Add(-1)
		if len(op.hits) == 1 { // it may wait in line, and go with others
			var result limiter.Result
			result.Decision, result.Err = p.limiter.Hit(ctx, op.hits[0])
			op.results = []limiter.Result{result}
		} else {
			op.results, op.err = p.limiter.Hits(ctx, op.hits)
		}
		s.ended(op)
	}()
	if cancelled {
		synctest.Wait()
		cancel()
	}
}

// ended notes the end of an operation, unless its process has crashed: a trip of a crashed
// process may still time out.
func (s *simulation) ended(op *operation) {
	if s.copies == nil || !s.processes[op.process].crashed {
		op.ended = int(s.step.Load())
	}
}

// admission is an admitted hit as one limit sees it.
type admission struct {
	op          *operation
	stamp, cost int64
}

// limitKey names a limit on a counter. Two generations of rules may have different ones
// for one window: each holds for the hits that have it.
type limitKey struct {
	counter   string
	algorithm string
	window    time.Duration
	zone      *time.Location
	ceiling   int64
}

// judge returns how many windows hold more than they may, and says which; and how
// many hits were admitted, and denied.
func (s *simulation) judge() (faults []string, admitted, denied int) {
	log := map[limitKey][]admission{}
	for _, op := range s.operation {
		if op.ended == 0 || op.reset != nil || op.ahead {
			continue
		}
		for i, result := range op.results {
			if result.Err != nil {
				faults = append(faults, result.Err.Error())
			}
			if !result.Decision.Allowed {
				denied++
				continue
			}
			admitted++
			s.log(op, op.hits[i], result.Decision, log)
		}
	}
	for key, entries := range log {
		if s.copies != nil && !s.copies.promises(key.counter) {
			continue
		}
		s.forget(key.counter, entries, func(entries []admission, slack int64) {
			if sum, last := fullest(entries, events.Limit{Algorithm: key.algorithm, Window: key.window, Calendar: key.zone}); sum > key.ceiling+slack {
				faults = append(faults, fmt.Sprintf("%d in the %s that end at %d, %d are allowed", sum, key.window, last, key.ceiling))
			}
		})
	}
	return faults, admitted, denied
}

// log enters an admitted hit for each of the limits that hold for it.
func (s *simulation) log(op *operation, h limiter.Hit, d events.Decision, log map[limitKey][]admission) {
	applied, _ := h.Event.Apply(nil, h.Features)
	i := 0
	for _, a := range applied {
		rule, counter := a.Rule, a.Counter
		for _, limit := range rule.LimitsOf(counter.Feature) {
			state := d.Limits[i]
			i++
			if rule.Shadow || rule.Throttle.Kind == events.Elastic || state.Failed {
				continue
			}
			key := limitKey{counter.ID(), limit.Algorithm, limit.Window, limit.Calendar, rule.Throttle.Ceiling(limit.N)}
			log[key] = append(log[key], admission{op, d.At.Unix(), h.Cost})
		}
	}
}

// forget hands on what was admitted before each reset of the counter and after it,
// with what the reset may let through: as much as was being denied meanwhile.
func (s *simulation) forget(counter string, entries []admission, check func([]admission, int64)) {
	var reset *operation
	resets := 0
	for _, op := range s.operation {
		if op.reset != nil && op.reset.ID() == counter {
			reset = op
			resets++
		}
	}
	switch resets {
	case 0:
		check(entries, 0)
		return
	case 1:
	default:
		return // one is enough
	}
	ended := cmp.Or(reset.ended, 1<<30)
	var before, after []admission
	for _, entry := range entries {
		if entry.op.ended < reset.begun {
			before = append(before, entry)
		} else if entry.op.begun > ended {
			after = append(after, entry)
		}
	}
	slack := int64(0)
	for _, op := range s.operation {
		if op.begun > ended || op.ended != 0 && op.ended < reset.begun {
			continue
		}
		for i, h := range op.hits {
			if i >= len(op.results) || !op.results[i].Decision.Allowed {
				slack += h.Cost
			}
		}
	}
	check(before, 0)
	check(after, slack)
}

// fullest returns the most that any window holds, and the last second of that.
func fullest(entries []admission, limit events.Limit) (most, last int64) {
	for _, end := range entries {
		sum := int64(0)
		first, _ := limit.Windows().Around(end.stamp)
		for _, entry := range entries {
			if entry.stamp <= end.stamp && entry.stamp >= first {
				sum += entry.cost
			}
		}
		if sum > most {
			most, last = sum, end.stamp
		}
	}
	return most, last
}

// outcome is what many simulations came to.
type outcome struct {
	seeds, admitted, denied, broken int
	handed, missed                  int    // of the simulations with copies: see simReplicas
	first                           string // of what was broken
}

// simulate runs the seeds from first on, each in a bubble of its own, and stops after the
// first that is broken if stop is set.
func simulate(t *testing.T, first, n uint64, broken sabotage, stop bool) (o outcome) {
	t.Helper()
	for seed := first; seed < first+n; seed++ {
		s := simulateOne(t, seed, broken)
		faults, admitted, denied := s.judge()
		o.seeds++
		o.admitted += admitted
		o.denied += denied
		if s.copies != nil && s.copies.missed {
			o.missed++
		} else if s.copies != nil && s.copies.handed {
			o.handed++
		}
		if len(faults) > 0 {
			o.broken++
			if o.first == "" {
				o.first = fmt.Sprintf("seed %d: %s", seed, strings.Join(faults, "; "))
			}
			if stop {
				break
			}
		}
	}
	return o
}

func simulateOne(t *testing.T, seed uint64, broken sabotage) (s *simulation) {
	t.Helper()
	bubble.Test(t, func(*testing.T) {
		s = newSimulation(seed, broken)
		s.run()
		for _, op := range s.operation {
			if op.cancel != nil {
				op.cancel()
			}
		}
	})
	return s
}

// simulateAll runs so many seeds, none of which may be broken.
func simulateAll(t *testing.T, seeds uint64, broken sabotage) (total outcome) {
	t.Helper()
	if mutant.Tested() {
		for seed := range mutant.Seeds(t, seeds) {
			o := simulate(t, seed, 1, broken, true)
			assert.Zero(t, o.broken, o.first)
		}
		return total
	}
	testkit.InParts(t, seeds, func(t *testing.T, first, n uint64) outcome {
		o := simulate(t, first, n, broken, false)
		assert.Zero(t, o.broken, o.first)
		return o
	}, func(o outcome) {
		total.seeds += o.seeds
		total.admitted += o.admitted
		total.denied += o.denied
		total.missed += o.missed
		total.handed += o.handed
	})
	t.Logf("%d seeds: %d hits admitted, %d denied", total.seeds, total.admitted, total.denied)
	require.Greater(t, total.admitted, total.seeds, "hits that are not admitted prove nothing")
	require.Greater(t, total.denied, total.seeds, "limits that do not bind prove nothing")
	return total
}

// No window ever holds more than its limit, however the commands of hits
// interleave.
func TestNoWindowHoldsMore(t *testing.T) {
	simulateAll(t, testkit.Seeds(8000), sabotage{})
}

// Nor does a fixed window.
func TestNoFixedWindowHoldsMore(t *testing.T) {
	simulateAll(t, testkit.Seeds(8000), sabotage{algorithm: "fixed-window"})
}

// Nor does a window of a calendar, around its turns and the changes of its zone.
func TestNoCalendarWindowHoldsMore(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"} {
		simulateAll(t, testkit.Seeds(2700), sabotage{algorithm: "fixed-window", zone: zone})
	}
}

// Nor does one of a process whose clock was ahead and is set back; of several processes without the
// hits that it stamped before: they are incomplete.
func TestNoWindowHoldsMoreAfterAClockWasSetBack(t *testing.T) {
	for _, broken := range []sabotage{{}, {algorithm: "fixed-window"}, {algorithm: "fixed-window", zone: "Europe/Berlin"}} {
		broken.setBack = true
		simulateAll(t, testkit.Seeds(4000), broken)
	}
}

// What the scheduler does follows from the seed.
func TestSimulationRepeats(t *testing.T) {
	for seed := range testkit.Seeds(300) {
		one, two := simulateOne(t, seed, sabotage{}), simulateOne(t, seed, sabotage{})
		if one.reloaded != one.event {
			continue // two claims on one counter may wait with the same command: no order tells them apart
		}
		if one.trace != two.trace { // once in thousands of seeds, on a busy machine
			require.Contains(t, []uint64{one.trace, two.trace}, simulateOne(t, seed, sabotage{}).trace, seed)
		}
	}
}
