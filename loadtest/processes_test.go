//go:build testall

package main

import (
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	load "github.com/counterd/counterd/loadtest/run"
)

func TestInterruptsOfChaos(t *testing.T) {
	interruptOwn(t, syscall.SIGTERM, 5, 3000, []string{"violations   none"}, "verify", "-duration", "1h", "-servers", "3", "-replicas", "2", "-chaos")
}

func TestInterruptsOfASoak(t *testing.T) {
	interruptOwn(t, os.Interrupt, 5, 500, []string{"violations   none", "interrupted: what was seen", "not compared in the end"}, "verify", "-soak", "1h")
}

func TestTheKneeOfAServer(t *testing.T) {
	// One at a time, and 20 ms each.
	var target hits
	one := make(chan struct{}, 1)
	target.do = func(int64) {
		one <- struct{}{}
		time.Sleep(20 * time.Millisecond)
		<-one
	}
	server := httptest.NewServer(&target)
	defer server.Close()
	got := runWith(t, nil, "run", "-url", server.URL, "-find-max", "-p99", "2s", "-trial", "200ms", "-rate", "10", "-json")
	require.Equal(t, exitOK, got.status, got.err+got.out)
	var knee load.Knee
	require.NoError(t, json.Unmarshal([]byte(got.out), &knee, json.RejectUnknownMembers(true)))
	assert.LessOrEqual(t, knee.Rate, 60., "of one server that takes 20 ms or more")
	assert.Positive(t, knee.Rate)
}
