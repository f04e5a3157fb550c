package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/server"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// A server that demands all there is: a process with all of it counts there, one that lacks a
// part logs which, and the password is nowhere in the log.
func TestAServerThatDemands(t *testing.T) {
	authority, stranger := memcachedtest.NewAuthority(t), memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	server := memcachedtest.StartSecure(t, memcachedtest.Security{Authority: authority, WantsClient: true, User: "counterd", Password: "sesame"})
	dir := t.TempDir()
	right, wrong := filepath.Join(dir, "right"), filepath.Join(dir, "wrong")
	require.NoError(t, os.WriteFile(right, []byte("counterd:sesame\n"), 0o600))
	require.NoError(t, os.WriteFile(wrong, []byte("counterd:not-sesame\n"), 0o600))
	start := func(args ...string) *process {
		return startProcess(t, append([]string{"-memcached", server.Addr, "-timeout", "5s", "-grace", "10s"}, args...)...)
	}
	certificate := []string{"-memcached-tls", "-memcached-cert", id.CertFile, "-memcached-key", id.KeyFile}
	for says, args := range map[string][]string{
		"unknown authority": append([]string{"-memcached-ca", stranger.File, "-memcached-auth", right}, certificate...),
		"other.example":     append([]string{"-memcached-ca", authority.File, "-memcached-auth", right, "-memcached-server-name", "other.example"}, certificate...),
		"certificate":       {"-memcached-tls", "-memcached-ca", authority.File, "-memcached-auth", right},
		"refused the user":  append([]string{"-memcached-ca", authority.File, "-memcached-auth", wrong}, certificate...),
		"unauthenticated":   append([]string{"-memcached-ca", authority.File}, certificate...),
		"wants TLS":         {"-memcached-auth", right},
	} {
		p := start(args...)
		assert.Contains(t, p.log.String(), says)
		assert.Equal(t, http.StatusServiceUnavailable, status(t, p.url+"/readyz"), says)
		assert.NotContains(t, p.log.String(), "sesame")
	}
	p := start(append([]string{"-memcached-ca", authority.File, "-memcached-auth", right}, certificate...)...)
	_, err := p.client(t).Increment(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.9"}, 7, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status(t, p.url+"/readyz"))
	assert.NotContains(t, p.log.String(), "level=WARN")
	assert.NotContains(t, p.log.String(), "sesame")
	assert.NotEqual(t, "0", server.Stats("")["curr_items"])
}

// Secrets that lie or go open are warned of, also where they go to a server that is found later.
func TestOpenSecrets(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	auth := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(auth, []byte("counterd:sesame"), 0o600))
	for _, path := range []string{auth, id.KeyFile} {
		require.NoError(t, os.Chmod(path, 0o644))
	}
	p := startProcess(t, "-memcached", "192.0.2.1:11211,127.0.0.1:1", "-memcached-auth", auth)
	assert.Regexp(t, `level=WARN msg="a file with a secret[^\n]*file=`+auth+` mode=-rw-r--r--`, p.log.String())
	assert.Regexp(t, `level=WARN msg="the password goes [^\n]* server=192.0.2.1:11211`, p.log.String())
	assert.NotRegexp(t, `the password goes [^\n]* server=127.0.0.1:1`, p.log.String())
	assert.NotContains(t, p.log.String(), "sesame")

	p = startProcess(t, "-memcached", "127.0.0.1:1", "-memcached-auth", auth, "-memcached-tls", "-memcached-cert", id.CertFile, "-memcached-key", id.KeyFile)
	assert.Regexp(t, `level=WARN msg="a file with a secret[^\n]*file=`+id.KeyFile, p.log.String())
	assert.NotContains(t, p.log.String(), "the password goes")

	servers := filepath.Join(t.TempDir(), "servers")
	testkit.WriteFile(t, servers, "127.0.0.1:1")
	p = startProcess(t, "-memcached-file", servers, "-memcached-auth", auth)
	assert.NotContains(t, p.log.String(), "the password goes")
	testkit.ReplaceFile(t, servers, "192.0.2.1:11211")
	p.log.Await(t, "the password goes", "server=192.0.2.1:11211")
}

func TestSecurityFromTheEnvironment(t *testing.T) {
	t.Setenv("COUNTERD_MEMCACHED", "a.example:1")
	t.Setenv("COUNTERD_MEMCACHED_TLS", "true")
	t.Setenv("COUNTERD_MEMCACHED_SERVER_NAME", "b.example")
	t.Setenv("COUNTERD_MEMCACHED_CA", "/ca")
	t.Setenv("COUNTERD_MEMCACHED_CERT", "/cert")
	t.Setenv("COUNTERD_MEMCACHED_KEY", "/key")
	t.Setenv("COUNTERD_MEMCACHED_AUTH", "/auth")
	s, err := parseServe(nil, nil)
	require.NoError(t, err)
	want := server.DefaultSettings()
	want.Memcached, want.MemcachedTLS, want.MemcachedServerName = []string{"a.example:1"}, true, "b.example"
	want.MemcachedCA, want.MemcachedCert, want.MemcachedKey, want.MemcachedAuth = "/ca", "/cert", "/key", "/auth"
	assert.Equal(t, want, s.Settings)
}
