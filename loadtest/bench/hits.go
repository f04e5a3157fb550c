package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/store"
)

func hitRows() []row {
	rows := []row{
		{id: "A1", name: "gomemcache: 3 increments, GetMulti of 142, all there (2,000 counters)", callers: 16, prepare: prepareFull},
		{id: "A2", name: "gomemcache: 3 increments, GetMulti of 142, those 3 there", callers: 16, prepare: prepareSparse, against: []string{"A1"}},
		{id: "A3", name: "Hit, four limits, 16 callers", callers: 16, prepare: prepareFar, against: []string{"A1", "A2"}},
		{id: "A4", name: "Hit, 1 caller", callers: 1, prepare: prepareFar, against: []string{"A3"}},
		{id: "A5", name: "Hit, 64 callers", callers: 64, prepare: prepareFar, against: []string{"A3"}},
		{id: "A6", name: "Hit, 64 callers, one counter", callers: 64, prepare: prepareHot, against: []string{"A3", "A5"}},
		{id: "A8", name: "Hit, first of each of up to 1,000,000 counters", callers: 16, prepare: prepareNew, against: []string{"A3"}},
		{id: "A9", name: "Hit near a limit", callers: 16, prepare: prepareNear, against: []string{"A3"}},
		{id: "A10", name: "Hit denied by the store", callers: 16, prepare: prepareDenied, against: []string{"A3"}},
		{id: "A11", name: "Hit denied from memory, one counter", callers: 16, prepare: prepareFlood, against: []string{"A3"}},
		{id: "A12", name: "Hit, embedded store, 1 caller", callers: 1, prepare: prepareEmbedded, against: []string{"A4"}},
		{id: "A14", name: "Hit, 256 callers, one counter", callers: 256, prepare: prepareHot, against: []string{"A3"}},
	}
	for i := range rows {
		rows[i].stage = stageHits
	}
	return rows
}

// hitting is a limiter on a store, an event of the row's own, and the admitted hits.
type hitting struct {
	store    *countedStore
	clock    func() time.Time
	timeout  time.Duration
	event    *events.Event
	limiter  *limiter.Limiter
	counters *hierarchy.Counters // not counted in the costs
	features []events.Features
	admitted []atomic.Int64 // by address, of all slices
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
		subject.memcached = s.shared
	}
	return h, subject, err
}

// newHittingOn prepares random hits, far from any limit, on a store.
func newHittingOn(s *stage, r row, kept store.Store, rates, retention string) (*hitting, *subject, error) {
	h := &hitting{
		store: &countedStore{Store: kept}, clock: s.now, timeout: s.config.sizes.timeout, features: s.features,
		admitted: make([]atomic.Int64, s.config.sizes.addresses), counters: hierarchy.NewCounters(hierarchy.Config{Store: kept, Clock: s.now}),
	}
	rules, err := events.ParseRules([]byte("events:\n" + rulesOf(r.eventName(), rates, retention)))
	if err == nil {
		h.event, err = rules.Event(r.eventName())
	}
	if err == nil {
		err = h.forget()
	}
	return h, &subject{counted: &h.store.counts, steps: r.each(h.atRandom), verify: h.verify}, err
}

// forget replaces the limiter with one that remembers nothing.
func (h *hitting) forget() (err error) {
	h.limiter, err = limiter.New(limiter.Config{Timeout: h.timeout}, hierarchy.NewCounters(hierarchy.Config{Store: h.store, Clock: h.clock, Grace: 2 * h.timeout}))
	return err
}

// atRandom hits a random counter.
func (h *hitting) atRandom() step {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	return func() (int, error) {
		i := random.IntN(len(h.features))
		_, err := h.admit(i, h.features[i])
		return 1, err
	}
}

// admit makes a hit that has to be admitted.
func (h *hitting) admit(i int, features events.Features) (limiter.Decision, error) {
	d, err := h.hit(features)
	if err == nil && !d.Allowed {
		err = fmt.Errorf("a hit far from its limits was denied: %+v", d)
	}
	if err == nil {
		h.admitted[i].Add(1)
	}
	return d, err
}

// deny makes a hit that has to be denied.
func (h *hitting) deny(i int) error {
	d, err := h.hit(h.features[i])
	if err == nil && d.Allowed {
		err = fmt.Errorf("a hit on a full counter was admitted: %+v", d)
	}
	return err
}

// hit makes a hit. One decided without the store is an error.
func (h *hitting) hit(features events.Features) (limiter.Decision, error) {
	d, err := h.limiter.Hit(context.Background(), limiter.Hit{Event: h.event, Features: features, Cost: 1})
	if err == nil && (d.Unavailable || len(d.Limits) != 4) {
		err = fmt.Errorf("a hit was not decided on four limits: %+v", d)
	}
	for i := range d.Limits {
		if d.Limits[i].Failed {
			err = fmt.Errorf("a hit was decided without the store: %+v", d)
		}
	}
	return d, err
}

// verify compares the admitted hits with the counted ones.
func (h *hitting) verify(ctx context.Context) error {
	return verifySome(h.admitted, func(i int) (int64, error) {
		counter, err := h.event.Counter(events.Features{events.KindIP: address(i)})
		if err != nil {
			return 0, err
		}
		count, err := h.counters.Count(ctx, counter, 24*time.Hour, time.Time{})
		return count.Count, err
	})
}

// preload adds to all counters, at a moment.
func (h *hitting) preload(ctx context.Context, by int64, at time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for _, features := range h.features {
		group.Go(func() error {
			counter, err := h.event.Counter(features)
			if err == nil {
				_, err = h.counters.Increment(ctx, by, at, counter)
			}
			return err
		})
	}
	return group.Wait()
}

func prepareFar(ctx context.Context, s *stage, r row) (*subject, error) {
	_, subject, err := newHitting(ctx, s, r, farRates, "24h")
	return subject, err
}

func prepareHot(ctx context.Context, s *stage, r row) (*subject, error) {
	h, subject, err := newHitting(ctx, s, r, farRates, "24h")
	if err == nil {
		h.features = s.features[:1]
	}
	return subject, err
}

func prepareEmbedded(_ context.Context, s *stage, r row) (*subject, error) {
	embedded := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: s.now})
	h, subject, err := newHittingOn(s, r, embedded, farRates, "24h")
	subject.verify = func(ctx context.Context) error {
		if n := embedded.Evicted(); n > 0 {
			return fmt.Errorf("the embedded store has dropped %d counters", n)
		}
		return h.verify(ctx)
	}
	return subject, err
}

// prepareNew hits each counter once. Each hit makes its address: one allocation more.
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
	subject.steps = r.each(func() step {
		features := events.Features{}
		return func() (int, error) {
			i := next.Add(1) - 1
			if i >= last.Load() {
				next.Add(-1)
				return 0, errSpent
			}
			features[events.KindIP] = address(int(i))
			_, err := h.admit(int(i), features)
			return 1, err
		}
	})
	return subject, nil
}

// prepareNear adds a million events to yesterday's bucket of each counter, ahead of the last
// 24 hours: the bucket alone leaves the day's limit open, so hits read the window's edge.
func prepareNear(ctx context.Context, s *stage, r row) (*subject, error) {
	h, subject, err := newHitting(ctx, s, r, nearRates, "48h")
	if err != nil {
		return nil, err
	}
	subject.steps = r.each(func() step {
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		return func() (int, error) {
			i := random.IntN(len(h.features))
			d, err := h.admit(i, h.features[i])
			if err == nil && (!d.Limits[3].Exact || d.Limits[3].Count >= d.Limits[3].N) {
				err = fmt.Errorf("the window's edge was not read: %+v", d)
			}
			return 1, err
		}
	})
	return subject, h.preload(ctx, hierarchy.MaxBy, h.clock().Add(-30*time.Hour))
}

// newFull prepares hits on full counters.
func newFull(ctx context.Context, s *stage, r row, counters int) (*hitting, *subject, error) {
	const full = 1000 // the day's limit
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

// prepareDenied hits each full counter once in a slice, with a fresh limiter.
func prepareDenied(ctx context.Context, s *stage, r row) (*subject, error) {
	h, subject, err := newFull(ctx, s, r, s.config.sizes.addresses)
	if err != nil {
		return nil, err
	}
	var next atomic.Int64
	subject.before = func() error {
		next.Store(0)
		return h.forget()
	}
	subject.steps = r.each(func() step {
		return func() (int, error) {
			i := int(next.Add(1) - 1)
			if i >= len(h.features) {
				return 0, errSpent
			}
			return 1, h.deny(i)
		}
	})
	return subject, nil
}

func prepareFlood(ctx context.Context, s *stage, r row) (*subject, error) {
	h, subject, err := newFull(ctx, s, r, 1)
	if err == nil {
		subject.steps = r.each(func() step { return func() (int, error) { return 1, h.deny(0) } })
	}
	return subject, err
}
