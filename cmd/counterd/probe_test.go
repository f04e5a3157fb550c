package main

import (
	"bytes"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// probed returns the exit status of a probe and what it wrote.
func probed(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), append([]string{"probe"}, args...), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// Without its store a process is alive, and not ready.
func TestProbeTellsAliveFromReady(t *testing.T) {
	server := memcachedtest.Start(t)
	process := startProcess(t, "-memcached", server.Addr)
	for _, path := range []string{"", "/", "/healthz", "/readyz"} {
		status, stdout, stderr := probed(t, process.url+path)
		assert.Equal(t, exitOK, status, "%s: %s", path, stderr)
		assert.Empty(t, stdout+stderr, "a good answer needs no words")
	}
	server.Stop()
	hit := func() { status(t, process.url+"/v1/events/url_shorten/count?feature=ip:192.0.2.1&window=1m") }
	ready := exitOK
	for said := ""; ready == exitOK; { // until the breaker opens
		hit()
		ready, _, said = probed(t, process.url+"/readyz")
		if ready != exitOK {
			assert.Contains(t, said, "/readyz answers 503 Service Unavailable")
		}
	}
	assert.Equal(t, exitFailed, ready)
	alive, _, _ := probed(t, process.url)
	assert.Equal(t, exitOK, alive)
}

// Only the server that is named counts, and only its 200.
func TestProbeFollowsNobody(t *testing.T) {
	ok := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer ok.Close()
	elsewhere := httptest.NewServer(http.RedirectHandler(ok.URL+"/healthz", http.StatusFound))
	defer elsewhere.Close()
	t.Setenv("HTTP_PROXY", ok.URL)
	exit, _, said := probed(t, elsewhere.URL)
	assert.Equal(t, exitFailed, exit)
	assert.Contains(t, said, "answers 302 Found")
}

// A certificate is for a name, and a process is asked by its address.
func TestProbeOfACertificateForAName(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	files := newPair(t, authority.Issue(t, func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"counterd.internal"}, nil }))
	p := startProcess(t, "-tls-cert", files.cert, "-tls-key", files.key)
	for _, test := range []struct {
		exit int
		says string
		args []string
	}{
		{exitFailed, "certificate", nil},
		{exitFailed, "127.0.0.1", []string{"-ca", authority.File}},
		{exitOK, "", []string{"-ca", authority.File, "-server-name", "counterd.internal"}},
		{exitFailed, "counterd.internal", []string{"-ca", authority.File, "-server-name", "other.internal"}},
	} {
		exit, _, said := probed(t, append(test.args, p.secureURL())...)
		assert.Equal(t, test.exit, exit, "%q: %s", test.args, said)
		assert.Contains(t, said, test.says)
	}
}

// Many read the output of a probe: a password in the URL is not in it.
func TestProbeSaysNoPassword(t *testing.T) {
	const password = "hunter2"
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	_, host, _ := strings.Cut(refusing.URL, "//")
	for _, url := range []string{
		"http://probe:" + password + "@" + host, "http://probe:" + password + "@127.0.0.1:1",
		"ftp://probe:" + password + "@" + host, "probe:" + password + "@" + host, "http://probe:" + password + "@%zz",
	} {
		exit, stdout, said := probed(t, url)
		assert.NotEqual(t, exitOK, exit)
		assert.NotEmpty(t, said)
		assert.NotContains(t, stdout+said, password, url)
	}
}

// A server that says nothing is not waited for longer than is said.
func TestProbeWaitsNoLonger(t *testing.T) {
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	defer server.Close()
	exit, _, said := probed(t, "-wait", "50ms", server.URL)
	assert.Equal(t, exitFailed, exit)
	assert.Contains(t, said, "deadline exceeded")
	<-asked
}

func TestProbeUsage(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, test := range []struct {
		args []string
		exit int
		said string
	}{
		{[]string{"a", "b"}, exitUsage, "probe takes one URL"},
		{[]string{"127.0.0.1:8080"}, exitUsage, "write it as http://127.0.0.1:8080/healthz"},
		{[]string{"ftp://127.0.0.1"}, exitUsage, "not a URL"},
		{[]string{"-wait", "0s"}, exitUsage, "-wait"},
		{[]string{"-ca", "/nowhere.pem", "https://127.0.0.1"}, exitFailed, "-ca"},
		{[]string{"-ca", empty, "https://127.0.0.1"}, exitFailed, "holds no certificate"},
		{[]string{"http://127.0.0.1:1"}, exitFailed, "refused"},
	} {
		exit, _, said := probed(t, test.args...)
		assert.Equal(t, test.exit, exit, test.args)
		assert.Contains(t, said, test.said, test.args)
	}
	exit, help, _ := probed(t, "-h")
	assert.Equal(t, exitOK, exit)
	assert.Contains(t, help, "COUNTERD_WAIT")
}
