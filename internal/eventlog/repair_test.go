package eventlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
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
	d := p.hit(event, someUser)
	require.True(t, d.Allowed, "without a log on any replica it is replaced")
	require.EqualValues(t, 1, d.Limits[0].Count)
	require.True(t, d.Limits[0].Incomplete)
	require.Empty(t, p.faults)
	for _, log := range logsOf(t, st, counter) {
		require.EqualValues(t, 1, log.Sum(0, 1<<46))
	}
}
