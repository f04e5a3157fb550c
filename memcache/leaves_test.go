package memcache_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// With one replica, counters move when a server leaves the list: each process says so of them from the moment at which
// its own list changes, also if others change theirs earlier or later.
func TestAServerLeavesTheList(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		var names []string
		for range 3 {
			names = append(names, memcachedtest.StartMemory(t).Addr)
		}
		rules, err := rulesfile.Parse([]byte(`events: {e: {limits: [{per: user, rate: 1000/h}]}}`))
		require.NoError(t, err)
		var fleets []*memcache.Fleet
		var deciders []*limiter.Limiter
		for range 3 {
			fleet := openConfig(t, memcache.Config{Servers: names, Protocol: protocol})
			decider, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: fleet}))
			require.NoError(t, err)
			fleet.Ping(t.Context())
			fleets, deciders = append(fleets, fleet), append(deciders, decider)
		}
		time.Sleep(10 * time.Second)
		moves := map[string]bool{}
		hit := func(process, user int) {
			t.Helper()
			hit := limiter.Hit{Event: rules.Events["e"], Features: events.Features{"user": fmt.Sprint(user)}, Cost: 1}
			counter, err := hit.Event.Counter(hit.Features)
			require.NoError(t, err)
			id := counter.ID()
			if _, known := moves[id]; !known {
				moves[id] = fleets[process].Servers(id)[0] == names[2]
			}
			d, err := deciders[process].Hit(t.Context(), hit)
			require.NoError(t, err)
			changed := len(fleets[process].Health()) == 2
			if changed || !moves[id] { // a process with the list before may know of the change by a marker
				require.Equal(t, moves[id], d.Limits[0].Incomplete, "process %d", process)
			}
		}
		for user := range 30 {
			hit(user%3, user)
		}
		began := time.Now()
		for i := range 500 {
			time.Sleep(10 * time.Millisecond)
			for process := range 3 { // half a second apart
				if i == 50*process {
					require.NoError(t, fleets[process].SetServers(t.Context(), names[:2]))
				}
			}
			hit(i%3, i%30)
		}
		require.Greater(t, time.Since(began), 4*time.Second)
	})
}
