package main

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// Under load, on kept connections, all that is counted is acknowledged, also after a signal, and the process ends well.
func TestShutdownUnderLoadLosesNothing(t *testing.T) {
	server := memcachedtest.Start(t)
	stopping := startProcess(t, "-memcached", server.Addr, "-timeout", "5s", "-grace", "10s")
	staying := startProcess(t, "-memcached", server.Addr, "-timeout", "5s", "-grace", "10s").client(t)
	who := events.Features{"ip": "203.0.113.9"}
	var acknowledged atomic.Int64
	var load sync.WaitGroup
	for range 64 {
		c := stopping.client(t)
		load.Go(func() {
			for {
				if _, err := c.Increment(context.Background(), "url_shorten", who, 1, time.Time{}); err != nil {
					return
				}
				acknowledged.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return acknowledged.Load() > 200 }, soon, time.Millisecond)
	require.NoError(t, stopping.Process.Signal(syscall.SIGTERM))
	load.Wait()
	require.NoError(t, stopping.Wait(), "%s", stopping.log)
	assert.Contains(t, stopping.log.String(), "msg=stopped")
	count, err := staying.Count(t.Context(), "url_shorten", who, time.Hour, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, acknowledged.Load(), count.Count)
}

func TestTheGraceIsPassedOn(t *testing.T) {
	ahead := func(args ...string) error {
		_, err := startProcess(t, args...).client(t).Increment(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.9"}, 1, time.Now().Add(8*time.Second))
		return err
	}
	assert.NoError(t, ahead("-grace", "10s"))
	assert.ErrorIs(t, ahead(), client.ErrInvalid)
}

// A store that accepts and says nothing is waited for as long as is said.
func TestTheTimeoutIsPassedOn(t *testing.T) {
	leaktest.Check(t)
	server := memcachedtest.Start(t)
	const timeout = 2 * time.Second
	p := startProcess(t, "-memcached", server.Addr, "-timeout", timeout.String(), "-grace", (2 * timeout).String())
	// It is not known to be down until a few have waited for it.
	server.Pause()
	defer server.Resume()
	c := p.client(t)
	who := events.Features{"ip": "203.0.113.9"}

	began := time.Now()
	waited := func() {
		assert.GreaterOrEqual(t, time.Since(began), timeout)
		assert.Less(t, time.Since(began), soon)
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		_, err := c.Count(t.Context(), "url_shorten", who, time.Minute, time.Time{})
		waited()
		assert.ErrorIs(t, err, client.ErrUnavailable)
		assert.ErrorContains(t, err, "503")
	})
	d, err := c.Hit(t.Context(), "url_shorten", who, 1)
	waited()
	require.NoError(t, err)
	assert.Equal(t, "allow", d.Limits[0].OnError)
}
