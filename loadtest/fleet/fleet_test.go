package fleet_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/testkit/builttest"
	"github.com/counterd/counterd/loadtest/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func counterd(t *testing.T) string {
	t.Helper()
	path, err := builttest.Counterd(t.TempDir())
	require.NoError(t, err)
	return path
}

// A server is killed, comes back, and what it had is copied to it.
func TestAServerComesBack(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Config{
		Counterd: counterd(t), Memcached: "memcached", Processes: 2, Servers: 2, Replicas: 2, Timeout: time.Second,
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

// Of two processes one notices, and is done, before the other has noticed.
func TestOneIsMendedBeforeTheOtherNotices(t *testing.T) {
	var asked atomic.Int64 // the first
	process := func(mending func() bool) fleet.Process {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if mending() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		t.Cleanup(server.Close)
		return fleet.Process{Admin: server.Listener.Addr().String()}
	}
	f := &fleet.Fleet{Processes: []fleet.Process{
		process(func() bool { return asked.Add(1) == 3 }),
		process(func() bool { return asked.Load() == 1 }),
	}}
	require.NoError(t, f.AwaitRepaired(t.Context()))
}

func TestWhatDoesNotStart(t *testing.T) {
	_, err := fleet.Start(t.Context(), fleet.Config{Counterd: "true", Processes: 1, Timeout: time.Second})
	assert.ErrorContains(t, err, "has ended")
}

func TestUntilEnds(t *testing.T) {
	tries := 0
	require.NoError(t, fleet.Until(t.Context(), time.Minute, func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	}))
	never := func() error { return errors.New("never") }
	require.ErrorContains(t, fleet.Until(t.Context(), time.Millisecond, never), "after 1ms: never")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, fleet.Until(ctx, time.Minute, never), context.Canceled)
}
