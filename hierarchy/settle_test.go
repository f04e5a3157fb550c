package hierarchy

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/memcache"
)

// The simulation of what is settled in buckets: processes reserve, and settle, each on any process, once or
// several times, also at once and with another cost. Each command to the one server, or to each of several, goes by
// itself, and commands and answers are lost; of several servers the first is sound. Of a receipt's creation answers
// are lost that the call asks for again. Resets come between settlements. At each step no level holds less than was
// truly used; nor does the count of the one process of some worlds, which has a cache, and knows some counters by
// their alias.

type settleWorld struct {
	rnd      *rand.Rand
	sabotage string
	faulty   bool
	mislays  bool // answers of creations
	now      int64
	counts   []map[uint64]int64 // of each server
	data     []map[uint64][]byte
	spent    []*spent
	mu       sync.Mutex
	cached   *Counters // the one process; nil: there are several
	hitting  int       // hits under way
	settling int       // settlements under way
	resets   int
	mislaid  int

	resetting bool
	untidy    bool
	settled   int
	refused   int
	fault     string
}

// spent is a reservation, and what its client has tried to settle it with.
type spent struct {
	engine.Reserved
	costs    []int64
	answered bool
	cost     int64
	reset    bool // its counter is, since then
	before   bool // it was answered before the last reset
}

// caller is the context of a call.
type caller struct {
	pause   func() // nil: nothing comes between the commands, and nothing is lost
	mislaid int
}

type callerKey struct{}

var (
	errMislaid = errors.New("mislaid")

	settledCounter = events.Counter{Event: "e", Retention: 24 * time.Hour}
)

func contextOf(c *caller) context.Context {
	return context.WithValue(context.Background(), callerKey{}, c)
}

func pausing(yield func(struct{}) bool) context.Context {
	return contextOf(&caller{pause: func() { yield(struct{}{}) }})
}

func (w *settleWorld) chance(p float64) bool { return w.rnd.Float64() < p }

func (w *settleWorld) Capabilities() store.Capabilities {
	return store.Capabilities{Replicas: len(w.counts), Writes: store.KindsOf(store.Add, store.Subtract, store.Hint, store.Delete, store.Append)}
}

func (w *settleWorld) Do(ctx context.Context, ops ...*store.Op) {
	by := ctx.Value(callerKey{}).(*caller)
	if by.pause == nil {
		w.mu.Lock() // a reset has several goroutines
		defer w.mu.Unlock()
	}
	for _, op := range ops {
		if op.Kind() == store.Hint {
			continue
		}
		before := op.Receipt
		parts := make([]store.Op, len(w.counts))
		order := []int{0, 1, 2}[:len(parts)]
		if by.pause != nil {
			order = w.rnd.Perm(len(parts))
		}
		for _, server := range order {
			parts[server] = store.Op{Data: op.Data, Writes: slices.Clone(op.Writes), Reads: slices.Clone(op.Reads)}
			w.part(server, &parts[server], before.On(server), by)
		}
		op.Err, op.Receipt, op.Replicas = errLost, store.Receipt{}, nil
		for i := range parts {
			if parts[i].Err != nil {
				w.untidy = w.untidy || parts[i].Err == errLost
				continue
			}
			op.Receipt.Acknowledged[i] = uint32(len(op.Writes))
			for j := range op.Writes {
				op.Writes[j].Result = max(op.Writes[j].Result, parts[i].Writes[j].Result)
			}
			for j := range op.Reads {
				if op.Err != nil {
					op.Reads[j].Value = 0
				}
				op.Reads[j].Value, op.Reads[j].Data = max(op.Reads[j].Value, parts[i].Reads[j].Value), parts[i].Reads[j].Data
			}
			op.Err = nil
		}
		if op.Data && len(parts) > 1 {
			op.Replicas = parts
		}
	}
}

// part makes the round trip to one server. Of a subtraction so many adds were acknowledged.
func (w *settleWorld) part(server int, op *store.Op, acknowledged int, by *caller) {
	pause := func() {
		if by.pause != nil {
			by.pause()
		}
	}
	loses := w.faulty && by.pause != nil && (server > 0 || len(w.counts) == 1)
	counts, data := w.counts[server], w.data[server]
	writes := op.Writes
	if op.Kind() == store.Subtract {
		writes = writes[max(len(writes)-acknowledged, 0):]
		if w.sabotage == "subtracts the finest first" {
			writes = slices.Clone(writes)
			slices.Reverse(writes)
		}
	}
	for i := range writes {
		if pause(); loses && w.chance(.02) {
			op.Err = errLost
			return
		}
		switch write := &writes[i]; write.Kind {
		case store.Add:
			if write.Item == epochItem && w.sabotage == "a reset keeps the epoch" {
				continue
			}
			counts[write.Item] += write.By
			write.Result = counts[write.Item]
		case store.Subtract:
			counts[write.Item] = max(counts[write.Item]-write.By, 0)
		case store.Delete:
			delete(counts, write.Item)
		case store.Create:
			if write.Result = 0; data[write.Item] == nil || w.sabotage == "each call creates a receipt" {
				data[write.Item], write.Result = slices.Clone(write.Data), 1
			}
		}
		w.measure()
	}
	pause()
	for i := range op.Reads {
		op.Reads[i].Value, op.Reads[i].Data = counts[op.Reads[i].Item], slices.Clone(data[op.Reads[i].Item])
	}
	if loses && w.chance(.03) {
		op.Err = errLost
	}
	if op.Kind() == store.Create && w.mislays && by.mislaid < settleTries-1 && w.chance(.2) {
		by.mislaid++
		w.mislaid++
		op.Err = errMislaid
	}
}

// level returns what a level holds of all reservations: of each bucket the largest of a server.
func (w *settleWorld) level(level uint8) (sum int64) {
	largest := map[uint64]int64{}
	for _, counts := range w.counts {
		for item, value := range counts {
			if store.ItemLevel(item) == level {
				largest[item] = max(largest[item], value)
			}
		}
	}
	for value := range maps.Values(largest) {
		sum += value
	}
	return sum
}

// least returns what is truly used at the least.
func (w *settleWorld) least() (sum int64) {
	for _, s := range w.spent {
		switch {
		case s.reset:
		case s.answered:
			sum += s.cost
		default:
			sum += slices.Min(append(slices.Clone(s.costs), s.Cost))
		}
	}
	return sum
}

// measure looks for a level that holds less than was truly used, and on a server for a coarser one that holds
// more than a finer one while nothing is lost.
func (w *settleWorld) measure() {
	if w.resetting {
		return
	}
	least := w.least()
	for level := range uint8(Levels) {
		if held := w.level(level); held < least {
			w.fault = "less is counted than was truly used"
		}
	}
	for _, counts := range w.counts {
		var sums [Levels]int64
		for item, value := range counts {
			if item == epochItem {
				continue
			}
			sums[store.ItemLevel(item)] += value
		}
		if !w.faulty && !w.untidy && !slices.IsSortedFunc(sums[:], func(a, b int64) int { return int(b - a) }) {
			w.fault = "a coarser level holds more than a finer one"
		}
	}
}

func (w *settleWorld) client(processes []*Counters) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		ctx := pausing(yield)
		s := &spent{}
		resets := w.resets
		var err error
		w.hitting++
		s.Reserved, err = w.reserve(ctx, testkit.Pick(w.rnd, processes...))
		w.hitting--
		if err != nil || w.resets > resets {
			w.untidy = true
			return
		}
		if w.chance(.5) {
			s.Counter = store.NewAlias(s.Counter, []byte("key"))
		}
		w.spent = append(w.spent, s)
		w.count()
		for w.chance(.7) {
			w.settle(ctx, processes, s)
		}
	}
}

// reserve makes a hit that reserves.
func (w *settleWorld) reserve(ctx context.Context, p *Counters) (engine.Reserved, error) {
	now := time.UnixMilli(w.now)
	tally := limiter.Tally{
		ID: settledCounter.ID(), Counter: settledCounter,
		Adds: []limiter.Addition{{Cost: 1 + w.rnd.Int64N(9), Ends: w.now + 1e6, Kept: true}},
	}
	session := p.NewSession()
	session.Add(ctx, limiter.Moment{Time: now, Second: now.Unix(), Latest: now.Unix()}, []*limiter.Tally{&tally})
	r := tally.Adds[0].Reserved
	r.Retention = settledCounter.Retention
	return r, tally.Err
}

// settler settles a reservation of any client.
func (w *settleWorld) settler(processes []*Counters) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) { w.settle(pausing(yield), processes, testkit.Pick(w.rnd, w.spent...)) }
}

// reset resets the counter. A hit under way may stay by half.
func (w *settleWorld) reset(processes []*Counters) {
	w.resetting = true
	if err := testkit.Pick(w.rnd, processes...).Reset(contextOf(&caller{}), settledCounter); err != nil {
		w.fault = err.Error()
	}
	w.resetting = false
	w.resets++
	w.untidy = w.untidy || w.hitting > 0
	for _, s := range w.spent {
		s.reset, s.before = true, s.answered
	}
	w.count()
}

// count counts on the process that has a cache.
func (w *settleWorld) count() {
	if w.cached == nil {
		return
	}
	count, err := w.cached.Count(contextOf(&caller{}), settledCounter, time.Hour, time.Time{})
	switch {
	case err != nil:
		w.fault = err.Error()
	case count.Count < w.least():
		w.fault = "the process counts less than was truly used"
	case w.hitting == 0 && w.settling == 0 && !w.untidy && count.Count != w.level(0):
		w.fault = "the process counts what is not there"
	}
}

// settle settles a reservation on any process, mostly with the cost that it was tried with before.
func (w *settleWorld) settle(ctx context.Context, processes []*Counters, s *spent) {
	used := w.rnd.Int64N(12)
	if len(s.costs) > 0 && w.chance(.7) {
		used = s.costs[0]
	}
	s.costs = append(s.costs, used)
	w.settling++
	err := testkit.Pick(w.rnd, processes...).Settle(ctx, s.Reserved, used)
	w.settling--
	defer w.count()
	switch {
	case err == nil && s.answered && s.cost != used:
		w.fault = "two settlements decide"
	case err == nil:
		s.answered, s.cost = true, used
		w.settled++
	case errors.Is(err, engine.ErrSettled):
		w.refused++
	default:
		w.untidy = true
	}
}

func simulateSettling(seed uint64, sabotage string) *settleWorld {
	w := &settleWorld{rnd: rand.New(rand.NewPCG(seed, 18)), sabotage: sabotage, now: 1_000_000_000}
	w.faulty, w.mislays = w.rnd.IntN(2) == 0, w.rnd.IntN(2) == 0
	cached, servers := w.rnd.IntN(6) == 0, 1+w.rnd.IntN(3)
	if cached {
		servers = 1 // of several no count is cached
	}
	for range servers {
		w.counts, w.data = append(w.counts, map[uint64]int64{}), append(w.data, map[uint64][]byte{})
	}
	config := Config{Store: w, Clock: func() time.Time { return time.UnixMilli(w.now) }, CacheBytes: -1}
	processes := []*Counters{NewCounters(config), NewCounters(config), NewCounters(config)}
	if cached {
		config.CacheBytes = 6 << 20 // enough for the cover of an hour
		w.cached = NewCounters(config)
		processes = []*Counters{w.cached}
	}
	begin := func() iter.Seq[struct{}] {
		if w.settling == 0 && w.chance(.1) {
			w.reset(processes)
		}
		if len(w.spent) > 0 && w.chance(.4) {
			return w.settler(processes)
		}
		return w.client(processes)
	}
	testkit.Interleave(w.rnd, 40, 8, .2, begin, func() {
		w.now += w.rnd.Int64N(20)
		if w.hitting == 0 && w.chance(.02) { // else a hit would be late
			w.now += 5000
		}
	})
	w.measure()
	if w.untidy {
		return w
	}
	most := int64(0)
	for _, s := range w.spent {
		switch {
		case !s.answered && len(s.costs) > 0:
			w.fault = "no settlement decides"
		case s.before:
		case s.reset && s.answered:
			most += max(s.cost-s.Cost, 0)
		case s.reset:
		case s.answered:
			most += s.cost
		default:
			most += s.Cost
		}
	}
	for level := range uint8(Levels) {
		if held := w.level(level); held != most {
			w.fault = "more is counted than was settled"
		}
	}
	return w
}

func TestSimulationOfSettlements(t *testing.T) {
	var settled, refused, tidy, reset, mislaid int
	for seed := range testkit.Seeds(10_000) {
		w := simulateSettling(seed, "")
		require.Empty(t, w.fault, "seed %d", seed)
		settled, refused = settled+w.settled, refused+w.refused
		if !w.untidy {
			tidy, reset, mislaid = tidy+1, reset+w.resets, mislaid+w.mislaid
		}
	}
	t.Logf("%d settled, %d refused; %d runs with %d resets and %d lost answers are accounted for", settled, refused, tidy, reset, mislaid)
	require.NotZero(t, min(settled, refused, tidy, reset, mislaid))
}

func TestSimulationFindsSabotageOfSettlements(t *testing.T) {
	for sabotage, want := range map[string]struct {
		seed  uint64
		fault string
	}{
		"each call creates a receipt": {68, "less is counted than was truly used"},
		"a reset keeps the epoch":     {177, "less is counted than was truly used"},
		"subtracts the finest first":  {1, "a coarser level holds more than a finer one"},
	} {
		t.Run(sabotage, func(t *testing.T) {
			testkit.FindFault(t, want.seed, 5000, func(seed uint64) (string, bool) {
				w := simulateSettling(seed, sabotage)
				return w.fault, w.fault == want.fault
			})
		})
	}
}

// What is settled after a reset takes nothing from what came since. After its time nothing is settled, and a
// reservation is no lease.
func TestSettlingAfterAReset(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_800_000_000, 0))
	embedded := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now})
	c := NewCounters(Config{Store: embedded, Clock: clock.Now})
	counter := events.Counter{Event: "e", Retention: time.Hour}
	_, err := c.Increment(t.Context(), 10, time.Time{}, counter)
	require.NoError(t, err)
	r := engine.Reserved{
		Counter: counter.ID(), Retention: time.Hour, ID: 7, Time: clock.Now().UnixMilli(), Ends: clock.Now().Add(time.Minute).UnixMilli(), Cost: 10,
	}
	require.NoError(t, c.Reset(t.Context(), counter))
	clock.Advance(2 * time.Second)
	_, err = c.Increment(t.Context(), 8, time.Time{}, counter)
	require.NoError(t, err)
	require.NoError(t, c.Settle(t.Context(), r, 0))
	for _, level := range []Level{Second, Minute, Hour} {
		history, err := c.History(t.Context(), counter, level, clock.Now(), clock.Now())
		require.NoError(t, err)
		assert.EqualValues(t, 8, history.Intervals[0].Count, level)
	}
	require.ErrorIs(t, c.Settle(t.Context(), r, 1), engine.ErrSettled)
	clock.Advance(time.Minute)
	require.ErrorIs(t, c.Settle(t.Context(), r, 0), engine.ErrEnded)
	_, err = c.Renew(t.Context(), r, time.Second)
	require.ErrorIs(t, err, engine.ErrOutOfRange)
}

// lossy loses answers of a store.
type lossy struct {
	store.Store
	after func(op *store.Op)
}

func (l *lossy) Do(ctx context.Context, ops ...*store.Op) {
	l.Store.Do(ctx, ops...)
	for _, op := range ops {
		if l.after != nil {
			l.after(op)
		}
	}
}

func (l *lossy) Capabilities() store.Capabilities {
	c := l.Store.Capabilities()
	c.Alias = func(counter string) string { return store.NewAlias(counter, []byte("key")) }
	return c
}

// unaliased knows a counter by its alias.
type unaliased struct {
	store.Store
	id string
}

func (u unaliased) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		given := op.Counter
		if _, ok := store.KeyOf(given); ok {
			op.Counter = u.id
		}
		u.Store.Do(ctx, op)
		op.Counter = given
	}
}

// settleBench is a process with one counter, by an address, and the limit 100/m.
type settleBench struct {
	t       *testing.T
	clock   *testkit.Clock
	store   *lossy
	c       *Counters
	limiter *limiter.Limiter
	event   *events.Event
	counter events.Counter
}

var settleAddress = events.Features{"ip": "192.0.2.1"}

func newSettleBench(t *testing.T, limits string) *settleBench {
	b := &settleBench{t: t, clock: testkit.NewClock(time.Unix(1_800_000_050, 0)), event: testkit.Event(t, limits)}
	var err error
	b.counter, err = b.event.Counter(settleAddress)
	require.NoError(t, err)
	b.store = &lossy{Store: unaliased{memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: b.clock.Now}), b.counter.ID()}}
	b.c = NewCounters(Config{Store: b.store, Clock: b.clock.Now})
	b.limiter, err = limiter.New(limiter.Config{Timeout: time.Second}, b.c)
	require.NoError(t, err)
	return b
}

func (b *settleBench) hit(cost int64, reserved time.Duration) limiter.Result {
	result := b.limiter.Decide(b.t.Context(), limiter.Hit{Event: b.event, Features: settleAddress, Cost: cost, Reserved: reserved}, limiter.CallHit)
	require.NoError(b.t, result.Err)
	return result
}

func (b *settleBench) reserve(cost int64) engine.Reserved {
	d := b.hit(cost, time.Hour)
	require.True(b.t, d.Decision.Allowed)
	require.Len(b.t, d.Reserved, 1)
	return d.Reserved[0]
}

func (b *settleBench) count() int64 {
	count, err := b.c.Count(b.t.Context(), b.counter, time.Minute, time.Time{})
	require.NoError(b.t, err)
	return count.Count
}

// What was reserved before a reset takes nothing from what comes after it, also if the reset is cut short.
func TestAResetThatIsCutShortEndsWhatWasReserved(t *testing.T) {
	b := newSettleBench(t, "[{per: ip, rate: 100/m}]")
	r := b.reserve(50)
	deleted := 0
	b.store.after = func(op *store.Op) {
		if op.Kind() == store.Delete {
			if deleted++; deleted > 1 { // the seconds alone
				op.Err = errLost
			}
		}
	}
	require.ErrorIs(t, b.c.Reset(t.Context(), b.counter), engine.ErrStore)
	require.Greater(t, deleted, 1)
	_, err := b.c.Increment(t.Context(), 60, time.Time{}, b.counter)
	require.NoError(t, err)
	require.NoError(t, b.c.Settle(t.Context(), r, 0))
	b.store.after = nil
	history, err := b.c.History(t.Context(), b.counter, Second, b.clock.Now(), b.clock.Now())
	require.NoError(t, err)
	require.GreaterOrEqual(t, history.Intervals[0].Count, int64(60))
}

// A hit that comes between the beginning of a reset and its end is deleted, and takes nothing from what comes after.
func TestAResetEndsWhatIsReservedMeanwhile(t *testing.T) {
	b := newSettleBench(t, "[{per: ip, rate: 100/m}]")
	var r engine.Reserved
	b.store.after = func(op *store.Op) {
		if op.Kind() == store.Add && op.Writes[0].Item == epochItem {
			b.store.after = nil
			r = b.reserve(50)
		}
	}
	require.NoError(t, b.c.Reset(t.Context(), b.counter))
	require.Zero(t, b.count())
	require.True(t, b.hit(60, 0).Decision.Allowed)
	require.NoError(t, b.c.Settle(t.Context(), r, 0))
	require.EqualValues(t, 60, b.count())
}

// The receipt of another reservation ends one: it is not refused for now, and stays as it was reserved.
func TestACollisionOfReceipts(t *testing.T) {
	b := newSettleBench(t, "[{per: ip, rate: 100/m}]")
	r := b.reserve(20)
	require.NoError(t, b.c.Settle(t.Context(), r, 5))
	b.reserve(30)
	r.ID ^= 1 << store.NumberBits
	err := b.c.Settle(t.Context(), r, 0)
	require.ErrorIs(t, err, engine.ErrEnded)
	require.NotErrorIs(t, err, engine.ErrStore)
	assert.EqualValues(t, 35, b.count())
}

// A receipt that no process writes ends the reservation, which stays as it was reserved: nothing is added or taken.
func TestAReceiptOfAnotherClient(t *testing.T) {
	b := newSettleBench(t, "[{per: ip, rate: 100/m}]")
	with := func(r engine.Reserved, cost uint64) []byte {
		s := settlement{Reserved: r, cost: int64(cost), call: 1}
		return s.receipt()
	}
	for name, receipt := range map[string]func(r engine.Reserved) []byte{
		"a cost of 2^62":    func(r engine.Reserved) []byte { return with(r, 1<<62) },
		"a cost below zero": func(r engine.Reserved) []byte { return with(r, math.MaxUint64) },
		"text":              func(engine.Reserved) []byte { return []byte("text") },
		"no bytes":          nil,
	} {
		r := b.reserve(2)
		held := b.count()
		s := settlement{Reserved: r, call: 2}
		write := store.Write{Kind: store.Add, Item: s.item(), By: 7, Expires: r.Ends / 1000}
		if receipt != nil {
			write.Kind, write.Data = store.Create, receipt(r)
		}
		op := store.Op{Counter: r.Counter, Data: receipt != nil, Writes: []store.Write{write}}
		b.store.Do(t.Context(), &op)
		require.NoError(t, op.Err)
		for range 2 {
			err := b.c.Settle(t.Context(), r, 0)
			require.ErrorIs(t, err, engine.ErrEnded, name)
			require.NotErrorIs(t, err, engine.ErrStore, name)
			require.NotErrorIs(t, err, engine.ErrSettled, name)
		}
		assert.Equal(t, held, b.count(), name)

		if receipt == nil {
			continue // the other replica decides
		}
		parts := []store.Op{{Reads: []store.Read{{}}}, {Reads: []store.Read{{Data: receipt(r)}}}} // of two replicas
		_, err := s.verdict(&store.Op{Replicas: parts})
		require.ErrorIs(t, err, engine.ErrEnded, name)
	}
}
