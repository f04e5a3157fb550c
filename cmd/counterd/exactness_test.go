// The tests of the exactness suite have many callers come to several processes at once, and require exact results.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

const exactRules = `
events:
  day:     {limits: [{per: ip, rate: 10/d}]}
  bucket:  {limits: [{per: ip, rate: 1/h, burst: 10}]}
  queue:   {limits: [{per: ip, rate: 1/h, queue: 9}]}
  fixed:   {limits: [{per: ip, rate: 10/30d, algorithm: fixed-window}]}
  logged:  {limits: [{per: ip, rate: 10/month, algorithm: sliding-log}]}
  leases:  {limits: [{per: ip, concurrent: 10, lease: 1h}]}
  stacked: {limits: [{per: ip, rate: [10/s, 10/m, 10/h, 10/d]}]}
  month:   {limits: [{per: ip, rate: 10/month, calendar: Europe/Berlin}, {per: ip, rate: [90/m, 200/d]}]}
  loose:   {limits: [{per: ip, rate: [1000/s, 1000/m, 1000/h, 10/d]}]}
`

// allRules are events with limits of all kinds on one counter, of which the named one is full first.
func allRules() (rules string) {
	for i, name := range []string{"window", "log", "bucket", "month", "leases"} {
		n := []any{name, 50, 90, 80, 70, 60}
		n[i+1] = 10
		rules += fmt.Sprintf("  all_%s: {limits: [{per: ip, rate: %d/d}, {per: ip, rate: %d/h, algorithm: sliding-log}, {per: ip, rate: 1/h, burst: %d}, {per: ip, rate: %d/month, calendar: Europe/Berlin}, {per: ip, concurrent: %d, lease: 1h}]}\n", n...)
	}
	return rules
}

// Three processes on two Memcached servers, one of which speaks no meta commands, 200 hits at once: 10 are admitted, in
// each round. Hits that one limit denies leave nothing behind in the
// others, of whatever algorithm.
func TestThreeProcessesAdmitExactlyTheLimit(t *testing.T) {
	admitExactly(t, testkit.Fifth(10), memcachedtest.StartMany(t, 2))
}

// The same with copies: never more. Hits that meet in another order on each copy may see
// each other ahead; they look again, so it is hardly ever less.
func TestThreeProcessesWithCopies(t *testing.T) {
	admitExactly(t, testkit.Fifth(5), memcachedtest.StartMany(t, 3), "-replicas", "2")
	if testkit.All() {
		admitExactly(t, 5, memcachedtest.StartMany(t, 3), "-replicas", "3")
	}
}

func admitExactly(t *testing.T, rounds int, memcached []string, more ...string) {
	const hits = 200
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, rules, exactRules+allRules())
	servers := strings.Join(memcached, ",")
	var clients []*client.Client
	for _, protocol := range []string{"auto", "meta", "classic"} {
		p := startProcess(t, append([]string{"-rules", rules, "-memcached", servers, "-protocol", protocol}, more...)...)
		clients = append(clients, newClient(t, client.Config{URL: p.url, MaxWaiting: -1}))
	}
	one := func(cost int64) func(c *client.Client, event string, features map[string]string) (int64, error) {
		return func(c *client.Client, event string, features map[string]string) (int64, error) {
			d, err := c.Hit(t.Context(), event, features, cost)
			if d.Allowed {
				return cost, err
			}
			return 0, err
		}
	}
	batch := func(c *client.Client, event string, features map[string]string) (admitted int64, err error) {
		list := make([]wire.BatchHit, 8)
		for i := range list {
			list[i] = wire.BatchHit{Event: event, Features: features}
		}
		results, err := c.Batch(t.Context(), list)
		for _, result := range results {
			if result.Status == http.StatusOK {
				admitted++
			}
		}
		return admitted, err
	}
	for _, test := range []struct {
		name, event string
		calls       int
		call        func(*client.Client, string, map[string]string) (int64, error)
		least, most int64
	}{
		{"a day", "day", hits, one(1), 10, 10},
		{"four stacked", "stacked", hits, one(1), 10, 10},
		{"four, one of them full", "loose", hits, one(1), 10, 10},
		{"a month of a calendar", "month", hits, one(1), 10, 10},
		{"cost 3", "day", hits, one(3), 9, 9},
		{"a token bucket", "bucket", hits, one(1), 10, 10},
		{"cost 3 on one", "bucket", hits, one(3), 9, 9},
		{"a leaky bucket", "queue", hits, one(1), 10, 10},
		{"a fixed window", "fixed", hits, one(1), 10, 10},
		{"a month in a log", "logged", hits, one(1), 10, 10},
		{"leases", "leases", hits, one(1), 10, 10},
		{"several, a window full", "all_window", hits, one(1), 10, 10},
		{"several, a log full", "all_log", hits, one(1), 10, 10},
		{"several, a bucket full", "all_bucket", hits, one(1), 10, 10},
		{"several, a month full", "all_month", hits, one(1), 10, 10},
		{"several, and no lease", "all_leases", hits, one(1), 10, 10},
		{"batches of 8", "day", hits / 8, batch, 10, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			for round := range rounds {
				features := map[string]string{"ip": fmt.Sprintf("203.0.113.%d", round)}
				if test.name != "a day" {
					features["ip"] = fmt.Sprintf("198.51.%d.%d", len(test.name), round)
				}
				var admitted atomic.Int64
				var running sync.WaitGroup
				for i := range test.calls {
					running.Go(func() {
						n, err := test.call(clients[i%len(clients)], test.event, features)
						assert.NoError(t, err)
						admitted.Add(n)
					})
				}
				running.Wait()
				assert.GreaterOrEqual(t, admitted.Load(), test.least, "round %d", round)
				assert.LessOrEqual(t, admitted.Load(), test.most, "round %d", round)
				held, err := clients[round%len(clients)].Check(t.Context(), test.event, features, 1)
				require.NoError(t, err)
				for _, limit := range held.Limits {
					if limit.Window == "1s" || limit.Window == "1m" {
						continue
					}
					assert.Equal(t, admitted.Load(), limit.Count, "round %d: %+v", round, limit)
				}
			}
		})
	}
}

// Two processes on three servers: what one adds the other sees, and every window
// is what a log of every event says.
func TestTwoProcessesOnThreeServersCountExactly(t *testing.T) {
	servers := strings.Join(memcachedtest.StartMany(t, 3), ",")
	clients := []*client.Client{
		startProcess(t, "-memcached", servers).client(t),
		startProcess(t, "-memcached", servers).client(t),
	}
	const addresses, adds, workers = 30, 150, 8
	who := func(i int) events.Features { return events.Features{"ip": fmt.Sprintf("203.0.113.%d", i)} }
	var mu sync.Mutex
	log := map[int][]int64{}
	var running sync.WaitGroup
	for worker := range workers {
		rng := rand.New(rand.NewPCG(9, uint64(worker)))
		running.Go(func() {
			for range adds {
				i := rng.IntN(addresses)
				at := time.Now().Add(-time.Duration(rng.Int64N(int64(23 * time.Hour))))
				if rng.IntN(2) == 0 {
					at = time.Time{}
				}
				done, err := clients[rng.IntN(2)].Increment(context.Background(), "url_shorten", who(i), 1, at)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				log[i] = append(log[i], done.At.Unix())
				mu.Unlock()
			}
		})
	}
	running.Wait()
	for i := range addresses {
		for _, window := range []time.Duration{time.Second, time.Minute, 90 * time.Minute, 24 * time.Hour} {
			count, err := clients[i%2].Count(t.Context(), "url_shorten", who(i), window, time.Time{})
			require.NoError(t, err)
			var want int64
			for _, second := range log[i] {
				if second >= count.From.Unix() && second <= count.To.Unix() {
					want++
				}
			}
			require.Equal(t, want, count.Count, "address %d, %s", i, window)
		}
	}
}

// Two processes are hammered across the edges of seconds and, in make test-all, for more than a minute, across one of
// minutes. By the seconds in which the admitted hits say they were stamped, no window ever held more than its limit; and
// the limits were used: what is denied was denied for a reason.
func TestHammeringAcrossEdges(t *testing.T) {
	leaktest.Parallel(t)
	length := testkit.Lasting(3*time.Second, 64*time.Second)
	seconds := int(length / time.Second)
	limits := map[string]struct {
		window time.Duration
		n      int
		rate   string
		fits   int // at the least, in the time of the test
	}{
		"seconds": {time.Second, 7, "7/s", seconds * 7},
		"eight":   {8 * time.Second, 20, "20/8s", seconds / 8 * 20},
		"minute":  {time.Minute, 100, "100/m", 100},
		"stacked": {3 * time.Second, 9, "[5/s, 9/3s, 90/m]", min(seconds/3*9, 90)},
	}
	var rules strings.Builder
	rules.WriteString("events:\n")
	for name, limit := range limits {
		fmt.Fprintf(&rules, "  %s: {limits: [{per: user, rate: %s}]}\n", name, limit.rate)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, path, rules.String())
	servers := strings.Join(memcachedtest.StartMany(t, 2), ",")
	clients := []*client.Client{
		startProcess(t, "-rules", path, "-memcached", servers).client(t),
		startProcess(t, "-rules", path, "-memcached", servers).client(t),
	}
	const workers, pace = 8, 30 * time.Millisecond
	var mu sync.Mutex
	admitted := map[string][]int64{}
	var running sync.WaitGroup
	end := time.Now().Add(length)
	for name := range limits {
		for worker := range workers {
			running.Go(func() {
				for time.Now().Before(end) {
					d, err := clients[worker%2].Hit(t.Context(), name, events.Features{"user": "42"}, 1)
					if !assert.NoError(t, err) || !assert.False(t, failed(d), "the store failed") {
						return
					}
					if d.Allowed {
						mu.Lock()
						admitted[name] = append(admitted[name], d.At.Unix())
						mu.Unlock()
					}
					pause(t.Context(), pace)
				}
			})
		}
	}
	running.Wait()
	for name, limit := range limits {
		stamps := admitted[name]
		slices.Sort(stamps)
		window := int64(limit.window / time.Second)
		for i := range stamps {
			if j := i + limit.n; j < len(stamps) {
				require.GreaterOrEqual(t, stamps[j]-stamps[i], window, "%s: more than %d in %s from %d on", name, limit.n, limit.window, stamps[i])
			}
		}
		assert.Greater(t, len(stamps), limit.fits/4, name) // however slow the machine is
		t.Logf("%s: %d admitted; %d fit", name, len(stamps), limit.fits)
	}
}
