package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/oracle"
	"github.com/counterd/counterd/memcache"
)

// fault is what befalls one of the servers, or the network before it.
type fault struct {
	test    string // its name
	name    string // as in docs/failure.md
	copies  int    // on as many servers
	direct  bool   // there is no proxy
	small   bool   // the servers have room for little
	quick   bool   // in make test, not only in make test-all
	logs    bool   // counters are logs
	undo    bool   // adds arrive, and their rollback does not in time
	strike  func(s *site)
	again   func(s *site) // now and then, until both was seen, what was decided and what was not
	lift    func(s *site)
	counted counted
}

// counted is what of all that was acknowledged is counted afterwards.
type counted string

const (
	countedAll     counted = "all"
	countedTwice   counted = "all; logs exactly, buckets some perhaps twice"
	countedPending counted = "all after the replay; logs exactly, buckets some perhaps twice"
	countedLate    counted = "all, when the other is back; logs exactly, buckets some perhaps twice"
	countedAfter   counted = "only what came since"
	countedLess    counted = "what was not evicted"
)

// each does something to the ways of all processes to the first server.
func each(do func(*memcachedtest.Proxy)) func(*site) {
	return func(s *site) {
		for _, ways := range s.ways {
			do(ways[0])
		}
	}
}

// first does it to that of the first process.
func first(do func(*memcachedtest.Proxy)) func(*site) {
	return func(s *site) { do(s.ways[0][0]) }
}

func kill(s *site)    { s.servers[0].Stop() }
func restart(s *site) { s.servers[0].Restart() }
func freeze(s *site)  { s.servers[0].Pause() }
func thaw(s *site)    { s.servers[0].Resume() }

func killAndRestart(s *site) {
	kill(s)
	restart(s)
}

// emptyThenFrozen leaves a copy that knows nothing alone: the other hangs before anything is
// copied from it.
func emptyThenFrozen(s *site) {
	killAndRestart(s)
	s.servers[1].Pause()
	for _, p := range s.processes {
		testkit.Await(s.t, soon, "each process uses the server that is back", func() bool {
			return strings.HasPrefix(p.readiness(s.t)[s.names[0]], "reachable, ") // empty, or was away just now
		})
	}
}

func thawOther(s *site) { s.servers[1].Resume() }

// cross cuts each of two processes off from another of two servers.
func cross(s *site) {
	s.ways[0][0].Partition()
	s.ways[1][1].Partition()
}

func uncross(s *site) {
	s.ways[0][0].Heal()
	s.ways[1][1].Heal()
}

// slow returns a way in either direction that takes longer by that.
func slow(latency, jitter time.Duration) func(*memcachedtest.Proxy) {
	return func(p *memcachedtest.Proxy) {
		p.Route(memcachedtest.Way{Latency: latency}, memcachedtest.Way{Latency: latency, Jitter: jitter})
	}
}

func muteServer(p *memcachedtest.Proxy) { p.Route(memcachedtest.Way{}, memcachedtest.Way{Held: true}) }

var (
	partition = (*memcachedtest.Proxy).Partition
	heal      = (*memcachedtest.Proxy).Heal
	silence   = (*memcachedtest.Proxy).Silence
	reset     = (*memcachedtest.Proxy).Reset
)

func faults() []fault {
	nothing := func(*site) {}
	return []fault{
		{test: "killed", name: "it is killed (`kill -9`), and comes back empty", copies: 1, direct: true, quick: true, strike: kill, lift: restart, counted: countedAfter},
		{test: "restarted", name: "it is killed and started again at once, over and over", copies: 1, direct: true, again: killAndRestart, lift: nothing, counted: countedAfter},
		{test: "frozen", name: "it hangs (`SIGSTOP`), and resumes", copies: 1, direct: true, strike: freeze, lift: thaw, counted: countedAll},
		{test: "full", name: "it is full, and evicts", copies: 1, direct: true, small: true, strike: flood, lift: nothing, counted: countedLess},
		{test: "latency", name: "latency below the timeout", copies: 1, strike: each(slow(siteTimeout/20, 0)), lift: each(heal), counted: countedAll},
		{test: "latency-above", name: "latency above the timeout", copies: 1, strike: each(slow(siteTimeout, 0)), lift: each(heal), counted: countedAll},
		{test: "jitter", name: "jitter around the timeout", copies: 1, strike: each(slow(0, siteTimeout*11/10)), again: nothing, lift: each(heal), undo: true, counted: countedAll},
		{test: "half-open", name: "half-open connections: sent data is lost", copies: 1, again: each(silence), lift: nothing, counted: countedAll},
		{test: "resets", name: "resets of connections", copies: 1, quick: true, again: each(reset), lift: nothing, counted: countedAll},
		{test: "mute", name: "its answers do not arrive", copies: 1, strike: each(muteServer), lift: each(heal), counted: countedAll},
		{test: "partition", name: "partition of one process from it", copies: 1, strike: first(partition), lift: first(heal), counted: countedAll},

		{test: "killed", name: "one is killed (`kill -9`), and comes back empty", copies: 2, direct: true, strike: kill, lift: restart, counted: countedAll},
		{test: "frozen", name: "one hangs (`SIGSTOP`), and resumes", copies: 2, direct: true, quick: true, strike: freeze, lift: thaw, counted: countedTwice},
		{test: "full", name: "both are full, and evict", copies: 2, direct: true, small: true, strike: flood, lift: nothing, counted: countedLess},
		{test: "latency-above", name: "latency above the timeout, before one", copies: 2, strike: each(slow(siteTimeout, 0)), lift: each(heal), counted: countedTwice},
		{test: "jitter", name: "jitter around the timeout, before one", copies: 2, strike: each(slow(0, siteTimeout*11/10)), lift: each(heal), undo: true, counted: countedTwice},
		{test: "half-open", name: "half-open connections to one", copies: 2, strike: each(silence), lift: nothing, counted: countedTwice},
		{test: "resets", name: "resets of connections to one", copies: 2, strike: each(reset), lift: nothing, counted: countedTwice},
		{test: "partition", name: "partition of one process from one", copies: 2, quick: true, strike: first(partition), lift: first(heal), counted: countedTwice},
		{test: "one-after-the-other", name: "one comes back empty; before its repair the other hangs", copies: 2, direct: true, strike: emptyThenFrozen, again: nothing, lift: thawOther, counted: countedLate},
		{test: "partition-crossed", name: "partition of each of two processes from another", copies: 2, strike: cross, lift: uncross, counted: countedPending},
		{test: "partition-of-all", name: "partition of all processes from one", copies: 2, strike: each(partition), lift: each(heal), counted: countedTwice},
	}
}

// flood fills the servers until counters that are not used meanwhile are evicted.
func flood(s *site) {
	round := 0
	testkit.Await(s.t, soon, "something is evicted", func() bool {
		round++
		for _, server := range s.servers {
			server.Flood(fmt.Sprintf("filler%d-", round), 10_000)
		}
		return s.count(1, counterName{"count", "caller-0"}) < s.counter("count", "caller-0").Tally().Acknowledged
	})
}

// What a caller sees of each fault, for how long, and what is counted afterwards: the table in docs/failure.md. make test
// has four of its rows.
func TestFaults(t *testing.T) {
	leaktest.Check(t) // here, since the tests in it run side by side
	rows := readFaultTable(t)
	assert.Len(t, rows, len(faults()), "docs/failure.md has a row for each")
	for _, f := range faults() {
		if !f.quick && !testkit.All() {
			continue
		}
		t.Run(fmt.Sprintf("%s-%d", f.test, f.copies), func(t *testing.T) {
			leaktest.Parallel(t)
			assert.Contains(t, rows, f.meet(t)+" | `"+t.Name()+"` |", "a row of docs/failure.md")
		})
	}
}

// Each fault of one of two servers is to callers the same with logs, and in the end each server by itself has each
// acknowledged event once, also of features that came meanwhile.
func TestFaultsOfLogs(t *testing.T) {
	leaktest.Check(t)
	rows := readFaultTable(t)
	for _, f := range faults() {
		if f.copies < 2 || f.small || f.test != "frozen" && !testkit.All() {
			continue
		}
		f.logs = true
		t.Run(f.test, func(t *testing.T) {
			leaktest.Parallel(t)
			row := f.meet(t) + " | "
			assert.True(t, slices.ContainsFunc(rows, func(listed string) bool { return strings.HasPrefix(listed, row) }), "a row of docs/failure.md: %s", row)
		})
	}
}

// meet strikes a site under load, and returns the row of the table that describes the fault. It fails the test unless all
// is decided and counted on the store soon after the fault.
func (f fault) meet(t *testing.T) (row string) {
	s := newSite(t, siteConfig{servers: f.copies, copies: f.copies, processes: 2, proxies: !f.direct, small: f.small, logs: f.logs})
	stop := s.hammer("a", "b")
	defer stop()
	s.awaitStore()
	s.awaitWhole() // else it would be a second fault before the first is repaired
	s.load(5)
	before := s.tallies()

	all := f.under(s)
	during := s.tallies()
	f.lift(s)
	outage := s.awaitStore()
	assert.Less(t, outage, maxOutage+s.slack())
	back := s.tallies()
	for _, seen := range s.load(5) {
		assert.Equal(t, onStore, seen.hits|seen.increments, "soon after the fault")
	}
	stop()
	hit := siteTimeout
	if f.undo {
		hit *= 2
	}
	s.inTime(hit)
	if f.counted == countedAll || f.counted == countedTwice {
		s.holdLimits()
	}
	if f.logs {
		f.compareLogs(s)
		return f.row(all)
	}
	for name := range before {
		f.compare(s, name, before[name], during[name], back[name])
	}
	return f.row(all)
}

// under has the fault strike, and callers come. It returns what they saw. Where both is to be
// seen they come before, too: only the first few meet a server that hangs.
func (f fault) under(s *site) []seen {
	if f.again == nil {
		f.strike(s)
		return s.load(3)
	}
	var struck atomic.Bool
	before, after := make(chan []seen), make(chan []seen)
	go func() { before <- s.call(func(int, seen) bool { return !struck.Load() }) }()
	if f.strike != nil {
		f.strike(s)
	}
	struck.Store(true)
	met := anywhere(<-before)
	met = seen{met.hits & onError, met.increments & onError} // what was decided may have been before
	deadline := time.Now().Add(time.Minute)
	go func() {
		after <- s.call(func(_ int, so seen) bool {
			return met.and(so) != seen{onStore | onError, onStore | onError} && time.Now().Before(deadline)
		})
	}()
	for {
		select {
		case all := <-after:
			return append(all, met)
		case <-time.After(20 * time.Millisecond):
			f.again(s)
		}
	}
}

// compare holds what is counted against the answers.
func (f fault) compare(s *site, name counterName, before, during, back oracle.Tally) {
	told := s.tallies()[name]
	least, most := told.Acknowledged, told.Acknowledged+told.Unknown
	switch f.counted {
	case countedTwice, countedPending, countedLate:
		most += back.Acknowledged - before.Acknowledged
	case countedAfter:
		least = told.Sub(back).Acknowledged
		most -= before.Acknowledged + before.Unknown
	case countedLess:
		least = 0
	}
	for process := range s.clients {
		what := fmt.Sprintf("process %d counts %d to %d of %v: %v %v %v", process, least, most, name, before, during, back)
		testkit.Await(s.t, soon, what, func() bool {
			got := s.count(process, name)
			return got >= least && got <= most
		})
	}
}

// compareLogs compares the count of each process and the log of each server with the answers. A server may not answer in
// time at first, and the other may lack some entries yet.
func (f fault) compareLogs(s *site) {
	for name, told := range s.tallies() {
		least, most := told.Acknowledged, told.Acknowledged+told.Unknown
		for process := range s.clients {
			testkit.Await(s.t, soon, fmt.Sprintf("process %d counts %d to %d of %v", process, least, most, name), func() bool {
				got := s.count(process, name)
				return got >= least && got <= most
			})
		}
		for i, server := range s.servers {
			testkit.Await(s.t, soon, fmt.Sprintf("server %d has %d to %d of %v", i, least, most, name), func() bool {
				got := heldBy(s.t, server.Addr, name)
				return got >= least && got <= most
			})
		}
	}
}

// heldBy returns what the log of a counter on one server holds.
func heldBy(t *testing.T, server string, name counterName) int64 {
	fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{server}, Timeout: soon})
	require.NoError(t, err)
	defer fleet.Close()
	event := events.Event{Name: name.event, Rules: []events.Rule{{Per: []string{"user"}}}}
	counter, err := event.Counter(events.Features{"user": name.user})
	require.NoError(t, err)
	op := store.Op{Counter: counter.ID(), Data: true, Reads: []store.Read{{Item: eventlog.Item()}}}
	fleet.Do(t.Context(), &op)
	require.NoError(t, op.Err)
	var log journal.Log
	if op.Reads[0].Version == 0 {
		return 0
	}
	require.NoError(t, log.Read(op.Reads[0].Data, journal.Question{}), fmt.Sprint(name))
	return log.Sum(0, 1<<46)
}

// row returns the row of the table but for the test.
func (f fault) row(all []seen) string {
	hits, increments, until := "", "", "–"
	switch {
	case all[0] == all[1] || f.again != nil:
		hits, increments = wordsFor(anywhere(all))
	default:
		hits, increments = wordsFor(all[0])
		othersHits, othersIncrements := wordsFor(all[1])
		hits += " there, " + othersHits + " elsewhere"
		increments += " there, " + othersIncrements + " elsewhere"
	}
	if strings.Contains(hits, "on_error") {
		until = "up to 2 s"
	}
	longest := "timeout"
	if f.undo {
		longest = "twice the timeout"
	}
	limits := "hold"
	switch f.counted {
	case countedAfter, countedLess:
		limits = "begin again"
	case countedLate:
		limits = "begin again, until the other is back"
	case countedPending:
		limits = "hold on each side until it ends"
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s | %s", f.name, f.copies, hits, increments, longest, until, f.counted, limits)
}

func wordsFor(s seen) (hits, increments string) {
	switch s.hits {
	case onStore:
		hits = "decided"
	case onError:
		hits = "by `on_error`"
	default:
		hits = "decided, some by `on_error`"
	}
	switch s.increments {
	case onStore:
		increments = "counted"
	case onError:
		increments = "503"
	default:
		increments = "counted, some 503"
	}
	return hits, increments
}

// readFaultTable returns the rows of the table in docs/failure.md that name a test.
func readFaultTable(t *testing.T) (rows []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/failure.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "|") && strings.Contains(line, "`TestFaults/") {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	return rows
}
