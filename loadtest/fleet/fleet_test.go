package fleet_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/loadtest/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
