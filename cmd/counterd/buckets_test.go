package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// ofThree returns clients, which do not wait for turns, of three processes on one server.
func ofThree(t *testing.T, limits string) (clients []*client.Client) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte("events: {e: {limits: "+limits+"}}"), 0o600))
	server := memcachedtest.Start(t)
	for range 3 {
		p := startProcess(t, "-memcached", server.Addr, "-rules", rules, "-timeout", "5s", "-grace", "10s")
		c, err := client.New(client.Config{URL: p.url, MaxWaiting: -1})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	return clients
}

// hitAtOnce returns those decisions of so many hits at once that admit, and how long all took.
func hitAtOnce(t *testing.T, clients []*client.Client, hits int, user string) (admitted []wire.Decision, took time.Duration) {
	began := time.Now()
	var mu sync.Mutex
	var running sync.WaitGroup
	for i := range hits {
		running.Go(func() {
			d, err := clients[i%len(clients)].Hit(t.Context(), "e", map[string]string{"user": user}, 1)
			if assert.NoError(t, err) && d.Allowed {
				mu.Lock()
				defer mu.Unlock()
				admitted = append(admitted, d)
			}
		})
	}
	running.Wait()
	return admitted, time.Since(began)
}

// Three real processes that are hammered: 20 at once, and then 10 a second. However slow the machine is, there
// are never more than the burst and what its rate adds, and as many once that much time has passed.
func TestThreeProcessesOnATokenBucket(t *testing.T) {
	leaktest.Parallel(t)
	clients := ofThree(t, "[{per: user, rate: 10/s, burst: 20, on_error: deny}]")
	var all int
	began := time.Now()
	for end := began.Add(testkit.Lasting(3*time.Second, 20*time.Second)); time.Now().Before(end); {
		admitted, _ := hitAtOnce(t, clients, 60, "ada")
		if all == 0 {
			assert.GreaterOrEqual(t, len(admitted), 20)
		}
		all += len(admitted)
		require.LessOrEqual(t, all, 20+int(time.Since(began).Milliseconds()+1)/100)
	}
	hammered := time.Since(began)
	time.Sleep(time.Second)
	last, took := hitAtOnce(t, clients, 60, "ada")
	assert.GreaterOrEqual(t, len(last), 10)
	assert.LessOrEqual(t, len(last), 20+int(took.Milliseconds()+1)/100)
	t.Logf("%d admitted in %s; %d after a second of rest", all, hammered, len(last))
}

// Three real processes, 30 at once on 5/m with a queue of 10: 11 are admitted, and their turns are 12 s apart.
func TestThreeProcessesOnALeakyBucket(t *testing.T) {
	clients := ofThree(t, "[{per: user, rate: 5/m, queue: 10, on_error: deny}]")
	for round := range testkit.Fifth(10) {
		admitted, took := hitAtOnce(t, clients, 30, fmt.Sprint(round))
		var waits []float64
		for _, d := range admitted {
			waits = append(waits, d.Wait)
		}
		slices.Sort(waits)
		require.Len(t, waits, 11)
		for i, wait := range waits {
			require.InDelta(t, 12*float64(i), wait, took.Seconds(), "from when the hit came")
		}
	}
}
