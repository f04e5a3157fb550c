package main

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// The tokens of these tests.
const (
	edgeToken = "the-token-of-the-edge"
	opsToken  = "the-token-of-operators"
	newToken  = "the-new-token-of-edge"
)

// Without a flag only programs of this machine are served, and nothing but the API, metrics and the page.
func TestNothingIsExposedByDefault(t *testing.T) {
	s, err := parseServe(nil, nil)
	require.NoError(t, err)
	host, _, err := net.SplitHostPort(s.Listen)
	require.NoError(t, err)
	assert.True(t, net.ParseIP(host).IsLoopback(), s.Listen)
	assert.True(t, s.Embedded())

	p := startProcess(t)
	assert.Contains(t, p.log.String(), "embedded store")
	for path, want := range map[string]int{
		"/readyz": 200, "/metrics": 200, "/ui/": 200, "/ui/feature?event=url_shorten&feature=ip:192.0.2.1": 200,
		"/debug/pprof/": 404, "/debug/pprof/heap": 404, "/debug/pprof/cmdline": 404, "/debug/vars": 404, "/debug": 404,
	} {
		assert.Equal(t, want, status(t, p.url+path), path)
	}
}

// With an address for operators, metrics, profiles and the page are there, with their token, and nowhere else.
func TestOperatorsHaveAnAddressOfTheirOwn(t *testing.T) {
	server := memcachedtest.Start(t)
	tokens := testkit.SecretFile(t, "edge decide,read,increment,reset,rules "+edgeToken+"\nops operate,see "+opsToken)
	p := startProcess(t, "-memcached", server.Addr, "-tokens", tokens, "-admin", "127.0.0.1:0")
	admin := p.admin(t)
	with := func(url, token string) (int, string) {
		if token != "" {
			token = "Bearer " + token
		}
		return ask(t, "GET", url, "", "Authorization", token)
	}
	for path, has := range map[string]string{
		"/metrics": "counterd_rules_generation 1\n", "/debug/pprof/": "goroutine", "/debug/pprof/heap": "", "/debug/pprof/cmdline": "", "/ui/": server.Addr, "/ui/page.css": "",
	} {
		for token, want := range map[string]int{"": 401, edgeToken: 403, opsToken: 200} {
			answered, _ := with(p.url+path, token)
			assert.Equal(t, 404, answered, "%s of clients", path)
			answered, text := with(admin+path, token)
			assert.Equal(t, want, answered, "%s of operators", path)
			if want == 200 {
				assert.Contains(t, text, has, path)
			}
		}
	}
	answered, _ := with(admin+"/v1/events", opsToken)
	assert.Equal(t, 404, answered)
	assert.Equal(t, 200, status(t, admin+"/healthz"))
	_, text := with(admin+"/readyz", "")
	assert.Contains(t, text, server.Addr)
	answered, text = with(p.url+"/readyz", "")
	assert.Equal(t, 200, answered)
	assert.NotContains(t, text, server.Addr, "whoever asks")
	p.log.Await(t, "a request was refused")
	assert.NotContains(t, p.log.String(), opsToken)
}

// A web page that has its name lead to the loopback gets no answer from a process without tokens, on neither address.
func TestWebPagesDoNotReachALocalProcess(t *testing.T) {
	p := startProcess(t, "-admin", "127.0.0.1:0")
	for _, url := range []string{p.url + "/v1/events", p.admin(t) + "/metrics"} {
		for host, want := range map[string]int{"evil.example:8080": 421, "": 200, "localhost": 200} {
			answered, _ := ask(t, "GET", url, "", "Host", host)
			assert.Equal(t, want, answered, "%s: %s", url, host)
		}
	}
	p = startProcess(t, "-tokens", "none") // everyone may call
	answered, _ := ask(t, "GET", p.url+"/v1/events", "", "Host", "counterd.internal")
	assert.Equal(t, 200, answered)
}

// The tokens are replaced under load: first the file has both, then the clients take the new one, then the old one goes.
// No request fails, and afterwards the old one is good for nothing.
func TestTokensAreRotatedUnderLoad(t *testing.T) {
	tokens := testkit.SecretFile(t, "edge decide "+edgeToken+"\nops all "+opsToken+"\n")
	p := startProcess(t, "-tokens", tokens)
	var current atomic.Value
	current.Store(edgeToken)
	var callers []func() error
	for range 4 {
		c := newClient(t, client.Config{URL: p.url, Token: func() (string, error) { return current.Load().(string), nil }})
		callers = append(callers, func() error {
			_, err := c.Check(t.Context(), "url_shorten", visitor, 1)
			return err
		})
	}
	l := startLoad(t, callers...)
	l.more(20)
	testkit.ReplaceFile(t, tokens, "edge decide "+edgeToken+"\nedge decide "+newToken+"\nops all "+opsToken+"\n")
	p.logged(t, `msg="tokens reloaded"[^\n]* tokens=3`)
	l.more(20)
	current.Store(newToken)
	l.more(20)
	testkit.ReplaceFile(t, tokens, "edge decide "+newToken+"\nedge "+edgeToken+"\n") // faulty: those in force stay
	p.logged(t, `level=ERROR msg="tokens not reloaded, those in force stay"[^\n]* failures=1 faults=1`)
	p.logged(t, `level=ERROR msg="fault in the tokens file"[^\n]* line=2`)
	l.more(20)
	testkit.ReplaceFile(t, tokens, "edge decide "+newToken+"\n")
	p.logged(t, `msg="tokens reloaded"[^\n]* tokens=1`)
	l.more(20)
	l.stop()
	answered, _ := ask(t, "POST", p.url+"/v1/events/url_shorten/hit", hitBody, "Authorization", "Bearer "+edgeToken)
	assert.Equal(t, 401, answered)
	for _, secret := range []string{edgeToken, opsToken, newToken} {
		assert.NotContains(t, p.log.String(), secret)
	}
}

// The log names secrets that others can read, addresses that are open to all callers, and secrets that go unencrypted.
func TestWhatLiesOpenIsWarnedOf(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	open := func(path string) string {
		require.NoError(t, os.Chmod(path, 0o644))
		return path
	}
	tokens, shut := open(testkit.SecretFile(t, "ops all "+opsToken)), testkit.SecretFile(t, "ops all "+opsToken)
	auth, closed := open(testkit.SecretFile(t, "counterd:sesame")), testkit.SecretFile(t, "counterd:sesame")
	secret := open(testkit.SecretFile(t, "sesame-open-sesame"))
	const lies, plain, all, goes = "a file with a secret", "tokens go unencrypted", "this address is open to all callers", "the password goes"
	for _, test := range []struct {
		args  []string
		warns map[string]string // the warning, and what its line has, too
	}{
		{[]string{"-listen", "0.0.0.0:0", "-admin", "127.0.0.1:0", "-tokens", tokens}, map[string]string{lies: "file=" + tokens, plain: "address=0.0.0.0:0"}},
		{[]string{"-listen", "0.0.0.0:0", "-tokens", "none"}, map[string]string{all: "address=0.0.0.0:0"}},
		{[]string{"-listen", "0.0.0.0:0", "-tls-cert", id.CertFile, "-tls-key", id.KeyFile, "-tls-client-ca", authority.File}, nil},
		{[]string{"-listen", "0.0.0.0:0", "-tls-cert", id.CertFile, "-tls-key", id.KeyFile, "-tokens", shut}, nil},
		{[]string{"-memcached", "192.0.2.1:11211,127.0.0.1:1", "-memcached-auth", auth}, map[string]string{lies: "file=" + auth, goes: "server=192.0.2.1:11211"}},
		{[]string{"-memcached", "127.0.0.1:1", "-memcached-auth", closed, "-memcached-tls"}, nil},
		{[]string{"-memcached", "127.0.0.1:1", "-key-secret", secret}, map[string]string{lies: "file=" + secret}},
	} {
		p := startProcess(t, test.args...)
		for _, warning := range []string{lies, plain, all, goes} {
			found := regexp.MustCompile(`level=WARN msg="`+warning+`.*`).FindAllString(p.log.String(), -1)
			if test.warns[warning] == "" {
				assert.Empty(t, found, "%q", test.args)
			} else if assert.Len(t, found, 1, "%q", test.args) {
				assert.Contains(t, found[0], test.warns[warning])
			}
		}
		assert.NotContains(t, p.log.String(), "sesame")
	}

	servers := filepath.Join(t.TempDir(), "servers") // also if the server is found later
	testkit.WriteFile(t, servers, "127.0.0.1:1")
	p := startProcess(t, "-memcached-file", servers, "-memcached-auth", auth)
	assert.NotContains(t, p.log.String(), goes)
	testkit.ReplaceFile(t, servers, "192.0.2.1:11211")
	p.log.Await(t, goes, "server=192.0.2.1:11211")
}
