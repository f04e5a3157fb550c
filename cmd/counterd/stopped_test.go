package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// A process is stopped with calls under way, and resumed when their time is over: that is no
// outage of the server, but one that goes on is found.
func TestAProcessThatWasStopped(t *testing.T) {
	leaktest.Parallel(t)
	const timeout = 2 * time.Second
	server := memcachedtest.Start(t)
	proxy := memcachedtest.StartProxy(t, server)
	p := startProcess(t, "-memcached", proxy.Addr, "-timeout", timeout.String(), "-grace", (2 * timeout).String())
	c := p.client(t)
	var users atomic.Int32
	hit := func() (onStore bool) {
		d, err := c.Hit(context.Background(), "url_shorten", events.Features{"ip": fmt.Sprint("203.0.113.", users.Add(1))}, 1)
		return assert.NoError(t, err) && !failed(d)
	}
	// strand has calls under way that are not answered, and returns what waits for the first of
	// them to fail.
	strand := func() (failure func()) {
		muteServer(proxy)
		before := server.Stats("")["curr_items"]
		failures := make(chan struct{}, 20)
		var hits sync.WaitGroup
		for range cap(failures) {
			hits.Go(func() {
				if !hit() {
					failures <- struct{}{}
				}
			})
		}
		t.Cleanup(hits.Wait)
		require.Eventually(t, func() bool { return server.Stats("")["curr_items"] != before }, soon, time.Millisecond)
		return func() { <-failures }
	}
	stop := func() {
		require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
		time.Sleep(timeout)
		require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	}
	for range 3 {
		require.True(t, hit())
		failure := strand()
		stop()
		failure()
		heal(proxy)
		require.Eventually(t, hit, soon, time.Millisecond)
		assert.Zero(t, p.metric(t, `counterd_memcached_breaker_openings_total{server="`+proxy.Addr+`"}`), "%s", p.log)
	}
	failure := strand()
	stop()
	failure()
	for range 3 {
		hit()
	}
	p.log.Await(t, "a memcached server is down")
}
