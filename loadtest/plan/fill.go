package plan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/memcache"
)

const (
	// callers hit one after the other, each on a limiter and a clock of its own, as many
	// processes of counterd would.
	callers = 32
	// patience is the longest wait for a hit: at most half the grace.
	patience = time.Second
	// callerCache is what each limiter remembers closed buckets in.
	callerCache = 1 << 20
	// settled is how long a server may take to answer at all, and its table of items to
	// grow once all items are there.
	settled = 30 * time.Second
)

// taken is what playing took.
type taken struct {
	hits, denied       int
	trips, adds, reads int64
	memory             memcached.Memory
	stats              memcached.Stats // without what was there before
	own                time.Duration   // CPU time of this process
}

// fill plays to servers of its own.
func (c CheckConfig) fill(ctx context.Context, stage string, p played) (took taken, err error) {
	report, err := p.plan()
	if err != nil {
		return took, err
	}
	binary := c.Memcached
	if binary == "" {
		binary = "memcached"
	}
	var servers []*memcached.Server
	defer func() {
		for _, server := range servers {
			err = errors.Join(err, server.Close())
		}
	}()
	var names []string
	megabytes := 2*int64(report.Total.SlabBytes/float64(p.servers)/megabyte) + 128
	for range p.servers {
		server, err := memcached.Start(ctx, binary, "-t", "2", "-m", fmt.Sprint(megabytes), "-c", "2048")
		if err != nil {
			return took, err
		}
		servers = append(servers, server)
		names = append(names, server.Addr)
	}
	if c.Progress != nil {
		c.Progress(stage, p.hits)
	}
	return c.play(ctx, p, servers, names)
}

// play plays to the servers.
func (c CheckConfig) play(ctx context.Context, p played, servers []*memcached.Server, names []string) (took taken, err error) {
	// Of the day after this one: what lives for as long as a day and a counter's retention
	// is yet to come then.
	begin := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	var trips, adds, reads atomic.Int64
	fleet, err := memcache.NewFleet(ctx, memcache.Config{
		Servers: names, Replicas: p.config.Replicas, Timeout: patience, Clock: func() time.Time { return begin },
		OnRoundTrip: func(_ context.Context, trip memcache.RoundTrip) {
			if trip.Err != nil {
				return // it is made again
			}
			trips.Add(1)
			adds.Add(int64(trip.Adds))
			reads.Add(int64(trip.Reads))
		},
	})
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	schedules := make([][]due, callers)
	for i := range schedules {
		schedules[i] = p.schedule(i, c.Seed)
		took.hits += len(schedules[i])
	}
	before, err := statsOf(servers)
	if err != nil {
		return took, err
	}
	ownBefore, err := process.CPU(os.Getpid())
	if err != nil {
		return took, err
	}
	var denied atomic.Int64
	var running sync.WaitGroup
	faults := make([]error, callers)
	for i, schedule := range schedules {
		running.Go(func() {
			faults[i] = c.call(ctx, p, fleet, schedule, begin, &denied)
		})
	}
	running.Wait()
	if err := errors.Join(faults...); err != nil {
		return took, err
	}
	ownAfter, err := process.CPU(os.Getpid())
	if err != nil {
		return took, err
	}
	took.own = ownAfter - ownBefore
	if took.memory, err = memoryOf(ctx, servers); err != nil {
		return took, err
	}
	after, err := statsOf(servers)
	if err != nil {
		return took, err
	}
	took.stats = after.Minus(before)
	took.denied = int(denied.Load())
	took.trips, took.adds, took.reads = trips.Load(), adds.Load(), reads.Load()
	if took.stats.Evictions > 0 {
		return took, fmt.Errorf("memcached evicted %d items for want of memory", took.stats.Evictions)
	}
	return took, nil
}

// call makes the hits of one caller.
func (c CheckConfig) call(ctx context.Context, p played, fleet *memcache.Fleet, schedule []due, begin time.Time, denied *atomic.Int64) error {
	now := begin
	limiter, err := hierarchy.NewLimiter(hierarchy.LimiterConfig{
		Store: fleet, Clock: func() time.Time { return now }, Grace: p.config.Grace, Timeout: min(patience, p.config.Grace/2),
		Cache: hierarchy.NewBucketCache(callerCache),
	})
	if err != nil {
		return err
	}
	features := events.Features{}
	for i, due := range schedule {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now = begin.Add(time.Duration(due.second) * time.Second)
		p.crowd.features(features, int(due.actor))
		d, err := hit(ctx, limiter, hierarchy.Hit{Event: p.event, Features: features, Cost: 1})
		if err != nil {
			return err
		}
		if !d.Allowed {
			denied.Add(1)
		}
		if c.Done != nil && i%1000 == 999 {
			c.Done(1000)
		}
	}
	return nil
}

// hit makes a hit on the store. On a machine that stands still for longer than a server may
// take it is made again: to the same buckets.
func hit(ctx context.Context, limiter *hierarchy.Limiter, h hierarchy.Hit) (hierarchy.Decision, error) {
	for deadline := time.Now().Add(settled); ; {
		d, err := limiter.Hit(ctx, h)
		failed := slices.ContainsFunc(d.Limits, func(l hierarchy.LimitState) bool { return l.Failed })
		if err != nil || !failed {
			return d, err
		}
		if time.Now().After(deadline) {
			return d, fmt.Errorf("a hit was decided without the store for %s: Memcached does not answer", settled)
		}
		select {
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// statsOf returns what the servers have done together.
func statsOf(servers []*memcached.Server) (sum memcached.Stats, err error) {
	for _, server := range servers {
		stats, err := server.Stats()
		if err != nil {
			return sum, err
		}
		sum = sum.Plus(stats)
	}
	return sum, nil
}

// memoryOf returns what the servers take together, once their tables are as large as they
// are to be: while one grows, the one before is there too.
func memoryOf(ctx context.Context, servers []*memcached.Server) (sum memcached.Memory, err error) {
	for deadline := time.Now().Add(settled); ; {
		sum = memcached.Memory{}
		whole := true
		for _, server := range servers {
			m, err := server.Memory()
			if err != nil {
				return sum, err
			}
			sum.Items += m.Items
			sum.ItemBytes += m.ItemBytes
			sum.ChunkBytes += m.ChunkBytes
			sum.SlabBytes += m.SlabBytes
			sum.HashBytes += m.HashBytes
			whole = whole && m.HashBytes == int64(hashBytes(float64(m.Items)))
		}
		if whole || time.Now().After(deadline) {
			return sum, nil
		}
		select {
		case <-ctx.Done():
			return sum, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
