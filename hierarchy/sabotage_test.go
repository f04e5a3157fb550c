package hierarchy

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
)

// What the order of a round trip and the receipt are for: with a faulty store the simulation finds windows that hold more
// than they may. It is the same simulation, with the same seeds.
func TestSimulationFindsSabotage(t *testing.T) {
	for name, broken := range map[string]sabotage{
		"coarse adds first": {store: func(_ *simulation, s store.Store) store.Store {
			return &coarseFirst{s}
		}},
		"a bound from a coarser level": {store: func(s *simulation, inner store.Store) store.Store {
			return &coarserBound{inner, s}
		}},
		"rolls back what was not acknowledged": {store: func(_ *simulation, s store.Store) store.Store {
			return &credulous{s}
		}},
		"reads before it adds": {store: func(_ *simulation, s store.Store) store.Store {
			return &readsFirst{s}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := simulateUntilBroken(t, name, broken)
			assert.Positive(t, o.broken, "not found in %d seeds", o.seeds)
			t.Logf("%s: found in the %dth seed: %s", name, o.seeds, o.first)
		})
	}
}

// rareSeeds are the first seeds that find the sabotages that only few seeds find.
var rareSeeds = map[string]uint64{
	"coarse adds first": 5363,
	"adds to the coarsest level first on one replica":                   1147,
	"rolls back on replicas that did not acknowledge":                   482,
	"rolls back what was not acknowledged":                              110,
	"takes a trip for made that failed midway":                          89,
	"leaves hints of rollbacks":                                         38,
	"no replica is reached by all":                                      40,
	"the process with the hints crashes":                                38,
	"hints beyond their bound":                                          39,
	"the replica that is left had come back empty":                      21,
	"the replica that is left has lost a bucket":                        24,
	"the replica dies under hits that began before hints were replayed": 204,
}

// simulateUntilBroken runs seeds until one is broken: from the first known one on, and then the others.
func simulateUntilBroken(t *testing.T, name string, broken sabotage) outcome {
	t.Helper()
	const seeds = 8000
	rare := rareSeeds[name]
	o := simulate(t, rare, seeds-rare, broken, true)
	if o.broken == 0 {
		o = simulate(t, 0, rare, broken, true)
	}
	return o
}

// coarseFirst adds to the coarsest level first.
type coarseFirst struct{ store.Store }

func (s *coarseFirst) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if op.Kind() != store.Add {
			s.Store.Do(ctx, op)
			return
		}
		slices.Reverse(op.Writes)
		s.Store.Do(ctx, op)
		slices.Reverse(op.Writes)
		if op.Err != nil {
			op.Receipt = store.Receipt{}
		}
	})
}

// coarserBound admits where what the add at the coarsest level returns, which
// covers the window, is within the limits; else the rank levels decide.
type coarserBound struct {
	store.Store
	s *simulation
}

func (b *coarserBound) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		b.Store.Do(ctx, op)
		if last := len(op.Writes) - 1; op.Err == nil && op.Kind() == store.Add && last > 0 {
			b.bound(op, bucketOf(op.Writes[0].Item), bucketOf(op.Writes[last].Item), op.Writes[last].Result)
		}
	})
}

// bound has the limits admit, unless the sum of the coarsest bucket does not bound them.
func (b *coarserBound) bound(op *store.Op, finest, head Bucket, sum int64) {
	now := finest.First()
	for _, rule := range b.s.event.Rules {
		for _, limit := range rule.Limits {
			if op.Counter != b.id(rule.Per) {
				continue
			}
			seconds := int64(limit.Window / time.Second)
			if sum > limit.N || now-seconds < head.First() || now+seconds > head.Last() {
				return
			}
		}
	}
	for i := range op.Writes {
		op.Writes[i].Result = op.Writes[i].By
	}
	for i := range op.Reads {
		op.Reads[i].Value = 0
	}
}

func (b *coarserBound) id(per []string) string {
	features := map[string]string{"ip": "192.0.2.1", "user": "a"}
	for kind := range features {
		if !slices.Contains(per, kind) {
			delete(features, kind)
		}
	}
	counter, _ := b.s.event.Counter(features)
	return counter.ID()
}

// credulous takes every add for acknowledged.
type credulous struct{ store.Store }

func (s *credulous) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		s.Store.Do(ctx, op)
		if op.Kind() == store.Add {
			op.Receipt = store.Acknowledged(len(op.Writes))
		}
	})
}

// readsFirst reads all, and adds then.
type readsFirst struct{ store.Store }

func (s *readsFirst) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if !storetest.IsTrip(op) {
			s.Store.Do(ctx, op)
			return
		}
		reads := store.Op{Counter: op.Counter}
		for _, w := range op.Writes {
			reads.Reads = append(reads.Reads, store.Read{Item: w.Item})
		}
		reads.Reads = append(reads.Reads, op.Reads...)
		if s.Store.Do(ctx, &reads); reads.Err != nil {
			op.Err = reads.Err
			return
		}
		adds := store.Op{Counter: op.Counter, Writes: op.Writes}
		s.Store.Do(ctx, &adds)
		for i := range op.Writes {
			op.Writes[i].Result = reads.Reads[i].Value + op.Writes[i].By
		}
		copy(op.Reads, reads.Reads[len(op.Writes):])
		op.Receipt, op.Err = adds.Receipt, adds.Err
	})
}
