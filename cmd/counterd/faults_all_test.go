//go:build testall

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
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

// fleet is Memcached servers, named in a file, and counterd processes, at which new users come
// all the time. It knows what was admitted of each user, and what was admitted beyond the limit.
// Every second user is counted in a log, the others in buckets.
type fleet struct {
	t         *testing.T
	servers   []*memcachedtest.Server
	args      []string
	processes []*process

	mu       sync.Mutex
	clients  []*client.Client // of the processes
	admitted map[string]int64
	beyond   []string // the users of the hits admitted beyond the limit
	unsaid   []string // those of the hits that did not say that it may be
}

const (
	fleetRules = `events:
  buckets: {limits: [{per: user, rate: 10/h, on_error: deny}]}
  log: {limits: [{per: user, rate: 10/h, algorithm: sliding-log, on_error: deny}]}
`
	fleetLimit = 10
	fleetKnown = 500 // users whose limits are filled
)

// newFleet starts three servers with two replicas and three processes, and fills the limits of the known users.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	testkit.WriteFile(t, rules, fleetRules)
	list := filepath.Join(dir, "servers")
	f := &fleet{t: t, admitted: map[string]int64{}}
	var names []string
	for range 3 {
		f.servers = append(f.servers, memcachedtest.Start(t))
		names = append(names, f.servers[len(f.servers)-1].Addr)
	}
	testkit.WriteFile(t, list, strings.Join(names, "\n"))
	f.args = []string{"-memcached-file", list, "-replicas", "2", "-rules", rules, "-timeout", "1s", "-grace", "2s"}
	for range 3 {
		f.scaleUp()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var arrivals sync.WaitGroup
	arrivals.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			f.hit(i, fmt.Sprint("new-", i), fleetLimit/2)
			f.hit(i+1, fmt.Sprint("new-", i/2), fleetLimit/2) // one that came before, at another process
			pause(ctx, 100*time.Millisecond)
		}
	})
	t.Cleanup(func() {
		cancel()
		arrivals.Wait()
	})
	for i := range fleetKnown {
		f.decided(i, known(i), fleetLimit)
	}
	return f
}

func known(i int) string { return fmt.Sprint("known-", i) }

func (f *fleet) scaleUp() {
	f.t.Helper()
	p := startProcess(f.t, f.args...)
	f.processes = append(f.processes, p)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients = append(f.clients, p.client(f.t))
}

// scaleDown stops the process that has run for longest.
func (f *fleet) scaleDown() {
	f.t.Helper()
	f.mu.Lock()
	f.clients = f.clients[1:]
	f.mu.Unlock()
	p := f.processes[0]
	f.processes = f.processes[1:]
	p.stop(f.t)
}

// restart replaces each process.
func (f *fleet) restart() {
	f.t.Helper()
	for range len(f.processes) {
		f.scaleUp()
		f.scaleDown()
	}
}

// hit hits at a process, and reports whether that was decided.
func (f *fleet) hit(process int, user string, cost int64) (decided bool) {
	f.mu.Lock()
	clients := f.clients
	f.mu.Unlock()
	if len(clients) == 0 {
		return false
	}
	d, err := clients[process%len(clients)].Hit(context.Background(), eventOf(user), events.Features{"user": user}, cost)
	if err != nil { // the process is being restarted, or a server is missing
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !d.Allowed {
		return true
	}
	f.admitted[user] += cost
	if f.admitted[user] <= fleetLimit {
		return true
	}
	f.beyond = append(f.beyond, user)
	if !d.Limits[0].Incomplete {
		f.unsaid = append(f.unsaid, user)
	}
	return true
}

func eventOf(user string) string {
	if (user[len(user)-1]-'0')%2 == 0 {
		return "buckets"
	}
	return "log"
}

// decided hits until that is decided.
func (f *fleet) decided(process int, user string, cost int64) {
	f.t.Helper()
	testkit.Await(f.t, soon, user+" is decided", func() bool { return f.hit(process, user, cost) })
}

// holds fails the test if hits were admitted beyond a limit and did not say that it may be, or if
// the limit of a known user admits one now. nothing: nothing is lost, so none was admitted beyond
// a limit since the last call, whatever it said, and no count is too low. It returns how many hits were.
func (f *fleet) holds(nothing bool) (beyond int) {
	f.t.Helper()
	for i := range fleetKnown {
		f.decided(i, known(i), 1)
	}
	f.mu.Lock()
	assert.Zero(f.t, len(f.unsaid), "do not say so, of %d hits admitted beyond their limits: %v", len(f.beyond), f.unsaid[:min(len(f.unsaid), 5)])
	if nothing {
		assert.Zero(f.t, len(f.beyond), "hits are admitted beyond their limits: %v", f.beyond[:min(len(f.beyond), 5)])
	}
	beyond, f.beyond, f.unsaid = len(f.beyond), nil, nil
	c := f.clients[len(f.clients)-1]
	f.mu.Unlock()
	low := 0
	for i := 0; i < fleetKnown && nothing; i++ {
		testkit.Await(f.t, soon, known(i)+" is counted", func() bool {
			count, err := c.Count(context.Background(), eventOf(known(i)), events.Features{"user": known(i)}, time.Hour, time.Time{})
			if err == nil && count.Count < fleetLimit {
				low++
			}
			return err == nil
		})
	}
	assert.Zero(f.t, low, "counts are too low")
	return beyond
}

var percent = regexp.MustCompile(`\d+%`)

// await waits until all processes say the same of all servers, but for how far a repair is, and
// that of these servers.
func (f *fleet) await(says func(state string) bool, servers ...*memcachedtest.Server) {
	f.t.Helper()
	testkit.Await(f.t, soon, "all processes say the same of all servers", func() bool {
		var seen []map[string]string
		agree := true
		for _, p := range f.processes {
			states := p.readiness(f.t)
			for server, state := range states {
				states[server] = percent.ReplaceAllString(state, "%")
			}
			seen = append(seen, states)
			agree = agree && len(states) == len(f.servers) && maps.Equal(seen[0], states)
			for _, server := range servers {
				agree = agree && says(states[server.Addr])
			}
		}
		return agree
	})
}

func reachable(state string) bool   { return state == "reachable" }
func unreachable(state string) bool { return strings.HasPrefix(state, "unreachable") }
func back(state string) bool        { return !unreachable(state) }
func nothing()                      {}

// lose has a server come back empty, after what happens while it is down.
func (f *fleet) lose(server int, meanwhile func()) {
	f.t.Helper()
	f.servers[server].Stop()
	f.await(unreachable, f.servers[server])
	meanwhile()
	f.servers[server].Restart()
	f.await(back, f.servers[server])
}

// Three servers are killed and come back in turn, and processes are restarted before, between and
// after, and are more and fewer: no count is lost, and all processes say the same.
func TestRollingRestartOfAllServers(t *testing.T) {
	leaktest.Parallel(t)
	f := newFleet(t)
	f.restart()
	f.await(reachable, f.servers...)
	for server, meanwhile := range []struct{ down, repair func() }{{f.restart, f.scaleUp}, {nothing, f.restart}, {f.scaleDown, nothing}} {
		f.lose(server, meanwhile.down)
		meanwhile.repair()
		f.holds(true)
		f.await(reachable, f.servers...)
	}
	f.restart()
	f.await(reachable, f.servers...)
	f.holds(true)
}

// Two of three servers lose what they held before either is repaired. What is admitted beyond a limit says that it may be,
// also at processes that start later.
func TestTwoLosses(t *testing.T) {
	leaktest.Parallel(t)
	f := newFleet(t)
	f.lose(0, func() { f.lose(1, nothing) })
	assert.NotZero(t, f.holds(false), "nothing was lost")
	for range 2 {
		f.restart()
		f.holds(false)
	}
	f.await(func(state string) bool { return back(state) && !reachable(state) }, f.servers[:2]...)
}

// Another server does not answer for a moment, again and again, while one is repaired. What it misses is known
// by name, and all are whole again.
func TestAMomentsAbsenceDuringARepair(t *testing.T) {
	leaktest.Parallel(t)
	f := newFleet(t)
	f.lose(1, nothing)
	for range 3 {
		f.servers[0].Pause()
		f.await(unreachable, f.servers[0])
		f.servers[0].Resume()
		f.await(back, f.servers[0])
	}
	f.await(reachable, f.servers...)
	f.holds(false) // for a moment neither replica of some counters could tell what was lost
	f.holds(true)
}

// The commands of docs/failure.md restart one server after the other, with the deletion of a pod as
// a restart: no count is lost.
func TestTheCommandsOfARollingRestart(t *testing.T) {
	leaktest.Parallel(t)
	f := newFleet(t)
	f.restart()
	text, err := os.ReadFile("../../docs/failure.md")
	require.NoError(t, err)
	_, text, _ = bytes.Cut(text, []byte("\n## Restarting Memcached"))
	_, text, _ = bytes.Cut(text, []byte("```sh\n"))
	script, _, found := strings.Cut(string(text), "```")
	require.True(t, found)
	const address = "http://127.0.0.1:9090"
	require.Contains(t, script, address)
	script = strings.ReplaceAll(script, address, f.processes[2].url)

	var deleted []string
	pods := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		args := r.URL.Query().Get("args")
		deleted = append(deleted, args)
		server, err := strconv.Atoi(args[len(args)-1:])
		if assert.NoError(t, err) && assert.Less(t, server, len(f.servers)) {
			f.servers[server].Stop()
			go f.servers[server].Restart() // kubectl waits for the end of the pod, not for the next one
		}
	}))
	defer pods.Close()
	bin := t.TempDir()
	kubectl := fmt.Sprintf("#!/bin/sh\nexec curl -fsG %s --data-urlencode \"args=$*\"\n", pods.URL)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "kubectl"), []byte(kubectl), 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 3*soon)
	defer cancel()
	run := exec.CommandContext(ctx, "sh", "-euc", script)
	run.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	output, err := run.CombinedOutput()
	require.NoError(t, err, "%s", output)
	pods.Close()
	var want []string
	for i := range f.servers {
		want = append(want, fmt.Sprint("-n counterd delete pod memcached-", i))
	}
	assert.Equal(t, want, deleted)
	f.await(reachable, f.servers...)
	f.holds(true)
}
