package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/server"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// The tokens of these tests.
const (
	edgeToken = "the-token-of-the-edge"
	opsToken  = "the-token-of-operators"
	newToken  = "the-new-token-of-edge"
)

// logged waits until the process has logged what matches so many times.
func (p *process) logged(t *testing.T, times int, pattern string) {
	t.Helper()
	want := regexp.MustCompile(pattern)
	require.Eventually(t, func() bool { return len(want.FindAllString(p.log.String(), -1)) >= times },
		soon, 5*time.Millisecond, "%s: %s", pattern, p.log)
}

var operatorsAt = regexp.MustCompile(`msg="serving operators" address=(\S+)`)

// admin returns the URL of the operators' address.
func (p *process) admin(t *testing.T) string {
	t.Helper()
	found := operatorsAt.FindStringSubmatch(p.log.String())
	require.NotNil(t, found, "%s", p.log)
	return "http://" + found[1]
}

// ask makes a request on a connection of its own, with that token where it is not empty.
func ask(t *testing.T, method, url, body, token string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// work is a request of each route that wants a token.
var work = []struct {
	class, method, path, body string
}{
	{"decide", "POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9"}}`},
	{"decide", "POST", "/v1/batch", `{"hits": [{"event": "url_shorten", "features": {"ip": "203.0.113.9"}}]}`},
	{"decide", "GET", "/v1/events/url_shorten/check?feature=ip:203.0.113.9", ""},
	{"decide", "GET", "/v1/authorize/url_shorten", ""},
	{"increment", "POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}}`},
	{"read", "GET", "/v1/events/url_shorten/count?window=1h&feature=ip:203.0.113.9", ""},
	{"read", "GET", "/v1/events/url_shorten/history?level=minute&feature=ip:203.0.113.9", ""},
	{"reset", "DELETE", "/v1/events/url_shorten/counters?feature=ip:203.0.113.8", ""},
	{"override", "DELETE", "/v1/events/url_shorten/override?feature=ip:203.0.113.8", ""},
	{"rules", "GET", "/v1/events", ""},
	{"rules", "GET", "/v1/events/url_shorten", ""},
	{"operate", "GET", "/metrics", ""},
}

// Without a token that is good for it no route does anything, and the store holds nothing
// afterwards; with it, the work is done.
func TestTokensOfAProcess(t *testing.T) {
	server := memcachedtest.Start(t)
	tokens := testkit.SecretFile(t, fmt.Sprintf("# who may\nedge decide %s\nops all sha256:%x\n", edgeToken, sha256.Sum256([]byte(opsToken))))
	rules := testkit.SecretFile(t, "events: {url_shorten: {limits: [{per: ip, rate: 100/d}], from: {ip: peer}}}")
	p := startProcess(t, "-memcached", server.Addr, "-timeout", "5s", "-grace", "10s", "-tokens", tokens, "-rules", rules)
	// What the process tells by that the server has not been emptied, and the count of looks.
	require.Eventually(t, func() bool {
		stats := server.Stats("")
		return stats["curr_items"] == "2" && stats["cmd_set"] == "3" // with how many evictions there had been
	}, soon, time.Millisecond)
	for _, to := range work {
		status, _ := ask(t, to.method, p.url+to.path, to.body, "")
		assert.Equal(t, 401, status, to.path)
		status, _ = ask(t, to.method, p.url+to.path, to.body, "nobody-has-this-token")
		assert.Equal(t, 401, status, to.path)
		if to.class != "decide" {
			status, _ = ask(t, to.method, p.url+to.path, to.body, edgeToken)
			assert.Equal(t, 403, status, to.path)
		}
	}
	assert.Equal(t, "2", server.Stats("")["curr_items"], "nothing is counted")
	assert.Equal(t, "3", server.Stats("")["cmd_set"])
	for _, open := range []string{"/healthz", "/readyz"} {
		assert.Equal(t, 200, status(t, p.url+open))
	}
	for _, to := range work {
		status, answer := ask(t, to.method, p.url+to.path, to.body, opsToken)
		assert.Contains(t, []int{200, 204}, status, "%s: %s", to.path, answer)
	}
	status, answer := ask(t, "GET", p.url+"/v1/events/url_shorten/count?window=1h&feature=ip:203.0.113.9", "", opsToken)
	assert.Equal(t, 200, status)
	assert.Contains(t, answer, `"count":3`, "a hit, a batch of one, an increment")
	status, _ = ask(t, "POST", p.url+"/v1/events/url_shorten/hit", work[0].body, edgeToken)
	assert.Equal(t, 200, status)

	assert.Contains(t, p.log.String(), "a request was refused")
	for _, secret := range []string{edgeToken, opsToken, "nobody-has"} {
		assert.NotContains(t, p.log.String(), secret)
	}
	for line := range strings.Lines(p.log.String()) {
		if !strings.Contains(line, `msg="counter reset"`) {
			assert.NotContains(t, line, "203.0.113")
		}
	}
}

// The tokens are replaced under load, as one would: first the file has both, then the
// clients take the new one, then the old one goes. No request fails, and afterwards the
// old one is good for nothing.
func TestTokensAreRotatedUnderLoad(t *testing.T) {
	tokens := testkit.SecretFile(t, "edge decide "+edgeToken+"\nops all "+opsToken+"\n")
	p := startProcess(t, "-tokens", tokens)
	var current atomic.Pointer[string]
	use := func(token string) { current.Store(&token) }
	use(edgeToken)
	ask := func() (string, error) { return *current.Load(), nil }
	var stopped atomic.Bool
	var done [8]atomic.Int64
	var load sync.WaitGroup
	for i := range done {
		c, err := client.New(client.Config{URL: p.url, Token: ask})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		load.Go(func() {
			for !stopped.Load() {
				_, err := c.Check(t.Context(), "url_shorten", events.Features{"ip": fmt.Sprintf("203.0.113.%d", i)}, 1)
				if !assert.NoError(t, err) {
					return
				}
				done[i].Add(1)
			}
		})
	}
	// Each of them goes on: what it had begun has been answered.
	more := func() {
		t.Helper()
		for i := range done {
			until := done[i].Load() + 20
			require.Eventually(t, func() bool { return done[i].Load() > until || t.Failed() }, soon, time.Millisecond)
		}
	}
	more()
	testkit.ReplaceFile(t, tokens, "edge decide "+edgeToken+"\nedge decide "+newToken+"\nops all "+opsToken+"\n")
	p.logged(t, 1, `msg="tokens reloaded"[^\n]* tokens=3`)
	more()
	use(newToken)
	more()
	// What is faulty leaves what is in force.
	testkit.ReplaceFile(t, tokens, "edge decide "+newToken+"\nedge "+edgeToken+"\n")
	p.logged(t, 1, `level=ERROR msg="tokens not reloaded, those in force stay"[^\n]* failures=1 faults=1`)
	p.logged(t, 1, `level=ERROR msg="fault in the tokens file"[^\n]* line=2`)
	more()
	testkit.ReplaceFile(t, tokens, "edge decide "+newToken+"\n")
	p.logged(t, 1, `msg="tokens reloaded"[^\n]* tokens=1`)
	more()
	stopped.Store(true)
	load.Wait()

	c, err := client.New(client.Config{URL: p.url, Token: func() (string, error) { return edgeToken, nil }})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Hit(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.99"}, 1)
	require.ErrorIs(t, err, client.ErrRefused)
	for _, secret := range []string{edgeToken, opsToken, newToken} {
		assert.NotContains(t, p.log.String(), secret)
	}
}

// An address that other machines reach is served only if a setting limits the callers.
func TestSecureByDefault(t *testing.T) {
	tls := []string{"-tls-cert", "c", "-tls-key", "k"}
	for _, good := range [][]string{
		nil, {"-listen", "localhost:0"}, {"-listen", "127.9.9.9:0"}, {"-listen", "[::1]:0"}, {"-admin", "127.0.0.1:0"}, {"-drain-delay", "10s"},
		{"-listen", ":0", "-tokens", "none"}, {"-listen", ":0", "-tokens", "file"}, append(tls, "-listen", ":0", "-tls-client-ca", "ca"),
		{"-rls", ":0", "-tokens", "none"}, {"-rls", "127.0.0.1:0"}, append(tls, "-rls", ":0", "-tls-client-ca", "ca"),
		{"-admin", ":0", "-tokens", "none"}, {"-admin", ":0", "-listen", ":0", "-tokens", "file"}, append(tls, "-admin", "[::1]:0"),
	} {
		_, err := parseServe(good, io.Discard)
		assert.NoError(t, err, "%q", good)
	}
	for _, bad := range [][]string{
		{"-listen", ":0"}, {"-listen", "0.0.0.0:0"}, {"-listen", "[::]:0"}, {"-listen", "192.0.2.1:0"}, {"-listen", "counterd.example:0"},
		append(tls, "-listen", ":0"), {"-rls", ":0"}, {"-rls", "192.0.2.1:0"}, append(tls, "-rls", ":0"), {"-admin", ":0"}, {"-admin", "192.0.2.1:0"}, append(tls, "-admin", ":0", "-tls-client-ca", "ca"),
	} {
		_, err := parseServe(bad, io.Discard)
		require.ErrorIs(t, err, errUsage, "%q", bad)
		assert.Contains(t, err.Error(), "-tokens none", "it says what to do")
	}
	t.Setenv("COUNTERD_LISTEN", ":0")
	_, err := parseServe(nil, io.Discard)
	require.ErrorIs(t, err, errUsage)
	t.Setenv("COUNTERD_TOKENS", "none")
	_, err = parseServe(nil, io.Discard)
	require.NoError(t, err)
}

func TestAccessFromTheEnvironment(t *testing.T) {
	for name, value := range map[string]string{"TOKENS": "t", "TLS_CERT": "c", "TLS_KEY": "k", "TLS_CLIENT_CA": "a", "ADMIN": "127.0.0.1:1", "DRAIN_DELAY": "3s"} {
		t.Setenv("COUNTERD_"+name, value)
	}
	s, err := parseServe(nil, io.Discard)
	require.NoError(t, err)
	want := server.DefaultSettings()
	want.Tokens, want.TLSCert, want.TLSKey, want.TLSClientCA = "t", "c", "k", "a"
	want.Admin, want.DrainDelay = "127.0.0.1:1", 3*time.Second
	assert.Equal(t, want, s.Settings)
}

// The log names secrets that others can read, and addresses that are open to all callers.
func TestWhatLiesOpenIsWarnedOf(t *testing.T) {
	tokens := testkit.SecretFile(t, "ops all "+opsToken)
	require.NoError(t, os.Chmod(tokens, 0o644))
	p := startProcess(t, "-listen", "0.0.0.0:0", "-admin", "127.0.0.1:0", "-tokens", tokens)
	assert.Regexp(t, `level=WARN msg="a file with a secret[^\n]*file=`+tokens, p.log.String())
	assert.Regexp(t, `level=WARN msg="tokens go unencrypted[^\n]* address=0.0.0.0:0`, p.log.String())
	assert.NotRegexp(t, `tokens go unencrypted[^\n]* address=127`, p.log.String())
	assert.NotContains(t, p.log.String(), "open to all callers")

	p = startProcess(t, "-listen", "0.0.0.0:0", "-tokens", "none")
	assert.Regexp(t, `level=WARN msg="this address is open to all callers[^\n]* address=0.0.0.0:0`, p.log.String())
	assert.NotContains(t, p.log.String(), "unencrypted")

	authority := memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	p = startProcess(t, "-listen", "0.0.0.0:0", "-tls-cert", id.CertFile, "-tls-key", id.KeyFile, "-tls-client-ca", authority.File)
	assert.NotContains(t, p.log.String(), "level=WARN")
	p = startProcess(t, "-listen", "0.0.0.0:0", "-tls-cert", id.CertFile, "-tls-key", id.KeyFile, "-tokens", testkit.SecretFile(t, "ops all "+opsToken))
	assert.NotContains(t, p.log.String(), "level=WARN")
}

// What the flags name has to be there at the start, and good.
func TestFaultySecretsAtTheStart(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	id, other := authority.Issue(t), authority.Issue(t)
	expired := authority.Issue(t, outOfDate)
	faulty := testkit.SecretFile(t, "edge decide short\nedge "+edgeToken+"\n")
	empty := testkit.SecretFile(t, "# none\n")
	for says, args := range map[string][]string{
		"no such file":             {"-tokens", "/nowhere/tokens"},
		"line 2: there are 2":      {"-tokens", faulty},
		"there is no token":        {"-tokens", empty},
		"not a regular file":       {"-tokens", os.DevNull},
		"private key does not":     {"-tls-cert", id.CertFile, "-tls-key", other.KeyFile},
		"the certificate expired":  {"-tls-cert", expired.CertFile, "-tls-key", expired.KeyFile},
		"failed to find any PEM":   {"-tls-cert", faulty, "-tls-key", id.KeyFile},
		"holds no certificate":     {"-tls-cert", id.CertFile, "-tls-key", id.KeyFile, "-tls-client-ca", faulty},
		"no such file or director": {"-tls-cert", id.CertFile, "-tls-key", "/nowhere/key"},
	} {
		var stderr bytes.Buffer
		assert.Equal(t, exitFailed, runFor(t, append(args, "-listen", "127.0.0.1:0"), io.Discard, &stderr), says)
		assert.Contains(t, stderr.String(), says)
		assert.NotContains(t, stderr.String(), edgeToken)
		assert.NotContains(t, stderr.String(), "msg=serving")
	}
}
