package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// sameLimits is a rules file with N in every limit.
func sameLimits(n int64) string {
	return fmt.Sprintf(`events:
  a: {limits: [{per: ip, rate: [%[1]d/10m, %[1]d/h]}, {per: user, rate: %[1]d/d, count: all}]}
  b: {limits: [{per: [], rate: %[1]d/h}]}
`, n)
}

// New versions of the rules file under load, and a broken one: no request fails, and each is answered by one version.
func TestReloadUnderLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const base = 1_000_000_000
	reloads := testkit.Fifth(50)
	testkit.WriteFile(t, path, sameLimits(base))
	p := startProcess(t, "-rules", path)
	who, c := events.Features{"ip": "203.0.113.9", "user": "42"}, p.client(t)
	version := func(limits int, all ...wire.Decision) (n int64, err error) {
		for _, d := range all {
			for _, limit := range d.Limits {
				if n != 0 && n != limit.Limit || !d.Allowed {
					return 0, fmt.Errorf("of several versions: %+v", all)
				}
				n, limits = limit.Limit, limits-1
			}
		}
		if limits != 0 {
			return 0, fmt.Errorf("%d limits are missing: %+v", limits, all)
		}
		return n, nil
	}
	inForce := func() (int64, error) {
		d, err := c.Check(t.Context(), "a", who, 1)
		if err != nil {
			return 0, err
		}
		return version(3, d)
	}
	hit := func() (int64, error) {
		d, err := c.Hit(t.Context(), "a", who, 1)
		if err != nil {
			return 0, err
		}
		return version(3, d)
	}
	batch := func() (int64, error) {
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
		return version(7, all...)
	}
	var callers []func() error
	for _, request := range []func() (int64, error){inForce, hit, hit, batch} {
		last := int64(0)
		callers = append(callers, func() error {
			n, err := request()
			if err == nil && n < last {
				err = fmt.Errorf("%d after %d", n, last)
			}
			last = n
			return err
		})
	}
	l := startLoad(t, callers...)
	becomes := func(n int64) {
		t.Helper()
		testkit.Await(t, soon, "the new rules are in force", func() bool {
			got, err := inForce()
			return err == nil && got == n
		})
		l.more(1)
	}
	for i := range int64(reloads) {
		if i%2 == 0 {
			testkit.ReplaceFile(t, path, sameLimits(base+i+1))
		} else {
			testkit.WriteFile(t, path, sameLimits(base+i+1))
			p.signal(t, syscall.SIGHUP)
		}
		becomes(base + i + 1)
	}
	testkit.ReplaceFile(t, path, sameLimits(base)+"  c: {limits: [{per: nobody}]}\n")
	p.logged(t, "rules not reloaded")
	becomes(base + int64(reloads))
	l.stop()
	assert.Equal(t, reloads, strings.Count(p.log.String(), `msg="rules reloaded"`), "%s", p.log)
}
