// The tests of the process suite run counterd as a process: how it starts, takes signals, serves TLS, reloads files and
// ends. Those of the suites exactness and faults run several.

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// asCommand makes the test binary be counterd itself, so that the race detector sees the processes, too.
const asCommand = "COUNTERD_TEST_AS_COMMAND"

// hostsAt makes all host names resolve to an address.
const hostsAt = "COUNTERD_TEST_HOSTS_AT"

// soon bounds the waits for what has to happen.
const soon = time.Minute

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

// process is a running counterd.
type process struct {
	*exec.Cmd
	url string
	log *testkit.Log
}

var (
	servingAt   = regexp.MustCompile(`(?:msg=serving address=|"msg":"serving","address":")([^\s"]+)`)
	operatorsAt = regexp.MustCompile(`msg="serving operators" address=(\S+)`)
)

// startProcess runs counterd until the test ends, on a free port. Its timeout is long, since the machine may be busy.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	return startCommand(t, nil, append([]string{"-listen", "127.0.0.1:0", "-timeout", "5s", "-grace", "10s"}, args...)...)
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
		if t.Failed() {
			t.Logf("the log of counterd:\n%s", p.log)
		}
	})
	p.logged(t, servingAt.String())
	p.url = "http://" + servingAt.FindStringSubmatch(p.log.String())[1]
	return p
}

// logged waits until the process has logged what matches.
func (p *process) logged(t *testing.T, pattern string) {
	t.Helper()
	want := regexp.MustCompile(pattern)
	found := false
	defer func() {
		if !found {
			t.Logf("%s", p.log)
		}
	}()
	testkit.Await(t, soon, "the log has "+pattern, func() bool { return want.MatchString(p.log.String()) })
	found = true
}

// stop ends the process by a signal, and requires that it ends well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	require.NoError(t, p.Wait(), "%s", p.log)
	require.Contains(t, p.log.String(), "stopped")
}

func (p *process) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	require.NoError(t, p.Process.Signal(signal))
}

func (p *process) client(t *testing.T) *client.Client {
	t.Helper()
	return newClient(t, client.Config{URL: p.url})
}

func newClient(t *testing.T, config client.Config) *client.Client {
	t.Helper()
	c, err := client.New(config)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// admin returns the URL of the operators' address.
func (p *process) admin(t *testing.T) string {
	t.Helper()
	found := operatorsAt.FindStringSubmatch(p.log.String())
	require.NotNil(t, found, "%s", p.log)
	return "http://" + found[1]
}

// ask makes a request on a connection of its own. An empty body has no type, and empty headers are left out.
func ask(t *testing.T, method, url, body string, header ...string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else if header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func status(t *testing.T, url string) int {
	t.Helper()
	status, _ := ask(t, http.MethodGet, url, "")
	return status
}

// get returns the process's answer to a GET.
func (p *process) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	return ask(t, http.MethodGet, p.url+path, "")
}

// visitor is the feature of most tests, and hitBody the body of its hit.
var visitor = events.Features{"ip": "203.0.113.9"}

const hitBody = `{"features": {"ip": "203.0.113.9"}}`

// load calls until stop is called, by several callers at once, and counts the calls of each.
type load struct {
	t       *testing.T
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	done    []*atomic.Int64
}

// startLoad has each caller call again and again, with a pause. An error ends its calls and fails the test.
func startLoad(t *testing.T, callers ...func() error) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, ctx: ctx, cancel: cancel}
	for _, call := range callers {
		done := &atomic.Int64{}
		l.done = append(l.done, done)
		l.running.Go(func() {
			for ctx.Err() == nil {
				if !assert.NoError(t, call()) {
					return
				}
				done.Add(1)
				pause(ctx, time.Millisecond)
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

// pause waits, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// more waits until each caller has made n more calls.
func (l *load) more(n int64) {
	l.t.Helper()
	for _, done := range l.done {
		until := done.Load() + n
		testkit.Await(l.t, soon, "the load goes on", func() bool { return done.Load() >= until || l.t.Failed() })
	}
}

func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}

// A request in flight when the signal comes is finished, new ones are refused,
// and the process ends well.
func TestShutdownFinishesRequestsInFlight(t *testing.T) {
	p := startProcess(t)
	address := strings.TrimPrefix(p.url, "http://")
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/events/url_shorten/increment HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(hitBody))
	// The request is in flight once its handler asks for the body. A server that shuts down
	// drops one whose header it has not read yet.
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	asked := make([]byte, len(goOn))
	conn.SetReadDeadline(time.Now().Add(soon))
	_, err = io.ReadFull(conn, asked)
	require.NoError(t, err)
	require.Equal(t, goOn, string(asked))
	fmt.Fprint(conn, hitBody[:5])
	p.signal(t, syscall.SIGTERM)
	testkit.Await(t, soon, "new connections are refused", func() bool {
		probe, err := net.Dial("tcp", address)
		if err == nil {
			probe.Close()
		}
		return err != nil
	})
	fmt.Fprint(conn, hitBody[5:])
	conn.SetReadDeadline(time.Now().Add(soon))
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Contains(t, string(answer), "HTTP/1.1 200 OK")
	assert.Contains(t, string(answer), `"by":1`)
	require.NoError(t, p.Wait(), "%s", p.log)
	assert.Contains(t, p.log.String(), "msg=stopped")
}

// Under load, on kept connections, all that is counted is acknowledged, also after a signal, and the process ends well.
func TestShutdownUnderLoadLosesNothing(t *testing.T) {
	server := memcachedtest.Start(t)
	stopping := startProcess(t, "-memcached", server.Addr)
	staying := startProcess(t, "-memcached", server.Addr).client(t)
	var acknowledged atomic.Int64
	var running sync.WaitGroup
	for range 32 {
		c := stopping.client(t)
		running.Go(func() {
			for {
				if _, err := c.Increment(context.Background(), "url_shorten", visitor, 1, time.Time{}); err != nil {
					return
				}
				acknowledged.Add(1)
			}
		})
	}
	testkit.Await(t, soon, "the load has begun", func() bool { return acknowledged.Load() > 200 })
	stopping.stop(t)
	running.Wait()
	count, err := staying.Count(t.Context(), "url_shorten", visitor, time.Hour, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, acknowledged.Load(), count.Count)
}

// Without a store the process serves and is not ready. The example's rules admit, and the log says so, without a
// feature.
func TestHitsWithoutAStore(t *testing.T) {
	p := startProcess(t, "-memcached", "127.0.0.1:1")
	assert.Contains(t, p.log.String(), "cannot be reached")
	d, err := p.client(t).Hit(t.Context(), "url_shorten", visitor, 1)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	assert.Equal(t, "allow", d.Limits[0].OnError)
	p.log.Await(t, "store failed in a decision")
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/v1/events/url_shorten/count?window=1m&feature=ip:203.0.113.9": 503} {
		assert.Equal(t, want, status(t, p.url+path), path)
	}
	assert.NotContains(t, p.log.String(), "203.0.113.9")
}

// After the signal, readyz sends callers elsewhere on both addresses, and requests are served for the delay.
func TestTheDrainDelay(t *testing.T) {
	p := startProcess(t, "-drain-delay", "10m", "-admin", "127.0.0.1:0")
	p.signal(t, syscall.SIGTERM)
	p.logged(t, `msg="stopping soon`)
	for _, url := range []string{p.url, p.admin(t)} {
		answered, text := ask(t, "GET", url+"/readyz", "")
		assert.Equal(t, 503, answered)
		assert.Contains(t, text, "about to end")
		assert.Equal(t, 200, status(t, url+"/healthz"))
	}
	answered, _ := ask(t, "POST", p.url+"/v1/events/url_shorten/hit", hitBody)
	assert.Equal(t, 200, answered)
	p.signal(t, syscall.SIGTERM) // a second signal is not waited for
	require.Error(t, p.Wait())
	assert.NotContains(t, p.log.String(), "msg=stopped")

	const delay = 100 * time.Millisecond
	p = startProcess(t, "-drain-delay", delay.String())
	began := time.Now()
	p.stop(t)
	assert.GreaterOrEqual(t, time.Since(began), delay)
}
