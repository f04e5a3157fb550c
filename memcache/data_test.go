package memcache_test

import (
	"bufio"
	"context"
	"fmt"
	"github.com/counterd/counterd/internal/testkit"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// dataOp returns an op with data.
func dataOp(counter string, writes []store.Write, reads ...uint64) *store.Op {
	op := &store.Op{Counter: counter, Data: true, Writes: writes}
	for _, item := range reads {
		op.Reads = append(op.Reads, store.Read{Item: item})
	}
	return op
}

func create(item uint64, data string) store.Write {
	return store.Write{Kind: store.Create, Item: item, Data: []byte(data), Expires: later()}
}

func appended(item uint64, data string) store.Write {
	return store.Write{Kind: store.Append, Item: item, Data: []byte(data)}
}

func swapped(item, version uint64, data string) store.Write {
	return store.Write{Kind: store.Swap, Item: item, Version: version, Data: []byte(data), Expires: later()}
}

// done makes the op, which has to succeed.
func done(t *testing.T, kept store.Store, op *store.Op) *store.Op {
	t.Helper()
	kept.Do(t.Context(), op)
	require.NoError(t, op.Err)
	return op
}

// A server without memory to append refuses, and keeps what it has: a meta append would delete
// the item.
func TestAnAppendWithoutMemoryKeepsTheItem(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Start(t, "-m", "1", "-M", "-I", "512k") // -M: it evicts nothing
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol})
		item := storetest.DataItem(1)
		done(t, fleet, dataOp("a", []store.Write{create(item, "kept")}))
		filler := strings.Repeat("x", 100_000)
		for i := 0; ; i++ {
			op := dataOp("filler", []store.Write{create(storetest.DataItem(int64(i)), filler)})
			if fleet.Do(t.Context(), op); op.Err != nil {
				require.ErrorContains(t, op.Err, "out of memory")
				break
			}
			require.Less(t, i, 1000)
		}
		refused := 0
		for range 5 { // more failures than open a breaker
			op := dataOp("a", []store.Write{appended(item, filler)})
			fleet.Do(t.Context(), op)
			if op.Err != nil || op.Writes[0].Result == 0 {
				refused++
			}
		}
		require.Equal(t, 5, refused)
		require.Equal(t, "kept", string(done(t, fleet, dataOp("a", nil, item)).Reads[0].Data))
		require.Zero(t, fleet.Health()[0].Openings)
		if protocol == memcache.Meta { // why it is sent as a classic command
			conn, err := net.Dial("tcp", server.Addr)
			require.NoError(t, err)
			defer conn.Close()
			key := memcache.Keys("a", []uint64{item})[0]
			_, err = fmt.Fprintf(conn, "ms %s %d MA\r\n%s\r\n", key, len(filler), filler)
			require.NoError(t, err)
			line, err := bufio.NewReader(conn).ReadString('\n')
			require.NoError(t, err)
			t.Logf("this Memcached answers a meta append %q, and has then %q", line, server.Ask("get "+key))
		}
	})
}

// Memcached does not look again for what is left of a record of TLS. Ops of all sizes, of many
// callers, are answered all the same.
func TestDataWithTLSIsAnswered(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		demands := securities(t)["TLS"]
		fleet := openConfig(t, secured(t, demands, memcache.Config{Servers: []string{startServer(t, demands).Addr}, Protocol: protocol}))
		sizes := []int{10, 700, 1390, 5000, 8192, 15_900, 16_000, 16_384, 17_000, 33_000}
		var running sync.WaitGroup
		for caller := range 8 {
			running.Go(func() {
				for i := range 60 {
					item, size := storetest.DataItem(int64(i)), sizes[(i*7+caller)%len(sizes)]
					text := strings.Repeat(string(rune('a'+caller)), size)
					op := dataOp(fmt.Sprint(caller), []store.Write{create(item, text), appended(item, text[:size/2]), appended(item, "end")}, item)
					fleet.Do(context.Background(), op)
					if !assert.NoError(t, op.Err) || !assert.True(t, string(op.Reads[0].Data) == text+text[:size/2]+"end") {
						return
					}
					swap := dataOp(op.Counter, []store.Write{swapped(item, op.Reads[0].Version, text)})
					if fleet.Do(context.Background(), swap); !assert.NoError(t, swap.Err) {
						return
					}
				}
			})
		}
		running.Wait()
		require.Zero(t, fleet.Health()[0].Openings)
	})
}

// changesOf returns the number of changes that a version is of.
func changesOf(version uint64) uint64 { return version & (1<<store.VersionBits - 1) }

// createUntil creates items until one has the number of that version.
func createUntil(t *testing.T, fleet *memcache.Fleet, counter string, item, version uint64, data string) {
	t.Helper()
	for i := int64(100); ; i++ {
		read := done(t, fleet, dataOp(counter, []store.Write{create(item, data)}, item)).Reads[0]
		if store.SameVersion(read.Version, version) {
			return
		}
		require.Less(t, changesOf(read.Version), changesOf(version))
		require.NoError(t, storetest.Delete(t.Context(), fleet, counter, []uint64{item}))
	}
}

// An item beyond a megabyte is the counter's fault, and not its server's.
func TestItemsBeyondAMegabyte(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Start(t, "-I", "8m")
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol})
		item := storetest.DataItem(1)
		key := memcache.Keys("a", []uint64{item})[0]
		for _, flags := range []uint32{0, 0xc0d} {
			storeItem(t, server.Addr, key, flags, strings.Repeat("x", 3<<20))
			for range 5 { // more failures than open a breaker
				op := dataOp("a", nil, item)
				fleet.Do(t.Context(), op)
				require.ErrorIs(t, op.Err, store.ErrNoData)
				_, err := storetest.Trip(t.Context(), fleet, "a", 0, nil, nil, []uint64{item}, make([]int64, 1))
				require.ErrorIs(t, err, store.ErrNoCount)
			}
		}
		storeItem(t, server.Addr, key, 7, "by another client")
		op := dataOp("a", nil, item)
		fleet.Do(t.Context(), op)
		require.ErrorIs(t, op.Err, store.ErrNoData)
		require.Equal(t, memcache.OutcomeError, memcache.OutcomeOf(op.Err))
		require.Zero(t, fleet.Health()[0].Openings)
	})
}

// A server that was started again gives its numbers anew. A swap with a version of before writes
// nothing, also if the item has the same number.
func TestASwapAfterARestart(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.StartMemory(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol})
		item := storetest.DataItem(1)
		for i := range int64(20) {
			done(t, fleet, dataOp("a", []store.Write{create(storetest.DataItem(100+i), "x")}))
		}
		before := done(t, fleet, dataOp("a", []store.Write{create(item, "old")}, item)).Reads[0].Version
		server.Stop()
		server.Restart()
		testkit.Await(t, maxWait, "a trip on a new connection", func() bool {
			op := dataOp("b", nil, item)
			fleet.Do(t.Context(), op)
			return op.Err == nil
		})
		createUntil(t, fleet, "a", item, before, "new")
		for range 3 {
			require.Zero(t, done(t, fleet, dataOp("a", []store.Write{swapped(item, before, "lost")})).Writes[0].Result)
		}
		now := done(t, fleet, dataOp("a", nil, item)).Reads[0]
		require.Equal(t, "new", string(now.Data))
		require.Equal(t, int64(1), done(t, fleet, dataOp("a", []store.Write{swapped(item, now.Version, "swapped")})).Writes[0].Result)
	})
}

// A swap that is not sent says nothing of the server, and leaves no connection behind.
func TestASwapThatIsNotSent(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.StartMemory(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol})
		item := storetest.DataItem(1)
		now := done(t, fleet, dataOp("a", []store.Write{create(item, "kept")}, item)).Reads[0].Version
		before := now ^ 1<<63 // on a connection that is none
		fleet.SetFailures(1)
		for range 20 {
			op := done(t, fleet, dataOp("a", []store.Write{swapped(item, before, "lost")}))
			require.Zero(t, op.Writes[0].Result)
			require.Equal(t, 1, op.Receipt.On(0))
		}
		require.Equal(t, int32(1), fleet.Failures())
		for range 20 {
			require.Zero(t, done(t, fleet, dataOp("a", []store.Write{swapped(item, before, "lost")})).Writes[0].Result)
			require.Equal(t, "kept", string(done(t, fleet, dataOp("a", nil, item)).Reads[0].Data))
		}
		require.LessOrEqual(t, server.Connections(), 2)
		require.Equal(t, int64(1), done(t, fleet, dataOp("a", []store.Write{swapped(item, now, "swapped")})).Writes[0].Result)
	})
}

// After a change of the list of servers, a swap does not write on a server that the version is
// not of.
func TestASwapAfterAChangeOfServers(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		names := []string{memcachedtest.StartMemory(t).Addr, memcachedtest.StartMemory(t).Addr}
		fleet := openUnwatched(t, memcache.Config{Servers: names, Protocol: protocol})
		item, counter := storetest.DataItem(1), "a"
		first := fleet.Server(counter)
		other := names[0]
		if other == first {
			other = names[1]
		}
		for i := range int64(20) {
			done(t, fleet, dataOp(counter, []store.Write{create(storetest.DataItem(100+i), "x")}))
		}
		before := done(t, fleet, dataOp(counter, []store.Write{create(item, "first")}, item)).Reads[0].Version
		named := dataOp(counter, nil, item)
		named.Server = other // its connections are open
		done(t, fleet, named)
		require.NoError(t, fleet.SetServers(t.Context(), []string{other}))
		createUntil(t, fleet, counter, item, before, "other")
		require.Zero(t, done(t, fleet, dataOp(counter, []store.Write{swapped(item, before, "lost")})).Writes[0].Result)
		require.Equal(t, "other", string(done(t, fleet, dataOp(counter, nil, item)).Reads[0].Data))
	})
}

// A look on another connection finds the same version, and one of an older connection can still
// be swapped: repair takes its time between the two.
func TestVersionsOutliveNewConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := memcachedtest.StartMemory(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: memcache.Classic})
		add(t, fleet, "a", 5, 1)
		look := func() uint64 {
			value, version := make([]int64, 1), make([]uint64, 1)
			require.NoError(t, storetest.Look(t.Context(), fleet, "a", server.Addr, []uint64{1}, value, version))
			return version[0]
		}
		before := look()
		var ops []*store.Op
		for i := range 40 { // more at once than connections are open
			ops = append(ops, storetest.Op(fmt.Sprint(i), 1, []uint64{1}, []int64{later()}, nil))
		}
		fleet.Do(t.Context(), ops...)
		after := look()
		require.NotEqual(t, before, after, "or no connection was opened")
		require.True(t, store.SameVersion(before, after))
		raised, err := storetest.Raise(t.Context(), fleet, "a", server.Addr, 1, before, 7, later())
		require.NoError(t, err)
		require.True(t, raised)
		raised, err = storetest.Raise(t.Context(), fleet, "a", server.Addr, 1, after, 9, later())
		require.NoError(t, err)
		require.False(t, raised)
		require.Equal(t, []int64{7}, read(t, fleet, "a", 1))
	})
}

// A replica that is down is in the op with its error, and the others make the round trip.
func TestDataWithAReplicaDown(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		servers := memories(t, 2)
		fleet := openConfig(t, memcache.Config{Servers: slices.Collect(maps.Keys(servers)), Replicas: 2, Protocol: protocol})
		item := storetest.DataItem(1)
		done(t, fleet, dataOp("a", []store.Write{create(item, "a")}))
		order := fleet.Servers("a")
		servers[order[0]].Stop()
		testkit.Await(t, maxWait, "a trip that the second server answers", func() bool {
			op := dataOp("a", []store.Write{appended(item, "+")}, item)
			fleet.Do(t.Context(), op)
			return op.Err == nil && op.Receipt.On(0) == 0 && op.Receipt.On(1) == 1 &&
				op.Replicas[0].Err != nil && op.Replicas[0].Server == order[0] && strings.HasPrefix(string(op.Reads[0].Data), "a+")
		})
		servers[order[1]].Stop()
		testkit.Await(t, maxWait, "no server is up", func() bool {
			op := dataOp("a", nil, item)
			fleet.Do(t.Context(), op)
			return op.Err != nil && strings.Contains(op.Err.Error(), "no server of the counter is up")
		})
	})
}
