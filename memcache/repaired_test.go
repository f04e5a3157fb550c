package memcache_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/store"
	"github.com/counterd/counterd/store/storetest"
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

// open opens a fleet, as a process that starts so many seconds after the last thing did.
func (l *lossy) open(later int64) *memcache.Fleet {
	l.t.Helper()
	l.wall.second.Add(later)
	fleet := openConfig(l.t, l.config)
	l.look(fleet)
	return fleet
}

// look has the process look at all servers.
func (l *lossy) look(fleet *memcache.Fleet) {
	l.t.Helper()
	require.NoError(l.t, untilAdmitted(l.t, func() error {
		for name, err := range fleet.Ping(l.t.Context()) {
			require.NoError(l.t, err, name)
		}
		for _, h := range fleet.Health() {
			if !h.Up { // a ping reaches a server that is down, and does not look at it
				return memcache.ErrDown
			}
		}
		return nil
	}))
}

// lose has servers come back empty so many seconds later, and returns the second. Those
// that watch notice.
func (l *lossy) lose(later int64, watch []*memcache.Fleet, servers ...int) int64 {
	l.t.Helper()
	second := l.wall.second.Add(later)
	for _, i := range servers {
		l.servers[i].Stop()
		l.servers[i].Restart()
	}
	for _, fleet := range watch {
		l.look(fleet)
		for _, i := range servers {
			require.Equal(l.t, second, fleet.Health()[i].Since, "it is not seen")
		}
	}
	return second
}

// repaired has all counters of a process be compared, and returns since when it says that
// the servers are whole.
func (l *lossy) repaired(fleet *memcache.Fleet) (since []int64) {
	fleet.Repaired(fleet.Gaps())
	for _, h := range fleet.Health() {
		since = append(since, h.Since)
	}
	return since
}

func some(fleet *memcache.Fleet) []*memcache.Fleet { return []*memcache.Fleet{fleet} }

// use keeps counters on all servers.
func (l *lossy) use(fleet *memcache.Fleet) {
	for i := range 20 {
		keep(l.t, fleet, fmt.Sprint(i), 1, 1)
	}
}

// A process says that a server is whole again after a repair only if it knew, when the
// server lost what it held, all counters that matter.
func TestWhoMayCallAServerWhole(t *testing.T) {
	for name, test := range map[string]func(l *lossy, old *memcache.Fleet) (want, got []int64){
		"one that found all servers empty": func(l *lossy, old *memcache.Fleet) (want, got []int64) {
			l.lose(10, some(old), 0)
			return []int64{0, 0}, l.repaired(old)
		},
		"one that started on empty servers beside another": func(l *lossy, _ *memcache.Fleet) (want, got []int64) {
			l = newLossy(l.t, 2)
			l.open(0)
			second := l.open(1)
			l.lose(10, some(second), 0)
			return []int64{0, 0}, l.repaired(second)
		},
		"not one that started later": func(l *lossy, _ *memcache.Fleet) (want, got []int64) {
			young := l.open(10)
			lost := l.lose(lossyLasts-1, some(young), 0)
			return []int64{lost, 0}, l.repaired(young)
		},
		"one that has run for longer than counters are remembered": func(l *lossy, _ *memcache.Fleet) (want, got []int64) {
			young := l.open(10)
			l.lose(lossyLasts, some(young), 0)
			return []int64{0, 0}, l.repaired(young)
		},
		"not of a loss just before its start": func(l *lossy, old *memcache.Fleet) (want, got []int64) {
			lost := l.lose(100, some(old), 0)
			return []int64{lost, 0}, l.repaired(l.open(2))
		},
		"not where it finds no marker and puts it there itself": func(l *lossy, _ *memcache.Fleet) (want, got []int64) {
			lost := l.lose(100, nil, 0)
			return []int64{lost, 0}, l.repaired(l.open(0))
		},
		"not in a fleet that is younger than a minute": func(l *lossy, old *memcache.Fleet) (want, got []int64) {
			lost := l.lose(3, some(old), 0)
			return []int64{lost, 0}, l.repaired(l.open(3))
		},
		"not one that starts after all were lost": func(l *lossy, old *memcache.Fleet) (want, got []int64) {
			lost := l.lose(100, some(old), 0, 1)
			return []int64{lost, lost}, l.repaired(l.open(1))
		},
		"not one that starts after all were lost one by one": func(l *lossy, old *memcache.Fleet) (want, got []int64) {
			first := l.lose(10, some(old), 0)
			l.repaired(old)
			second := l.lose(10, some(old), 1)
			return []int64{first, second}, l.repaired(l.open(1))
		},
		"not one that starts after all were lost, before one that ran looks": func(l *lossy, old *memcache.Fleet) (want, got []int64) {
			lost := l.lose(100, nil, 0, 1)
			young := l.open(0)
			assert.Equal(l.t, []int64{0, 0}, l.repaired(young), "nothing tells it")
			l.look(old)
			l.look(young)
			assert.Equal(l.t, []int64{lost, lost}, l.repaired(old))
			l.look(l.open(1))
			return []int64{lost, lost}, l.repaired(young)
		},
		"where all were lost and none was there, nothing is known": func(l *lossy, old *memcache.Fleet) (want, got []int64) {
			require.NoError(l.t, old.Close())
			l.lose(100, nil, 0, 1)
			return []int64{0, 0}, l.repaired(l.open(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLossy(t, 2)
			old := l.open(0)
			l.use(old)
			want, got := test(l, old)
			assert.Equal(t, want, got)
		})
	}
}

// A server that comes up for the first time after the others lost nothing that its fleet's
// first process does not know.
func TestAServerThatComesLate(t *testing.T) {
	l := newLossy(t, 2)
	l.servers[1].Stop()
	fleet := openConfig(t, l.config)
	require.Error(t, fleet.Ping(t.Context())[l.servers[1].Addr])
	l.use(fleet)
	l.wall.second.Add(20)
	l.servers[1].Restart()
	require.Eventually(t, func() bool {
		keep(t, fleet, "a", 1, 1)
		return fleet.Health()[1].Up
	}, maxWait, time.Millisecond)
	assert.Equal(t, int64(someSecond+20), fleet.Health()[1].Since)
	assert.Equal(t, []int64{0, 0}, l.repaired(fleet))
}

// Losses that are repaired one after the other leave nothing behind; of those at a time what
// has gone from all copies has gone, and is not held against a later one.
func TestLossesOneAfterTheOther(t *testing.T) {
	l := newLossy(t, 3)
	fleet := l.open(0)
	l.use(fleet)
	for i := range l.servers {
		l.lose(10, some(fleet), i)
		assert.Equal(t, []int64{0, 0, 0}, l.repaired(fleet))
	}
	lost := l.lose(10, some(fleet), 0, 1)
	assert.Equal(t, []int64{lost, lost, 0}, l.repaired(fleet))
	l.lose(10, some(fleet), 2)
	assert.Equal(t, []int64{lost, lost, 0}, l.repaired(fleet), "the others were repaired before")
	again := l.lose(10, some(fleet), 0)
	assert.Equal(t, again, fleet.Health()[0].Since)
	assert.Equal(t, []int64{lost, lost, 0}, l.repaired(fleet), "the other has had it since")
	l.wall.second.Add(lossyLasts + 24*60*60)
	l.look(fleet)
	assert.Equal(t, []int64{0, 0, 0}, l.repaired(fleet))
}

// A marker written after a loss says so, and is as long as any other. Versions that do not
// know the sign read it, too: as a second and a number.
func TestAMarkerTellsOfALoss(t *testing.T) {
	l := newLossy(t, 2)
	fleet := l.open(0)
	marker := func() string { return strings.Join(l.servers[0].Ask("get counterd:memory"), "\n") }
	require.Regexp(t, `^VALUE counterd:memory 0 21\n\d{10} [0-9a-f]{10}$`, marker())
	l.lose(10, some(fleet), 0)
	require.Regexp(t, `^VALUE counterd:memory 0 21\n\+\d{10} [0-9a-f]{9}$`, marker())
	_, text, _ := strings.Cut(marker(), "\n")
	second, random, _ := strings.Cut(text, " ")
	number, err := strconv.ParseInt(second, 10, 64)
	require.NoError(t, err)
	require.Equal(t, l.wall.second.Load(), number)
	_, err = strconv.ParseUint(random, 16, 64)
	require.NoError(t, err)
}

// An item that holds no count is replaced by the count of another server only while that one
// is whole: else nothing says what the count was, and the repair of the counter fails.
func TestABadItemBesideALoss(t *testing.T) {
	l := newLossy(t, 2)
	fleet := l.open(0)
	keep(t, fleet, "a", 5, 1)
	first := l.servers[0].Addr
	storeItem(t, first, memcache.Keys("a", []uint64{1})[0], 0, "abc")
	values, versions := make([]int64, 1), make([]uint64, 1)
	look := func() error { return storetest.Look(t.Context(), fleet, "a", first, []uint64{1}, values, versions) }
	require.NoError(t, look())
	require.Zero(t, values[0])
	require.NotZero(t, versions[0])
	l.lose(10, some(fleet), 1)
	require.ErrorIs(t, look(), store.ErrNoCount)
	_, err := storetest.Trip(t.Context(), fleet, "a", 0, nil, nil, []uint64{1}, make([]int64, 1))
	require.ErrorIs(t, err, store.ErrNoCount)
	require.Equal(t, []int64{0, 0}, l.repaired(fleet))
	require.NoError(t, look())
}

// A server that is added to a fleet is one change, though it is empty as well.
func TestAnAddedServerIsRepaired(t *testing.T) {
	l := newLossy(t, 2)
	fleet := l.open(0)
	l.use(fleet)
	l.wall.second.Add(100)
	l.addServer()
	require.NoError(t, fleet.SetServers(t.Context(), l.config.Servers))
	l.look(fleet)
	assert.Equal(t, int64(someSecond+100), fleet.Health()[2].Since)
	assert.Equal(t, []int64{0, 0, 0}, l.repaired(fleet))
	l.lose(10, some(fleet), 0)
	assert.Equal(t, []int64{0, 0, 0}, l.repaired(fleet))
}

// A loss that has not been seen yet while counters were compared is seen before a server is
// called whole.
func TestALossDuringARepair(t *testing.T) {
	l := newLossy(t, 2)
	fleet := l.open(0)
	l.use(fleet)
	lost := l.lose(10, some(fleet), 0)
	gaps := fleet.Gaps()
	l.wall.second.Add(10)
	l.servers[1].Ask("flush_all")
	fleet.Repaired(gaps)
	assert.Equal(t, lost, fleet.Health()[0].Since)
	assert.Equal(t, []int64{lost, lost + 10}, l.repaired(fleet), "both replicas of counters may have gone")
}
