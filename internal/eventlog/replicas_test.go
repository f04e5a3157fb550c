package eventlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

// openReplicas returns a store that keeps each counter on all of the servers, and has no background.
func openReplicas(tb testing.TB, servers []string) store.Store {
	return &watched{Store: storestest.Open(tb, memcache.Config{
		Servers: servers, Replicas: len(servers), Clock: func() time.Time { return time.Now().Add(-time.Hour) },
	})}
}

// logsOf returns the logs of the replicas of a counter; nil where there is none.
func logsOf(tb testing.TB, st store.Store, counter string) (logs []*journal.Log) {
	tb.Helper()
	op := store.Op{Counter: counter, Data: true, Reads: []store.Read{{Item: logItem}}}
	st.Do(context.Background(), &op)
	for i := range op.Replicas {
		part := &op.Replicas[i]
		require.NoError(tb, part.Err)
		if logs = append(logs, nil); part.Reads[0].Version != 0 {
			logs[i] = new(journal.Log)
			require.NoError(tb, logs[i].Read(part.Reads[0].Data, journal.Question{}))
		}
	}
	return logs
}

// A replica whose log is damaged does not hinder the others, and gets theirs. One that a newer release
// wrote is left alone.
func TestADamagedReplica(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(value []byte) []byte
		heals bool
	}{
		"torn":    {func(value []byte) []byte { return value[:len(value)-3] }, true},
		"foreign": {func([]byte) []byte { return []byte("17") }, true},
		"huge":    {func([]byte) []byte { return make([]byte, 100_000) }, true},
		"newer":   {func(value []byte) []byte { value[1]++; return value }, false},
	} {
		t.Run(name, func(t *testing.T) {
			servers := memcachedtest.StartMany(t, 2)
			st := openReplicas(t, servers)
			p := newProcess(t, st, nil, limiter.Config{NoCachedDenials: true})
			event := newEvent(t, 1, "[{per: ip, rate: 3/h}]")
			on := func(write ...store.Write) *store.Op {
				op := &store.Op{Counter: counterOf(t, event, "ip"), Data: true, Server: servers[0], Writes: write, Versions: true}
				if len(write) == 0 {
					op.Reads = []store.Read{{Item: logItem}}
				}
				st.Do(t.Context(), op)
				require.NoError(t, op.Err)
				return op
			}
			require.True(t, p.hit(event, someUser).Allowed)
			read := on().Reads[0]
			swap := on(store.Write{Kind: store.Swap, Item: logItem, Data: test.spoil(read.Data), Version: read.Version, Expires: time.Now().Unix()})
			require.EqualValues(t, 1, swap.Writes[0].Result)
			newer := newEvent(t, 2, "[{per: ip, rate: [3/h, 50/m]}]") // which rewrites the log
			for i, event := range []*events.Event{event, newer, newer} {
				d := p.hit(event, someUser)
				require.Equal(t, i < 2, d.Allowed)
				require.False(t, d.Limits[0].Failed)
				var log journal.Log
				err := log.Read(on().Reads[0].Data, journal.Question{})
				if test.heals {
					require.NoError(t, err)
					require.EqualValues(t, min(i+2, 3), log.Sum(0, 1<<46))
				} else {
					require.ErrorIs(t, err, journal.ErrVersion)
				}
			}
			require.Empty(t, p.faults)
		})
	}
}

// While a replica is down, entries keep their identity until the log is over half its bound: it
// stays bounded, and the limit exact. The replica has all of it after the next hit that reaches it.
func TestAReplicaThatIsDown(t *testing.T) {
	servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
	st := openReplicas(t, []string{servers[0].Addr, servers[1].Addr})
	clock := testkit.NewClock(time.Now())
	p := newProcess(t, st, clock.Now, limiter.Config{NoCachedDenials: true, OnStoreError: func(err error) { t.Error(err) }})
	event := newEvent(t, 1, "[{per: ip, rate: 700/h}]")
	counter := counterOf(t, event, "ip")
	largest, shrunk := 0, false
	for i := range 1000 {
		switch i {
		case 10:
			servers[1].Stop()
		case 990:
			servers[1].Restart()
			testkit.Await(t, time.Minute, "the server is up", func() bool {
				op := &store.Op{Counter: counter, Data: true, Server: servers[1].Addr, Reads: []store.Read{{Item: logItem}}}
				st.Do(t.Context(), op)
				return op.Err == nil
			})
		}
		clock.Advance(3 * time.Second)
		require.Equal(t, i < 700, p.hit(event, someUser).Allowed, "%d", i)
		op := &store.Op{Counter: counter, Data: true, Server: servers[0].Addr, Reads: []store.Read{{Item: logItem}}}
		st.Do(t.Context(), op)
		require.NoError(t, op.Err)
		size := len(op.Reads[0].Data)
		shrunk, largest = shrunk || size < largest/2, max(largest, size)
		require.LessOrEqual(t, size, journal.MaxSize*3/4)
	}
	require.Greater(t, largest, journal.MaxSize/2-entrySize)
	require.True(t, shrunk)
	for _, log := range logsOf(t, st, counter) {
		require.EqualValues(t, 700, log.Sum(0, 1<<46))
	}
}

// Logs whose times are too far apart to be united are replaced, once.
func TestTimesThatAreFarApart(t *testing.T) {
	servers := memcachedtest.StartMany(t, 2)
	st := openReplicas(t, servers).(*watched)
	event := newEvent(t, 1, "[{per: ip, rate: 9/m, on_error: deny}]")
	p, counter, now := newProcess(t, st, nil, limiter.Config{}), counterOf(t, event, "ip"), time.Now().UnixMilli()
	for i, server := range servers {
		value, err := journal.AppendNew(nil, journal.Head{Revision: 1, TTL: 60, Until: now + 60_000, Since: now}, now)
		require.NoError(t, err)
		value, err = journal.AppendEntry(value, journal.Entry{Kind: journal.Increment, ID: journal.NewID(7, uint64(i)), Time: now + 1<<38, Cost: 1, Count: 1})
		require.NoError(t, err)
		put := store.Op{Counter: counter, Server: server, Data: true, Writes: []store.Write{{Kind: store.Create, Item: logItem, Data: value, Expires: now/1000 + 60}}}
		st.Do(t.Context(), &put)
		require.NoError(t, put.Err)
	}
	swaps := 0
	st.before = func(op *store.Op) {
		if op.Kind() == store.Swap {
			swaps++
		}
	}
	d := p.hit(event, someUser)
	require.Empty(t, p.faults)
	require.True(t, d.Allowed)
	require.True(t, d.Limits[0].Incomplete)
	require.Equal(t, 2, swaps, "one of each replica")
}
