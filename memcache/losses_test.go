//go:build testall

package memcache_test

import (
	"errors"
	"fmt"
	"github.com/counterd/counterd/internal/testkit"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// wallAt is a clock that a test sets.
type wallAt struct{ second atomic.Int64 }

func (w *wallAt) now() time.Time { return time.Unix(w.second.Load(), 0) }

func newWall(second int64) *wallAt {
	w := &wallAt{}
	w.second.Store(second)
	return w
}

const someSecond = 1_800_000_000

// put writes an item.
func put(t *testing.T, server *memcachedtest.Server, key, value string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "set %s 0 0 %d\r\n%s\r\n", key, len(value), value)
	require.NoError(t, err)
	answer := make([]byte, 8)
	_, err = conn.Read(answer)
	require.NoError(t, err)
	require.Equal(t, "STORED\r\n", string(answer))
}

// addAdmitted adds one to the first bucket of a counter when its server is admitted.
func addAdmitted(t *testing.T, fleet *memcache.Fleet, counter string) {
	t.Helper()
	require.NoError(t, untilAdmitted(t, func() error {
		_, err := storetest.Trip(t.Context(), fleet, counter, 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
		return err
	}))
}

// A restart between two trips is noticed before the second is answered; a flush_all is
// noticed soon.
func TestAServerThatForgets(t *testing.T) {
	server := memcachedtest.Start(t)
	wall := newWall(someSecond)
	fleet, told := openTold(t, memcache.Paced(memcache.Config{Servers: []string{server.Addr}, Clock: wall.now}, 30*time.Millisecond))
	require.NoError(t, fleet.Ping(t.Context())[server.Addr])
	add(t, fleet, "a", 1, 1)
	assert.Zero(t, fleet.Since("a"), "at first contact nothing is lost")

	wall.second.Store(someSecond + 100)
	server.Stop()
	server.Restart()
	addAdmitted(t, fleet, "a")
	assert.Equal(t, int64(someSecond+100), fleet.Since("a"))
	told.await(t, "emptied "+server.Addr)

	wall.second.Store(someSecond + 200)
	server.Ask("flush_all")
	told.await(t, "emptied "+server.Addr)
	assert.Equal(t, int64(someSecond+200), fleet.Since("a"))
	assert.False(t, fleet.Health()[0].Evicted)

	// No window reaches back that far.
	wall.second.Store(someSecond + 200 + 34*24*60*60)
	testkit.Await(t, maxWait, "the loss is over", func() bool { return fleet.Since("a") == 0 })
	assert.Zero(t, fleet.Health()[0].Since)
}

// On the meta path no trip is answered by a server that has forgotten before that is
// noticed, also without any look at the server.
func TestALossIsKnownBeforeTheFirstTrip(t *testing.T) {
	server := memcachedtest.Start(t)
	wall := newWall(someSecond)
	fleet, _ := openTold(t, memcache.Paced(memcache.Config{Servers: []string{server.Addr}, Protocol: memcache.Meta, Clock: wall.now}, time.Hour))
	require.NoError(t, fleet.Ping(t.Context())[server.Addr])
	for i := range int64(5) {
		add(t, fleet, "a", 1, 1)
		wall.second.Store(someSecond + 10*(i+1))
		server.Stop()
		server.Restart()
		addAdmitted(t, fleet, "a")
		require.Equal(t, someSecond+10*(i+1), fleet.Since("a"))
	}
}

// On the classic path it is known at the next look.
func TestALossOnTheClassicPath(t *testing.T) {
	server := memcachedtest.Start(t)
	wall := newWall(someSecond)
	fleet, told := openTold(t, memcache.Paced(memcache.Config{Servers: []string{server.Addr}, Protocol: memcache.Classic, Clock: wall.now}, 30*time.Millisecond))
	require.NoError(t, fleet.Ping(t.Context())[server.Addr])
	add(t, fleet, "a", 1, 1)
	for range 2 {
		wall.second.Add(10)
		server.Stop()
		server.Restart()
		addAdmitted(t, fleet, "a")
		told.await(t, "emptied "+server.Addr)
		assert.Equal(t, wall.second.Load(), fleet.Since("a"))
	}
}

// A process that starts after a restart learns of it from the other servers, and that a
// server was added.
func TestALossBeforeTheStart(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
		wall := newWall(someSecond)
		config := memcache.Paced(memcache.Config{Servers: []string{servers[0].Addr, servers[1].Addr}, Clock: wall.now, Protocol: protocol}, 30*time.Millisecond)
		fleet, told := openTold(t, config)
		fleet.Ping(t.Context())
		for i := range 10 {
			assert.Zero(t, fleet.Since(fmt.Sprint(i)))
		}
		wall.second.Store(someSecond + 100)
		servers[1].Stop()
		servers[1].Restart()
		told.await(t, "emptied "+servers[1].Addr)

		wall.second.Store(someSecond + 200)
		second, toldSecond := openTold(t, config)
		second.Ping(t.Context())
		toldSecond.await(t, "emptied "+servers[1].Addr)
		for i := range 10 {
			want := int64(0)
			if second.Server(fmt.Sprint(i)) == servers[1].Addr {
				want = someSecond + 100
			}
			assert.Equal(t, want, second.Since(fmt.Sprint(i)))
			assert.Equal(t, want, fleet.Since(fmt.Sprint(i)))
		}
	})
}

// What no process writes is replaced, and the server may lack anything.
func TestMarkersThatCannotBe(t *testing.T) {
	server, other := memcachedtest.Start(t), memcachedtest.Start(t)
	names := strings.Repeat(`"a",`, 5000) + `"b"`
	for _, value := range []string{
		"x", "", "-5 0", strings.Repeat("9", 5000), "null", "[]", "{}", `{"id":0}`, `{"id":1,"former":"x"}`, `{"id":1`, strings.Repeat("x", 100_000),
		`{"id":1,"replicas":6}`, `{"id":1,"evictions":-2}`, `{"id":1,"servers":[` + names + `]}`, `{"id":1,"former":[{"servers":[` + names + `]}]}`,
		`{"id":1,"former":[{},{},{},{},{}]}`, `{"id":1,"copied":{"a":{"left":-1}}}`,
	} {
		put(t, server, "counterd:memory", value)
		fleet, _ := openTold(t, memcache.Config{Servers: []string{server.Addr, other.Addr}, Clock: newWall(someSecond).now})
		for name, err := range fleet.Ping(t.Context()) {
			require.NoError(t, err, name)
		}
		fleet.Ping(t.Context())
		lost := fleet.Health()[slices.IndexFunc(fleet.Health(), func(h memcache.ServerHealth) bool { return h.Name == server.Addr })].Lost
		assert.Equal(t, int64(someSecond), lost.Since, "%.40q", value)
		assert.True(t, lost.Missed)
		assert.Contains(t, server.Ask("get counterd:memory")[1], server.Addr, "%.40q is replaced", value)
		for i := range 4 {
			add(t, fleet, fmt.Sprint(i), 1, 1)
		}
	}
}

// A marker of the future, by a process whose clock was wrong, is as one of now: what is counted from now
// on is complete.
func TestAMarkerOfTheFuture(t *testing.T) {
	server, other := memcachedtest.Start(t), memcachedtest.Start(t)
	put(t, server, "counterd:memory", fmt.Sprintf(`{"id":2,"former":[{"until":%d}]}`, someSecond+1_000_000))
	fleet, _ := openTold(t, memcache.Config{Servers: []string{server.Addr, other.Addr}, Clock: newWall(someSecond).now})
	fleet.Ping(t.Context())
	assert.Equal(t, int64(someSecond), fleet.Health()[0].Since)
}

// A full server drops what had not expired: that is said, and what it holds counts as
// lost.
func TestAServerThatEvicts(t *testing.T) {
	server := memcachedtest.Start(t, "-m", "2")
	wall := newWall(time.Now().Unix())
	fleet, told := openTold(t, memcache.Paced(memcache.Config{Servers: []string{server.Addr}, Clock: wall.now}, 20*time.Millisecond))
	fleet.Ping(t.Context())
	testkit.Await(t, maxWait, "the statistics of a look", func() bool { return fleet.Health()[0].Stats.MaxBytes == 2<<20 })
	assert.Zero(t, fleet.Since("a"))
	wall.second.Add(10)
	// Each time it is looked at: a server without a look until it has dropped all that it
	// held has dropped the marker too, and counts as emptied, which is as true.
	seen := func() memcache.ServerStats { return fleet.Health()[0].Stats }
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		return n
	}
	buckets := make([]uint64, 1000)
	for i := 0; seen().Evictions == 0; i++ {
		require.Less(t, i, 40, "it is full long before")
		for j := range buckets {
			buckets[j] = uint64(i*len(buckets) + j)
		}
		add(t, fleet, "a", 1, buckets...)
		stats := server.Stats("")
		items, evictions := number(stats["curr_items"]), number(stats["evictions"])
		testkit.Await(t, maxWait, "the next eviction", func() bool {
			return seen().Evictions >= max(evictions, 1) || evictions == 0 && seen().Items >= items
		})
	}
	assert.Empty(t, told.await(t, "evicting "+server.Addr))
	h := fleet.Health()[0]
	assert.True(t, h.Evicted)
	assert.Positive(t, h.Stats.Evictions)
	assert.Positive(t, h.Stats.Items)
	assert.Equal(t, wall.second.Load(), h.Since)
	assert.Equal(t, wall.second.Load(), fleet.Since("a"))
}

// untilAdmitted makes a call until the breakers of its servers admit it, and returns the error
// of the call. A look at a server that is restarted may have opened its breaker.
func untilAdmitted(t *testing.T, call func() error) (err error) {
	t.Helper()
	testkit.Await(t, maxWait, "the server is up", func() bool {
		err = call()
		return !errors.Is(err, memcache.ErrDown)
	})
	return err
}
