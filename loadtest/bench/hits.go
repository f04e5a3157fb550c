package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

func hitRows() []row {
	hot := far
	hot.one = true
	return append([]row{
		{id: "A1", name: "gomemcache: 3 increments, GetMulti of 142, all there (2,000 counters)", callers: 16, prepare: prepareFull},
		{id: "A2", name: "gomemcache: 3 increments, GetMulti of 142, those 3 there", callers: 16, prepare: prepareSparse, against: []string{"A1"}},
		{id: "A3", name: "Hit, four limits, 16 callers", callers: 16, prepare: far.prepare, against: []string{"A1", "A2"}},
		{id: "A4", name: "Hit, 1 caller", callers: 1, prepare: far.prepare, against: []string{"A3"}},
		{id: "A5", name: "Hit, 64 callers", callers: 64, prepare: far.prepare, against: []string{"A3"}},
		{id: "A6", name: "Hit, 64 callers, one counter", callers: 64, prepare: hot.prepare, against: []string{"A3", "A5"}},
		{id: "A9", name: "Hit near a limit", callers: 16, prepare: prepareNear, against: []string{"A3"}},
		{id: "A11", name: "Hit denied from memory, one counter", callers: 16, prepare: flood.prepareFull, against: []string{"A3"}},
		{id: "A12", name: "Hit, embedded store, 1 caller", callers: 1, prepare: prepareEmbedded, against: []string{"A4"}},
		{id: "A14", name: "Hit, 256 callers, one counter", callers: 256, prepare: hot.prepare, against: []string{"A3"}},
		{id: "A21", name: "Hit, four limits, 16 callers, with top and denied history", callers: 16, prepare: far.inSight().prepare, against: []string{"A3"}},
		{id: "A22", name: "Hit denied from memory, with top and denied history", callers: 16, prepare: flood.inSight().prepareFull, against: []string{"A11"}},
	}, logRows()...)
}

// hits are hits on one or all counters of an event with four limits, of which only the day's may
// deny. The event is the row's own.
type hits struct {
	day       int64
	retention string // a line of the event; "": the longest window
	one       bool
	denied    bool // as all are
	first     bool // none is denied from memory, or by buckets that the process has read before
	edge      bool // that all read, and find below the limit
	seen      bool // by top and the history of denied hits, as in a process that serves
	before    int  // how many events each counter has, which is then a log; 0: buckets

	event    *events.Event
	limiter  *limiter.Limiter
	counters engine.Counting // that no hit uses
	features []events.Features
	admitted []atomic.Int64 // by address, of all slices
	refused  []atomic.Int64 // by address, too
	history  *denied.History
	now      func() time.Time
}

var (
	// far are hits far from their limits.
	far = hits{day: 1_000_000_000}
	// flood are hits on a counter that is full.
	flood = hits{day: 1000, one: true, denied: true}
)

// inSight are such hits that top and the history of denied hits see.
func (h hits) inSight() hits {
	h.seen = true
	return h
}

// prepare prepares hits on Memcached.
func (h hits) prepare(ctx context.Context, s *stage, r row) (*subject, error) {
	return h.prepareWith(ctx, s, r, func(*hits) error { return nil })
}

// prepareWith prepares hits on Memcached, and then the counters.
func (h hits) prepareWith(ctx context.Context, s *stage, r row, ready func(*hits) error) (*subject, error) {
	kept, trips, err := s.store(ctx, s.now, s.config.sizes.timeout)
	if err != nil {
		return nil, err
	}
	if err := h.open(kept, s, r); err != nil {
		return nil, err
	}
	return &subject{begin: r.each(h.caller), trips: trips, memcached: s.memcached(), verify: h.verify}, ready(&h)
}

// prepareEmbedded prepares hits on the embedded store.
func prepareEmbedded(_ context.Context, s *stage, r row) (*subject, error) {
	h := far
	err := h.open(memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: s.now}), s, r)
	return &subject{begin: r.each(h.caller), verify: h.verify}, err
}

// open opens the hits' limiter on a store.
func (h *hits) open(kept store.Store, s *stage, r row) (err error) {
	h.features, h.admitted = s.features, make([]atomic.Int64, s.config.sizes.addresses)
	h.refused = make([]atomic.Int64, len(h.admitted))
	switch {
	case h.one:
		h.features = h.features[:1]
	case h.first && h.before == 0:
		h.features = h.features[:s.config.sizes.denied]
	}
	rates := fmt.Sprintf("[1000000000/s, 1000000000/m, 1000000000/h, %d/d]", h.day)
	if h.before > 0 {
		rates = fmt.Sprintf("[100/s, 1000/m, 1000/h, %d/d], algorithm: %s", h.day, eventlog.Algorithm)
	}
	rules, err := rulesfile.Parse([]byte("events:\n" + rulesOf(r.eventName(), rates) + h.retention))
	if err != nil {
		return err
	}
	if h.event, err = rules.Event(r.eventName()); err != nil {
		return err
	}
	config := hierarchy.Config{Store: kept, Clock: s.now, Grace: 2 * s.config.sizes.timeout}
	if h.first && h.before == 0 {
		config.Clock = frozen
	}
	h.counters = hierarchy.NewCounters(config)
	if h.first {
		config.CacheBytes = -1
	}
	engines := []limiter.Engine{hierarchy.NewCounters(config)}
	if h.before > 0 {
		logs, err := eventlog.New(engines[0].Base())
		if err != nil {
			return err
		}
		h.counters, engines = logs, append(engines, logs)
	}
	decides := limiter.Config{Timeout: s.config.sizes.timeout, NoCachedDenials: h.first}
	if h.seen {
		h.see(s, rules, &decides)
	}
	h.limiter, err = limiter.New(decides, engines...)
	return err
}

// see has top and the history of denied hits see all decisions.
func (h *hits) see(s *stage, rules *events.Rules, config *limiter.Config) {
	h.now = s.now
	top := top.New(top.Config{Clock: s.now})
	h.history = denied.Start(denied.Config{Rules: func() *events.Rules { return rules }, Counters: h.counters, Clock: s.now})
	s.closing(func() error {
		h.history.Close()
		return nil
	})
	config.OnDecision = func(ctx context.Context, hit limiter.Hit, d *events.Decision, call limiter.Call) {
		top.OnDecision(ctx, hit, d, call)
		h.history.OnDecision(ctx, hit, d, call)
	}
}

// caller returns hits on random counters.
func (h *hits) caller() step {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	return func() (int, error) {
		return 1, h.hit(random.IntN(len(h.features)))
	}
}

// hit makes a hit. One that is not decided as it has to be, by the store, is an error.
func (h *hits) hit(i int) error {
	d, err := h.limiter.Hit(context.Background(), limiter.Hit{Event: h.event, Features: h.features[i], Cost: 1})
	switch {
	case err != nil:
		return err
	case d.Unavailable || len(d.Limits) != 4:
		return fmt.Errorf("a hit was not decided on four limits: %+v", d)
	case d.Allowed == h.denied:
		return fmt.Errorf("allowed is %t for a hit: %+v", d.Allowed, d)
	case h.edge && (!d.Limits[3].Exact || d.Limits[3].Count >= d.Limits[3].Limit):
		return fmt.Errorf("the window's edge was not read: %+v", d)
	case d.Allowed:
		h.admitted[i].Add(1)
	default:
		h.refused[i].Add(1)
	}
	for i := range d.Limits {
		if d.Limits[i].Failed {
			return fmt.Errorf("a hit was decided without the store: %+v", d)
		}
	}
	return nil
}

// verify compares the admitted hits with the counted ones, and the denied ones with their history.
func (h *hits) verify(ctx context.Context) error {
	if h.history != nil && h.one {
		h.history.Close()
		if err := h.verifyHistory(ctx); err != nil {
			return err
		}
	}
	return verifySome(h.admitted, func(i int) (int64, error) {
		counter, err := h.event.Counter(h.features[i])
		if err != nil {
			return 0, err
		}
		count, err := h.counters.Count(ctx, counter, 24*time.Hour, time.Time{})
		return count.Count, err
	})
}

func (h *hits) verifyHistory(ctx context.Context) error {
	counter, err := h.event.Counter(h.features[0])
	if err != nil {
		return err
	}
	history, err := h.counters.History(ctx, denied.CounterOf(h.event, counter.Feature), engine.Hour, h.now().Add(-time.Hour), h.now())
	counted := int64(0)
	for _, hour := range history.Intervals {
		counted += hour.Count
	}
	if refused := h.refused[0].Load(); err == nil && counted != refused {
		err = fmt.Errorf("the history holds %d, and %d were denied", counted, refused)
	}
	return err
}

// preload adds to all counters, at a moment.
func (h *hits) preload(ctx context.Context, by int64, at time.Time) error {
	return eachOf(ctx, h.features, func(ctx context.Context, _ int, features events.Features) error {
		counter, err := h.event.Counter(features)
		if err == nil {
			_, err = h.counters.Increment(ctx, by, at, counter)
		}
		return err
	})
}

// prepareNear adds a million events to yesterday's bucket of each counter, ahead of the last
// 24 hours: the bucket alone leaves the day's limit open, so hits read the window's edge.
func prepareNear(ctx context.Context, s *stage, r row) (*subject, error) {
	near := hits{day: engine.MaxBy, retention: "    retention: 48h\n", edge: true}
	return near.prepareWith(ctx, s, r, func(h *hits) error { return h.preload(ctx, engine.MaxBy, s.now().Add(-30*time.Hour)) })
}

// prepareFull prepares hits on a counter that is full.
func (h hits) prepareFull(ctx context.Context, s *stage, r row) (*subject, error) {
	return h.prepareWith(ctx, s, r, func(h *hits) error {
		h.admitted[0].Store(h.day)
		return h.preload(ctx, h.day, time.Time{})
	})
}
