package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/memcache"
)

// opened is the beginning of the clock of the rows in this process: the last day then has 142
// buckets, and midnight is far.
var opened = time.Date(2026, 3, 14, 12, 30, 33, 0, time.UTC)

// frozen is a clock that stays there.
func frozen() time.Time { return opened }

const (
	memcachedProgram = "memcached"
	// memcachedMegabytes is more than all rows fill: an eviction fails the run.
	memcachedMegabytes = 2048
	memcachedThreads   = 2
	// memcachedRequests are those of a connection that are answered in one write: more than a batch of a pipelined connection.
	memcachedRequests = 1000
)

// stage is what the rows of one stage share: processes, and a clock.
type stage struct {
	config   Config
	started  time.Time
	features []events.Features // of the addresses; shared, for the sake of the garbage collector
	fleet    *fleet.Fleet      // one server, and counterd for rows over HTTP
	nothing  *child.Child      // for rows over HTTP
	keys     [][]string        // of the counters of the rows that count, with all their buckets
	closers  []func() error
}

func newStage(config Config) *stage {
	s := &stage{config: config, started: time.Now()}
	for i := range config.sizes.addresses {
		s.features = append(s.features, events.Features{events.KindIP: address(i)})
	}
	return s
}

// closing adds a function for close, which calls the last one first.
func (s *stage) closing(f func() error) { s.closers = append(s.closers, f) }

func (s *stage) close() (err error) {
	for _, f := range slices.Backward(s.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// now is a clock that runs from the moment opened on.
func (s *stage) now() time.Time { return opened.Add(time.Since(s.started)) }

// memcached returns the address of the server.
func (s *stage) memcached() string { return s.fleet.Servers[0].Addr }

// open starts Memcached, and the other servers that the rows need.
func (s *stage) open(ctx context.Context, name string) (err error) {
	timeout := s.config.sizes.timeout
	config := fleet.Config{
		Counterd: s.config.Counterd, Memcached: memcachedProgram, Servers: 1, Timeout: timeout, Grace: 2 * timeout,
		Flags: []string{"-t", fmt.Sprint(memcachedThreads), "-m", fmt.Sprint(memcachedMegabytes), "-c", "2048", "-R", fmt.Sprint(memcachedRequests)},
	}
	if name == stageHTTP || name == stageRPCs {
		config.Processes, config.Rules, config.RLS = 1, webRules(), rpcConfig()
		if name == stageRPCs {
			config.Rules = rpcRules()
		}
	}
	if s.fleet, err = fleet.Start(ctx, config); err != nil {
		return err
	}
	s.closing(s.fleet.Close)
	if name != stageHTTP {
		return nil
	}
	command := s.config.DoNothing
	s.nothing, err = child.Start(ctx, child.Program{
		Path: command[0], Args: func(addr string) []string { return append(slices.Clone(command[1:]), addr) },
		Ready: func(addr string) error {
			_, err := fleet.Ask(addr, "/readyz")
			return err
		},
	})
	if err == nil {
		s.closing(s.nothing.Stop)
	}
	return err
}

// store returns a fleet on the stage's Memcached, with that timeout, and the number of its round trips.
func (s *stage) store(ctx context.Context, clock func() time.Time, timeout time.Duration) (*memcache.Fleet, *atomic.Int64, error) {
	var trips atomic.Int64
	kept, err := memcache.NewFleet(ctx, memcache.Config{
		Servers: []string{s.memcached()}, Timeout: timeout, Clock: clock,
		OnRoundTrip: func(context.Context, memcache.RoundTrip) { trips.Add(1) },
	})
	if err == nil {
		s.closing(kept.Close)
	}
	return kept, &trips, err
}

// fill adds one to each of those buckets, of each of those counters.
func (s *stage) fill(ctx context.Context, counters []events.Counter, buckets []uint64) error {
	kept, _, err := s.store(ctx, frozen, answerTimeout)
	if err != nil {
		return err
	}
	return eachOf(ctx, counters, func(ctx context.Context, _ int, counter events.Counter) error {
		op := store.Op{Counter: counter.ID()}
		for _, bucket := range buckets {
			op.Writes = append(op.Writes, store.Write{Kind: store.Add, Item: bucket, By: 1, Expires: opened.Add(48 * time.Hour).Unix()})
		}
		kept.Do(ctx, &op)
		return op.Err
	})
}

// eachOf calls a function for each of a list, sixteen at a time, until one fails.
func eachOf[T any](ctx context.Context, list []T, do func(ctx context.Context, i int, one T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, one := range list {
		group.Go(func() error { return do(ctx, i, one) })
	}
	return group.Wait()
}

// address returns the i-th address.
func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

// countersOf returns the event's counters of the first n addresses.
func countersOf(event string, n int) (list []events.Counter, err error) {
	for i := range n {
		counter, err := (&events.Event{Name: event}).Counter(events.Features{events.KindIP: address(i)})
		if err != nil {
			return nil, err
		}
		list = append(list, counter)
	}
	return list, nil
}

// dayOf returns the buckets of the last day.
func dayOf(now time.Time) (buckets []uint64) {
	for bucket := range hierarchy.CoverOf(hierarchy.WindowAt(now, 24*time.Hour), hierarchy.Second, hierarchy.Day).Buckets() {
		buckets = append(buckets, bucket.ID())
	}
	return buckets
}

// rulesOf returns an event with one rule per address. It is remembered for the longest window.
func rulesOf(name, rates string) string {
	return fmt.Sprintf("  %s:\n    limits: [{per: ip, rate: %s}]\n", name, rates)
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
