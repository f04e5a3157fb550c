package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/server"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// asCommand makes the test binary be counterd itself, for tests that need
// processes of their own.
const asCommand = "COUNTERD_TEST_AS_COMMAND"

// hostsAt makes all names of hosts that address to it.
const hostsAt = "COUNTERD_TEST_HOSTS_AT"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		if host := os.Getenv(hostsAt); host != "" {
			net.DefaultResolver = resolverTo(netip.MustParseAddr(host))
		}
		main()
	}
	// The first to ask for signals has the runtime start what watches for them: not in a
	// bubble of testing/synctest, which others could not reach into.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	signal.Stop(hangups)
	leaktest.SideBySide(4)
	goleak.VerifyTestMain(m)
}

// status asks for a URL on a connection of its own.
func status(t *testing.T, url string) int {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Get(url)
	require.NoError(t, err)
	response.Body.Close()
	return response.StatusCode
}

// process is a counterd of its own.
type process struct {
	*exec.Cmd
	url string
	log *testkit.Log
}

var servingAt = regexp.MustCompile(`(?:msg=serving address=|"msg":"serving","address":")([^\s"]+)`)

// startProcess runs counterd until the test ends, on a free port. Where the arguments have no
// timeout, it is the longest that the default of the grace allows: the machine may be busy.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	return startCommand(t, nil, append([]string{"-listen", "127.0.0.1:0", "-timeout", "1s"}, args...)...)
}

// startCommand runs counterd with these variables and arguments until the test ends.
func startCommand(t *testing.T, variables []string, args ...string) *process {
	t.Helper()
	p := &process{log: &testkit.Log{}}
	leaktest.Check(t)
	p.Cmd = exec.Command(os.Args[0], args...)
	p.Env = append(append(os.Environ(), asCommand+"=1"), variables...)
	p.Stderr = p.log
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
	})
	require.Eventually(t, func() bool { return servingAt.MatchString(p.log.String()) }, soon, 5*time.Millisecond, "%s", p.log)
	p.url = "http://" + servingAt.FindStringSubmatch(p.log.String())[1]
	return p
}

func (p *process) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: p.url})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// get returns what the process answers, on a connection of its own.
func (p *process) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Get(p.url + path)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// Two processes on three servers: what one adds the other sees, and every window
// is what a log of every event says.
func TestTwoProcessesOnThreeServersCountExactly(t *testing.T) {
	servers := strings.Join(memcachedtest.StartMany(t, 3), ",")
	clients := []*client.Client{
		startProcess(t, "-memcached", servers, "-timeout", "5s", "-grace", "10s").client(t),
		startProcess(t, "-memcached", servers, "-timeout", "5s", "-grace", "10s").client(t),
	}
	const addresses, adds, workers = 30, 150, 8
	who := func(i int) events.Features { return events.Features{"ip": fmt.Sprintf("203.0.113.%d", i)} }
	var mu sync.Mutex
	log := map[int][]int64{}
	var running sync.WaitGroup
	for worker := range workers {
		rng := rand.New(rand.NewPCG(9, uint64(worker)))
		running.Go(func() {
			for range adds {
				i := rng.IntN(addresses)
				at := time.Now().Add(-time.Duration(rng.Int64N(int64(23 * time.Hour))))
				if rng.IntN(2) == 0 {
					at = time.Time{}
				}
				done, err := clients[rng.IntN(2)].Increment(context.Background(), "url_shorten", who(i), 1, at)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				log[i] = append(log[i], done.At.Unix())
				mu.Unlock()
			}
		})
	}
	running.Wait()
	for i := range addresses {
		for _, window := range []time.Duration{time.Second, time.Minute, 90 * time.Minute, 24 * time.Hour} {
			count, err := clients[i%2].Count(t.Context(), "url_shorten", who(i), window, time.Time{})
			require.NoError(t, err)
			var want int64
			for _, second := range log[i] {
				if second >= count.From.Unix() && second <= count.To.Unix() {
					want++
				}
			}
			require.Equal(t, want, count.Count, "address %d, %s", i, window)
		}
	}
}

// A request in flight when the signal comes is finished, new ones are refused,
// and the process ends well.
func TestShutdownFinishesRequestsInFlight(t *testing.T) {
	p := startProcess(t)
	address := strings.TrimPrefix(p.url, "http://")
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	const body = `{"features": {"ip": "203.0.113.9"}}`
	fmt.Fprintf(conn, "POST /v1/events/url_shorten/increment HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	// The request is in flight once its handler asks for the body. A server that shuts down
	// drops one whose header it has not read yet.
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	asked := make([]byte, len(goOn))
	conn.SetReadDeadline(time.Now().Add(soon))
	_, err = io.ReadFull(conn, asked)
	require.NoError(t, err)
	require.Equal(t, goOn, string(asked))
	fmt.Fprint(conn, body[:5])
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		probe, err := net.Dial("tcp", address)
		if err == nil {
			probe.Close()
		}
		return err != nil
	}, soon, 5*time.Millisecond, "no new connections")
	fmt.Fprint(conn, body[5:])
	conn.SetReadDeadline(time.Now().Add(soon))
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Contains(t, string(answer), "HTTP/1.1 200 OK")
	assert.Contains(t, string(answer), `"by":1`)
	require.NoError(t, p.Wait(), "%s", p.log)
	assert.Contains(t, p.log.String(), "msg=stopped")
}

// With replicas a repairer works beside the requests, and ends before the store does.
func TestAProcessWithCopiesEndsWell(t *testing.T) {
	p := startProcess(t, "-memcached", strings.Join(memcachedtest.StartMany(t, 3), ","), "-replicas", "2", "-timeout", "5s", "-grace", "10s")
	c, who := p.client(t), events.Features{"ip": "203.0.113.9"}
	_, err := c.Increment(t.Context(), "url_shorten", who, 3, time.Time{})
	require.NoError(t, err)
	count, err := c.Count(t.Context(), "url_shorten", who, time.Hour, time.Time{})
	require.NoError(t, err)
	require.EqualValues(t, 3, count.Count)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "%s", p.log)
	assert.Contains(t, p.log.String(), "msg=stopped")
}

func TestTheEmbeddedStoreSaysSo(t *testing.T) {
	p := startProcess(t)
	assert.Contains(t, p.log.String(), "embedded store")
	assert.Equal(t, http.StatusOK, status(t, p.url+"/readyz"))
}

func TestMemcachedThatIsDown(t *testing.T) {
	p := startProcess(t, "-memcached", "127.0.0.1:1")
	assert.Contains(t, p.log.String(), "cannot be reached")
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/v1/events/url_shorten/count?window=1m&feature=ip:203.0.113.9": 503} {
		assert.Equal(t, want, status(t, p.url+path), path)
	}
	assert.NotContains(t, p.log.String(), "203.0.113.9")
}

func TestSettingsFromTheEnvironment(t *testing.T) {
	t.Setenv("COUNTERD_LOG", "json")
	t.Setenv("COUNTERD_MEMCACHED", "127.0.0.1:1, /run/x.sock")
	t.Setenv("COUNTERD_TIMEOUT", "50ms")
	t.Setenv("COUNTERD_PROTOCOL", "classic")
	t.Setenv("COUNTERD_MAX_PENDING", "17")
	s, err := parseServe([]string{"-timeout", "60ms"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "json", s.log)
	assert.Equal(t, []string{"127.0.0.1:1", "/run/x.sock"}, s.Memcached)
	assert.Equal(t, 60*time.Millisecond, s.Timeout, "a flag goes before the environment")
	assert.Equal(t, "127.0.0.1:8080", s.Listen)
	assert.Equal(t, memcache.Classic, s.Protocol)
	assert.Equal(t, 17, s.MaxPending)
	assert.Equal(t, connections.DefaultMax, s.MaxConnections)
	t.Setenv("COUNTERD_MEMCACHED_FILE", "servers")
	_, err = parseServe(nil, io.Discard)
	require.ErrorIs(t, err, errUsage, "one place is enough")
	t.Setenv("COUNTERD_MEMCACHED", "")
	s, err = parseServe([]string{"-protocol", "meta"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, memcache.Meta, s.Protocol)
	assert.Equal(t, "servers", s.MemcachedFile)
	assert.Empty(t, s.Memcached)
}

func TestWrongUseIsOneLineAndStatus2(t *testing.T) {
	for _, args := range [][]string{
		{"-nonsense"}, {"serve"}, {"-timeout", "soon"}, {"-timeout", "2s"}, {"-timeout", "0s"}, {"-grace", "0s"}, {"-grace", "1h"},
		{"-log", "xml"}, {"-replicas", "2"}, {"-replicas", "6"}, {"-replicas", "0"}, {"-replicas", "x"}, {"-listen"}, {"-protocol", "binary"}, {"-protocol", ""},
		{"-listen", ""}, {"-listen", "localhost"}, {"-listen", "8080"}, {"-listen", "127.0.0.1:"}, {"-listen", ":65536"}, {"-listen", ":-1"},
		{"-listen", ":no-such-port"}, {"-listen", "::1:8080"}, {"-listen", "a\nb"},
		{"-memcached", ""}, {"-memcached", ","}, {"-memcached", "localhost"}, {"-memcached", "127.0.0.1:"}, {"-memcached", ":11211"},
		{"-memcached", "127.0.0.1:0"}, {"-memcached", "127.0.0.1:65536"}, {"-memcached", "127.0.0.1:no-such-port"}, {"-memcached", "::1:11211"},
		{"-memcached", "127.0.0.1:11211,127.0.0.1:11211"}, {"-memcached", "/run/a.sock, /run/a.sock"}, {"-memcached", "a\nb"},
		{"-memcached", "unix:///run/memcached.sock"}, {"-memcached", "tcp://127.0.0.1:11211"},
		{"-memcached", "dns:cache.internal"}, {"-memcached", "dns:10.0.0.1:11211"}, {"-memcached", "dns:cache.internal:http"}, {"-memcached", "dns:[::1]:1"},
		{"-memcached", "dns:cache.internal:11211,10.0.0.1:11211"}, {"-memcached", "a:1,aws:b:1"}, {"-memcached", "dns:a:1,dns:b:1"},
		{"-memcached", "aws:my.cfg.example"}, {"-memcached", "aws:my.cfg.example:0"}, {"-memcached", "srv:cache.internal:11211"},
		{"-memcached-file", ""}, {"-memcached-file", "servers", "-memcached", "10.0.0.1:11211"},
		{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached-file", "servers", "-memcached", "10.0.0.1:11211"},
		{"-memcached", "aws:a.example:1", "-memcached-auth", "/x"}, {"-memcached", "aws:a.example:1", "-memcached-tls", "-memcached-auth", "/x"},
		{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached", "a:1", "-memcached-ca", "/x"},
		{"-memcached-tls"}, {"-memcached-auth", "/x"}, {"-memcached-tls", "-memcached", "/run/a.sock"}, {"-memcached-tls=maybe", "-memcached", "a:1"},
		{"-memcached", "a:1", "-memcached-ca", "/x"}, {"-memcached", "a:1", "-memcached-cert", "/x", "-memcached-key", "/x"},
		{"-memcached", "a:1", "-memcached-server-name", "x"}, {"-memcached", "a:1", "-memcached-tls", "-memcached-key", "/x"},
		{"-memcached", "a:1", "-memcached-tls", "-memcached-cert", "/x"},
		{"-otlp-endpoint", "127.0.0.1:4318"}, {"-otlp-endpoint", "grpc://127.0.0.1:4317"}, {"-access-log=perhaps"},
		{"-max-pending", "0"}, {"-max-pending", "-1"}, {"-max-pending", "many"}, {"-max-connections", "0"}, {"-max-connections", "-1"},
		{"-tls-cert", "c"}, {"-tls-key", "k"}, {"-tls-client-ca", "a"}, {"-tls-client-ca", "a", "-listen", ":0"}, {"-listen", ":0"}, {"-admin", ":0"},
		{"-admin", "localhost"}, {"-admin", "127.0.0.1:x"}, {"-drain-delay", "-1s"}, {"-drain-delay", "11m"}, {"-drain-delay", "soon"},
		{"-version", "more"}, {"help", "unknown"},
		{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached", "localhost"},
		{"keys"}, {"keys", "-event", "unknown", "-feature", "ip:203.0.113.9"}, {"keys", "-event", "url_shorten"},
		{"keys", "-event", "url_shorten", "-feature", "203.0.113.9"}, {"keys", "-event", "url_shorten", "-feature", "ip:x"},
		{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "more"}, {"validate"}, {"validate", "a", "b"},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, runFor(t, args, &stdout, &stderr), "%q: %s", args, &stderr)
		assert.True(t, strings.HasPrefix(stderr.String(), "counterd: "), "nothing is logged before: %s", &stderr)
		assert.Empty(t, stdout.String(), "%q", args)
		assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), "%q: %s", args, &stderr)
		assert.NotContains(t, stderr.String(), "203.0.113.9")
	}
	t.Setenv("COUNTERD_TIMEOUT", "30")
	var stderr bytes.Buffer
	assert.Equal(t, exitUsage, runFor(t, nil, io.Discard, &stderr))
	assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), "%s", &stderr)
	assert.Contains(t, stderr.String(), "\"COUNTERD_TIMEOUT\": 30 has no unit: write 30s")
}

// What is close to a flag, a command or a variable is named; Kubernetes' variables for a service
// named counterd are no flags.
func TestMisspelledNamesAreErrorsThatNameTheRightOne(t *testing.T) {
	t.Setenv("COUNTERD_PORT", "tcp://10.0.0.1:8080")
	t.Setenv("COUNTERD_SERVICE_HOST", "10.0.0.1")
	for text, args := range map[string][]string{
		`unknown flag -replica: did you mean "replicas"?`:                                      {"-replica", "2"},
		`unknown argument "valdate": did you mean "validate"?`:                                 {"valdate"},
		`unknown argument "serve": there is import, keys, probe, ratelimit, validate, version`: {"serve"},
		`unknown flag -rules-file: there are `:                                                 {"-rules-file", "x"},
		`-event is missing: name an event of the rules`:                                        {"keys", "-feature", "ip:203.0.113.9"},
	} {
		var stderr bytes.Buffer
		assert.Equal(t, exitUsage, runFor(t, args, io.Discard, &stderr))
		assert.Contains(t, stderr.String(), text)
	}
	var stdout bytes.Buffer
	assert.Equal(t, exitOK, runFor(t, []string{"-h"}, &stdout, io.Discard))
	t.Setenv("COUNTERD_MEMCACHE", "10.0.0.1:11211")
	var stderr bytes.Buffer
	assert.Equal(t, exitUsage, runFor(t, nil, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "unknown variable COUNTERD_MEMCACHE: did you mean COUNTERD_MEMCACHED?")
}

func TestFailuresAtTheStartAreStatus1(t *testing.T) {
	leaktest.Check(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	wrong := filepath.Join(t.TempDir(), "servers")
	testkit.WriteFile(t, wrong, "one\ntwo\n")
	for _, args := range [][]string{
		{"-listen", taken.Addr().String()},
		{"-listen", "127.0.0.1:0", "-admin", taken.Addr().String()},
		{"-memcached", "counterd-test.invalid:11211"},
		{"-memcached", "counterd-test.invalid:11211,counterd-test-2.invalid:11211"},
		{"-memcached", "127.0.0.1:1", "-memcached-tls", "-memcached-ca", "/nowhere/ca"},
		{"-memcached", "127.0.0.1:1", "-memcached-tls", "-memcached-ca", os.Args[0]},
		{"-memcached", "127.0.0.1:1", "-memcached-tls", "-memcached-cert", "/nowhere/cert", "-memcached-key", "/nowhere/key"},
		{"-memcached", "aws:127.0.0.1:1", "-memcached-tls", "-memcached-ca", "/nowhere/ca"},
		{"-memcached", "127.0.0.1:1", "-memcached-auth", "/nowhere/auth"},
		{"-memcached", "127.0.0.1:1", "-memcached-auth", os.Args[0]},
		{"-rules", filepath.Join(t.TempDir(), "missing.yaml")},
		{"-memcached-file", filepath.Join(t.TempDir(), "missing")},
		{"-memcached-file", wrong},
		{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached-file", wrong},
		{"validate", filepath.Join(t.TempDir(), "missing.yaml")},
	} {
		var stderr bytes.Buffer
		assert.Equal(t, exitFailed, runFor(t, args, io.Discard, &stderr), "%q", args)
		logged, said, _ := strings.Cut("\n"+stderr.String(), "\ncounterd: ")
		assert.NotContains(t, logged, "level=ERROR", "%q", args)
		assert.Equal(t, 1, strings.Count(said, "\n"), "%q: %s", args, said)
	}

	// The faults of a rules file have a line each.
	broken := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("events:\n  a: {limit: 1}\n  b: {limit: 1}\n"), 0o600))
	for _, args := range [][]string{{"-rules", broken}, {"validate", broken}} {
		var stderr bytes.Buffer
		assert.Equal(t, exitFailed, runFor(t, args, io.Discard, &stderr), "%q", args)
		assert.Equal(t, 5, strings.Count(stderr.String(), "\n"), "%s", &stderr)
	}
}

// runFor runs the command, and stops it where it serves although it should not.
func runFor(t *testing.T, args []string, stdout, stderr io.Writer) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return run(ctx, args, stdout, stderr)
}

func TestASocketIsNamedByItsPath(t *testing.T) {
	var stderr bytes.Buffer
	runFor(t, []string{"-memcached", "unix:///run/memcached.sock"}, io.Discard, &stderr)
	assert.Contains(t, stderr.String(), "by its path alone: /run/memcached.sock")
	for _, good := range []string{
		"127.0.0.1:11211", "[::1]:11211", "a.example:11211,b.example:11211", "/run/memcached.sock", "./m.sock", "a:1,/x",
		"dns:11211,aws:11211", "dns:cache.internal:11211", "dns:cache.internal.:11211,", "aws:my.cfg.use1.cache.amazonaws.com:11211", "aws:10.0.0.3:11211",
	} {
		assert.NoError(t, new(serverList).Set(good), good)
	}
	for _, good := range []string{":8080", "127.0.0.1:0", "[::1]:8080", "localhost:http", ":0"} {
		assert.NoError(t, server.CheckListen(good), good)
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("COUNTERD_VERSION", "1.2.3") // of the deployment
	for _, arg := range []string{"-version", "--version", "version"} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitOK, runFor(t, []string{arg}, &stdout, &stderr))
		assert.Regexp(t, `^counterd \S+ go1\.\S+.*\n$`, stdout.String())
		assert.Empty(t, stderr.String())
	}
	_, err := parseServe(nil, io.Discard)
	assert.NoError(t, err)

	build := debug.BuildInfo{GoVersion: "go1.26.8", Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}}}
	assert.Equal(t, "(devel) go1.26.8 linux/arm64", describe(&build))
	build.Main.Version = "v0.1.0"
	build.Settings = append(build.Settings, debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}, debug.BuildSetting{Key: "vcs.time", Value: "2026-11-27T09:00:00Z"},
		debug.BuildSetting{Key: "vcs.modified", Value: "false"})
	assert.Equal(t, "v0.1.0 (commit 0123abcd, 2026-11-27T09:00:00Z) go1.26.8 linux/arm64", describe(&build))
	build.Settings[len(build.Settings)-1].Value = "true"
	assert.Equal(t, "v0.1.0 (commit 0123abcd, 2026-11-27T09:00:00Z, modified) go1.26.8 linux/arm64", describe(&build))
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"help"}, {"keys", "-h"}, {"validate", "-h"}, {"help", "keys"}, {"help", "validate"}} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitOK, runFor(t, args, &stdout, &stderr), "%q", args)
		assert.Contains(t, stdout.String(), "Usage:", "%q", args)
		assert.Empty(t, stderr.String(), "%q", args)
	}
	assert.Equal(t, "COUNTERD_MAX_PENDING", envName("max-pending"))
	var stdout bytes.Buffer
	runFor(t, []string{"-h"}, &stdout, io.Discard)
	for _, name := range []string{"listen", "rules", "memcached", "memcached-file", "protocol", "replicas", "timeout", "grace", "log",
		"memcached-tls", "memcached-ca", "memcached-cert", "memcached-key", "memcached-server-name", "memcached-auth", "key-secret", "otlp-endpoint", "access-log", "max-pending", "max-connections",
		"tokens", "tls-cert", "tls-key", "tls-client-ca", "admin", "drain-delay"} {
		assert.Contains(t, stdout.String(), "-"+name)
		assert.Contains(t, stdout.String(), envName(name))
	}
	assert.Contains(t, stdout.String(), " COUNTERD_MEMCACHED_FILE\n")
}

func TestKeysAreThoseInMemcached(t *testing.T) {
	server := memcachedtest.Start(t)
	c := startProcess(t, "-memcached", server.Addr, "-timeout", "5s", "-grace", "10s").client(t)
	_, err := c.Increment(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.9"}, 7, time.Time{})
	require.NoError(t, err)
	var stdout bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached", server.Addr}, &stdout, os.Stderr))
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	require.Len(t, lines, 5, "a head and four levels: %s", &stdout)
	// The current second may be another one by now, the day hardly.
	day := strings.Fields(lines[4])
	assert.Equal(t, "day", day[0])
	assert.Equal(t, server.Addr, day[3])
	value := server.Ask("get " + day[2])
	require.Len(t, value, 2, "the key is there")
	assert.Equal(t, "7", value[1])
}
