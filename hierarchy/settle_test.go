package hierarchy

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/store"
)

// The simulation of what is settled in buckets: processes reserve, and settle, each on any process, once or
// several times, also at once and with another cost. Each command to the one server, or to each of several, goes by
// itself, and commands and answers are lost; of several servers the first is sound. At each step no level
// holds less than was truly used.

type settleWorld struct {
	rnd      *rand.Rand
	sabotage string
	faulty   bool
	now      int64
	counts   []map[uint64]int64 // of each server
	data     []map[uint64][]byte
	spent    []*spent
	untidy   bool
	settled  int
	refused  int
	fault    string
}

// spent is a reservation, and what its client has tried to settle it with.
type spent struct {
	engine.Reserved
	acknowledged bool // the reservation is
	costs        []int64
	answered     bool
	cost         int64
}

type pauseKey struct{}

func (w *settleWorld) chance(p float64) bool { return w.rnd.Float64() < p }

func (w *settleWorld) Capabilities() store.Capabilities {
	return store.Capabilities{Replicas: len(w.counts), Writes: store.KindsOf(store.Add, store.Subtract, store.Hint, store.Delete, store.Append)}
}

func (w *settleWorld) Do(ctx context.Context, ops ...*store.Op) {
	pause := ctx.Value(pauseKey{}).(func())
	for _, op := range ops {
		if op.Kind() == store.Hint {
			continue
		}
		before := op.Receipt
		parts := make([]store.Op, len(w.counts))
		for _, server := range w.rnd.Perm(len(parts)) {
			parts[server] = store.Op{Data: op.Data, Writes: slices.Clone(op.Writes), Reads: slices.Clone(op.Reads)}
			w.part(server, &parts[server], before.On(server), pause)
		}
		op.Err, op.Receipt, op.Replicas = errors.New("lost"), store.Receipt{}, nil
		for i := range parts {
			if parts[i].Err != nil {
				w.untidy = true
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
func (w *settleWorld) part(server int, op *store.Op, acknowledged int, pause func()) {
	lost := errors.New("lost")
	loses := w.faulty && (server > 0 || len(w.counts) == 1)
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
			op.Err = lost
			return
		}
		switch write := &writes[i]; write.Kind {
		case store.Add:
			counts[write.Item] += write.By
			write.Result = counts[write.Item]
		case store.Subtract:
			counts[write.Item] = max(counts[write.Item]-write.By, 0)
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
		op.Err = lost
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

// measure looks for a level that holds less than was truly used, and on a server for a coarser one that holds
// more than a finer one while nothing is lost.
func (w *settleWorld) measure() {
	least := int64(0)
	for _, s := range w.spent {
		switch {
		case !s.acknowledged:
		case s.answered:
			least += s.cost
		default:
			least += slices.Min(append(slices.Clone(s.costs), s.Cost))
		}
	}
	for level := range uint8(Levels) {
		if held := w.level(level); held < least {
			w.fault = "less is counted than was truly used"
		}
	}
	for _, counts := range w.counts {
		var sums [Levels]int64
		for item, value := range counts {
			sums[store.ItemLevel(item)] += value
		}
		if !w.faulty && !slices.IsSortedFunc(sums[:], func(a, b int64) int { return int(b - a) }) {
			w.fault = "a coarser level holds more than a finer one"
		}
	}
}

func (w *settleWorld) client(processes []*Counters) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		ctx := context.WithValue(context.Background(), pauseKey{}, func() { yield(struct{}{}) })
		p := testkit.Pick(w.rnd, processes...)
		counter := events.Counter{Event: "e", Retention: 24 * time.Hour}
		cost := 1 + w.rnd.Int64N(9)
		s := &spent{Reserved: engine.Reserved{
			Counter: counter.ID(), Retention: counter.Retention, ID: w.rnd.Uint64(), Time: w.now / 1000 * 1000, Ends: w.now + 1e6, Cost: cost,
		}}
		if _, err := p.Increment(ctx, cost, time.UnixMilli(s.Time), counter); err != nil {
			w.untidy = true
			return
		}
		s.acknowledged = true
		w.spent = append(w.spent, s)
		for w.chance(.7) {
			w.settle(ctx, processes, s)
		}
	}
}

// settler settles a reservation of any client.
func (w *settleWorld) settler(processes []*Counters) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		ctx := context.WithValue(context.Background(), pauseKey{}, func() { yield(struct{}{}) })
		w.settle(ctx, processes, testkit.Pick(w.rnd, w.spent...))
	}
}

// settle settles a reservation on any process, mostly with the cost that it was tried with before.
func (w *settleWorld) settle(ctx context.Context, processes []*Counters, s *spent) {
	used := w.rnd.Int64N(12)
	if len(s.costs) > 0 && w.chance(.7) {
		used = s.costs[0]
	}
	s.costs = append(s.costs, used)
	err := testkit.Pick(w.rnd, processes...).Settle(ctx, s.Reserved, used)
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
	w.faulty = w.rnd.IntN(2) == 0
	for range 1 + w.rnd.IntN(3) {
		w.counts, w.data = append(w.counts, map[uint64]int64{}), append(w.data, map[uint64][]byte{})
	}
	var processes []*Counters
	for range 3 {
		processes = append(processes, NewCounters(Config{Store: w, Clock: func() time.Time { return time.UnixMilli(w.now) }, CacheBytes: -1}))
	}
	begin := func() iter.Seq[struct{}] {
		if len(w.spent) > 0 && w.chance(.4) {
			return w.settler(processes)
		}
		return w.client(processes)
	}
	testkit.Interleave(w.rnd, 40, 8, .2, begin, func() { w.now += w.rnd.Int64N(100) })
	w.measure()
	if w.untidy {
		return w
	}
	most := int64(0)
	for _, s := range w.spent {
		if most += s.Cost; s.answered {
			most += s.cost - s.Cost
		} else if len(s.costs) > 0 {
			w.fault = "no settlement decides"
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
	var settled, refused, tidy int
	for seed := range testkit.Seeds(10_000) {
		w := simulateSettling(seed, "")
		require.Empty(t, w.fault, "seed %d", seed)
		settled, refused = settled+w.settled, refused+w.refused
		if !w.untidy {
			tidy++
		}
	}
	t.Logf("%d settled, %d refused; %d runs are accounted for", settled, refused, tidy)
	require.NotZero(t, min(settled, refused, tidy))
}

func TestSimulationFindsSabotageOfSettlements(t *testing.T) {
	for sabotage, want := range map[string]string{
		"each call creates a receipt": "less is counted than was truly used",
		"subtracts the finest first":  "a coarser level holds more than a finer one",
	} {
		t.Run(sabotage, func(t *testing.T) {
			testkit.FindFault(t, 5000, func(seed uint64) (string, bool) {
				w := simulateSettling(seed, sabotage)
				return w.fault, w.fault == want
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
