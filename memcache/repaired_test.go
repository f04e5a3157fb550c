//go:build testall

package memcache_test

import (
	"fmt"
	"github.com/counterd/counterd/internal/testkit"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// lossy is servers with two copies of each counter, under a clock that a test sets. Only
// the test looks at them.
type lossy struct {
	t       *testing.T
	wall    *wallAt
	servers []*memcachedtest.Server
	config  memcache.Config
}

// lossyLasts is for how long counters are remembered.
const lossyLasts = 3600

func newLossy(t *testing.T, servers int) *lossy {
	l := &lossy{t: t, wall: newWall(someSecond)}
	l.config = memcache.Paced(memcache.Config{
		Replicas: 2, Timeout: maxWait, Clock: l.wall.now, Retention: func() time.Duration { return lossyLasts * time.Second },
	}, time.Hour)
	for range servers {
		l.addServer()
	}
	return l
}

func (l *lossy) addServer() {
	server := memcachedtest.Start(l.t)
	l.servers = append(l.servers, server)
	l.config.Servers = append(l.config.Servers, server.Addr)
}

// open opens the fleet of a process that starts now.
func (l *lossy) open() *memcache.Fleet {
	l.t.Helper()
	fleet := openConfig(l.t, l.config)
	l.look(fleet)
	return fleet
}

// found opens the fleet of the first process, which founds it, and waits until it has.
func (l *lossy) found() *memcache.Fleet {
	l.t.Helper()
	fleet := l.open()
	l.awaitFounded(fleet, l.servers...)
	return fleet
}

// awaitFounded looks at the servers until a server without a marker is one that has lost it.
func (l *lossy) awaitFounded(fleet *memcache.Fleet, servers ...*memcachedtest.Server) {
	l.t.Helper()
	testkit.Await(l.t, maxWait, "no server is founding", func() bool {
		fleet.Ping(l.t.Context())
		return !slices.ContainsFunc(servers, func(server *memcachedtest.Server) bool {
			return strings.Contains(fmt.Sprint(server.Ask("get counterd:memory")), "founding")
		})
	})
}

// look has the process look at all servers, until it knows none as down or away.
func (l *lossy) look(fleet *memcache.Fleet) {
	l.t.Helper()
	testkit.Await(l.t, maxWait, "all servers are up", func() bool {
		for name, err := range fleet.Ping(l.t.Context()) {
			require.NoError(l.t, err, name)
		}
		return !slices.ContainsFunc(fleet.Health(), func(h memcache.ServerHealth) bool { return !h.Up || h.Missed })
	})
}

// lose has servers come back empty so many seconds later, and returns the second.
func (l *lossy) lose(later int64, servers ...int) int64 {
	l.t.Helper()
	second := l.wall.second.Add(later)
	for _, i := range servers {
		l.servers[i].Stop()
		l.servers[i].Restart()
	}
	return second
}

// since returns the second before which each server has lost counters, as the process says after a look.
func (l *lossy) since(fleet *memcache.Fleet) (since []int64) {
	l.t.Helper()
	l.look(fleet)
	for _, h := range fleet.Health() {
		since = append(since, h.Since)
	}
	return since
}

// repair has the process say that it has copied all that can be copied, as after the looks of which it learns what
// others have copied.
func (l *lossy) repair(fleet *memcache.Fleet) {
	l.t.Helper()
	for l.copyOne(fleet) {
	}
}

// copyOne has the process say that it has copied a server from another one. It reports whether there was
// anything to copy.
func (l *lossy) copyOne(fleet *memcache.Fleet) bool {
	l.t.Helper()
	l.look(fleet)
	copying, err := fleet.Claim(l.t.Context())
	require.NoError(l.t, err)
	if copying == nil {
		return false
	}
	source, err := copying.Next(l.t.Context())
	require.NoError(l.t, err)
	require.NotNil(l.t, source)
	require.NoError(l.t, copying.Done(l.t.Context(), source))
	require.NoError(l.t, copying.Release(l.t.Context()))
	return true
}

// All processes say the same of a loss, whenever they began and whichever saw it first, in a young
// fleet, too: until it was copied from all other servers.
func TestAllProcessesSayTheSameOfALoss(t *testing.T) {
	for name, seen := range map[string]bool{"seen by one that was there": true, "seen by one that starts": false} {
		t.Run(name, func(t *testing.T) {
			l := newLossy(t, 3)
			processes := []*memcache.Fleet{l.found()}
			l.wall.second.Add(1)
			processes = append(processes, l.open())
			say := func(since ...int64) {
				t.Helper()
				for i, fleet := range processes {
					require.Equal(t, since, l.since(fleet), "process %d", i)
				}
			}
			say(0, 0, 0)
			lost := l.lose(2, 0)
			if seen {
				say(lost, 0, 0)
			}
			processes = append(processes, l.open())
			say(lost, 0, 0)
			l.wall.second.Add(100)
			processes = append(processes, l.open())
			say(lost, 0, 0)

			youngest, oldest := processes[3], processes[0]
			require.True(t, l.copyOne(youngest))
			say(lost, 0, 0)
			assert.Equal(t, memcache.Lost{Since: lost, Repairing: true, Percent: 50}, oldest.Health()[0].Lost)
			claimed, err := oldest.Claim(t.Context())
			require.NoError(t, err)
			require.NotNil(t, claimed)
			say(lost, 0, 0)
			require.False(t, l.copyOne(youngest), "another process copies")
			require.NoError(t, claimed.Release(t.Context()))
			require.True(t, l.copyOne(youngest))
			processes = append(processes, l.open())
			say(0, 0, 0)
			require.False(t, l.copyOne(youngest))
		})
	}
}

// Losses one after the other that were each repaired leave nothing behind. What went from all
// copies at a time has gone, and is not held against a later loss.
func TestLossesOneAfterTheOther(t *testing.T) {
	l := newLossy(t, 3)
	fleet := l.found()
	for i := range l.servers {
		l.lose(10, i)
		require.NotZero(t, l.since(fleet)[i])
		l.repair(fleet)
		require.Equal(t, []int64{0, 0, 0}, l.since(fleet))
		require.Equal(t, []int64{0, 0, 0}, l.since(l.open()))
	}
	lost := l.lose(10, 0, 1)
	require.Equal(t, []int64{lost, lost, 0}, l.since(fleet))
	l.repair(fleet)
	require.Equal(t, []int64{lost, lost, 0}, l.since(fleet))
	assert.True(t, fleet.Health()[0].Left)
	third := l.lose(10, 2)
	require.Equal(t, []int64{lost, lost, third}, l.since(fleet))
	l.repair(fleet)
	for _, fleet := range []*memcache.Fleet{fleet, l.open()} {
		require.Equal(t, []int64{lost, lost, 0}, l.since(fleet), "the others have what it had")
		for i := range 20 {
			want := lost
			if slices.Contains(fleet.Servers(fmt.Sprint(i)), l.servers[2].Addr) {
				want = 0
			}
			require.Equal(t, want, fleet.Since(fmt.Sprint(i)))
		}
	}
	l.wall.second.Store(lost + lossyLasts + 24*60*60)
	require.Equal(t, []int64{lost, lost, 0}, l.since(fleet))
	l.wall.second.Add(1)
	require.Equal(t, []int64{0, 0, 0}, l.since(fleet))
}

// If all servers come back empty, what was lost stays lost, as soon as a process looks that was there. If there is
// none, nothing tells it from a new fleet.
func TestAllServersAreLost(t *testing.T) {
	l := newLossy(t, 2)
	old := l.found()
	lost := l.lose(100, 0, 1)
	young := l.open()
	require.Equal(t, []int64{lost, lost}, l.since(old))
	require.Equal(t, []int64{lost, lost}, l.since(young))
	for _, fleet := range []*memcache.Fleet{young, old} {
		l.repair(fleet)
		require.Equal(t, []int64{lost, lost}, l.since(fleet))
	}
	require.NoError(t, old.Close())
	require.NoError(t, young.Close())
	l.lose(100, 0, 1)
	require.Equal(t, []int64{0, 0}, l.since(l.open()))
}

// A server that is added to a fleet lacks all until it was copied, and no other server lacks anything.
func TestAnAddedServerIsRepaired(t *testing.T) {
	l := newLossy(t, 2)
	fleet := l.found()
	added := l.wall.second.Add(100)
	l.addServer()
	require.NoError(t, fleet.SetServers(t.Context(), l.config.Servers))
	require.Equal(t, added, fleet.Health()[2].Since, "it is known before it is looked at")
	require.Equal(t, []int64{0, 0, added}, l.since(fleet))
	l.wall.second.Add(100)
	young := l.open()
	require.Equal(t, []int64{0, 0, added}, l.since(young))
	l.repair(young)
	require.Equal(t, []int64{0, 0, 0}, l.since(young))
	require.Equal(t, []int64{0, 0, 0}, l.since(fleet))
}

// A server that has lost something while it was copied from is no source.
func TestALossDuringARepair(t *testing.T) {
	l := newLossy(t, 2)
	fleet := l.found()
	lost := l.lose(10, 0)
	l.look(fleet)
	copying, err := fleet.Claim(t.Context())
	require.NoError(t, err)
	require.NotNil(t, copying)
	source, err := copying.Next(t.Context())
	require.NoError(t, err)
	l.wall.second.Add(10)
	l.servers[1].Ask("flush_all")
	require.ErrorIs(t, copying.Done(t.Context(), source), replica.ErrOvertaken)
	require.NoError(t, copying.Release(t.Context()))
	require.Equal(t, []int64{lost, lost + 10}, l.since(fleet))
	l.repair(fleet)
	require.Equal(t, []int64{lost, lost + 10}, l.since(fleet), "both replicas of counters may have gone")
}

// A server that comes up for the first time after the others has lost what it cannot have. Hints
// make up for what was counted meanwhile.
func TestAServerThatComesLate(t *testing.T) {
	l := newLossy(t, 3)
	l.config.Timeout = slowTimeout // hints wait for two of them
	l.wall.second.Store(time.Now().Unix())
	late := l.servers[2]
	late.Stop()
	fleet := openConfig(t, l.config)
	l.awaitFounded(fleet, l.servers[:2]...)
	require.False(t, fleet.Health()[2].Up)
	counter := "a"
	for !slices.Contains(fleet.Servers(counter), late.Addr) {
		counter += "a"
	}
	keep(t, fleet, counter, 1, 1)
	came := l.wall.second.Add(20)
	late.Restart()
	awaitReplay(t, fleet)
	require.Equal(t, []int64{0, 0, came}, l.since(fleet))
	require.Equal(t, []int64{1}, holds(t, fleet, counter, late.Addr, 1))
	l.repair(fleet)
	require.Equal(t, []int64{0, 0, 0}, l.since(fleet))
}

// An item that holds no count is replaced by the count of another server only while that one
// is whole: else nothing says what the count was, and the repair of the counter fails.
func TestABadItemBesideALoss(t *testing.T) {
	l := newLossy(t, 2)
	fleet := l.found()
	keep(t, fleet, "a", 5, 1)
	first := l.servers[0].Addr
	storeItem(t, first, memcache.Keys("a", []uint64{1})[0], 0, "abc")
	values, versions := make([]int64, 1), make([]uint64, 1)
	look := func() error { return storetest.Look(t.Context(), fleet, "a", first, []uint64{1}, values, versions) }
	require.NoError(t, look())
	require.Zero(t, values[0])
	require.NotZero(t, versions[0])
	l.lose(10, 1)
	l.look(fleet)
	require.ErrorIs(t, look(), store.ErrNoCount)
	_, err := storetest.Trip(t.Context(), fleet, "a", 0, nil, nil, []uint64{1}, make([]int64, 1))
	require.ErrorIs(t, err, store.ErrNoCount)
	l.repair(fleet)
	require.Equal(t, []int64{0, 0}, l.since(fleet))
	require.NoError(t, look())
}
