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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
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

// A list that is edited while counterd runs is followed, and SIGHUP is answered by the rules
// and by the servers.
func TestAProcessFollowsAFileOfServers(t *testing.T) {
	servers := memcachedtest.StartMany(t, 2)
	dir := t.TempDir()
	rules, path := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "servers")
	testkit.WriteFile(t, rules, oneLimit(5))
	testkit.WriteFile(t, path, "# the fleet\n"+servers[0]+"\n")
	p := startProcess(t, "-rules", rules, "-memcached-file", path, "-timeout", "5s", "-grace", "10s")
	p.log.Await(t, `msg="memcached store" servers=`+servers[0])
	who := events.Features{"ip": "203.0.113.9"}
	_, err := p.client(t).Increment(t.Context(), "e", who, 1, time.Time{})
	require.NoError(t, err)

	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	p.log.Await(t, "the rules file holds the rules in force")
	p.log.Await(t, "the memcached servers found are those in force")
	testkit.ReplaceFile(t, path, "")
	p.log.Await(t, "those in force stay", "no server is named")
	testkit.ReplaceFile(t, path, servers[0]+"\nnonsense\n")
	p.log.Await(t, "those in force stay", "line 2: nonsense is neither")
	testkit.ReplaceFile(t, path, strings.Join(servers, "\n"))
	p.log.Await(t, "added="+servers[1]+" removed=\"\" servers=")
	_, err = p.client(t).Increment(t.Context(), "e", who, 1, time.Time{})
	assert.NoError(t, err)

	var stdout bytes.Buffer
	testkit.WriteFile(t, path, servers[1])
	args := []string{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached-file", path}
	require.Equal(t, exitOK, run(t.Context(), args, &stdout, os.Stderr))
	assert.Contains(t, stdout.String(), servers[1])
}

// A list that is refused is seen at /metrics, for as long as it is; servers that are named one
// by one are no list that could be.
func TestMetricsTellOfAServerListThatIsRefused(t *testing.T) {
	servers := memcachedtest.StartMany(t, 2)
	path := filepath.Join(t.TempDir(), "servers")
	testkit.WriteFile(t, path, servers[0])
	p := startProcess(t, "-memcached-file", path)
	const failing, failures = `counterd_server_list_failing{source="file"}`, `counterd_server_list_failures_total{source="file"}`
	series, _ := scrape(t, p)
	assert.Equal(t, 0.0, series.take(t, failing))
	assert.Equal(t, 0.0, series.take(t, failures))
	becomes := func(value float64) {
		t.Helper()
		require.Eventually(t, func() bool {
			series, _ := scrape(t, p)
			return series[failing] == value
		}, soon, 10*time.Millisecond)
	}
	testkit.ReplaceFile(t, path, servers[0]+"\nnonsense\n")
	becomes(1)
	series, text := scrape(t, p)
	assert.GreaterOrEqual(t, series.take(t, failures), 1.0)
	assert.NotContains(t, text, "nonsense")
	testkit.ReplaceFile(t, path, strings.Join(servers, "\n"))
	becomes(0)
	p.log.Await(t, "added="+servers[1])
	require.NoError(t, os.Remove(path))
	becomes(1)

	_, text = scrape(t, startProcess(t, "-memcached", servers[0]))
	assert.NotContains(t, text, "server_list")
}

// clusterOf is the configuration endpoint of a cluster, until the test ends: what is sent to
// it is what it tells from then on.
func clusterOf(t *testing.T) (address string, tell func(version int, servers ...string)) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var answer string
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil && line == "config get cluster\r\n" {
				io.WriteString(conn, answer)
			}
			mu.Unlock()
			conn.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	return listener.Addr().String(), func(version int, servers ...string) {
		mu.Lock()
		defer mu.Unlock()
		var nodes []string
		for _, server := range servers {
			host, port, err := net.SplitHostPort(server)
			require.NoError(t, err)
			nodes = append(nodes, fmt.Sprintf("%s|%s|%s", host, host, port))
		}
		body := fmt.Sprintf("%d\n%s\n", version, strings.Join(nodes, " "))
		answer = fmt.Sprintf("CONFIG cluster 0 %d\r\n%s\r\nEND\r\n", len(body), body)
	}
}

func TestAProcessFollowsACluster(t *testing.T) {
	servers := memcachedtest.StartMany(t, 2)
	address, tell := clusterOf(t)
	tell(1, servers[0])
	p := startProcess(t, "-memcached", "aws:"+address, "-timeout", "5s", "-grace", "10s")
	p.log.Await(t, `msg="memcached store" servers=`+servers[0])
	p.log.Await(t, `msg="the memcached servers are followed" from=aws:`+address)
	_, err := p.client(t).Increment(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.9"}, 1, time.Time{})
	require.NoError(t, err)
	tell(2)
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	p.log.Await(t, "those in force stay", "no server is named")
	series, _ := scrape(t, p)
	assert.Equal(t, 1.0, series.take(t, `counterd_server_list_failing{source="aws"}`))
	tell(3, servers...)
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	p.log.Await(t, "added="+servers[1]+" removed=\"\" servers=")
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

// A cluster that demands TLS demands it at its endpoint too. Its certificates are for names, so
// that is how its nodes are named, whatever addresses it tells with them.
func TestAClusterWithTLS(t *testing.T) {
	authority, stranger := memcachedtest.NewAuthority(t), memcachedtest.NewAuthority(t)
	named := authority.Issue(t, func(c *x509.Certificate) { c.IPAddresses = nil }) // for localhost, and for no address
	id := authority.Issue(t)
	for name, demands := range map[string]memcachedtest.Security{
		"server alone": {Authority: authority, Certificate: named},
		"both sides":   {Authority: authority, Certificate: named, WantsClient: true},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := clusterOver(t, demands, authority.Client(id))
			args := []string{"-memcached", "aws:" + endpoint, "-timeout", "5s", "-grace", "10s", "-memcached-tls"}
			if demands.WantsClient {
				args = append(args, "-memcached-cert", id.CertFile, "-memcached-key", id.KeyFile)
			}
			right := append([]string{"-memcached-ca", authority.File}, args...)
			p := startProcess(t, right...)
			p.log.Await(t, `msg="memcached store" servers=`+endpoint)
			_, err := p.client(t).Increment(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.9"}, 1, time.Time{})
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, status(t, p.url+"/readyz"))
			require.NoError(t, p.Process.Signal(syscall.SIGHUP))
			p.log.Await(t, "the memcached servers found are those in force", "servers="+endpoint)
			assert.NotContains(t, p.log.String(), "level=WARN")

			_, server := dayKey(t, "-memcached", "aws:"+endpoint, "-memcached-tls", "-memcached-ca", authority.File, "-memcached-cert", id.CertFile, "-memcached-key", id.KeyFile)
			assert.Equal(t, endpoint, server)

			for says, args := range map[string][]string{
				"unknown authority": append([]string{"-memcached-ca", stranger.File}, args...),
				"other.example":     append([]string{"-memcached-server-name", "other.example"}, right...),
				"wants TLS":         {"-memcached", "aws:" + endpoint},
			} {
				// Long enough to report the cause once: the fault does not go away.
				ctx, cancel := context.WithCancel(t.Context())
				var stderr testkit.Log
				var running sync.WaitGroup
				running.Go(func() { run(ctx, args, io.Discard, &stderr) })
				require.Eventually(t, func() bool { return strings.Contains(stderr.String(), says) }, soon, time.Millisecond, "%s: %s", says, &stderr)
				assert.Contains(t, stderr.String(), "no memcached server is found yet")
				cancel()
				running.Wait()
			}
		})
	}
}
