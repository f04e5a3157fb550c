package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// Events of the counted counters: with every bucket of the last day, and with none.
const (
	presentEvent = "bench_c.present"
	absentEvent  = "bench_c.absent"
)

func countRows() []row {
	var rows []row
	for i, with := range []string{"1 goroutine", "16 goroutines"} {
		id := func(n int) string { return fmt.Sprintf("C%d", 6*i+n) }
		half := []row{
			{id: id(1), name: "gomemcache: GetMulti of 142, all there, " + with, prepare: prepareGetMulti(presentEvent, false)},
			{id: id(2), name: "Count of a day, 142 buckets there, " + with, prepare: prepareCount(presentEvent), against: []string{id(1)}},
			{id: id(3), name: "gomemcache: GetMulti of the same 142 again and again, " + with, prepare: prepareGetMulti(presentEvent, true)},
			{id: id(4), name: "Count of a day, of the same counter again and again, " + with, prepare: prepareRepeated, against: []string{id(3), id(1)}},
			{id: id(5), name: "gomemcache: GetMulti of 142, none there, " + with, prepare: prepareGetMulti(absentEvent, false)},
			{id: id(6), name: "Count of a day, none there, " + with, prepare: prepareCount(absentEvent), against: []string{id(5)}},
		}
		for j := range half {
			half[j].stage, half[j].callers = stageCounts, 1+15*i
		}
		rows = append(rows, half...)
	}
	return rows
}

// fillDays makes all buckets of the last day of presentEvent, once.
func (s *stage) fillDays(ctx context.Context) error {
	if s.days {
		return nil
	}
	s.days = true
	_, names, err := countersOf(presentEvent, s.config.sizes.counted)
	if err != nil {
		return err
	}
	return s.shared.Fill(ctx, keysOf(names, dayOf(opened)))
}

// held returns what the last day of each of the event's counters holds.
func held(event string) int {
	if event == presentEvent {
		return len(dayOf(opened))
	}
	return 0
}

// prepareGetMulti reads with gomemcache's GetMulti alone: each of many counters once in a
// slice, or one again and again. The keys exist beforehand.
func prepareGetMulti(event string, again bool) func(context.Context, *stage, row) (*subject, error) {
	return func(ctx context.Context, s *stage, r row) (*subject, error) {
		if err := s.fillDays(ctx); err != nil {
			return nil, err
		}
		client, counters := s.newClient(r), s.config.sizes.counted
		if again {
			counters = 1
		}
		_, names, err := countersOf(event, counters)
		var (
			c    storeCounts
			keys [][]string // of this slice: there are many
			next atomic.Int64
			want = held(event)
		)
		return &subject{
			counted: &c, memcached: s.shared,
			before: func() error {
				next.Store(0)
				for _, name := range names {
					keys = append(keys, memcache.Keys(name, dayOf(opened)))
				}
				return nil
			},
			after: func() error {
				keys = nil
				return nil
			},
			steps: r.each(func() step {
				return func() (int, error) {
					i := int(next.Add(1) - 1)
					if again {
						i = 0
					}
					if i >= len(keys) {
						return 0, errSpent
					}
					items, err := client.GetMulti(keys[i])
					c.trips.Add(1)
					c.reads.Add(int64(len(keys[i])))
					if err == nil && len(items) != want {
						err = fmt.Errorf("gomemcache found %d items, not %d", len(items), want)
					}
					return 1, err
				}
			}),
		}, err
	}
}

// prepareCount counts each counter once in a slice, by a new fleet: nothing is remembered, and
// Memcached's caches favour no row.
func prepareCount(event string) func(context.Context, *stage, row) (*subject, error) {
	return func(ctx context.Context, s *stage, r row) (*subject, error) {
		if err := s.fillDays(ctx); err != nil {
			return nil, err
		}
		list, _, err := countersOf(event, s.config.sizes.counted)
		var (
			store    countedStore
			fleet    *memcache.Fleet
			counters *hierarchy.Counters
			next     atomic.Int64
			want     = int64(held(event))
		)
		hangUp := func() (err error) {
			if fleet != nil {
				err, fleet = fleet.Close(), nil
			}
			return err
		}
		return &subject{
			counted: &store.counts, memcached: s.shared, after: hangUp,
			before: func() (err error) {
				if fleet, err = s.fleet(ctx, frozen); err != nil {
					return err
				}
				store.Store = fleet
				counters = hierarchy.NewCounters(hierarchy.Config{Store: &store, Clock: frozen})
				next.Store(0)
				return nil
			},
			steps: r.each(func() step {
				return func() (int, error) {
					i := next.Add(1) - 1
					if i >= int64(len(list)) {
						return 0, errSpent
					}
					found, err := counters.Count(context.Background(), list[i], 24*time.Hour, time.Time{})
					if err == nil && found.Count != want {
						err = fmt.Errorf("the last day holds %d, and was counted as %d", want, found.Count)
					}
					return 1, err
				}
			}),
		}, err
	}
}

// prepareRepeated counts one counter again and again, while its clock runs. Each bucket that
// the run may read holds one event.
func prepareRepeated(ctx context.Context, s *stage, r row) (*subject, error) {
	fleet, err := s.fleet(ctx, s.now)
	if err != nil {
		return nil, err
	}
	s.closing(fleet.Close)
	list, names, err := countersOf(r.eventName(), 1)
	if err != nil {
		return nil, err
	}
	if err := s.shared.Fill(ctx, keysOf(names, bucketsAround())); err != nil {
		return nil, err
	}
	store := &countedStore{Store: fleet}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: s.now})
	return &subject{
		counted: &store.counts, memcached: s.shared,
		steps: r.each(func() step {
			return func() (int, error) {
				found, err := counters.Count(context.Background(), list[0], 24*time.Hour, time.Time{})
				buckets := 0
				for _, n := range found.Buckets {
					buckets += n
				}
				if err == nil && found.Count != int64(buckets) {
					err = fmt.Errorf("%d buckets hold one event each, and were counted as %d", buckets, found.Count)
				}
				return 1, err
			}
		}),
	}, nil
}

// bucketsAround returns the buckets that counts of a day need in the first hours: the seconds
// of those hours and of the same a day before, the minutes and the hours of both days.
func bucketsAround() (buckets []uint64) {
	const day, longest = 24 * 3600, 4 * 3600
	hour := opened.Truncate(time.Hour).Unix()
	for _, span := range []struct {
		level         hierarchy.Level
		from, seconds int64
	}{
		{hierarchy.Second, hour - day, longest}, {hierarchy.Second, hour, longest},
		{hierarchy.Minute, hour - day, day + longest}, {hierarchy.Hour, hour - day, day + longest},
	} {
		for second := span.from; second < span.from+span.seconds; second += span.level.Seconds() {
			buckets = append(buckets, hierarchy.BucketAt(span.level, second).ID())
		}
	}
	return buckets
}
