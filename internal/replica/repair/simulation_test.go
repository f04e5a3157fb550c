package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// The simulation of repair: one counter with a few replicas, to which many operations add,
// and roll back, during its repair. Every command to every replica waits until a scheduler
// picks it; an answer may be lost, and its adds become a hint, which is replayed. All
// follows from the seed.
//
// An oracle knows what was acknowledged. When the repairer reports the counter repaired,
// each replica's value of a bucket and its hints together are at least that.

// errLost is what is known of a command whose answer was lost.
var errLost = errors.New("the answer was lost")

// repairerKey is the key of a context's value that says which of the repairers it is.
type repairerKey struct{}

func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// replicaCommand is one command to one replica.
type replicaCommand struct {
	id       int // of the operation that waits
	copy     int
	deadline time.Time // when it has to have been served; zero: whenever
	loses    bool      // its answer may be lost
	run      func()
	answer   chan error
}

type replicaItem struct {
	value, expires int64
	version        uint64
}

// replicasStore keeps one counter on several copies.
type replicasStore struct {
	s *repairSimulation

	mu       sync.Mutex
	waiting  []*replicaCommand
	items    []map[uint64]replicaItem // of each copy
	versions uint64
	gaps     uint64
	down     []bool
}

func (c *replicasStore) do(id, at int, deadline time.Time, run func()) error {
	command := &replicaCommand{id: id, copy: at, deadline: deadline, loses: id > 0, run: run, answer: make(chan error)}
	c.mu.Lock()
	c.waiting = append(c.waiting, command)
	c.mu.Unlock()
	return <-command.answer
}

// set sets a bucket of a copy. The store is locked.
func (c *replicasStore) set(at int, bucket uint64, value, expires int64) {
	c.versions++
	c.items[at][bucket] = replicaItem{value, expires, c.versions}
}

// get returns it, if it is there. The store is locked.
func (c *replicasStore) get(at int, bucket uint64) (replicaItem, bool) {
	item, found := c.items[at][bucket]
	return item, found && item.expires > c.s.now().Unix()
}

func (c *replicasStore) add(at int, bucket uint64, by, expires int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if item, found := c.get(at, bucket); found {
		by, expires = by+item.value, item.expires
	}
	c.set(at, bucket, by, expires)
}

func (c *replicasStore) subtract(at int, bucket uint64, by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if item, found := c.get(at, bucket); found {
		c.set(at, bucket, max(item.value-by, 0), item.expires)
	}
}

func (c *replicasStore) ServersUp(string) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, down := range c.down {
		if !down {
			names = append(names, fmt.Sprint(i))
		}
	}
	return names
}

// repairerOf returns which of the repairers it is: a number below 1.
func repairerOf(ctx context.Context) int { return ctx.Value(repairerKey{}).(int) }

func replicaNamed(server string) (at int) {
	fmt.Sscan(server, &at)
	return at
}

func (c *replicasStore) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		switch op.Kind() {
		case 0:
			op.Err = c.look(ctx, op)
		case store.Delete:
			op.Err = c.delete(ctx, op)
		default:
			op.Err = c.raise(ctx, op)
		}
	}
}

func (c *replicasStore) Capabilities() store.Capabilities {
	return store.Capabilities{Replicas: len(c.items)}
}

// look reads in a few parts: the first bucket by itself, which matters most.
func (c *replicasStore) look(ctx context.Context, op *store.Op) error {
	at, reads := replicaNamed(op.Server), op.Reads
	for from := 0; from < len(reads); {
		to := from + 1
		if from > 0 {
			to = from + (len(reads)-from+1)/2
		}
		if from == to-1 && from > 0 || len(reads) > 100 {
			to = len(reads)
		}
		err := c.do(repairerOf(ctx), at, time.Time{}, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			for i := from; i < to; i++ {
				reads[i].Value, reads[i].Version = 0, 0
				if item, found := c.get(at, reads[i].Item); found {
					reads[i].Value, reads[i].Version = item.value, item.version
				}
			}
		})
		if err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (c *replicasStore) raise(ctx context.Context, op *store.Op) error {
	at, w := replicaNamed(op.Server), &op.Writes[0]
	return c.do(repairerOf(ctx), at, time.Time{}, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		item, found := c.get(at, w.Item)
		value := w.By
		switch {
		case c.s.broken.plainSet:
		case c.s.broken.addDifference:
			value += item.value - c.s.seen(w.Item, w.Version)
		case found != (w.Version != 0) || item.version != w.Version:
			return
		}
		w.Result = 1
		c.set(at, w.Item, value, w.Expires)
	})
}

func (c *replicasStore) delete(ctx context.Context, op *store.Op) error {
	for at := range c.items {
		for _, w := range op.Writes {
			err := c.do(repairerOf(ctx), at, time.Time{}, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.items[at], w.Item)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *replicasStore) Gaps() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gaps
}

func (c *replicasStore) Differing() []string { return nil }
func (c *replicasStore) Missed() []string    { return nil }
func (c *replicasStore) Settle(string)       {}
func (c *replicasStore) Unlisted() bool      { return true }

func (c *replicasStore) Claim(context.Context) (*replica.Copying, error) { return nil, nil }

// brokenRepair is what the sabotage breaks.
type brokenRepair struct {
	mender        sabotage
	plainSet      bool
	addDifference bool
	finestFirst   bool // rollbacks
}

type repairSimulation struct {
	rng      *rand.Rand
	store    *replicasStore
	repairer *Repairer
	broken   brokenRepair
	offset   time.Duration
	timeout  time.Duration
	grace    time.Duration
	counter  events.Counter
	faults   float64
	denied   float64
	load     int // operations at once
	stopped  bool

	mu        sync.Mutex
	ids       int
	running   int
	acked     map[uint64]int64   // by bucket: acknowledged, and stays
	maybe     map[uint64]int64   // of unknown outcome, or paid for twice: may be there
	hinted    []map[uint64]int64 // of each copy
	lookedAt  map[uint64]int64   // for one kind of sabotage: value by version
	repaired  bool
	underLoad bool // while the load went on
	faulty    []string
	raised    int
}

func (s *repairSimulation) now() time.Time { return time.Now().Round(0).Add(s.offset) }

func (s *repairSimulation) chance(p float64) bool { return s.rng.Float64() < p }

// seen returns what a bucket was when it had that version; for a sabotage that adds a
// difference to whatever there is.
func (s *repairSimulation) seen(_, version uint64) int64 { return s.lookedAt[version] }

func newRepairSimulation(seed uint64, broken brokenRepair) *repairSimulation {
	s := &repairSimulation{rng: rand.New(rand.NewPCG(seed, 2)), broken: broken, acked: map[uint64]int64{}, maybe: map[uint64]int64{}, lookedAt: map[uint64]int64{}}
	rng := s.rng
	s.timeout, s.grace = 100*time.Millisecond, time.Second
	s.counter = events.Counter{Event: "e", Retention: pick(rng, 90*time.Second, 2*time.Hour, 25*time.Hour)}
	if s.counter.Retention > time.Minute && s.chance(0.15) {
		s.counter.Precision = events.Minute
	}
	s.faults = pick(rng, 0, 0, 0.01, 0.05)
	s.denied = pick(rng, 0, 0.3, 0.8)
	s.load = pick(rng, 2, 4, 8)
	unit := pick[int64](rng, 1, 60, 3600, 86400)
	edge := (20_000*86400+rng.Int64N(10*86400))/unit*unit + unit
	s.offset = time.Until(time.Unix(edge, 0).Add(-time.Duration(rng.Int64N(int64(8 * time.Second)))))
	copies := pick(rng, 2, 2, 3)
	s.store = &replicasStore{s: s, down: make([]bool, copies)}
	for range copies {
		s.store.items = append(s.store.items, map[uint64]replicaItem{})
		s.hinted = append(s.hinted, map[uint64]int64{})
	}
	s.repairer, _ = newRepairer(Config{Store: s.store, Layout: hierarchy.Layout{Grace: s.grace}, Clock: s.now, Grace: s.grace, Timeout: s.timeout, Rate: 1 << 30, MaxBytes: 1 << 19})
	s.repairer.broken = broken.mender
	// What was before.
	for range rng.IntN(8) {
		back := rng.Int64N(int64(s.counter.Retention / time.Second))
		if s.chance(0.5) {
			back = rng.Int64N(5)
		}
		by := 1 + rng.Int64N(5)
		for bucket := range hierarchy.BucketsOf(s.counter, s.now().Unix()-back) {
			s.acked[bucket.ID()] += by
			for at := range copies {
				s.store.add(at, bucket.ID(), by, bucket.Expires(s.counter.Retention, s.grace))
			}
		}
	}
	return s
}

// operate adds to all replicas, and rolls back or leaves hints.
func (s *repairSimulation) operate() {
	s.mu.Lock()
	s.ids++
	id := s.ids
	s.running++
	second := s.now().Unix()
	if s.chance(0.05) {
		second -= s.rng.Int64N(int64(s.counter.Retention/time.Second) - 5)
	}
	by, denied := 1+s.rng.Int64N(3), s.chance(s.denied)
	s.mu.Unlock()
	go func() {
		s.operation(id, second, by, denied)
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
	}()
}

func (s *repairSimulation) operation(id int, second, by int64, denied bool) {
	var buckets []hierarchy.Bucket
	for bucket := range hierarchy.BucketsOf(s.counter, second) {
		buckets = append(buckets, bucket)
	}
	deadline := time.Now().Add(s.timeout)
	landed := make([]int, len(s.hinted))
	s.onEach(func(at int) { landed[at] = s.addAll(id, at, deadline, by, buckets) })
	whole := slices.Max(landed) == len(buckets)
	if denied {
		deadline = time.Now().Add(s.timeout)
		s.note(s.maybe, by, buckets) // where an answer was lost it may stay
		s.onEach(func(at int) { s.rollBack(id, at, deadline, by, buckets[:landed[at]]) })
		if whole && s.faults == 0 {
			s.note(s.maybe, -by, buckets)
		}
		return
	}
	if !whole {
		s.note(s.maybe, by, buckets)
		return
	}
	s.mu.Lock()
	for at, n := range landed {
		for _, bucket := range buckets[n:] {
			s.hinted[at][bucket.ID()] += by
		}
	}
	for _, bucket := range buckets {
		s.acked[bucket.ID()] += by
	}
	s.mu.Unlock()
	s.onEach(func(at int) {
		for left := buckets[landed[at]:]; len(left) > 0; {
			time.Sleep(s.timeout / 2)
			// What was raised meanwhile is paid for nevertheless.
			s.note(s.maybe, by, left)
			n := s.addAll(id, at, time.Now().Add(s.timeout), by, left)
			s.mu.Lock()
			for _, bucket := range left[:n] {
				s.hinted[at][bucket.ID()] -= by
			}
			s.mu.Unlock()
			left = left[n:]
		}
	})
}

func (s *repairSimulation) note(sums map[uint64]int64, by int64, buckets []hierarchy.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, bucket := range buckets {
		sums[bucket.ID()] += by
	}
}

func (s *repairSimulation) onEach(do func(at int)) {
	var all sync.WaitGroup
	for at := range s.hinted {
		all.Go(func() { do(at) })
	}
	all.Wait()
}

func (s *repairSimulation) addAll(id, at int, deadline time.Time, by int64, buckets []hierarchy.Bucket) int {
	for i, bucket := range buckets {
		if s.store.do(id, at, deadline, func() { s.store.add(at, bucket.ID(), by, bucket.Expires(s.counter.Retention, s.grace)) }) != nil {
			return i
		}
	}
	return len(buckets)
}

func (s *repairSimulation) rollBack(id, at int, deadline time.Time, by int64, buckets []hierarchy.Bucket) {
	buckets = slices.Clone(buckets)
	if !s.broken.finestFirst {
		slices.Reverse(buckets)
	}
	for _, bucket := range buckets {
		if s.store.do(id, at, deadline, func() { s.store.subtract(at, bucket.ID(), by) }) != nil {
			return
		}
	}
}

// serve serves a command.
func (s *repairSimulation) serve(c *replicaCommand) {
	s.store.mu.Lock()
	s.store.waiting = slices.DeleteFunc(s.store.waiting, func(other *replicaCommand) bool { return other == c })
	down := s.store.down[c.copy]
	if s.broken.addDifference {
		for _, item := range s.store.items[c.copy] {
			s.lookedAt[item.version] = item.value
		}
	}
	s.store.mu.Unlock()
	switch {
	case down:
		c.answer <- errLost
	case c.loses && s.chance(s.faults):
		if s.chance(0.5) {
			c.run()
		}
		c.answer <- errLost
	default:
		c.run()
		c.answer <- nil
	}
}

// next returns the commands that wait, in an order that follows from the seed, and
// those alone that cannot wait any longer where there are such.
func (s *repairSimulation) next() (waiting []*replicaCommand, urgent bool) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	waiting = slices.Clone(s.store.waiting)
	slices.SortFunc(waiting, func(a, b *replicaCommand) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.copy, b.copy)) })
	late := slices.DeleteFunc(slices.Clone(waiting), func(c *replicaCommand) bool {
		return c.deadline.IsZero() || c.deadline.After(time.Now())
	})
	if len(late) > 0 {
		return late, true
	}
	return waiting, false
}

func (s *repairSimulation) underway() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// run has one replica lose everything, and repairs the counter while the load goes on.
func (s *repairSimulation) run() {
	s.steps(20+s.rng.IntN(200), nil)
	lost := s.rng.IntN(len(s.hinted))
	s.lose(lost)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	menders := pick(s.rng, 1, 1, 2)
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for i := range menders {
			all.Go(func() {
				ctx := context.WithValue(ctx, repairerKey{}, -i)
				if rest(ctx, 2*s.timeout+s.timeout/2+time.Duration(i)*s.timeout/3) == nil {
					s.repair(ctx)
				}
			})
		}
		all.Wait()
	}()
	// Buckets of minutes are never quiet under load.
	end := 8000
	if s.counter.Precision != events.Second {
		end = 500
	}
	s.steps(end, done)
	s.stopped = true
	s.steps(1<<30, done)
	s.steps(1<<30, nil)
	s.judge("in the end")
}

// lose has a copy be away and come back empty.
func (s *repairSimulation) lose(at int) {
	s.store.mu.Lock()
	s.store.down[at] = true
	s.store.mu.Unlock()
	s.steps(s.rng.IntN(60), nil)
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.down[at] = false
	clear(s.store.items[at])
	s.store.gaps++
}

// repair repairs the counter until it succeeds.
func (s *repairSimulation) repair(ctx context.Context) {
	k := kept(s.counter)
	for ctx.Err() == nil {
		g := s.repairer.begin(k)
		err := g.run(ctx)
		g.release()
		s.mu.Lock()
		s.raised += g.raised
		s.repaired, s.underLoad = err == nil, !s.stopped
		s.mu.Unlock()
		if err == nil {
			s.judge("when it was repaired")
			return
		}
	}
}

// steps goes on for so many steps, until done is closed; or until nothing is under way
// where the load has stopped.
func (s *repairSimulation) steps(n int, done <-chan struct{}) {
	for range n {
		synctest.Wait()
		select {
		case <-done:
			return
		default:
		}
		waiting, urgent := s.next()
		running := s.underway()
		switch {
		case s.stopped && running == 0 && len(waiting) == 0 && done == nil:
			return
		case len(waiting) == 0 || !urgent && s.chance(0.06):
			s.tick(waiting)
		case !urgent && !s.stopped && running < s.load && s.chance(0.3):
			s.operate()
		default:
			s.serve(waiting[s.rng.IntN(len(waiting))])
		}
		if len(waiting) == 0 && !s.stopped && running < s.load {
			s.operate()
		}
	}
}

// tick lets time pass, no further than to the end of a command's time.
func (s *repairSimulation) tick(waiting []*replicaCommand) {
	d := time.Duration(s.rng.Int64N(int64(s.timeout / 3)))
	for _, c := range waiting {
		if !c.deadline.IsZero() {
			d = min(d, time.Until(c.deadline))
		}
	}
	time.Sleep(d + 1)
}

// judge holds all copies against the oracle.
func (s *repairSimulation) judge(when string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for id, acked := range s.acked {
		bucket := hierarchy.Bucket{Level: hierarchy.Level(store.ItemLevel(id)), Number: store.ItemNumber(id)}
		if bucket.Expires(s.counter.Retention, s.grace) <= s.now().Unix() {
			continue
		}
		for at := range s.hinted {
			item, _ := s.store.get(at, id)
			if item.value+s.hinted[at][id] < acked {
				s.faulty = append(s.faulty, fmt.Sprintf("%s: replica %d holds %d of %v and has hints of %d, %d were acknowledged", when, at, item.value, bucket, s.hinted[at][id], acked))
			}
		}
	}
}

// high returns how many buckets hold more than can be explained, once nothing is under
// way; and how many hold more than was acknowledged, which may be for lost answers and what
// was paid for twice.
func (s *repairSimulation) high() (buckets, above int) {
	for at, items := range s.store.items {
		for id, item := range items {
			if _, alive := s.store.get(at, id); !alive {
				continue
			}
			if item.value > s.acked[id] {
				above++
			}
			if item.value > s.acked[id]+s.maybe[id] {
				buckets++
			}
		}
	}
	return buckets, above
}

// repairOutcome is what many simulations came to.
type repairOutcome struct {
	seeds, low, raised, underLoad int
	highSeeds, highBuckets        int
	buckets, above                int
	first                         string
}

func simulateRepair(t *testing.T, first, n uint64, broken brokenRepair, stop bool) (o repairOutcome) {
	t.Helper()
	for seed := first; seed < first+n; seed++ {
		bubble.Test(t, func(t *testing.T) {
			s := newRepairSimulation(seed, broken)
			s.run()
			require.True(t, s.repaired, seed)
			o.seeds++
			o.raised += s.raised
			if s.underLoad {
				o.underLoad++
			}
			buckets, above := s.high()
			o.buckets += len(s.acked) * len(s.hinted)
			o.above += above
			if buckets > 0 {
				o.highSeeds++
				o.highBuckets += buckets
			}
			if len(s.faulty) > 0 {
				o.low++
				o.first = cmp.Or(o.first, fmt.Sprintf("seed %d: %s", seed, s.faulty[0]))
			}
		})
		if stop && o.low+o.highSeeds > 0 {
			break
		}
	}
	return o
}

// However hits, rollbacks and hints interleave with the repair, each replica holds all that
// was acknowledged once the counter is reported repaired.
func TestRepairedReplicasHoldAll(t *testing.T) {
	var total repairOutcome
	testkit.InParts(t, testkit.Seeds(400), func(t *testing.T, first, n uint64) repairOutcome {
		o := simulateRepair(t, first, n, brokenRepair{}, false)
		assert.Zero(t, o.low, o.first)
		return o
	}, func(o repairOutcome) {
		total.seeds += o.seeds
		total.raised += o.raised
		total.underLoad += o.underLoad
		total.highSeeds += o.highSeeds
		total.highBuckets += o.highBuckets
		total.buckets += o.buckets
		total.above += o.above
	})
	t.Logf("%d seeds: %d buckets raised, %d seeds repaired under load; of %d replicas of buckets %d hold more than was acknowledged, %d more than can be explained",
		total.seeds, total.raised, total.underLoad, total.buckets, total.above, total.highBuckets)
	// What is under way at every look at a busy bucket is counted once too often.
	assert.LessOrEqual(t, total.highSeeds, total.seeds/100)
	require.Greater(t, total.raised, total.seeds, "nothing was repaired")
	require.Greater(t, total.underLoad, total.seeds/5, "a counter that is idle proves little")
}

// What each part of the rule is for: without it the simulation finds copies that hold
// less than they should, or more.
func TestRepairSimulationFindsSabotage(t *testing.T) {
	for name, broken := range map[string]brokenRepair{
		"a plain set":                {plainSet: true},
		"adds the difference":        {addDifference: true},
		"children before the bucket": {mender: sabotage{childrenFirst: true}},
		"does not wait for quiet":    {mender: sabotage{hasty: true}},
		"rolls back finest first":    {finestFirst: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := simulateRepair(t, 0, 1000, broken, true)
			assert.Positive(t, o.low+o.highSeeds, "not found in %d seeds", o.seeds)
			t.Logf("%s: found in the %dth seed, %d buckets too high: %s", name, o.seeds, o.highBuckets, o.first)
		})
	}
}
