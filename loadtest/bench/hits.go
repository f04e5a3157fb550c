package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/loadtest/counted"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/store"
)

func hitRows() []row {
	return []row{
		{id: "A1", name: "gomemcache: 3 increments, GetMulti of 142, all there (2,000 counters)", stage: stageHits, callers: 16, prepare: prepareFull},
		{id: "A2", name: "gomemcache: 3 increments, GetMulti of 142, those 3 there", stage: stageHits, callers: 16, prepare: prepareSparse, against: []string{"A1"}},
		{id: "A3", name: "Hit, four limits, 16 callers", stage: stageHits, callers: 16, prepare: prepareFar, against: []string{"A1", "A2"}},
		{id: "A4", name: "Hit, 1 caller", stage: stageHits, callers: 1, prepare: prepareFar, against: []string{"A3"}},
		{id: "A5", name: "Hit, 64 callers", stage: stageHits, callers: 64, prepare: prepareFar, against: []string{"A3"}},
		{id: "A6", name: "Hit, 64 callers, one counter", stage: stageHits, callers: 64, prepare: prepareHot, against: []string{"A3", "A5"}},
		{id: "A7", name: "Hit, 256 callers", stage: stageHits, callers: 256, prepare: prepareFar, against: []string{"A3"}},
		{id: "A8", name: "Hit, first of each of up to 1,000,000 counters", stage: stageHits, callers: 16, prepare: prepareNew, against: []string{"A3"}},
		{id: "A9", name: "Hit near a limit", stage: stageHits, callers: 16, prepare: prepareNear, against: []string{"A3"}},
		{id: "A10", name: "Hit denied by the store", stage: stageHits, callers: 16, prepare: prepareDenied, against: []string{"A3"}},
		{id: "A11", name: "Hit denied from memory, one counter", stage: stageHits, callers: 16, prepare: prepareFlood, against: []string{"A3"}},
		{id: "A12", name: "Hit, embedded store, 1 caller", stage: stageHits, callers: 1, prepare: prepareEmbedded, against: []string{"A4"}},
		{id: "A13", name: "Hit, embedded store, 16 callers", stage: stageHits, callers: 16, prepare: prepareEmbedded, against: []string{"A3"}},
		{id: "A14", name: "Hit, 256 callers, one counter", stage: stageHits, callers: 256, prepare: prepareHot, against: []string{"A3", "A7"}},
	}
}

// hitting is a limiter on a store, one event of its own, and what it has admitted.
type hitting struct {
	row      row
	event    *events.Event
	store    *counted.Store
	clock    func() time.Time
	patience time.Duration
	limiter  *hierarchy.Limiter
	counters *hierarchy.Counters
	features []events.Features
	admitted []atomic.Int64 // by address, all slices together
}

// newHitting prepares hits on Memcached.
func newHitting(ctx context.Context, s *stage, r row, rates, retention string) (*hitting, *subject, error) {
	fleet, err := s.fleet(ctx, s.now)
	if err != nil {
		return nil, nil, err
	}
	s.closing(fleet.Close)
	h, subject, err := newHittingOn(s, r, fleet, rates, retention)
	if err == nil {
		subject.memcached, err = s.memcached(ctx)
	}
	return h, subject, err
}

// newHittingOn prepares hits on a store. Its steps hit at random, far from any limit,
// until something else is set.
func newHittingOn(s *stage, r row, kept store.Store, rates, retention string) (*hitting, *subject, error) {
	h := &hitting{row: r, store: &counted.Store{Store: kept}, clock: s.now, patience: s.config.sizes.patience,
		features: s.hitters, admitted: make([]atomic.Int64, s.config.sizes.people)}
	var err error
	if h.event, err = eventOf(eventName(r), rates, retention); err != nil {
		return nil, nil, err
	}
	// What looks at the counters before and after is not counted.
	h.counters = hierarchy.NewCounters(hierarchy.Config{Store: kept, Clock: h.clock})
	if err := h.forget(); err != nil {
		return nil, nil, err
	}
	return h, &subject{
		counted: &h.store.Counts, inProcess: true,
		steps:  func() ([]step, error) { return h.each(h.atRandom), nil },
		verify: h.verify,
	}, nil
}

// eventName returns the row's event: no two rows share a counter.
func eventName(r row) string { return "bench_" + strings.ToLower(r.id) }

// forget has the hits that come next decided by a limiter that remembers nothing.
func (h *hitting) forget() (err error) {
	h.limiter, err = hierarchy.NewLimiter(hierarchy.LimiterConfig{Store: h.store, Clock: h.clock, Timeout: h.patience, Grace: 2 * h.patience})
	return err
}

// each returns a step for each caller.
func (h *hitting) each(stepOf func(caller int) step) []step {
	steps := make([]step, h.row.callers)
	for i := range steps {
		steps[i] = stepOf(i)
	}
	return steps
}

// atRandom hits, each time, one of all counters.
func (h *hitting) atRandom(int) step {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	return func() (int, error) {
		i := random.IntN(len(h.features))
		return 1, h.admit(i, h.features[i])
	}
}

// admit makes a hit that has to be admitted.
func (h *hitting) admit(i int, features events.Features) error {
	d, err := h.hit(features)
	if err != nil {
		return err
	}
	if !d.Allowed {
		return fmt.Errorf("a hit far from its limits was denied: %+v", d)
	}
	h.admitted[i].Add(1)
	return nil
}

// hit makes a hit. One that was decided because the store failed is an error.
func (h *hitting) hit(features events.Features) (hierarchy.Decision, error) {
	d, err := h.limiter.Hit(context.Background(), hierarchy.Hit{Event: h.event, Features: features, Cost: 1})
	if err != nil {
		return d, err
	}
	if d.Unavailable || len(d.Limits) != 4 {
		return d, fmt.Errorf("a hit was not decided on four limits: %+v", d)
	}
	for i := range d.Limits {
		if d.Limits[i].Failed {
			return d, fmt.Errorf("a hit was decided without the store: %+v", d)
		}
	}
	return d, nil
}

// verify finds hits that were admitted and not counted, or the other way round.
func (h *hitting) verify(ctx context.Context) error {
	return verifySome(h.admitted, func(i int) (int64, error) {
		return h.countOf(ctx, events.Features{events.KindIP: address(i)})
	})
}

// countOf returns what the last day of a counter holds.
func (h *hitting) countOf(ctx context.Context, features events.Features) (int64, error) {
	counter, err := h.event.Counter(features)
	if err != nil {
		return 0, err
	}
	count, err := h.counters.Count(ctx, counter, 24*time.Hour, time.Time{})
	return count.Count, err
}

// preload adds to all counters, at a moment.
func (h *hitting) preload(ctx context.Context, by int64, at time.Time) error {
	var next atomic.Int64
	var running sync.WaitGroup
	faults := make([]error, 16)
	for worker := range faults {
		running.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(h.features) && faults[worker] == nil && ctx.Err() == nil; i = next.Add(1) - 1 {
				counter, err := h.event.Counter(h.features[i])
				if err == nil {
					_, err = h.counters.Increment(ctx, by, at, counter)
				}
				faults[worker] = err
			}
		})
	}
	running.Wait()
	return errors.Join(append(faults, ctx.Err())...)
}

func prepareFar(ctx context.Context, s *stage, r row) (*subject, error) {
	_, subject, err := newHitting(ctx, s, r, farRates, "24h")
	return subject, err
}

func prepareHot(ctx context.Context, s *stage, r row) (*subject, error) {
	h, subject, err := newHitting(ctx, s, r, farRates, "24h")
	if err != nil {
		return nil, err
	}
	h.features = h.features[:1]
	return subject, nil
}

// prepareNew hits each counter once: an address is made for each hit, which is one
// allocation that is not the hit's.
func prepareNew(ctx context.Context, s *stage, r row) (*subject, error) {
	h, subject, err := newHitting(ctx, s, r, farRates, "24h")
	if err != nil {
		return nil, err
	}
	h.admitted = make([]atomic.Int64, s.config.sizes.fresh)
	var next, last atomic.Int64
	subject.before = func() error {
		last.Store(next.Load() + int64(s.config.sizes.fresh/s.config.Rounds))
		return nil
	}
	subject.steps = func() ([]step, error) {
		return h.each(func(int) step {
			features := events.Features{}
			return func() (int, error) {
				i := next.Add(1) - 1
				if i >= last.Load() {
					next.Add(-1)
					return 0, errSpent
				}
				features[events.KindIP] = address(int(i))
				return 1, h.admit(int(i), features)
			}
		}), nil
	}
	return subject, nil
}

// prepareNear has a million events in yesterday's bucket of each counter, ahead of
// the last 24 hours: the bucket leaves it open whether the day's limit is reached, so
// the window's edge has to be read.
func prepareNear(ctx context.Context, s *stage, r row) (*subject, error) {
	h, subject, err := newHitting(ctx, s, r, nearRates, "48h")
	if err != nil {
		return nil, err
	}
	subject.steps = func() ([]step, error) {
		return h.each(func(int) step {
			random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			return func() (int, error) {
				i := random.IntN(len(h.features))
				d, err := h.hit(h.features[i])
				if err != nil {
					return 1, err
				}
				if day := d.Limits[3]; !d.Allowed || !day.Exact || day.Count >= day.N {
					return 1, fmt.Errorf("the window's edge was not read: %+v", d)
				}
				h.admitted[i].Add(1)
				return 1, nil
			}
		}), nil
	}
	return subject, h.preload(ctx, hierarchy.MaxBy, h.clock().Add(-30*time.Hour))
}

// full is the day's limit of a counter that is full.
const full = 1000

// newFull prepares hits that are denied, each of the counters being full.
func newFull(ctx context.Context, s *stage, r row, counters int) (*hitting, *subject, error) {
	h, subject, err := newHitting(ctx, s, r, fullRates, "24h")
	if err != nil {
		return nil, nil, err
	}
	h.features = h.features[:counters]
	for i := range h.features {
		h.admitted[i].Store(full)
	}
	return h, subject, h.preload(ctx, full, time.Time{})
}

// deny makes a hit that has to be denied.
func (h *hitting) deny(i int) error {
	d, err := h.hit(h.features[i])
	if err == nil && d.Allowed {
		err = fmt.Errorf("a hit on a full counter was admitted: %+v", d)
	}
	return err
}

// prepareDenied goes through full counters with a limiter that has not met them: a
// slice ends when it has met all.
func prepareDenied(ctx context.Context, s *stage, r row) (*subject, error) {
	h, subject, err := newFull(ctx, s, r, s.config.sizes.people)
	if err != nil {
		return nil, err
	}
	var next atomic.Int64
	subject.before = func() error {
		next.Store(0)
		return h.forget()
	}
	subject.steps = func() ([]step, error) {
		return h.each(func(int) step {
			return func() (int, error) {
				i := next.Add(1) - 1
				if i >= int64(len(h.features)) {
					return 0, errSpent
				}
				return 1, h.deny(int(i))
			}
		}), nil
	}
	return subject, nil
}

func prepareFlood(ctx context.Context, s *stage, r row) (*subject, error) {
	h, subject, err := newFull(ctx, s, r, 1)
	if err != nil {
		return nil, err
	}
	subject.steps = func() ([]step, error) {
		return h.each(func(int) step { return func() (int, error) { return 1, h.deny(0) } }), nil
	}
	return subject, nil
}

func prepareEmbedded(_ context.Context, s *stage, r row) (*subject, error) {
	embedded := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: s.now})
	h, subject, err := newHittingOn(s, r, embedded, farRates, "24h")
	if err != nil {
		return nil, err
	}
	subject.verify = func(ctx context.Context) error {
		if n := embedded.Evicted(); n > 0 {
			return fmt.Errorf("the embedded store has dropped %d counters", n)
		}
		return h.verify(ctx)
	}
	return subject, nil
}
