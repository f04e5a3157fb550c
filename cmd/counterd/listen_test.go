package main

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// With an address for operators, metrics, profiles and the page are there, with their token, and
// nowhere else.
func TestOperatorsHaveAnAddressOfTheirOwn(t *testing.T) {
	server := memcachedtest.Start(t)
	tokens := testkit.SecretFile(t, "edge decide,read,increment,reset,rules "+edgeToken+"\nops operate,see "+opsToken)
	p := startProcess(t, "-memcached", server.Addr, "-timeout", "5s", "-grace", "10s", "-tokens", tokens, "-admin", "127.0.0.1:0")
	admin := p.admin(t)
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/goroutine?debug=1", "/ui/", "/ui", "/ui/rules", "/ui/page.css"} {
		for token, want := range map[string][2]int{"": {404, 401}, edgeToken: {404, 403}, opsToken: {404, 200}} {
			status, _ := ask(t, "GET", p.url+path, "", token)
			assert.Equal(t, want[0], status, "%s of clients", path)
			status, _ = ask(t, "GET", admin+path, "", token)
			assert.Equal(t, want[1], status, "%s of operators", path)
		}
	}
	_, text := ask(t, "GET", admin+"/metrics", "", opsToken)
	assert.Contains(t, text, "counterd_rules_generation 1\n")
	_, text = ask(t, "GET", admin+"/ui/", "", opsToken)
	assert.Contains(t, text, server.Addr)
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

// Without one, metrics are where they were, the page too, since only this machine reaches it, and profiles nowhere.
func TestWithoutAnAddressForOperators(t *testing.T) {
	p := startProcess(t)
	for path, want := range map[string]int{"/metrics": 200, "/ui/": 200, "/ui/feature?event=url_shorten&feature=ip:192.0.2.1": 200, "/debug/pprof/": 404, "/debug/pprof/heap": 404, "/debug/pprof/cmdline": 404} {
		assert.Equal(t, want, status(t, p.url+path), path)
	}
}

// After the signal, readyz sends callers elsewhere on both addresses, and requests are
// served for the delay.
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

// A client with a connection learns at the end to connect elsewhere, and no request of it is cut
// off: over HTTP/1.1 by Connection: close, over HTTP/2 by what means the same.
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
			require.Eventually(t, func() bool { return !kept() }, soon, 10*time.Millisecond)
			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
			require.Error(t, p.Wait())
		})
	}
}
