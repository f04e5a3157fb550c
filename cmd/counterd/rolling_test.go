package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// rolling is two servers with two copies of each counter and two processes, each of which
// is restarted in turn, while new users come all the time. An oracle knows what was admitted
// of each user, and holds each hit beyond the limit to say that it may be.
type rolling struct {
	t         *testing.T
	servers   []*memcachedtest.Server
	args      []string
	processes []*process
	stream    sync.WaitGroup

	mu       sync.Mutex
	clients  []*client.Client
	admitted map[string]int
	beyond   int      // hits admitted beyond the limit
	unsaid   []string // the users of the servers that do not say so
}

const (
	rollingRules = "events: {login: {limits: [{per: user, rate: 5/d, on_error: deny}]}}\n"
	rollingLogs  = "events: {login: {limits: [{per: user, rate: 5/d, algorithm: sliding-log, on_error: deny}]}}\n"
	rollingLimit = 5
)

// newRolling starts all with those rules, and so long between two new users.
func newRolling(t *testing.T, rulesText string, every time.Duration) *rolling {
	t.Helper()
	leaktest.Check(t)
	r := &rolling{t: t, admitted: map[string]int{}}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, rules, rulesText)
	var names []string
	for range 2 {
		server := memcachedtest.Start(t)
		r.servers, names = append(r.servers, server), append(names, server.Addr)
	}
	r.args = []string{"-memcached", strings.Join(names, ","), "-replicas", "2", "-rules", rules, "-timeout", "2s", "-grace", "4s"}
	for range 2 {
		p := startProcess(t, r.args...)
		r.processes, r.clients = append(r.processes, p), append(r.clients, p.client(t))
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.stream.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			r.hit(i, fmt.Sprint("new-", i))
			r.hit(i+1, fmt.Sprint("new-", i/2)) // one that came before, at the other process
			select {
			case <-time.After(every):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		r.stream.Wait()
	})
	return r
}

func (r *rolling) hit(process int, user string) {
	r.mu.Lock()
	c := r.clients[process%len(r.clients)]
	r.mu.Unlock()
	d, err := c.Hit(context.Background(), "login", events.Features{"user": user}, 1)
	if err != nil || !d.Allowed {
		return // a process that is being restarted, or a server that is missing
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.admitted[user]++; r.admitted[user] <= rollingLimit {
		return
	}
	r.beyond++
	if !d.Limits[0].Incomplete {
		r.unsaid = append(r.unsaid, user)
	}
}

// use has users with that name hit at both processes, often enough for their limits.
func (r *rolling) use(name string, users int) {
	for i := range users {
		for process := range 2 * rollingLimit {
			r.hit(process, fmt.Sprint(name, "-", i))
		}
	}
}

// restart restarts the processes, one after the other.
func (r *rolling) restart() {
	r.t.Helper()
	for i, p := range r.processes {
		require.NoError(r.t, p.Process.Signal(syscall.SIGTERM))
		require.NoError(r.t, p.Wait())
		p = startProcess(r.t, r.args...)
		r.processes[i] = p
		r.mu.Lock()
		r.clients[i] = p.client(r.t)
		r.mu.Unlock()
	}
}

// lose has a server come back empty, and waits until all processes have compared what they
// know since they saw it.
func (r *rolling) lose(server int) {
	r.t.Helper()
	compared := make([]int, len(r.processes))
	for i, p := range r.processes {
		compared[i] = strings.Count(p.log.String(), "a server may have missed something")
	}
	r.servers[server].Stop()
	for _, p := range r.processes {
		p.log.Await(r.t, "a memcached server is down")
	}
	r.servers[server].Restart()
	for i, p := range r.processes {
		require.Eventually(r.t, func() bool {
			log := p.log.String()
			_, after, _ := strings.Cut(log, "came back empty, or is new")
			return strings.Count(log, "a server may have missed something") > compared[i] && strings.Contains(after, "the replicas of all counters were compared")
		}, 3*time.Minute, 5*time.Millisecond, "%s", p.log)
	}
}

// await waits until all processes say that of the server.
func (r *rolling) await(server int, says string) {
	r.t.Helper()
	for _, p := range r.processes {
		require.Eventually(r.t, func() bool {
			return strings.HasPrefix(p.readiness(r.t)[r.servers[server].Addr]+"$", says)
		}, 3*time.Minute, 20*time.Millisecond, "not %s: %v %s", says, p.readiness(r.t), p.log)
	}
}

// said fails the test if a hit was admitted beyond its limit and did not say so. It returns
// how many were admitted beyond.
func (r *rolling) said() int {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Empty(r.t, r.unsaid, "of %d hits beyond their limits", r.beyond)
	return r.beyond
}

const (
	whole = "reachable$"
	empty = "reachable, empty since"
)

// A server is killed and comes back under a stream of new users, then the other one: both
// are whole again, each after one repair, and no limit begins again.
func TestTwoLossesRepairedOneAfterTheOther(t *testing.T) {
	leaktest.Parallel(t)
	for name, test := range map[string]struct {
		rules string
		every time.Duration
	}{
		"a new user in 2.5 s": {rollingRules, 2500 * time.Millisecond}, "many a second": {rollingRules, 20 * time.Millisecond}, "logs": {rollingLogs, 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			if test.every > time.Second {
				testkit.Long(t)
			}
			t.Parallel()
			r := newRolling(t, test.rules, test.every)
			r.use("known", 20)
			for server := range r.servers {
				r.lose(server)
				r.await(server, whole)
			}
			r.await(0, whole)
			r.use("known", 20)
			assert.Zero(t, r.said())
		})
	}
}

// Processes that were restarted do not know what the servers held: a rolling restart that
// does not wait makes limits begin again, and each hit beyond one says so; also at
// processes that are restarted afterwards.
func TestARollingRestartBeginsWithCounterd(t *testing.T) {
	leaktest.Parallel(t)
	for name, rules := range map[string]string{"buckets": rollingRules, "logs": rollingLogs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRolling(t, rules, 50*time.Millisecond)
			r.use("known", 40)
			r.use("later", 40)
			require.Zero(t, r.said())
			r.restart()
			for server := range r.servers {
				r.lose(server)
				r.await(server, empty)
			}
			r.use("known", 40)
			assert.Positive(t, r.said(), "nothing was lost")
			before := r.said()
			r.restart()
			r.use("later", 40)
			assert.Greater(t, r.said(), before, "nothing was lost")
			for server := range r.servers {
				r.await(server, empty)
			}
		})
	}
}

// The same where the processes are restarted between the two losses.
func TestCounterdIsRestartedBetweenTwoLosses(t *testing.T) {
	testkit.Long(t)
	r := newRolling(t, rollingRules, 50*time.Millisecond)
	r.use("known", 40)
	r.lose(0)
	r.restart()
	r.await(0, empty)
	r.lose(1)
	r.use("known", 40)
	r.said()
	r.await(0, empty)
	r.await(1, empty)
}
