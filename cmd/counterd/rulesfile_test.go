package main

import (
	"context"
	"fmt"
	"log/slog"
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
)

// soon bounds the waits for what has to happen.
const soon = 30 * time.Second

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// replace puts a new file in the place of the old one, as most editors do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+"~", text)
	require.NoError(t, os.Rename(path+"~", path))
}

// lead has a symbolic link lead elsewhere, in one step.
func lead(t *testing.T, link, to string) {
	t.Helper()
	require.NoError(t, os.Symlink(to, link+"~"))
	require.NoError(t, os.Rename(link+"~", link))
}

// oneLimit is a rules file with that N.
func oneLimit(n int) string {
	return fmt.Sprintf("events: {e: {limits: [{per: ip, rate: %d/m}]}}", n)
}

func nOf(f *rulesFile) int64 {
	return f.Rules().Events["e"].Rules[0].Limits[0].N
}

func debugLog() (*slog.Logger, *lockedBuffer) {
	var text lockedBuffer
	return slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})), &text
}

// following opens the file until the test ends.
func following(t *testing.T, path string) (*rulesFile, *lockedBuffer) {
	t.Helper()
	log, text := debugLog()
	f, err := openRules(path, log)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f, text
}

// unfollowed returns the file as it is without its goroutine, for tests that
// take the goroutine's steps themselves.
func unfollowed(t *testing.T, path string) (*rulesFile, *lockedBuffer) {
	t.Helper()
	log, text := debugLog()
	f := newRulesFile(log)
	require.NoError(t, f.open(path))
	return f, text
}

func TestRulesFollowTheirFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	write(t, path, oneLimit(1))
	f, log := following(t, path)
	require.Equal(t, int64(1), nOf(f))
	n := 1
	follows := func(change func(text string)) {
		t.Helper()
		n++
		change(oneLimit(n))
		require.Eventually(t, func() bool { return nOf(f) == int64(n) }, soon, time.Millisecond, "%d: %s", n, log)
		require.Eventually(t, func() bool { return strings.Contains(log.String(), fmt.Sprintf("generation=%d events=1", n)) }, soon, time.Millisecond)
	}
	follows(func(text string) { write(t, path, text) })
	follows(func(text string) { replace(t, path, text) })
	follows(func(text string) {
		require.NoError(t, os.Remove(path))
		write(t, path, text)
	})
	// A link to a file of another folder, that is edited there in either way.
	elsewhere := filepath.Join(t.TempDir(), "other.yaml")
	follows(func(text string) {
		write(t, elsewhere, text)
		lead(t, path, elsewhere)
	})
	follows(func(text string) { write(t, elsewhere, text) })
	follows(func(text string) { replace(t, elsewhere, text) })
	// The way of Kubernetes: the file is a link through ..data, and that is swapped.
	for i := range 3 {
		follows(func(text string) {
			version := filepath.Join(dir, fmt.Sprintf("..%d", i))
			require.NoError(t, os.Mkdir(version, 0o700))
			write(t, filepath.Join(version, "rules.yaml"), text)
			lead(t, filepath.Join(dir, "..data"), filepath.Base(version))
			if i == 0 {
				lead(t, path, filepath.Join("..data", "rules.yaml"))
				return
			}
			require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", i-1))))
		})
	}
	assert.Zero(t, f.reloads.failures.Load())
	assert.Equal(t, int64(n), f.reloads.generation.Load())
}

// A folder on the way to the file that is a link, or comes back as another one, is
// found at a glance.
func TestRulesBehindAFolderThatIsSwapped(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for i, version := range []string{"v1", "v2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "rules.yaml"), oneLimit(i+1))
	}
	current := filepath.Join(dir, "current")
	lead(t, current, "v1")
	f, _ := unfollowed(t, filepath.Join(current, "rules.yaml"))
	lead(t, current, "v2")
	f.look()
	f.settled()
	assert.Equal(t, int64(2), nOf(f))
}

const brokenRules = `events:
  e:
    limits:
      - per: ip
        rate: 5/mm
      - per: IP
        rate: 5/m
`

func TestABrokenEditKeepsTheRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, oneLimit(1))
	f, log := following(t, path)
	before := f.Rules()
	failures := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return f.reloads.failures.Load() == n }, soon, time.Millisecond, "%s", log)
		require.Same(t, before, f.Rules())
	}
	replace(t, path, brokenRules)
	failures(1)
	require.Eventually(t, func() bool { return strings.Count(log.String(), "fault in the rules file") == 2 }, soon, time.Millisecond)
	var loud []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") {
			loud = append(loud, line)
		}
	}
	require.Len(t, loud, 3, "%s", log)
	assert.Contains(t, loud[0], `msg="rules not reloaded, those in force stay"`)
	assert.Contains(t, loud[0], "generation=1 failures=1 faults=2")
	assert.Contains(t, loud[1], "line=5 ")
	assert.Contains(t, loud[1], "line 5, column 15: events.e.limits[0].rate: a window: it is written like 90s, 15m, 24h or 7d")
	assert.Contains(t, loud[2], "line=6 ")

	replace(t, path, "")
	failures(2)
	require.NoError(t, os.Remove(path))
	failures(3)
	require.NoError(t, os.Mkdir(path, 0o700))
	failures(4)
	require.NoError(t, os.Remove(path))
	failures(5)
	assert.True(t, f.reloads.refused.Load())
	replace(t, path, oneLimit(1))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "the rules file holds the rules in force") }, soon, time.Millisecond)
	failures(5)
	assert.False(t, f.reloads.refused.Load(), "what is in force stands in the file again")
	replace(t, path, brokenRules)
	failures(6)
	assert.True(t, f.reloads.refused.Load())
	replace(t, path, oneLimit(2))
	require.Eventually(t, func() bool { return nOf(f) == 2 }, soon, time.Millisecond)
	assert.False(t, f.reloads.refused.Load())
	assert.Equal(t, int64(2), f.reloads.generation.Load())
}

// Of a file that is being written nothing is taken, be it valid by itself, until
// it has been the same for a while.
func TestAFileThatIsBeingWrittenIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, oneLimit(1))
	f, log := unfollowed(t, path)
	for _, part := range []string{"", "events: {e: {}}", oneLimit(2), oneLimit(2) + "\nheaders: none"} {
		write(t, path, part)
		f.look()
		require.True(t, f.settling)
		require.NotEmpty(t, f.seen)
		write(t, path, part+"\n#")
		f.settled()
		require.True(t, f.settling, "it has changed meanwhile")
	}
	require.Equal(t, int64(1), f.reloads.generation.Load())
	require.Equal(t, int64(1), nOf(f))
	require.Empty(t, log.String())
	f.settled()
	assert.False(t, f.settling)
	assert.Equal(t, int64(2), f.reloads.generation.Load())
	assert.Equal(t, int64(2), nOf(f))
	assert.True(t, f.Rules().Sends(events.HeaderNone))
}

func TestWhatHasNotChangedIsNotJudgedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, oneLimit(1))
	f, log := unfollowed(t, path)
	before := f.Rules()
	glances := func() {
		t.Helper()
		for range 3 {
			f.look()
			require.False(t, f.settling)
		}
	}
	judged := func() {
		t.Helper()
		f.look()
		require.True(t, f.settling)
		f.settled()
		require.False(t, f.settling)
		glances()
	}
	replace(t, path, oneLimit(1))
	glances()
	require.Empty(t, log.String())

	for _, broken := range []func(){
		func() { write(t, path, brokenRules) },
		func() { require.NoError(t, os.Remove(path)) },
	} {
		broken()
		judged()
	}
	require.Equal(t, 2, strings.Count(log.String(), "not reloaded"), "%s", log)
	require.Equal(t, int64(2), f.reloads.failures.Load())

	// SIGHUP wants an answer in any case.
	f.asked = true
	judged()
	require.Equal(t, 3, strings.Count(log.String(), "not reloaded"), "%s", log)
	write(t, path, oneLimit(1))
	judged()
	f.asked = true
	judged()
	require.Equal(t, 2, strings.Count(log.String(), `level=INFO msg="the rules file holds the rules in force"`), "%s", log)
	require.Same(t, before, f.Rules())
	require.Equal(t, int64(1), f.reloads.generation.Load())
}

func TestAVeryBrokenFileDoesNotFloodTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, oneLimit(1))
	f, log := unfollowed(t, path)
	write(t, path, "events:\n"+strings.Repeat("  A: {}\n", 5000))
	f.look()
	f.settled()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 1+maxFaultsLogged+1)
	assert.Contains(t, lines[0], "faults=5000")
	assert.Contains(t, lines[len(lines)-1], "faults=4000")
}

func TestAReloadSaysWhatIsIncomplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, oneLimit(1))
	f, _ := unfollowed(t, path)
	now := time.Unix(1_790_000_000, 0)
	f.now = func() time.Time { return now }
	for _, text := range []string{"events: {e: {limits: [{per: ip, rate: [1/m, 9/d]}]}}", "events: {e: {limits: [{per: ip, rate: [2/m, 9/d]}]}}"} {
		write(t, path, text)
		f.look()
		f.settled()
		limits := f.Rules().Events["e"].Rules[0].Limits
		require.Len(t, limits, 2)
		assert.Zero(t, limits[0].Since)
		assert.Equal(t, int64(1_790_000_000), limits[1].Since)
		now = now.Add(time.Hour)
	}
}

// Rules from a pipe cannot be read twice.
func TestRulesFromAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	go os.WriteFile(path, []byte(oneLimit(7)), 0o600)
	f, log := following(t, path)
	assert.Equal(t, int64(7), nOf(f))
	assert.Contains(t, log.String(), "they are read once")
	f.hangup <- syscall.SIGHUP
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "SIGHUP: there is no rules file") }, soon, time.Millisecond)
	assert.Zero(t, f.reloads.failures.Load())
}

// SIGHUP ends no process, with or without a rules file.
func TestSIGHUP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, oneLimit(1))
	for want, args := range map[string][]string{
		"SIGHUP: there is no rules file to read again":                          nil,
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

func TestAStartWithBrokenRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, brokenRules)
	log, _ := debugLog()
	_, err := openRules(path, log)
	require.ErrorIs(t, err, events.ErrInvalid)
	assert.ErrorContains(t, err, path+":\nline 5, column 15")
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
		write(t, filepath.Join(folder, "rules.yaml"), text)
		lead(t, filepath.Join(dir, "..data"), filepath.Base(folder))
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
		func(text string) { write(t, path, text) },
		func(text string) { replace(t, real(), text) },
		swap,
		func(text string) {
			replace(t, real(), text)
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
