package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// The first servers are waited for, not for ever, and why there are none is said in one
// line.
func TestAStartWithoutServers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		var stderr bytes.Buffer
		assert.Equal(t, exitFailed, run(t.Context(), []string{"-memcached", "aws:127.0.0.1:1"}, io.Discard, &stderr))
		assert.Equal(t, 10*time.Second, time.Since(began))
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		assert.Contains(t, lines[0], `level=WARN msg="no memcached server is found yet" from=aws:127.0.0.1:1`)
		last := lines[len(lines)-1]
		assert.Contains(t, last, "counterd: no memcached server was found within 10s: discovery: cluster 127.0.0.1:1: ")
		assert.Contains(t, last, "connection refused")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		began = time.Now()
		stderr.Reset()
		assert.Equal(t, exitFailed, run(ctx, []string{"-memcached", "aws:127.0.0.1:1"}, io.Discard, &stderr))
		assert.Equal(t, time.Second/2, time.Since(began), "a signal ends the wait")
		assert.Contains(t, stderr.String(), "stopped before")
	})
}

// clusterOver is a real server that demands TLS and is the endpoint of its own cluster, in the
// old way: it tells its name and its address.
func clusterOver(t *testing.T, demands memcachedtest.Security, client *tls.Config) (endpoint string) {
	t.Helper()
	server := memcachedtest.StartSecure(t, demands)
	_, port, err := net.SplitHostPort(server.Addr)
	require.NoError(t, err)
	endpoint = "localhost:" + port
	client.ServerName = "localhost"
	conn, err := tls.Dial("tcp", server.Addr, client)
	require.NoError(t, err)
	defer conn.Close()
	body := "1\nlocalhost|127.0.0.1|" + port + "\n"
	fmt.Fprintf(conn, "set AmazonElastiCache:cluster 0 0 %d\r\n%s\r\n", len(body), body)
	answer, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "STORED\r\n", answer)
	return endpoint
}

// A cluster that demands TLS demands it at its endpoint too. Its certificates are for names, so that is how its nodes
// are named, whatever addresses it tells with them.
func TestAClusterWithTLS(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	named := authority.Issue(t, func(c *x509.Certificate) { c.IPAddresses = nil }) // for localhost, and for no address
	id := authority.Issue(t)
	endpoint := clusterOver(t, memcachedtest.Security{Authority: authority, Certificate: named, WantsClient: true}, authority.Client(id))
	flags := []string{"-memcached", "aws:" + endpoint, "-memcached-tls", "-memcached-ca", authority.File, "-memcached-cert", id.CertFile, "-memcached-key", id.KeyFile}
	p := startProcess(t, flags...)
	p.log.Await(t, `msg="memcached store" servers=`+endpoint)
	p.log.Await(t, `msg="the memcached servers are followed" from=aws:`+endpoint)
	_, err := p.client(t).Increment(t.Context(), "url_shorten", visitor, 1, time.Time{})
	require.NoError(t, err)
	p.signal(t, syscall.SIGHUP)
	p.log.Await(t, "the memcached servers found are those in force", "servers="+endpoint)
	assert.NotContains(t, p.log.String(), "level=WARN")
	_, server := dayKey(t, flags...)
	assert.Equal(t, endpoint, server)

	// The first report of the cause is enough: the fault does not go away.
	ctx, cancel := context.WithCancel(t.Context())
	var stderr testkit.Log
	var running sync.WaitGroup
	running.Go(func() { run(ctx, append(flags, "-memcached-server-name", "other.example"), io.Discard, &stderr) })
	stderr.Await(t, "no memcached server is found yet", "other.example")
	cancel()
	running.Wait()
}

// A server that demands all there is: a process with all of it counts there, one that lacks a part logs which, and the
// password is nowhere in the log.
func TestAServerThatDemands(t *testing.T) {
	authority, stranger := memcachedtest.NewAuthority(t), memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	server := memcachedtest.StartSecure(t, memcachedtest.Security{Authority: authority, WantsClient: true, User: "counterd", Password: "sesame"})
	right, wrong := testkit.SecretFile(t, "counterd:sesame\n"), testkit.SecretFile(t, "counterd:not-sesame\n")
	start := func(args ...string) *process { return startProcess(t, append(args, "-memcached", server.Addr)...) }
	all := []string{"-memcached-tls", "-memcached-cert", id.CertFile, "-memcached-key", id.KeyFile, "-memcached-ca", authority.File, "-memcached-auth", right}
	for says, args := range map[string][]string{
		"unknown authority": slices.Concat(all, []string{"-memcached-ca", stranger.File}),
		"other.example":     slices.Concat(all, []string{"-memcached-server-name", "other.example"}),
		"certificate":       {"-memcached-tls", "-memcached-ca", authority.File, "-memcached-auth", right},
		"refused the user":  slices.Concat(all, []string{"-memcached-auth", wrong}),
		"unauthenticated":   all[: len(all)-2 : len(all)-2],
		"wants TLS":         {"-memcached-auth", right},
	} {
		p := start(args...)
		assert.Contains(t, p.log.String(), says)
		assert.Equal(t, http.StatusServiceUnavailable, status(t, p.url+"/readyz"), says)
		assert.NotContains(t, p.log.String(), "sesame")
	}
	p := start(all...)
	_, err := p.client(t).Increment(t.Context(), "url_shorten", visitor, 7, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status(t, p.url+"/readyz"))
	assert.NotContains(t, p.log.String(), "level=WARN")
	assert.NotContains(t, p.log.String(), "sesame")
	assert.NotEqual(t, "0", server.Stats("")["curr_items"])
}
