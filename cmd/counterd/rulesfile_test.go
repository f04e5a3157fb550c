package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
)

// soon bounds the waits for what has to happen.
const soon = time.Minute

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
		for i := range 3 {
			require.NoError(t, p.Process.Signal(syscall.SIGHUP))
			require.Eventually(t, func() bool { return strings.Count(p.log.String(), want) == i+1 }, soon, time.Millisecond, "%s", p.log)
		}
		assert.Equal(t, http.StatusOK, status(t, p.url+"/healthz"))
	}
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

// Fifty new versions of the file under a load of requests of every kind, put in
// place in every way, and broken ones in between: not one request fails, and each
// is answered by one version as a whole.
func TestReloadUnderLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	const base, reloads = 1_000_000_000, 50
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
	p := startProcess(t, "-rules", path, "-timeout", "5s", "-grace", "10s")

	who := events.Features{"ip": "203.0.113.9", "user": "42"}
	requests := map[string]func(ctx context.Context, c *client.Client) (int64, error){
		"event": func(ctx context.Context, c *client.Client) (int64, error) {
			event, err := c.Event(ctx, "a")
			if err != nil {
				return 0, err
			}
			return nOfEvents(event)
		},
		"events": func(ctx context.Context, c *client.Client) (int64, error) {
			all, err := c.Events(ctx)
			if err != nil {
				return 0, err
			}
			return nOfEvents(all.Events...)
		},
		"increment": func(ctx context.Context, c *client.Client) (int64, error) {
			done, err := c.Increment(ctx, "a", who, 1, time.Time{})
			if err == nil && len(done.Counters) != 2 {
				err = fmt.Errorf("%d counters", len(done.Counters))
			}
			return 0, err
		},
		"hit": func(ctx context.Context, c *client.Client) (int64, error) {
			d, err := c.Hit(ctx, "a", who, 1)
			if err != nil {
				return 0, err
			}
			return nOfDecisions(3, d)
		},
		"check": func(ctx context.Context, c *client.Client) (int64, error) {
			d, err := c.Check(ctx, "a", who, 1)
			if err != nil {
				return 0, err
			}
			return nOfDecisions(3, d)
		},
		"batch": func(ctx context.Context, c *client.Client) (int64, error) {
			results, err := c.Batch(ctx, []wire.BatchHit{
				{Event: "a", Features: who}, {Event: "b"}, {Event: "a", Features: who},
			})
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
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	answered := map[string]*atomic.Int64{}
	for name, request := range requests {
		answers := &atomic.Int64{}
		answered[name] = answers
		for range 2 {
			c := p.client(t)
			running.Go(func() {
				var last int64
				for ctx.Err() == nil {
					n, err := request(t.Context(), c)
					if !assert.NoError(t, err, name) || !assert.True(t, n == 0 || n >= last, "%s: %d after %d", name, n, last) {
						return
					}
					last = max(last, n)
					answers.Add(1)
				}
			})
		}
	}

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
			require.NoError(t, p.Process.Signal(syscall.SIGHUP))
		},
	}
	c := p.client(t)
	inForce := func() (int64, error) { return requests["event"](t.Context(), c) }
	for i := range reloads {
		if i%10 == 5 {
			failures := strings.Count(p.log.String(), "rules not reloaded")
			ways[i/10%len(ways)](generation(base+999) + "      - per: nobody\n")
			require.Eventually(t, func() bool { return strings.Count(p.log.String(), "rules not reloaded") > failures }, soon, time.Millisecond, "%s", p.log)
			n, err := inForce()
			require.NoError(t, err)
			require.Equal(t, int64(base+i), n, "what was in force stays")
		}
		before := answered["hit"].Load()
		ways[i%len(ways)](generation(int64(base + i + 1)))
		require.Eventually(t, func() bool {
			n, err := inForce()
			return err == nil && n == int64(base+i+1) && answered["hit"].Load() > before
		}, soon, time.Millisecond, "%s", p.log)
	}
	stop()
	running.Wait()
	for name, n := range answered {
		assert.Greater(t, n.Load(), int64(reloads), name)
		t.Log(name, n.Load())
	}
	assert.Equal(t, reloads, strings.Count(p.log.String(), `msg="rules reloaded"`), "%s", p.log)
	assert.Contains(t, p.log.String(), fmt.Sprintf("generation=%d events=2", reloads+1))
	assert.NotContains(t, p.log.String(), "cannot be watched")
}
