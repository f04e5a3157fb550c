//go:build testall

package eventlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/backend"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/replica/repair"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// repairedLogs are logs on two servers that a repairer repairs in the background, as in production.
type repairedLogs struct {
	*memcache.Fleet
	limiter *limiter.Limiter
	servers []*memcachedtest.Server
	way     *memcachedtest.Proxy // to the first
	copies  chan repair.Copy
	event   *events.Event
}

func newRepairedLogs(tb testing.TB, limits string) *repairedLogs {
	tb.Helper()
	const timeout = 2 * time.Second
	r := &repairedLogs{
		servers: []*memcachedtest.Server{memcachedtest.Start(tb, "-m", "1024"), memcachedtest.Start(tb, "-m", "1024")},
		copies:  make(chan repair.Copy, 1000), event: newEvent(tb, 1, limits),
	}
	r.way = memcachedtest.StartProxy(tb, r.servers[0])
	var err error
	r.Fleet, err = memcache.NewFleet(tb.Context(), memcache.Config{Servers: []string{r.way.Addr, r.servers[1].Addr}, Replicas: 2, Timeout: timeout})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, r.Fleet.Close()) })
	layout := hierarchy.Layout{Grace: 2 * timeout}
	base := engine.Base{Store: r.Fleet, Grace: layout.Grace, Changes: new(engine.Changes)}
	logs, err := eventlog.New(base)
	require.NoError(tb, err)
	repairer, err := repair.New(repair.Config{
		Store: r.Fleet, Layout: layout, RepairLog: logs.Repair, Grace: layout.Grace,
		KindOf:    backend.KindOf,
		OnCopyEnd: func(c repair.Copy) { r.copies <- c },
	})
	require.NoError(tb, err)
	tb.Cleanup(repairer.Close)
	base.OnUse = layout.OnUse(repairer.Note)
	logs, err = eventlog.New(base)
	require.NoError(tb, err)
	r.limiter, err = limiter.New(limiter.Config{Timeout: timeout, NoCachedDenials: true}, logs)
	require.NoError(tb, err)
	return r
}

// fill hits each of so many counters, of features of their own.
func (r *repairedLogs) fill(tb testing.TB, counters int) {
	tb.Helper()
	for first := 0; first < counters; first += 500 {
		var hits []limiter.Hit
		for i := first; i < min(first+500, counters); i++ {
			hits = append(hits, limiter.Hit{Event: r.event, Features: featureOf(i), Cost: 1})
		}
		results, err := r.limiter.Hits(context.Background(), hits)
		require.NoError(tb, err)
		for _, result := range results {
			require.True(tb, result.Decision.Allowed)
		}
	}
}

func featureOf(i int) events.Features {
	return events.Features{"ip": fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}
}

// awaitFirst waits until the first server has that sum of each counter.
func (r *repairedLogs) awaitFirst(t *testing.T, counters int, sum int64) {
	t.Helper()
	for i := range counters {
		counter, err := r.event.Counter(featureOf(i))
		require.NoError(t, err)
		testkit.Await(t, time.Minute, "the log is whole", func() bool {
			op := store.Op{Counter: counter.ID(), Server: r.way.Addr, Data: true, Reads: []store.Read{{Item: logItem}}}
			var log journal.Log
			r.Do(t.Context(), &op)
			return op.Err == nil && log.Read(op.Reads[0].Data, journal.Question{}) == nil && log.Sum(0, 1<<46) == sum
		})
	}
}

// An append that is lost on its way to one server, which is up all the time, is there soon, although
// no other hit comes.
func TestALostAppendIsRepaired(t *testing.T) {
	leaktest.Parallel(t)
	r := newRepairedLogs(t, "[{per: ip, rate: 3/h, on_error: deny}]")
	r.fill(t, 1)
	r.way.Silence()
	r.fill(t, 1)
	r.awaitFirst(t, 1, 2)
}

// A server that returned empty has all logs again without a hit on any of them: then the other one
// may be lost, and no limit admits a hit more.
func TestLogsAreRepairedInTheBackground(t *testing.T) {
	leaktest.Parallel(t)
	const counters = 400
	r := newRepairedLogs(t, "[{per: ip, rate: 3/h, on_error: deny}]")
	r.fill(t, counters)
	r.fill(t, counters)
	r.servers[0].Stop()
	r.servers[0].Restart()
	r.awaitFirst(t, counters, 2)
	r.servers[1].Stop()
	for i := range counters {
		admitted := 0
		testkit.Await(t, time.Minute, "the server is known to be down", func() bool {
			d, err := r.limiter.Hit(t.Context(), limiter.Hit{Event: r.event, Features: featureOf(i), Cost: 1})
			require.NoError(t, err)
			if d.Allowed {
				admitted++
			}
			return !d.Allowed && !d.Unavailable
		})
		require.Equal(t, 1, admitted, "counter %d", i)
	}
}

// BenchmarkRepair repairs the logs of 50,000 counters after one of two servers has lost all of them,
// in the background, as a process does. It reports how long the copy took.
func BenchmarkRepair(b *testing.B) {
	const counters = 50_000
	r := newRepairedLogs(b, "[{per: ip, rate: [20/m, 100/h]}]")
	for range 10 {
		r.fill(b, counters)
	}
	var took time.Duration
	for b.Loop() {
		r.servers[0].Ask("flush_all")
		for raised := 0; raised < counters; {
			c := <-r.copies
			raised += c.Raised
			took += c.Took
		}
	}
	b.ReportMetric(took.Seconds()/float64(b.N), "s/copy")
	b.ReportMetric(counters*float64(b.N)/took.Seconds(), "counters/s")
}
