package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// Three processes, of which one is killed, share leases: there are never more than the limit, though clients
// are gone without a release, and within a lease all are free again.
func TestProcessesShareLeases(t *testing.T) {
	const most, lease = 4, 3 * time.Second
	server := memcachedtest.Start(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte("events: {job: {limits: [{per: user, concurrent: 4, lease: 3s, on_error: deny}]}}"), 0o600))
	var processes []*process
	var clients []*client.Client
	for range 3 {
		p := startProcess(t, "-memcached", server.Addr, "-grace", "4s", "-rules", rules)
		processes, clients = append(processes, p), append(clients, p.client(t))
	}
	features := events.Features{"user": "bob"}

	// live counts the leases of which this test knows: from the answer until they are released, or end.
	type held struct{ from, until time.Time }
	var mu sync.Mutex
	var all []held
	var taken, gone, failed int
	end := time.Now().Add(testkit.Lasting(4*time.Second, 20*time.Second))
	var callers sync.WaitGroup
	for caller := range 12 {
		callers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(caller), 1))
			for time.Now().Before(end) {
				asked := time.Now()
				d, err := clients[rnd.IntN(3)].Hit(t.Context(), "job", features, 1)
				answered := time.Now()
				if err != nil || !d.Allowed {
					mu.Lock()
					if err != nil {
						failed++
					}
					mu.Unlock()
					continue
				}
				h := held{answered, asked.Truncate(time.Millisecond).Add(lease)} // stamps are in milliseconds
				reservation, crashes := d.Reservation, rnd.IntN(8) == 0
				time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
				if !crashes && rnd.IntN(3) == 0 {
					began := time.Now()
					if renewed, err := clients[rnd.IntN(2)].Renew(t.Context(), reservation, lease); err == nil {
						reservation, h.until = renewed, began.Truncate(time.Millisecond).Add(lease)
					} else {
						crashes, h.until = true, began
					}
				}
				if released := time.Now(); !crashes {
					if released.Before(h.until) {
						h.until = released
					}
					err = clients[rnd.IntN(2)].Release(t.Context(), reservation)
				}
				mu.Lock()
				all = append(all, h)
				if taken++; crashes {
					gone++
				}
				if err != nil {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(time.Until(end) / 2)
	require.NoError(t, processes[2].Process.Kill())
	callers.Wait()
	for _, h := range all {
		live := 0
		for _, other := range all {
			if !other.from.After(h.from) && other.until.After(h.from) {
				live++
			}
		}
		require.LessOrEqual(t, live, most)
	}
	t.Logf("%d leases, %d of them not released, %d calls failed", len(all), gone, failed)
	require.NotZero(t, min(taken, failed))

	time.Sleep(lease)
	for i := range most + 1 {
		d, err := clients[i%2].Hit(t.Context(), "job", features, 1)
		require.NoError(t, err)
		assert.Equal(t, i < most, d.Allowed, "lease %d", i+1)
	}

	var stdout bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"keys", "-event", "job", "-feature", "user:bob", "-rules", rules, "-memcached", server.Addr}, &stdout, os.Stderr))
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	require.Len(t, lines, 2)
	leases := strings.Fields(lines[1])
	require.Equal(t, []string{"leases", "-"}, leases[:2])
	assert.NotEmpty(t, server.Ask("get "+leases[2]), "the key is there")
}

// validate prints the leases of each counter beside what else it has.
func TestValidateLeases(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(`events:
  chat: {limits: [{per: user, rate: 100/d}, {per: user, concurrent: 2, lease: 1m}]}
  job: {limits: [{per: user, concurrent: 1, lease: 30s}]}
`), 0o600))
	var stdout bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"validate", rules}, &stdout, os.Stderr))
	assert.Regexp(t, `(?m)^chat +user +24h +second to day .*\nchat +user +1m +leases +1 +17352\njob +user +30s +leases +1 +17352\n\n`, stdout.String())
	assert.NotContains(t, strings.Split(stdout.String(), "RECOMMENDED")[1], "job")
}
