//go:build testall

package repair_test

import (
	"context"
	"errors"
	"fmt"
	"github.com/counterd/counterd/internal/testkit"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/replica/repair"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// survivor is one process with counters that have two copies, under load, and an oracle
// of what was acknowledged.
type survivor struct {
	servers  []*memcachedtest.Server
	fleet    *memcache.Fleet
	repairer *repair.Repairer
	counters *hierarchy.Counters
	limiter  *limiter.Limiter
	event    *events.Event

	mu      sync.Mutex
	acked   map[string]map[int64]int64 // by user and second
	unknown map[string]int64           // that may have been counted
	stop    chan struct{}
	load    sync.WaitGroup
}

// survivorTimeout is longer than the moments for which a busy machine pauses. A hint of a
// replica that answers too late may count twice.
const survivorTimeout = 2 * time.Second

func newSurvivor(t *testing.T, servers int, protocol memcache.Protocol) *survivor {
	t.Helper()
	s := &survivor{acked: map[string]map[int64]int64{}, unknown: map[string]int64{}, stop: make(chan struct{})}
	var names []string
	for range servers {
		server := memcachedtest.Start(t)
		s.servers = append(s.servers, server)
		names = append(names, server.Addr)
	}
	fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: names, Replicas: 2, Protocol: protocol, Timeout: survivorTimeout})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fleet.Close()) })
	s.fleet = fleet
	layout := hierarchy.Layout{Grace: 2 * survivorTimeout}
	s.repairer, err = repair.New(repair.Config{
		Store: s.fleet, Layout: layout, Grace: layout.Grace, MaxBytes: 1 << 20,
		OnCopyEnd: func(copied repair.Copy) { t.Logf("%+v", copied) },
		OnError:   func(err error) { t.Log(err) },
	})
	require.NoError(t, err)
	t.Cleanup(s.repairer.Close)
	s.counters = hierarchy.NewCounters(hierarchy.Config{Store: s.fleet, Grace: layout.Grace, OnUse: layout.OnUse(s.repairer.Note)})
	s.limiter, err = limiter.New(limiter.Config{Timeout: survivorTimeout}, s.counters)
	require.NoError(t, err)
	s.event = &events.Event{Name: "e", Rules: []events.Rule{{Per: []string{"user"}, OnError: events.OnErrorDeny, Limits: []events.Limit{
		{N: 20, Window: time.Second, Name: "20/s"}, {N: 1 << 40, Window: 24 * time.Hour, Name: "d"},
	}}}}
	return s
}

func (s *survivor) counter(t *testing.T, user string) events.Counter {
	counter, err := s.event.Counter(events.Features{"user": user})
	assert.NoError(t, err)
	return counter
}

func (s *survivor) count(user string, second int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acked[user] == nil {
		s.acked[user] = map[int64]int64{}
	}
	s.acked[user][second]++
}

func (s *survivor) doubt(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown[user]++
}

// remember increments counters at moments of the last hours.
func (s *survivor) remember(t *testing.T, users int) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 * users {
		user, at := fmt.Sprint(rng.IntN(users)), time.Now().Add(-time.Duration(rng.Int64N(int64(20*time.Hour))))
		second, err := s.counters.Increment(t.Context(), 1, at, s.counter(t, user))
		if errors.Is(err, engine.ErrStore) {
			s.doubt(user)
			continue
		}
		require.NoError(t, err)
		s.count(user, second.Unix())
	}
}

// loadPause is between two calls of one caller.
const loadPause = 20 * time.Millisecond

// increment increments a counter of one of the users, over and over.
func (s *survivor) increment(t *testing.T, users int) {
	s.load.Go(func() {
		for rng := rand.New(rand.NewPCG(1, uint64(users))); ; {
			select {
			case <-s.stop:
				return
			case <-time.After(loadPause):
			}
			user := fmt.Sprint(rng.IntN(users))
			second, err := s.counters.Increment(context.Background(), 1, time.Time{}, s.counter(t, user))
			if err != nil {
				s.doubt(user)
				continue
			}
			s.count(user, second.Unix())
		}
	})
}

// hit hits, with many denials.
func (s *survivor) hit(t *testing.T, users int) {
	s.load.Go(func() {
		for rng := rand.New(rand.NewPCG(2, uint64(users))); ; {
			select {
			case <-s.stop:
				return
			case <-time.After(loadPause):
			}
			user := fmt.Sprint(rng.IntN(users))
			d, err := s.limiter.Hit(context.Background(), limiter.Hit{Event: s.event, Features: events.Features{"user": user}, Cost: 1})
			assert.NoError(t, err)
			switch {
			case d.Unavailable || err != nil:
				s.doubt(user)
			case d.Allowed:
				s.count(user, d.At.Unix())
			}
		}
	})
}

// loseOne kills a server, lets it return empty, and waits until it is repaired.
func (s *survivor) loseOne(t *testing.T) {
	t.Helper()
	s.servers[0].Stop()
	time.Sleep(300 * time.Millisecond) // under load
	s.servers[0].Restart()
	whole(t, s.fleet)
}

// whole waits until the process knows that a server lacks something, and then until none does.
func whole(t *testing.T, fleet *memcache.Fleet) {
	t.Helper()
	isWhole := func(h memcache.ServerHealth) bool { return h.Lost == (memcache.Lost{}) }
	testkit.Await(t, 3*time.Minute, "the loss is seen", func() bool {
		return slices.ContainsFunc(fleet.Health(), func(h memcache.ServerHealth) bool { return !isWhole(h) })
	})
	eventually(t, fleet, isWhole)
}

// eventually waits until all servers are so.
func eventually(t *testing.T, fleet *memcache.Fleet, so func(memcache.ServerHealth) bool) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, h := range fleet.Health() {
			assert.True(t, so(h), "%+v", h)
		}
	}, 3*time.Minute, 10*time.Millisecond)
}

// judge counts what is left.
func (s *survivor) judge(t *testing.T) {
	t.Helper()
	var total, above, unknown int64
	for user, seconds := range s.acked {
		counter, sum := s.counter(t, user), int64(0)
		for _, n := range seconds {
			sum += n
		}
		count := patiently(t, func() (engine.Count, error) {
			return s.counters.Count(t.Context(), counter, 24*time.Hour, time.Time{})
		})
		assert.GreaterOrEqual(t, count.Count, sum, "of user %s", user)
		total += sum
		above += count.Count - sum
		unknown += s.unknown[user]
		for _, level := range []engine.Level{engine.Second, engine.Minute, engine.Hour} {
			from := time.Now().Add(-time.Hour)
			if level == engine.Hour {
				from = time.Now().Add(-24 * time.Hour)
			}
			history := patiently(t, func() (engine.History, error) {
				return s.counters.History(t.Context(), counter, level, from, time.Now())
			})
			for _, interval := range history.Intervals {
				want := int64(0)
				for second, n := range seconds {
					if second >= interval.First && second <= interval.Last {
						want += n
					}
				}
				assert.GreaterOrEqual(t, interval.Count, want, "user %s, %s %d", user, level, interval.First)
			}
		}
	}
	state := s.repairer.State()
	t.Logf("%d acknowledged, %d more counted, %d of unknown outcome; %+v", total, above, unknown, state)
	assert.Positive(t, state.Raised)
	assert.LessOrEqual(t, above, unknown+total/20+50, "what is counted twice is little")
}

// patiently repeats a question that the store does not answer in time: the machine may be busy.
func patiently[T any](t *testing.T, ask func() (T, error)) (answer T) {
	t.Helper()
	var err error
	for range 60 {
		if answer, err = ask(); !errors.Is(err, engine.ErrStore) {
			break
		}
	}
	require.NoError(t, err)
	return answer
}

// A server dies under load, comes back empty and is repaired; then another dies: no
// acknowledged count is lost.
func TestASecondServerMayDieWhenTheFirstIsRepaired(t *testing.T) {
	leaktest.Parallel(t)
	for servers, protocol := range map[int]memcache.Protocol{2: memcache.Classic, 3: memcache.Meta} {
		t.Run(fmt.Sprintf("%d servers, %s", servers, protocol), func(t *testing.T) {
			t.Parallel()
			s := newSurvivor(t, servers, protocol)
			s.remember(t, 20)
			s.increment(t, 20)
			s.hit(t, 5)
			s.hit(t, 5)
			time.Sleep(time.Second) // of load
			s.loseOne(t)
			s.servers[1].Stop()
			time.Sleep(300 * time.Millisecond)
			close(s.stop)
			s.load.Wait()
			s.judge(t)
		})
	}
}

// The same with a counter that is never quiet.
func TestABusyCounterIsRepaired(t *testing.T) {
	leaktest.Parallel(t)
	for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic} {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			s := newSurvivor(t, 2, protocol)
			for range 8 {
				s.increment(t, 1)
			}
			s.hit(t, 1)
			time.Sleep(time.Second)
			s.loseOne(t)
			s.servers[1].Stop()
			time.Sleep(300 * time.Millisecond)
			close(s.stop)
			s.load.Wait()
			s.judge(t)
		})
	}
}
