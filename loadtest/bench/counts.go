package bench

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

func countRows() []row {
	all, same, logged := counts{}, counts{same: true}, counts{logged: true}
	var rows []row
	for i, with := range []string{"1 goroutine", "16 goroutines"} {
		id := func(n int) string { return fmt.Sprintf("C%d", 6*i+n) }
		callers := 1 + 15*i
		rows = append(rows,
			row{id: id(1), name: "gomemcache: GetMulti of 142, all there, " + with, callers: callers, prepare: all.prepareGetMulti},
			row{id: id(2), name: "Count of a day, 142 buckets there, " + with, callers: callers, prepare: all.prepare, against: []string{id(1)}},
			row{id: id(3), name: "gomemcache: GetMulti of the same 142 again and again, " + with, callers: callers, prepare: same.prepareGetMulti},
			row{id: id(4), name: "Count of a day, of the same counter again and again, " + with, callers: callers, prepare: same.prepare, against: []string{id(3), id(1)}},
			row{id: id(5), name: "Count of a day, sliding log of 142 events, " + with, callers: callers, prepare: logged.prepare, against: []string{id(1)}},
		)
	}
	return rows
}

// counts are counts of many counters one after the other, or of the same one again and again.
// The clock is frozen, and all the buckets of the last day hold one event.
type counts struct {
	same   bool
	logged bool // in logs, which hold the same events
}

// open returns the counters. Their buckets, which all rows share, exist.
func (c counts) open(ctx context.Context, s *stage) ([]events.Counter, error) {
	list, err := countersOf("bench_c", s.config.sizes.counted)
	if err == nil && s.keys == nil {
		for _, counter := range list {
			s.keys = append(s.keys, memcache.Keys(counter.ID(), dayOf(opened)))
		}
		err = s.fill(ctx, list, dayOf(opened))
	}
	if c.same {
		list = list[:1]
	}
	return list, err
}

// prepareGetMulti reads with gomemcache's GetMulti alone. The keys exist beforehand.
func (c counts) prepareGetMulti(ctx context.Context, s *stage, r row) (*subject, error) {
	list, err := c.open(ctx, s)
	if err != nil {
		return nil, err
	}
	p, subject, err := newPlain(s, r, frozen, 0)
	var next atomic.Int64
	subject.begin = r.each(func() step {
		return func() (int, error) {
			keys := s.keys[int(next.Add(1))%len(list)]
			items, err := p.read(keys)
			if err == nil && len(items) != len(keys) {
				err = fmt.Errorf("gomemcache found %d items, not %d", len(items), len(keys))
			}
			return 1, err
		}
	})
	return subject, err
}

// prepare has counterd count. What is remembered of many counters is dropped before the first
// of them comes again.
func (c counts) prepare(ctx context.Context, s *stage, r row) (*subject, error) {
	list, err := c.open(ctx, s)
	if err != nil {
		return nil, err
	}
	kept, trips, err := s.store(ctx, frozen, s.config.sizes.timeout)
	if err != nil {
		return nil, err
	}
	logs, err := eventlog.New(hierarchy.NewCounters(hierarchy.Config{Store: kept, Clock: frozen}).Base())
	if err == nil && c.logged {
		err = c.writeLogs(ctx, kept, list)
	}
	if err != nil {
		return nil, err
	}
	var (
		counters atomic.Pointer[engine.Counting]
		next     atomic.Int64
		want     = int64(len(dayOf(opened)))
	)
	forget := func() {
		var counting engine.Counting = logs // which remember nothing
		if !c.logged {
			counting = hierarchy.NewCounters(hierarchy.Config{Store: kept, Clock: frozen})
		}
		counters.Store(&counting)
	}
	steps := r.each(func() step {
		return func() (int, error) {
			i := int(next.Add(1)) % len(list)
			if i == 0 && !c.same {
				forget()
			}
			found, err := (*counters.Load()).Count(context.Background(), list[i], 24*time.Hour, time.Time{})
			if err == nil && found.Count != want {
				err = fmt.Errorf("the last day holds %d, and was counted as %d", want, found.Count)
			}
			return 1, err
		}
	})
	return &subject{trips: trips, memcached: s.memcached(), begin: func() ([]step, error) {
		next.Store(0)
		forget()
		return steps()
	}}, nil
}

// writeLogs gives the counters logs with an event of each of the buckets.
func (c counts) writeLogs(ctx context.Context, kept store.Store, list []events.Counter) error {
	var times []time.Time
	for bucket := range hierarchy.CoverOf(hierarchy.WindowAt(opened, 24*time.Hour), hierarchy.Second, hierarchy.Day).Buckets() {
		times = append(times, time.Unix(bucket.First(), 0))
	}
	slices.SortFunc(times, time.Time.Compare)
	logs, err := logsOf(ctx, list[0], times)
	if err != nil {
		return err
	}
	return eachOf(ctx, list, func(ctx context.Context, _ int, counter events.Counter) error {
		return writeLog(ctx, kept, counter.ID(), logs[len(logs)-1])
	})
}
