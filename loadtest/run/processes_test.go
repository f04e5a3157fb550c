//go:build testall

package run_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/builttest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/run"
	"github.com/counterd/counterd/loadtest/traffic"
)

// Two real servers on one Memcached: what they admit together, their trips and reads, and
// the CPU time of both.
func TestRealServers(t *testing.T) {
	counterd, err := builttest.Counterd(t.TempDir())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	memcached := memcachedtest.Start(t)
	var urls []string
	for range 2 {
		c, err := child.Start(t.Context(), child.Program{
			Path: counterd,
			Args: func(addr string) []string {
				return []string{"-listen", addr, "-rules", file, "-memcached", memcached.Addr, "-timeout", "30s", "-grace", "1m"}
			},
			Ready: func(addr string) error {
				answer, err := http.Get("http://" + addr + "/readyz")
				if err == nil {
					answer.Body.Close()
				}
				return err
			},
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Stop()) })
		urls = append(urls, "http://"+c.Addr)
	}
	http.DefaultClient.CloseIdleConnections()
	target := overHTTP(t, run.HTTPConfig{URLs: urls})
	before := gets(t, memcached)
	const addresses, calls = 5, 400
	report, err := run.Run(t.Context(), run.Config{Target: target, Source: of(t, addresses, nil, 1), Profile: arrival.Constant(calls), Duration: time.Second})
	require.NoError(t, err)
	assert.Equal(t, run.Hits{Admitted: 7 * addresses, Denied: calls - 7*addresses}, report.Hits)
	assert.ElementsMatch(t, []run.Status{{Name: "200", Requests: 7 * addresses}, {Name: "429", Requests: calls - 7*addresses}}, report.Statuses)
	require.NotNil(t, report.Store, report.StoreNote)
	read := gets(t, memcached) - before
	assert.InDelta(t, read, report.Store.Reads, 2*(markers+2*150))
	assert.GreaterOrEqual(t, report.Store.Trips, int64(addresses))
	require.NotNil(t, report.Process)
	assert.Equal(t, 2, report.Process.Processes)
	assert.Positive(t, report.Process.CPUSeconds)
	assert.Greater(t, report.Process.Memory, int64(1<<20))

	// Hits on counters of their own: one trip each. The denied hits of before may be written meanwhile, by each process
	// once for each address.
	begun := time.Now()
	report, err = run.Run(t.Context(), run.Config{Target: target, Source: of(t, traffic.MaxPopulation, nil, 1), Profile: arrival.Constant(calls), Duration: time.Second})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, report.Store.Trips, int64(calls))
	assert.LessOrEqual(t, report.Store.Trips, 2*(addresses+others(begun))+calls)
}
