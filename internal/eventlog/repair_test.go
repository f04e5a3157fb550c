package eventlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// appendTo appends an increment to the log of one replica alone.
func appendTo(tb testing.TB, st store.Store, server, counter string, cost int64) {
	tb.Helper()
	now := time.Now().UnixMilli()
	data, err := journal.AppendEntry(nil, journal.Entry{Kind: journal.Increment, ID: journal.NewID(7, uint64(cost)), Time: now, Cost: cost, Count: 1})
	require.NoError(tb, err)
	op := store.Op{Counter: counter, Server: server, Data: true, Writes: []store.Write{{Kind: store.Append, Item: logItem, Data: data}}}
	st.Do(context.Background(), &op)
	require.NoError(tb, op.Err)
	require.EqualValues(tb, 1, op.Writes[0].Result)
}

// A repair gives each replica what others have, once, without a hit on the counter.
func TestARepairUnitesReplicas(t *testing.T) {
	servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
	st := openReplicas(t, []string{servers[0].Addr, servers[1].Addr})
	p := newProcess(t, st, nil, limiter.Config{})
	event := newEvent(t, 1, "[{per: ip, rate: 100/h}]")
	counter, logs := counterOf(t, event, "ip"), newEngine(t, st, nil)
	repaired := func(want int, sum int64) {
		t.Helper()
		changed, err := logs.Repair(t.Context(), counter, time.Hour)
		require.NoError(t, err)
		require.Equal(t, want, changed)
		for _, log := range logsOf(t, st, counter) {
			if sum == 0 {
				require.Nil(t, log)
			} else {
				require.Equal(t, sum, log.Sum(0, 1<<46))
			}
		}
	}
	repaired(0, 0)
	for range 3 {
		require.True(t, p.hit(event, someUser).Allowed)
	}
	repaired(0, 3)
	appendTo(t, st, servers[0].Addr, counter, 5)
	repaired(1, 8)
	appendTo(t, st, servers[0].Addr, counter, 9)
	appendTo(t, st, servers[1].Addr, counter, 7)
	repaired(2, 24)
	repaired(0, 24)
	servers[1].Ask("flush_all")
	repaired(1, 24)
	require.EqualValues(t, 25, p.hit(event, someUser).Limits[0].Count)
	servers[0].Stop()
	_, err := logs.Repair(t.Context(), counter, time.Hour)
	require.ErrorIs(t, err, engine.ErrStore, "it does not know what the other one holds")
}

// What another client wrote in place of a replica's log is replaced, if another replica has the log.
func TestARepairReplacesAForeignItem(t *testing.T) {
	servers := memcachedtest.StartMany(t, 2)
	st := openReplicas(t, servers)
	p := newProcess(t, st, nil, limiter.Config{})
	event := newEvent(t, 1, "[{per: ip, rate: 100/h}]")
	counter, logs := counterOf(t, event, "ip"), newEngine(t, st, nil)
	spoil := func(server string) {
		t.Helper()
		for _, write := range []store.Write{{Kind: store.Delete, Item: logItem}, {Kind: store.Create, Item: logItem, By: 17, Expires: time.Now().Unix() + 100}} {
			op := store.Op{Counter: counter, Server: server, Writes: []store.Write{write}}
			st.Do(t.Context(), &op)
			require.NoError(t, op.Err)
		}
	}
	require.True(t, p.hit(event, someUser).Allowed)
	spoil(servers[0])
	require.EqualValues(t, 2, p.hit(event, someUser).Limits[0].Count)
	_, err := logs.Repair(t.Context(), counter, time.Hour)
	require.NoError(t, err)
	for _, log := range logsOf(t, st, counter) {
		require.EqualValues(t, 2, log.Sum(0, 1<<46))
	}
	spoil(servers[0])
	spoil(servers[1])
	_, err = logs.Repair(t.Context(), counter, time.Hour)
	require.ErrorIs(t, err, engine.ErrBadCounter)
}

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
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for i := range counters {
			counter, err := r.event.Counter(featureOf(i))
			require.NoError(t, err)
			op := store.Op{Counter: counter.ID(), Server: r.way.Addr, Data: true, Reads: []store.Read{{Item: logItem}}}
			var log journal.Log
			if r.Do(t.Context(), &op); !assert.NoError(c, op.Err) || !assert.NoError(c, log.Read(op.Reads[0].Data, journal.Question{})) || !assert.Equal(c, sum, log.Sum(0, 1<<46)) {
				return
			}
		}
	}, time.Minute, 100*time.Millisecond)
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
		require.Eventually(t, func() bool { // until it is known to be down
			d, err := r.limiter.Hit(t.Context(), limiter.Hit{Event: r.event, Features: featureOf(i), Cost: 1})
			require.NoError(t, err)
			if d.Allowed {
				admitted++
			}
			return !d.Allowed && !d.Unavailable
		}, time.Minute, time.Millisecond)
		require.Equal(t, 1, admitted, "counter %d", i)
	}
}
