package main

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Without a flag only programs of this machine are served, and nothing but the API.
func TestNothingIsExposedByDefault(t *testing.T) {
	s, err := parseServe(nil, nil)
	require.NoError(t, err)
	host, _, err := net.SplitHostPort(s.Listen)
	require.NoError(t, err)
	assert.True(t, net.ParseIP(host).IsLoopback(), s.Listen)
	assert.True(t, s.Embedded())

	p := startProcess(t)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/vars", "/debug"} {
		assert.Equal(t, http.StatusNotFound, status(t, p.url+path), path)
	}
}
