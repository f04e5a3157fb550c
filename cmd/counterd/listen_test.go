package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/internal/leaktest"
	"github.com/counterd/counterd/memcache/memcachedtest"
	"github.com/counterd/counterd/service"
)

// With an address for operators, metrics and profiles are there, with their token, and
// nowhere else.
func TestOperatorsHaveAnAddressOfTheirOwn(t *testing.T) {
	server := memcachedtest.Start(t)
	tokens := secretFile(t, "edge decide,read,increment,reset,rules "+edgeToken+"\nops operate "+opsToken)
	p := startProcess(t, "-memcached", server.Addr, "-timeout", "5s", "-grace", "10s", "-tokens", tokens, "-admin", "127.0.0.1:0")
	admin := p.admin(t)
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/goroutine?debug=1"} {
		for token, want := range map[string][2]int{"": {404, 401}, edgeToken: {404, 403}, opsToken: {404, 200}} {
			status, _ := ask(t, "GET", p.url+path, "", token)
			assert.Equal(t, want[0], status, "%s of clients", path)
			status, _ = ask(t, "GET", admin+path, "", token)
			assert.Equal(t, want[1], status, "%s of operators", path)
		}
	}
	_, text := ask(t, "GET", admin+"/metrics", "", opsToken)
	assert.Contains(t, text, "counterd_rules_generation 1\n")
	_, text = ask(t, "GET", admin+"/debug/pprof/", "", opsToken)
	assert.Contains(t, text, "goroutine")
	status, _ := ask(t, "POST", admin+"/v1/events/url_shorten/hit", work[0].body, opsToken)
	assert.Equal(t, 404, status)

	for _, url := range []string{p.url, admin} {
		status, _ := ask(t, "GET", url+"/healthz", "", "")
		assert.Equal(t, 200, status)
	}
	_, text = ask(t, "GET", admin+"/readyz", "", "")
	assert.Contains(t, text, server.Addr)
	status, text = ask(t, "GET", p.url+"/readyz", "", "")
	assert.Equal(t, 200, status)
	assert.NotContains(t, text, server.Addr, "whoever asks")
}

// Without one, metrics are where they were, and profiles nowhere.
func TestWithoutAnAddressForOperators(t *testing.T) {
	p := startProcess(t)
	for path, want := range map[string]int{"/metrics": 200, "/debug/pprof/": 404, "/debug/pprof/heap": 404, "/debug/pprof/cmdline": 404} {
		assert.Equal(t, want, status(t, p.url+path), path)
	}
}

// newPlace serves a handler until the test ends.
func newPlace(t *testing.T, h http.Handler) *place {
	t.Helper()
	leaktest.Check(t)
	p, err := openPlace("127.0.0.1:0", 10, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	p.server.Handler = h
	return p
}

// A profile takes longer than the time for a request and its answer.
func TestLongProfiles(t *testing.T) {
	p := newPlace(t, nil)
	p.server.Handler = api.NewAdminHandler(api.Config{Profiles: profiles()})
	const longest = 300 * time.Millisecond
	p.server.ReadTimeout, p.server.WriteTimeout = longest, longest
	served := make(chan error, 1)
	go func() { served <- p.serve() }()
	defer func() {
		require.NoError(t, p.server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	}()
	url := "http://" + p.listener.Addr().String()
	for _, path := range []string{"/debug/pprof/trace?seconds=1.5", "/debug/pprof/profile?seconds=2"} {
		began := time.Now()
		status, _ := ask(t, "GET", url+path, "", "")
		assert.Equal(t, 200, status, path)
		assert.GreaterOrEqual(t, time.Since(began), 1500*time.Millisecond, "%s is whole", path)
	}
}

// After the signal, readyz says on both addresses that nobody should come any more, and
// those who do are served for the delay.
func TestTheDrainDelay(t *testing.T) {
	p := startProcess(t, "-drain-delay", "10m", "-admin", "127.0.0.1:0")
	admin := p.admin(t)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.logged(t, 1, `msg="stopping soon`)
	for _, url := range []string{p.url, admin} {
		answered, text := ask(t, "GET", url+"/readyz", "", "")
		assert.Equal(t, 503, answered)
		assert.Contains(t, text, "about to end")
		assert.Equal(t, 200, status(t, url+"/healthz"))
	}
	answered, _ := ask(t, "POST", p.url+"/v1/events/url_shorten/hit", work[0].body, "")
	assert.Equal(t, 200, answered)
	// A second signal is not waited for.
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Error(t, p.Wait())
	assert.NotContains(t, p.log.String(), "msg=stopped")

	const delay = 300 * time.Millisecond
	p = startProcess(t, "-drain-delay", delay.String(), "-admin", "127.0.0.1:0")
	began := time.Now()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "%s", p.log)
	assert.GreaterOrEqual(t, time.Since(began), delay)
	assert.Contains(t, p.log.String(), "msg=stopped")
}

// Who has a connection when the end begins is told to make another one elsewhere, and has
// nothing cut off: over HTTP/1.1 by Connection: close, over HTTP/2 by what means the same.
func TestTheDrainDelayClosesConnections(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	for name, args := range map[string][]string{"HTTP/1.1": nil, "HTTP/2.0": {"-tls-cert", id.CertFile, "-tls-key", id.KeyFile}} {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, append(args, "-drain-delay", "10m")...)
			url := p.url
			if len(args) > 0 {
				url = strings.Replace(url, "http:", "https:", 1)
			}
			transport := &http.Transport{TLSClientConfig: authority.Client(), ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			kept := func() (kept bool) {
				t.Helper()
				traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { kept = c.Reused }})
				request, err := http.NewRequestWithContext(traced, "POST", url+"/v1/events/url_shorten/hit", strings.NewReader(work[0].body))
				require.NoError(t, err)
				request.Header.Set("Content-Type", "application/json")
				request.GetBody = nil // it is never sent twice
				answer, err := transport.RoundTrip(request)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, answer.Body)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, name, answer.Proto)
				require.Less(t, answer.StatusCode, 500)
				return kept
			}
			require.False(t, kept())
			require.True(t, kept())
			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
			p.logged(t, 1, `msg="stopping soon`)
			require.True(t, kept(), "it is there to be answered on")
			require.Eventually(t, func() bool { return !kept() }, 10*time.Second, 10*time.Millisecond)
			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
			require.Error(t, p.Wait())
		})
	}
}

// Operators see the end: their address is served until the last request of a client has
// been answered.
func TestOperatorsSeeTheEnd(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	p := places{
		clients: newPlace(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-release
			io.WriteString(w, "done")
		})),
		admin: newPlace(t, nil),
	}
	var draining atomic.Bool
	p.admin.server.Handler = api.NewAdminHandler(api.Config{Health: service.Health{Drain: draining.Load}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.serveUntil(ctx, 0, &draining, slog.New(slog.DiscardHandler)) }()
	answers := make(chan string, 1)
	go func() {
		_, text := ask(t, "GET", "http://"+p.clients.listener.Addr().String(), "", "")
		answers <- text
	}()
	<-arrived
	stop()
	admin := "http://" + p.admin.listener.Addr().String()
	require.Eventually(t, draining.Load, 20*time.Second, time.Millisecond)
	require.Equal(t, 503, status(t, admin+"/readyz"))
	require.Equal(t, 200, status(t, admin+"/healthz"))
	close(release)
	assert.Equal(t, "done", <-answers)
	require.NoError(t, <-ended)
	_, err := http.Get(admin + "/healthz")
	require.Error(t, err)
}

// Where one of the addresses fails, the process ends, and the other one with it.
func TestAnAddressThatFails(t *testing.T) {
	p := places{clients: newPlace(t, http.NotFoundHandler()), admin: newPlace(t, http.NotFoundHandler())}
	var draining atomic.Bool
	ended := make(chan error, 1)
	go func() { ended <- p.serveUntil(t.Context(), 0, &draining, slog.New(slog.DiscardHandler)) }()
	require.Equal(t, 404, status(t, "http://"+p.clients.listener.Addr().String()))
	require.NoError(t, p.admin.listener.Close())
	err := <-ended
	require.Error(t, err)
	assert.True(t, strings.Contains(err.Error(), "closed"), "%v", err)
	_, err = http.Get("http://" + p.clients.listener.Addr().String())
	require.Error(t, err)
}
