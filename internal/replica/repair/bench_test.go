package repair_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/replica/repair"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// BenchmarkRepair has one of three servers come back empty under 2,000 hits a second, and tells how
// long it takes until it is whole again, and how long hits take meanwhile and without.
func BenchmarkRepair(b *testing.B) {
	for _, counters := range []int{50_000, 1_000_000} {
		b.Run(fmt.Sprint(counters), func(b *testing.B) { benchRepair(b, counters) })
	}
}

const (
	benchRate  = 2000             // hits a second
	benchSlice = 20 * time.Second // of hits without a repair
)

func benchRepair(b *testing.B, counters int) {
	var servers []*memcachedtest.Server
	var names []string
	for range 3 {
		server := memcachedtest.Start(b, "-m", "2048")
		servers, names = append(servers, server), append(names, server.Addr)
	}
	fleet, err := memcache.NewFleet(b.Context(), memcache.Config{Servers: names, Replicas: 2})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, fleet.Close()) })
	layout := hierarchy.Layout{Grace: hierarchy.DefaultGrace}
	repairer, err := repair.New(repair.Config{Store: fleet, Layout: layout, Grace: layout.Grace, OnError: func(err error) { b.Log(err) }})
	require.NoError(b, err)
	b.Cleanup(repairer.Close)
	l, err := limiter.New(limiter.Config{Timeout: memcache.DefaultTimeout}, hierarchy.NewCounters(hierarchy.Config{Store: fleet, Grace: layout.Grace, OnUse: layout.OnUse(repairer.Note)}))
	require.NoError(b, err)
	event := &events.Event{Name: "e", Rules: []events.Rule{{
		Per: []string{"user"}, OnError: events.OnErrorDeny, Limits: []events.Limit{{N: 1 << 40, Window: time.Hour, Name: "h"}},
	}}}
	hit := func(user int) error {
		_, err := l.Hit(context.Background(), limiter.Hit{Event: event, Features: events.Features{"user": fmt.Sprint(user)}, Cost: 1})
		return err
	}
	var filling errgroup.Group
	for part := range 64 {
		filling.Go(func() error {
			for user := part; user < counters; user += 64 {
				if err := hit(user); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, filling.Wait())
	for range b.N {
		before := hitFor(b, counters, hit, func() bool { return false }, benchSlice)
		servers[0].Stop()
		servers[0].Restart()
		began := time.Now()
		seen := false
		during := hitFor(b, counters, hit, func() bool {
			isWhole := fleet.Health()[0].Lost == memcache.Lost{}
			seen = seen || !isWhole
			return seen && isWhole
		}, 20*time.Minute)
		b.ReportMetric(time.Since(began).Seconds(), "s-to-whole")
		after := hitFor(b, counters, hit, func() bool { return false }, benchSlice)
		without := slices.Concat(before, after)
		for name, share := range map[string]float64{"p50": 0.5, "p99": 0.99} {
			b.ReportMetric(float64(quantile(during, share).Microseconds()), name+"-µs")
			b.ReportMetric(float64(quantile(during, share))/float64(quantile(without, share)), name+"-ratio")
		}
	}
}

func quantile(took []time.Duration, share float64) time.Duration {
	slices.Sort(took)
	return took[int(share*float64(len(took)-1))]
}

// hitFor makes hits at their times until it is over, for so long at the most, and returns how long
// each took, from when it was due.
func hitFor(b *testing.B, counters int, hit func(user int) error, over func() bool, most time.Duration) (took []time.Duration) {
	var mu sync.Mutex
	var hits sync.WaitGroup
	began := time.Now()
	for i := 0; time.Since(began) < most; i++ {
		due := began.Add(time.Duration(i) * time.Second / benchRate)
		time.Sleep(time.Until(due))
		if i%benchRate == 0 && over() {
			break
		}
		hits.Go(func() {
			if hit(rand.IntN(counters)) != nil {
				return // the server is being restarted
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(due))
		})
	}
	hits.Wait()
	return took
}
