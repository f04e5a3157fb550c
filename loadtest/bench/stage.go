package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/memcache"
)

// opened is the beginning of the clock of the rows in this process: the last day then has 142
// buckets, and midnight is far.
var opened = time.Date(2026, 3, 14, 12, 30, 33, 0, time.UTC)

// frozen is a clock that stays there.
func frozen() time.Time { return opened }

const (
	// memcachedMegabytes is more than all rows fill: an eviction fails the run.
	memcachedMegabytes = 2048
	memcachedThreads   = 2
)

// stage is what the rows of one stage share: processes, and a clock.
type stage struct {
	config   Config
	started  time.Time
	features []events.Features // of the addresses; shared, for the sake of the garbage collector
	shared   *memcached.Server
	web      web
	days     bool // the buckets of the last day of presentEvent exist
	closers  []func() error
}

func newStage(config Config) *stage {
	return &stage{config: config, started: time.Now(), features: featuresOf(config.sizes.addresses)}
}

// closing adds a function for close, which calls the last one first.
func (s *stage) closing(f func() error) { s.closers = append(s.closers, f) }

func (s *stage) close() error {
	var faults []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		faults = append(faults, s.closers[i]())
	}
	return errors.Join(faults...)
}

// now is a clock that runs from the moment opened on.
func (s *stage) now() time.Time { return opened.Add(time.Since(s.started)) }

// open starts Memcached, and the servers if the rows are over HTTP.
func (s *stage) open(ctx context.Context, name string) (err error) {
	s.shared, err = memcached.Start(ctx, s.config.Memcached, "-t", fmt.Sprint(memcachedThreads), "-m", fmt.Sprint(memcachedMegabytes), "-c", "2048")
	if err != nil {
		return err
	}
	s.closing(s.shared.Close)
	if name == stageHTTP {
		return s.startServers(ctx)
	}
	return nil
}

// fleet returns a new fleet on the stage's Memcached.
func (s *stage) fleet(ctx context.Context, clock func() time.Time) (*memcache.Fleet, error) {
	return memcache.NewFleet(ctx, memcache.Config{Servers: []string{s.shared.Addr}, Timeout: s.config.sizes.timeout, Clock: clock})
}

// address returns the i-th address.
func address(i int) string {
	return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
}

// featuresOf returns the features of the first n addresses.
func featuresOf(n int) []events.Features {
	list := make([]events.Features, n)
	for i := range list {
		list[i] = events.Features{events.KindIP: address(i)}
	}
	return list
}

// countersOf returns the event's counters of the first n addresses, and their names in a
// store.
func countersOf(event string, n int) (list []events.Counter, names []string, err error) {
	for _, features := range featuresOf(n) {
		counter, err := (&events.Event{Name: event}).Counter(features)
		if err != nil {
			return nil, nil, err
		}
		list, names = append(list, counter), append(names, counter.ID())
	}
	return list, names, nil
}

// dayOf returns the buckets of the last day.
func dayOf(now time.Time) (buckets []uint64) {
	for bucket := range hierarchy.CoverOf(hierarchy.WindowAt(now, 24*time.Hour), hierarchy.Second, hierarchy.Day).Buckets() {
		buckets = append(buckets, bucket.ID())
	}
	return buckets
}

// keysOf yields the keys of buckets of all those counters.
func keysOf(names []string, buckets []uint64) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, name := range names {
			for _, key := range memcache.Keys(name, buckets) {
				if !yield(key) {
					return
				}
			}
		}
	}
}

// Rates of four limits: far ones, and those of which the day's matters.
const (
	farRates  = "[1000000000/s, 1000000000/m, 1000000000/h, 1000000000/d]"
	nearRates = "[1000000000/s, 1000000000/m, 1000000000/h, 1000000/d]"
	fullRates = "[1000000000/s, 1000000000/m, 1000000000/h, 1000/d]"
)

// rulesOf returns an event with one rule per address.
func rulesOf(name, rates, retention string) string {
	return fmt.Sprintf("  %s:\n    retention: %s\n    limits: [{per: ip, rate: %s}]\n", name, retention, rates)
}

// sampled is the number of counters that a row verifies.
const sampled = 50

// verifySome compares counters, by address, with what was added to them. Nothing added is an
// error, too.
func verifySome(added []atomic.Int64, countOf func(i int) (int64, error)) error {
	var used []int
	for i := range added {
		if added[i].Load() > 0 {
			used = append(used, i)
		}
	}
	if len(used) == 0 {
		return errors.New("no counter was added to")
	}
	for n := range min(sampled, len(used)) {
		i := used[n*len(used)/min(sampled, len(used))]
		count, err := countOf(i)
		if err != nil {
			return err
		}
		if want := added[i].Load(); count != want {
			return fmt.Errorf("the counter of %s holds %d, and %d were added", address(i), count, want)
		}
	}
	return nil
}
