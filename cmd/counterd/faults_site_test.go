package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/oracle"
)

const (
	// siteTimeout is the processes' -timeout.
	siteTimeout = time.Second
	// siteSlack is what even an idle machine may add to an answer.
	siteSlack = time.Second
	// maxOutage is how long after the end of a fault all is decided on the store again.
	maxOutage = 2 * time.Second
)

const siteRules = `
events:
  allow: {limits: [{per: user, rate: 100000/d, on_error: allow}]}
  deny:  {limits: [{per: user, rate: 100000/d, on_error: deny}]}
  local: {limits: [{per: user, rate: 100000/d, on_error: local}]}
  count: {retention: 24h}
  tight: {limits: [{per: user, rate: [4/s, 12/6s, 25/m], on_error: deny}]}
`

// logRules are the same on logs.
const logRules = `
events:
  allow: {limits: [{per: user, rate: 900/d, algorithm: sliding-log, on_error: allow}]}
  deny:  {limits: [{per: user, rate: 900/d, algorithm: sliding-log, on_error: deny}]}
  local: {limits: [{per: user, rate: 900/d, algorithm: sliding-log, on_error: local}]}
  count: {limits: [{per: user, rate: 900/d, algorithm: sliding-log, on_error: deny}]}
  tight: {limits: [{per: user, rate: [4/s, 12/6s, 25/m], algorithm: sliding-log, on_error: deny}]}
`

// tightLimits are those of the event tight.
func tightLimits() []oracle.Limit {
	return []oracle.Limit{{N: 4, Window: time.Second}, {N: 12, Window: 6 * time.Second}, {N: 25, Window: time.Minute}}
}

// site is some Memcached servers and some processes of counterd. All that callers are
// told is kept beside them.
type site struct {
	t         *testing.T
	servers   []*memcachedtest.Server
	names     []string // of the servers, the same to all processes
	processes []*process
	clients   []*client.Client
	ways      [][]*memcachedtest.Proxy // of each process, to each server; nil: there are none
	timeout   time.Duration
	logs      bool         // counters are logs, and each caller comes with new features, too
	fresh     atomic.Int64 // how many came
	list      string       // the file that names the servers, where there is one

	stalls   *testkit.Stalls
	mu       sync.Mutex
	counters map[counterName]*oracle.Counter
	slowest  map[string]time.Duration // by "hit" and "increment"
}

type counterName struct{ event, user string }

// siteConfig says what a site is of.
type siteConfig struct {
	servers, copies, processes int
	proxies                    bool          // between each process and each server
	small                      bool          // the servers evict
	listed                     bool          // a file names them, which may change
	logs                       bool          // the rules are logRules
	timeout                    time.Duration // 0: siteTimeout
}

func newSite(t *testing.T, config siteConfig) *site {
	t.Helper()
	s := &site{t: t, stalls: testkit.WatchStalls(t), timeout: cmp.Or(config.timeout, siteTimeout), logs: config.logs, counters: map[counterName]*oracle.Counter{}, slowest: map[string]time.Duration{}}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, rules, siteRules)
	if config.logs {
		testkit.WriteFile(t, rules, logRules)
	}
	start := func(tb testing.TB) *memcachedtest.Server { return memcachedtest.Start(tb) }
	if config.small {
		start = memcachedtest.StartSmall
	}
	for range config.servers {
		s.servers = append(s.servers, start(t))
	}
	if config.proxies {
		s.lay(config.processes)
	} else {
		for _, server := range s.servers {
			s.names = append(s.names, server.Addr)
		}
	}
	if config.listed {
		s.list = filepath.Join(t.TempDir(), "servers")
		s.writeList()
	}
	for i := range config.processes {
		p := startCommand(t, []string{fmt.Sprintf("%s=%s", hostsAt, hostOf(i))}, append(s.whereServersAre(),
			"-listen", "127.0.0.1:0", "-rules", rules, "-replicas", fmt.Sprint(config.copies), "-timeout", s.timeout.String(), "-grace", (2*s.timeout).String())...)
		s.processes = append(s.processes, p)
		s.clients = append(s.clients, p.client(t))
	}
	return s
}

// lay lays a way from each process to each server. To all processes a server has the same name, on
// which the places of counters depend, but for each that is another host.
func (s *site) lay(processes int) {
	s.ways = make([][]*memcachedtest.Proxy, processes)
	for _, server := range s.servers {
		way := memcachedtest.StartProxy(s.t, server)
		_, port, _ := net.SplitHostPort(way.Addr)
		s.names = append(s.names, "memcached.test:"+port)
		s.ways[0] = append(s.ways[0], way)
		for process := 1; process < processes; process++ {
			s.ways[process] = append(s.ways[process], memcachedtest.StartProxyAt(s.t, net.JoinHostPort(hostOf(process), port), server))
		}
	}
}

// hostOf returns where the ways of a process begin.
func hostOf(process int) string { return fmt.Sprint("127.0.0.", process+1) }

// whereServersAre returns the flags that tell a process.
func (s *site) whereServersAre() []string {
	if s.list != "" {
		return []string{"-memcached-file", s.list}
	}
	return []string{"-memcached", strings.Join(s.names, ",")}
}

// writeList names the servers in the file, in one step.
func (s *site) writeList() {
	s.t.Helper()
	testkit.ReplaceFile(s.t, s.list, strings.Join(s.names, "\n")+"\n")
}

// addServer adds a server to the file, and waits until all processes reach it.
func (s *site) addServer() {
	s.t.Helper()
	server := memcachedtest.Start(s.t)
	s.servers, s.names = append(s.servers, server), append(s.names, server.Addr)
	s.writeList()
	for _, p := range s.processes {
		testkit.Await(s.t, soon, "each process uses the server that was added", func() bool {
			return strings.HasPrefix(p.readiness(s.t)[server.Addr], "reachable")
		})
	}
}

// awaitWhole waits until each process says of all servers that they are reachable, and no more: have
// lost nothing, and are not being repaired.
func (s *site) awaitWhole() {
	s.t.Helper()
	for _, p := range s.processes {
		testkit.Await(s.t, soon, "all servers are reachable and whole", func() bool {
			told := slices.Collect(maps.Values(p.readiness(s.t)))
			return len(told) == len(s.servers) && !slices.ContainsFunc(told, func(of string) bool { return of != "reachable" })
		})
	}
}

// readiness returns what the process says of each server.
func (p *process) readiness(t *testing.T) map[string]string {
	t.Helper()
	answer, err := http.Get(p.url + "/readyz")
	require.NoError(t, err)
	defer answer.Body.Close()
	var health wire.Health
	require.NoError(t, json.UnmarshalRead(answer.Body, &health))
	return health.Store
}

// outcome is what became of a hit or an increment.
type outcome int

const (
	onStore outcome = 1 << iota // decided, or counted, on the store
	onError                     // by the event's on_error; of an increment, a 503
)

func (s *site) counter(event, user string) *oracle.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := counterName{event, user}
	c := s.counters[name]
	if c == nil {
		c = oracle.NewCounter()
		if event == "tight" {
			c = oracle.NewCounter(tightLimits()...)
		}
		s.counters[name] = c
	}
	return c
}

// took notes how long an answer took.
func (s *site) took(what string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slowest[what] = max(s.slowest[what], time.Since(since))
}

// hit hits, notes what came of it, and sees to it that an answer that was not decided
// on the store is the one that the event's rule wants.
func (s *site) hit(process int, event, user string) outcome {
	began := time.Now()
	d, err := s.clients[process].Hit(context.Background(), event, events.Features{"user": user}, 1)
	s.took("hit", began)
	switch c := s.counter(event, user); {
	case err != nil:
		assert.ErrorIs(s.t, err, client.ErrUnavailable, event)
		assert.Contains(s.t, []string{"deny", "tight"}, event, "%v", err)
		if _, answered := errors.AsType[*client.Error](err); !answered {
			assert.NoError(s.t, err, "nobody answers")
		}
		c.Doubt(1)
		return onError
	case failed(d):
		for _, l := range d.Limits {
			assert.Equal(s.t, event, l.OnError)
		}
		assert.True(s.t, d.Allowed, event)
		c.Doubt(1)
		return onError
	case d.Allowed && isIncomplete(d): // on a busy machine two servers may be away in turn
		c.Acknowledge(1)
	case d.Allowed:
		c.Admit(d.At.Unix(), 1)
	}
	return onStore
}

func isIncomplete(d wire.Decision) bool {
	return slices.ContainsFunc(d.Limits, func(l wire.LimitState) bool { return l.Incomplete })
}

func failed(d wire.Decision) bool {
	for _, l := range d.Limits {
		if l.OnError != "" {
			return true
		}
	}
	return false
}

// increment adds, and notes what came of it.
func (s *site) increment(process int, user string) outcome {
	began := time.Now()
	_, err := s.clients[process].Increment(context.Background(), "count", events.Features{"user": user}, 1, time.Time{})
	s.took("increment", began)
	if err != nil {
		assert.ErrorIs(s.t, err, client.ErrUnavailable)
		s.counter("count", user).Doubt(1)
		return onError
	}
	s.counter("count", user).Acknowledge(1)
	return onStore
}

// seen are the outcomes at a process.
type seen struct{ hits, increments outcome }

// and returns what was seen by both.
func (s seen) and(other seen) seen {
	return seen{hits: s.hits | other.hits, increments: s.increments | other.increments}
}

// anywhere returns what was seen at any process.
func anywhere(all []seen) (found seen) {
	for _, s := range all {
		found = found.and(s)
	}
	return found
}

// load has callers come to all processes, on all events, so often each. It returns what
// they saw at each process.
func (s *site) load(rounds int) []seen {
	return s.call(func(round int, _ seen) bool { return round < rounds })
}

// call has callers come as load does, each as long as there is to be one more round after what
// all have seen so far.
func (s *site) call(more func(round int, so seen) bool) []seen {
	all := make([]seen, len(s.clients))
	var mu sync.Mutex
	goesOn := func(round int) bool {
		mu.Lock()
		defer mu.Unlock()
		return more(round, anywhere(all))
	}
	var running sync.WaitGroup
	for process := range s.clients {
		for _, event := range []string{"allow", "deny", "local", "count"} {
			for caller := range 2 {
				running.Go(func() {
					for round := 0; goesOn(round); round++ {
						for _, user := range s.users(caller) {
							var what seen
							if event == "count" {
								what.increments = s.increment(process, user)
							} else {
								what.hits = s.hit(process, event, user)
							}
							mu.Lock()
							all[process] = all[process].and(what)
							mu.Unlock()
						}
						pause(s.t.Context(), trafficPause)
					}
				})
			}
		}
	}
	running.Wait()
	return all
}

// users returns the users that a caller comes as.
func (s *site) users(caller int) []string {
	users := []string{fmt.Sprint("caller-", caller)}
	if s.logs {
		users = append(users, fmt.Sprint("new-", s.fresh.Add(1)))
	}
	return users
}

// hammer has callers hit a limit at all processes until stop is called.
func (s *site) hammer(users ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for process := range s.clients {
		for _, user := range users {
			running.Go(func() {
				for ctx.Err() == nil {
					s.hit(process, "tight", user)
					pause(ctx, 2*trafficPause)
				}
			})
		}
	}
	return sync.OnceFunc(func() { cancel(); running.Wait() })
}

// awaitStore waits until each process decides and counts all on the store again, and
// returns how long that took.
func (s *site) awaitStore() time.Duration {
	began := time.Now()
	for process := range s.clients {
		testkit.Await(s.t, soon, "each process has the store again", func() bool {
			hits := onStore
			for _, event := range []string{"allow", "deny", "local"} {
				hits |= s.hit(process, event, "probe")
			}
			return hits|s.increment(process, "probe") == onStore
		})
	}
	return time.Since(began)
}

// count returns what the process says that a counter holds in the last hour. On a busy machine
// the store may not answer in time at first.
func (s *site) count(process int, name counterName) int64 {
	var held int64
	testkit.Await(s.t, soon, fmt.Sprintf("process %d counts %v", process, name), func() bool {
		count, err := s.clients[process].Count(context.Background(), name.event, events.Features{"user": name.user}, time.Hour, time.Time{})
		held = count.Count
		return err == nil
	})
	return held
}

// tallies returns the answers for each counter that was not limited tightly.
func (s *site) tallies() map[counterName]oracle.Tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[counterName]oracle.Tally{}
	for name, c := range s.counters {
		if name.event != "tight" {
			all[name] = c.Tally()
		}
	}
	return all
}

// holdLimits fails the test if a window held more than its limit.
func (s *site) holdLimits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.counters {
		assert.NoError(s.t, c.Fault(), "%v", name)
	}
}

// inTime fails the test if a hit was answered later than that, or an increment later
// than twice the timeout: what it has added half is rolled back.
func (s *site) inTime(hit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Less(s.t, s.slowest["hit"], hit+s.slack(), "the slowest hit")
	assert.Less(s.t, s.slowest["increment"], 2*s.timeout+s.slack(), "the slowest increment")
	s.t.Logf("slowest: %v", s.slowest)
}

// slack is what this machine may add to an answer: its way is through three processes and back,
// each of which may have waited for its turn as long as this one.
func (s *site) slack() time.Duration { return siteSlack + 5*s.stalls.Longest() }
