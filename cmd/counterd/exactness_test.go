package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

const exactRules = `
events:
  day:     {limits: [{per: ip, rate: 10/d}]}
  bucket:  {limits: [{per: ip, rate: 1/h, burst: 10}]}
  queue:   {limits: [{per: ip, rate: 1/h, queue: 9}]}
  fixed:   {limits: [{per: ip, rate: 10/30d, algorithm: fixed-window}]}
  logged:  {limits: [{per: ip, rate: 10/month, calendar: Europe/Berlin, algorithm: fixed-log}]}
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

// Three processes on two Memcached servers, one of which speaks no meta commands, 200
// hits at once: 10 are admitted, in each of up to 20 rounds. Hits that one limit denies leave nothing behind in the
// others, of whatever algorithm.
func TestThreeProcessesAdmitExactlyTheLimit(t *testing.T) {
	admitExactly(t, testkit.Fifth(20), memcachedtest.StartMany(t, 2))
}

// The same with copies: never more. Hits that meet in another order on each copy may see
// each other ahead; they look again, so it is hardly ever less.
func TestThreeProcessesWithCopies(t *testing.T) {
	for _, replicas := range []int{2, 3} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			admitExactly(t, testkit.Fifth(20), memcachedtest.StartMany(t, 3), "-replicas", fmt.Sprint(replicas))
		})
	}
}

func admitExactly(t *testing.T, rounds int, memcached []string, more ...string) {
	const hits = 200
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(exactRules+allRules()), 0o600))
	servers := strings.Join(memcached, ",")
	var clients []*client.Client
	for _, protocol := range []string{"auto", "meta", "classic"} {
		p := startProcess(t, append([]string{"-rules", rules, "-memcached", servers, "-protocol", protocol, "-timeout", "5s", "-grace", "10s"}, more...)...)
		c, err := client.New(client.Config{URL: p.url, MaxWaiting: -1})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		clients = append(clients, c)
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
