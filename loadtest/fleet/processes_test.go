//go:build testall

package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/builttest"
	"github.com/counterd/counterd/loadtest/fleet"
)

// A server is killed, comes back, and what it had is copied to it.
func TestAServerComesBack(t *testing.T) {
	counterd, err := builttest.Counterd(t.TempDir())
	require.NoError(t, err)
	f, err := fleet.Start(t.Context(), fleet.Config{
		Counterd: counterd, Memcached: "memcached", Processes: 2, Servers: 2, Replicas: 2, Timeout: time.Second,
		Rules: "events: {e: {limits: [{per: user, rate: 3/m}]}}",
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	require.NoError(t, f.Alive())
	require.NoError(t, f.Ready())
	f.Servers[1].Kill()
	require.NoError(t, f.Restart(t.Context(), 1))
	require.NoError(t, f.AwaitRepaired(t.Context()))
	require.NoError(t, f.Whole(f.Processes[0].Admin))
	f.Processes[1].Kill()
	assert.ErrorContains(t, f.Alive(), "has ended")
	_, err = fleet.Ask(f.Processes[0].Addr, "/v1/events/none")
	assert.ErrorContains(t, err, "404")
}
