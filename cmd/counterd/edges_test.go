package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// Two processes are hammered across the edges of seconds and, where everything is tested, for
// more than a minute, across one of minutes. By the seconds in which the admitted hits say
// they were stamped, no window ever held more than its limit; and the limits were
// used: what is denied was denied for a reason.
func TestHammeringAcrossEdges(t *testing.T) {
	leaktest.Parallel(t)
	length := testkit.Lasting(16*time.Second, 64*time.Second)
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
	require.NoError(t, os.WriteFile(path, []byte(rules.String()), 0o600))
	servers := strings.Join(memcachedtest.StartMany(t, 2), ",")
	clients := []*client.Client{
		startProcess(t, "-rules", path, "-memcached", servers, "-timeout", "5s", "-grace", "10s").client(t),
		startProcess(t, "-rules", path, "-memcached", servers, "-timeout", "5s", "-grace", "10s").client(t),
	}
	const workers, pace = 8, 15 * time.Millisecond
	var mu sync.Mutex
	admitted := map[string][]int64{}
	var running sync.WaitGroup
	end := time.Now().Add(length)
	for name := range limits {
		for worker := range workers {
			running.Go(func() {
				for time.Now().Before(end) {
					d, err := clients[worker%2].Hit(t.Context(), name, events.Features{"user": "42"}, 1)
					if !assert.NoError(t, err) {
						return
					}
					if d.Allowed && !assert.False(t, slices.ContainsFunc(d.Limits, func(l wire.LimitState) bool { return l.OnError != "" }), "the store failed") {
						return
					}
					if d.Allowed {
						mu.Lock()
						admitted[name] = append(admitted[name], d.At.Unix())
						mu.Unlock()
					}
					time.Sleep(pace)
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
