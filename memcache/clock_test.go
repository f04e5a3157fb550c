package memcache_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// One of three processes has a wrong clock: it says so, through the server that is left, and to it no
// window is complete.
func TestAWrongClock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		servers := []*memcachedtest.Memory{memcachedtest.StartMemory(t), memcachedtest.StartMemory(t)}
		const off = 5 * time.Second
		var fleets []*memcache.Fleet
		said := make(chan bool, 10)
		for i := range 3 {
			config := memcache.Config{Servers: []string{servers[0].Addr, servers[1].Addr}, Timeout: time.Second}
			if i == 1 {
				config.Clock = func() time.Time { return time.Now().Add(off) }
				config.OnClockChange = func(_ time.Duration, wrong bool) { said <- wrong }
			} else {
				config.OnClockChange = func(ahead time.Duration, _ bool) { t.Errorf("process %d: %s ahead", i, ahead) }
			}
			fleet := openConfig(t, memcache.Paced(config, 100*time.Millisecond))
			fleet.Ping(t.Context())
			fleets = append(fleets, fleet)
		}
		testkit.Await(t, maxWait, "the clock is known to be ahead", func() bool { _, known := fleets[0].ClockAhead(); return known })
		assert.True(t, <-said)
		ahead, known := fleets[1].ClockAhead()
		assert.True(t, known)
		assert.LessOrEqual(t, ahead, off)
		assert.Greater(t, ahead, memcache.DefaultSkew)
		assert.InDelta(t, time.Now().Add(off).Unix(), fleets[1].Since("a"), 60, "no window is complete")
		assert.Zero(t, fleets[0].Since("a"))
		first, second := servers[0], servers[1]
		if second.Addr < first.Addr {
			first, second = second, first
		}
		assert.Empty(t, second.Ask("get counterd:clocks"), "one server is enough")
		first.Stop()
		testkit.Await(t, maxWait, "the server has clocks", func() bool { return len(second.Ask("get counterd:clocks")) > 0 })
		assert.True(t, fleets[1].ClockWrong())
	})
}

// The keys of a server whose clock was an hour behind as it started tell when items expire by the clock of
// the process.
func TestExpiriesAreByTheClockOfTheProcess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := memcachedtest.StartMemory(t)
		clock := func() time.Time { return time.Now().Add(time.Hour) }
		fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, Clock: clock})
		expires := clock().Add(10 * time.Minute).Unix()
		_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{expires}, nil, make([]int64, 1))
		require.NoError(t, err)
		var keys []replica.Key
		require.NoError(t, fleet.Keys(t.Context(), func(k replica.Key) error {
			keys = append(keys, k)
			return nil
		}))
		require.Len(t, keys, 1)
		assert.InDelta(t, expires, keys[0].Expires, 30)
	})
}
