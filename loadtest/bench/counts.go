package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/loadtest/counted"
	"github.com/counterd/counterd/memcache"
)

// Events of the counted counters: those with every bucket of the last day, and those
// with none.
const (
	presentEvent = "bench_c.present"
	absentEvent  = "bench_c.absent"
)

func countRows() []row {
	var rows []row
	// Those of one goroutine, and those of many.
	for i, callers := range []int{1, 16} {
		with := "1 goroutine"
		if callers > 1 {
			with = fmt.Sprintf("%d goroutines", callers)
		}
		id := func(n int) string { return fmt.Sprintf("C%d", 6*i+n) }
		rows = append(rows,
			row{id: id(1), name: "gomemcache: GetMulti of 142, all there, " + with, prepare: bare(presentEvent, false)},
			row{id: id(2), name: "Count of a day, 142 buckets there, " + with, prepare: count(presentEvent), against: []string{id(1)}},
			row{id: id(3), name: "gomemcache: GetMulti of the same 142 again and again, " + with, prepare: bare(presentEvent, true)},
			row{id: id(4), name: "Count of a day, of the same counter again and again, " + with, prepare: prepareRepeated, against: []string{id(3), id(1)}},
			row{id: id(5), name: "gomemcache: GetMulti of 142, none there, " + with, prepare: bare(absentEvent, false)},
			row{id: id(6), name: "Count of a day, none there, " + with, prepare: count(absentEvent), against: []string{id(5)}},
		)
		for j := range rows[6*i:] {
			rows[6*i+j].stage, rows[6*i+j].callers = stageCounts, callers
		}
	}
	return rows
}

// fillDays makes all buckets of the last day, once for a stage.
func (s *stage) fillDays(ctx context.Context) error {
	s.once.days.Do(func() {
		m, err := s.memcached(ctx)
		if err != nil {
			s.daysErr = err
			return
		}
		names, err := namesOf(&events.Event{Name: presentEvent}, s.config.sizes.counted)
		if err != nil {
			s.daysErr = err
			return
		}
		buckets := dayOf(standing())
		s.daysErr = m.Fill(ctx, func(yield func(string) bool) {
			for _, name := range names {
				for _, key := range memcache.Keys(name, buckets) {
					if !yield(key) {
						return
					}
				}
			}
		})
	})
	return s.daysErr
}

// held returns how many events the last day of each of the event's counters holds.
func held(event string) int64 {
	if event == presentEvent {
		return int64(len(dayOf(standing())))
	}
	return 0
}

// count prepares counts of counters, each once in a slice at the most and by a fleet
// that has not met them: nothing of them is remembered, and Memcached has them no
// nearer for one row than for another.
func count(event string) func(context.Context, *stage, row) (*subject, error) {
	return func(ctx context.Context, s *stage, r row) (*subject, error) {
		if err := s.fillDays(ctx); err != nil {
			return nil, err
		}
		m, err := s.memcached(ctx)
		if err != nil {
			return nil, err
		}
		list, err := countersOf(event, s.config.sizes.counted)
		if err != nil {
			return nil, err
		}
		var (
			store    counted.Store
			fleet    *memcache.Fleet
			counters *hierarchy.Counters
			next     atomic.Int64
			want     = held(event)
		)
		s.closing(func() error { return closeFleet(fleet) })
		return &subject{
			counted: &store.Counts, memcached: m, inProcess: true,
			before: func() (err error) {
				if err := closeFleet(fleet); err != nil {
					return err
				}
				if fleet, err = s.fleet(ctx, standing); err != nil {
					return err
				}
				store.Store = fleet
				counters = hierarchy.NewCounters(hierarchy.Config{Store: &store, Clock: standing})
				next.Store(0)
				return nil
			},
			steps: func() ([]step, error) {
				steps := make([]step, r.callers)
				for i := range steps {
					steps[i] = func() (int, error) {
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
				}
				return steps, nil
			},
		}, nil
	}
}

func closeFleet(fleet *memcache.Fleet) error {
	if fleet == nil {
		return nil
	}
	return fleet.Close()
}

// countersOf returns the event's first n counters.
func countersOf(event string, n int) ([]events.Counter, error) {
	list := make([]events.Counter, n)
	for i, features := range featuresOf(n) {
		var err error
		if list[i], err = (&events.Event{Name: event}).Counter(features); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// prepareRepeated counts the same counter again and again, while its clock runs. All
// buckets that the run may get to are there, each with one event.
func prepareRepeated(ctx context.Context, s *stage, r row) (*subject, error) {
	m, err := s.memcached(ctx)
	if err != nil {
		return nil, err
	}
	fleet, err := s.fleet(ctx, s.now)
	if err != nil {
		return nil, err
	}
	s.closing(fleet.Close)
	counter, err := (&events.Event{Name: eventName(r)}).Counter(featuresOf(1)[0])
	if err != nil {
		return nil, err
	}
	if err := m.Fill(ctx, keysAround(counter)); err != nil {
		return nil, err
	}
	store := &counted.Store{Store: fleet}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: s.now})
	return &subject{
		counted: &store.Counts, memcached: m, inProcess: true,
		steps: func() ([]step, error) {
			steps := make([]step, r.callers)
			for i := range steps {
				steps[i] = func() (int, error) {
					found, err := counters.Count(context.Background(), counter, 24*time.Hour, time.Time{})
					if err != nil {
						return 1, err
					}
					buckets := 0
					for _, n := range found.Buckets {
						buckets += n
					}
					if found.Count != int64(buckets) {
						err = fmt.Errorf("%d buckets hold one event each, and were counted as %d", buckets, found.Count)
					}
					return 1, err
				}
			}
			return steps, nil
		},
	}, nil
}

// keysAround yields the keys of all that a count of a day needs in the first hours
// from the moment opened on: the seconds of those hours and of the same a day
// before, the minutes and the hours of both days.
func keysAround(counter events.Counter) func(func(string) bool) {
	const longest = 4 * 3600
	return func(yield func(string) bool) {
		last := opened.Truncate(time.Hour).Unix()
		var buckets []uint64
		add := func(level hierarchy.Level, from, seconds int64) {
			for second := from; second < from+seconds; second += level.Seconds() {
				buckets = append(buckets, hierarchy.BucketAt(level, second).ID())
			}
		}
		for _, from := range []int64{last - 24*3600, last} {
			add(hierarchy.Second, from, longest)
		}
		add(hierarchy.Minute, last-24*3600, 24*3600+longest)
		add(hierarchy.Hour, last-24*3600, 24*3600+longest)
		for _, key := range memcache.Keys(counter.ID(), buckets) {
			if !yield(key) {
				return
			}
		}
	}
}
