package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// oneLimit is a rules file with that N.
func oneLimit(n int) string {
	return fmt.Sprintf("events: {e: {limits: [{per: ip, rate: %d/m}]}}", n)
}

// SIGHUP ends no process, with or without a rules file.
func TestSIGHUP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, path, oneLimit(1))
	for want, args := range map[string][]string{
		"there is no rules file to read again":                                  nil,
		`level=INFO msg="the rules file holds the rules in force" file=` + path: {"-rules", path},
	} {
		p := startProcess(t, args...)
		for range 2 {
			before := strings.Count(p.log.String(), want)
			p.signal(t, syscall.SIGHUP)
			testkit.Await(t, soon, want, func() bool { return strings.Count(p.log.String(), want) > before })
		}
		assert.Equal(t, http.StatusOK, status(t, p.url+"/healthz"))
	}
}

// A list that is edited while counterd runs is followed, and SIGHUP is answered by the rules
// and by the servers.
func TestAProcessFollowsAFileOfServers(t *testing.T) {
	servers := memcachedtest.StartMany(t, 2)
	dir := t.TempDir()
	rules, path := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "servers")
	testkit.WriteFile(t, rules, oneLimit(5))
	testkit.WriteFile(t, path, "# the fleet\n"+servers[0]+"\n")
	p := startProcess(t, "-rules", rules, "-memcached-file", path)
	p.log.Await(t, `msg="memcached store" servers=`+servers[0])
	_, err := p.client(t).Increment(t.Context(), "e", visitor, 1, time.Time{})
	require.NoError(t, err)

	p.signal(t, syscall.SIGHUP)
	p.log.Await(t, "the rules file holds the rules in force")
	p.log.Await(t, "the memcached servers found are those in force")
	testkit.ReplaceFile(t, path, "")
	p.log.Await(t, "those in force stay", "no server is named")
	testkit.ReplaceFile(t, path, servers[0]+"\nnonsense\n")
	p.log.Await(t, "those in force stay", "line 2: nonsense is neither")
	const failing = `counterd_server_list_failing{source="file"}`
	assert.Equal(t, 1, p.metric(t, failing))
	testkit.ReplaceFile(t, path, strings.Join(servers, "\n"))
	p.log.Await(t, "added="+servers[1]+" removed=\"\" servers=")
	testkit.Await(t, soon, "the list fails no more", func() bool { return p.metric(t, failing) == 0 })
	_, err = p.client(t).Increment(t.Context(), "e", visitor, 1, time.Time{})
	assert.NoError(t, err)

	testkit.WriteFile(t, path, servers[1])
	assert.Contains(t, output(t, exitOK, "keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached-file", path), servers[1])
}

// generation is a rules file in which every limit has the same N.
func generation(n int64) string {
	return fmt.Sprintf(`events:
  a:
    limits:
      - per: ip
        rate: [%[1]d/10m, %[1]d/h]
      - per: user
        rate: %[1]d/d
        count: all
  b:
    limits:
      - per: []
        rate: %[1]d/h
`, n)
}

// oneN returns the N that all limits have, or fails.
func oneN(all ...int64) (int64, error) {
	for _, n := range all {
		if n != all[0] {
			return 0, fmt.Errorf("of several generations: %d", all)
		}
	}
	return all[0], nil
}

func nOfEvents(all ...wire.Event) (int64, error) {
	var ns []int64
	for _, event := range all {
		for _, rule := range event.Rules {
			for _, limit := range rule.Limits {
				ns = append(ns, limit.Limit)
			}
		}
	}
	if len(ns) < 3 {
		return 0, fmt.Errorf("%d limits", len(ns))
	}
	return oneN(ns...)
}

func nOfDecisions(limits int, all ...wire.Decision) (int64, error) {
	var ns []int64
	for _, d := range all {
		if !d.Allowed {
			return 0, fmt.Errorf("denied")
		}
		for _, limit := range d.Limits {
			ns = append(ns, limit.Limit)
		}
	}
	if len(ns) != limits {
		return 0, fmt.Errorf("%d limits, not %d", len(ns), limits)
	}
	return oneN(ns...)
}

// Many new versions of the file under a load of requests of every kind, put in
// place in every way, and broken ones in between: not one request fails, and each
// is answered by one version as a whole.
func TestReloadUnderLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	const base = 1_000_000_000
	reloads := testkit.Fifth(50)
	version := 0
	// swap has ..data lead to a new folder with that text.
	swap := func(text string) {
		version++
		folder := filepath.Join(dir, fmt.Sprintf("..%d", version))
		require.NoError(t, os.Mkdir(folder, 0o700))
		testkit.WriteFile(t, filepath.Join(folder, "rules.yaml"), text)
		testkit.Link(t, filepath.Join(dir, "..data"), filepath.Base(folder))
	}
	swap(generation(base))
	require.NoError(t, os.Symlink(filepath.Join("..data", "rules.yaml"), path))
	p := startProcess(t, "-rules", path)

	who, user := events.Features{"ip": "203.0.113.9", "user": "42"}, p.client(t)
	inForce := func() (int64, error) {
		event, err := user.Event(t.Context(), "a")
		if err != nil {
			return 0, err
		}
		return nOfEvents(event)
	}
	var callers []func() error
	for _, request := range []func(c *client.Client) (int64, error){
		func(*client.Client) (int64, error) { return inForce() },
		func(c *client.Client) (int64, error) {
			all, err := c.Events(t.Context())
			if err != nil {
				return 0, err
			}
			return nOfEvents(all.Events...)
		},
		func(c *client.Client) (int64, error) {
			done, err := c.Increment(t.Context(), "a", who, 1, time.Time{})
			if err == nil && len(done.Counters) != 2 {
				err = fmt.Errorf("%d counters", len(done.Counters))
			}
			return 0, err
		},
		func(c *client.Client) (int64, error) {
			d, err := c.Hit(t.Context(), "a", who, 1)
			if err != nil {
				return 0, err
			}
			return nOfDecisions(3, d)
		},
		func(c *client.Client) (int64, error) {
			results, err := c.Batch(t.Context(), []wire.BatchHit{{Event: "a", Features: who}, {Event: "b"}, {Event: "a", Features: who}})
			if err != nil {
				return 0, err
			}
			var all []wire.Decision
			for _, r := range results {
				if r.Decision == nil {
					return 0, fmt.Errorf("no decision: %+v", r)
				}
				all = append(all, *r.Decision)
			}
			return nOfDecisions(7, all...)
		},
	} {
		c, last := p.client(t), int64(0)
		callers = append(callers, func() error {
			n, err := request(c)
			if err == nil && n != 0 && n < last {
				err = fmt.Errorf("%d after %d", n, last)
			}
			last = max(last, n)
			return err
		})
	}
	l := startLoad(t, callers...)

	real := func() string {
		file, err := filepath.EvalSymlinks(path)
		require.NoError(t, err)
		return file
	}
	ways := []func(text string){
		func(text string) { testkit.WriteFile(t, path, text) },
		func(text string) { testkit.ReplaceFile(t, real(), text) },
		swap,
		func(text string) {
			testkit.ReplaceFile(t, real(), text)
			p.signal(t, syscall.SIGHUP)
		},
	}
	failures := func() int { return strings.Count(p.log.String(), "rules not reloaded") }
	for i := range reloads {
		if i%10 == 5 {
			before := failures()
			ways[i/10%len(ways)](generation(base+999) + "      - per: nobody\n")
			testkit.Await(t, soon, "broken rules are refused", func() bool { return failures() > before })
			n, err := inForce()
			require.NoError(t, err)
			require.Equal(t, int64(base+i), n, "what was in force stays")
		}
		ways[i%len(ways)](generation(int64(base + i + 1)))
		testkit.Await(t, soon, "the new rules are in force", func() bool {
			n, err := inForce()
			return err == nil && n == int64(base+i+1)
		})
		l.more(1)
	}
	l.stop()
	assert.Equal(t, reloads, strings.Count(p.log.String(), `msg="rules reloaded"`), "%s", p.log)
	assert.Contains(t, p.log.String(), fmt.Sprintf("generation=%d events=2", reloads+1))
	assert.NotContains(t, p.log.String(), "cannot be watched")
}
