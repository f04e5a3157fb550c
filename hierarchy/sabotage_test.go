package hierarchy

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What each part of the algorithm is for: without it the simulation finds windows
// that hold more than they may. It is the same simulation, with the same seeds.
func TestSimulationFindsSabotage(t *testing.T) {
	for name, broken := range map[string]sabotage{
		"no look ahead": {limiter: func(l *Limiter) { l.ahead = 0 }},
		"coarse adds first": {store: func(_ *simulation, s Store) Store {
			return &coarseFirst{s}
		}},
		"a rank level by the moment": {limiter: func(l *Limiter) { l.spanOf = spanByTheMoment(l.now) }},
		"a bound from a coarser level": {store: func(s *simulation, inner Store) Store {
			return &coarserBound{inner, s}
		}},
		"takes back what was not acknowledged": {store: func(_ *simulation, s Store) Store {
			return &credulous{s}
		}},
		"reads before it adds": {store: func(_ *simulation, s Store) Store {
			return &readsFirst{s}
		}},
		"remembers buckets that are not closed": {limiter: func(l *Limiter) { l.open = 0 }},
		"trusts slow trips":                     {limiter: func(l *Limiter) { l.grace *= 1000 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := simulate(t, 0, 8000, broken, true)
			assert.Positive(t, o.broken, "not found in %d seeds", o.seeds)
			t.Logf("%s: found in the %dth seed: %s", name, o.seeds, o.first)
		})
	}
}

// coarseFirst adds to the coarsest level first.
type coarseFirst struct{ Store }

func (s *coarseFirst) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	adds, expires = slices.Clone(adds), slices.Clone(expires)
	slices.Reverse(adds)
	slices.Reverse(expires)
	landed, err := s.Store.Trip(ctx, counter, by, adds, expires, reads, values)
	slices.Reverse(values[:len(adds)])
	if err != nil {
		landed = 0
	}
	return landed, err
}

// spanByTheMoment takes a rank level one finer at every other moment.
func spanByTheMoment(clock func() time.Time) func(int64, time.Duration, Level, int64) span {
	return func(now int64, length time.Duration, finest Level, ahead int64) span {
		s := spanOf(now, length, finest, ahead)
		// A few hundred reads are enough.
		if clock().UnixMicro()%2 == 0 || s.rank == finest || s.row.Len() > 3 {
			return s
		}
		seconds := int64(length / time.Second)
		w := Window{BucketAt(finest, now-seconds+1).First(), now + min(ahead, seconds-1)}
		s.rank--
		s.row = runWithin(s.rank, w)
		s.head = BucketAt(s.rank, now).Number
		oldest := Bucket{s.rank, s.row.First}
		s.edge = Window{w.First, oldest.Last()}
		s.whole = oldest.First() == w.First
		return s
	}
}

// coarserBound admits where what the add at the coarsest level returns, which
// covers the window, is within the limits; else the rank levels decide.
type coarserBound struct {
	Store
	s *simulation
}

func (b *coarserBound) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	landed, err := b.Store.Trip(ctx, counter, by, adds, expires, reads, values)
	if err != nil || len(adds) < 2 {
		return landed, err
	}
	head := Bucket{Level(adds[len(adds)-1] >> levelShift), int64(adds[len(adds)-1] & (1<<levelShift - 1))}
	now := int64(adds[0]&(1<<levelShift-1)) * Level(adds[0]>>levelShift).Seconds()
	for _, rule := range b.s.event.Rules {
		for _, limit := range rule.Limits {
			if counter != b.id(rule.Per) {
				continue
			}
			seconds := int64(limit.Window / time.Second)
			if values[len(adds)-1] > limit.N || now-seconds < head.First() || now+seconds > head.Last() {
				return landed, err
			}
		}
	}
	for i := range values {
		values[i] = 0
		if i < len(adds) {
			values[i] = by
		}
	}
	return landed, err
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
type credulous struct{ Store }

func (s *credulous) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	_, err := s.Store.Trip(ctx, counter, by, adds, expires, reads, values)
	return len(adds), err
}

// readsFirst reads all, and adds then.
type readsFirst struct{ Store }

func (s *readsFirst) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	if _, err := s.Store.Trip(ctx, counter, 0, nil, nil, slices.Concat(adds, reads), values); err != nil {
		return 0, err
	}
	for i := range adds {
		values[i] += by
	}
	return s.Store.Trip(ctx, counter, by, adds, expires, nil, make([]int64, len(adds)))
}
