// Package proxies_test runs the proxies of docs/proxies.md in front of a service that counterd limits.
package proxies_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/memcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the configurations of docs/proxies.md call the three ends.
const (
	documentedCounterd = "127.0.0.1:8080"
	documentedService  = "127.0.0.1:3000"
	documentedRules    = "rules.yaml"
)

// documented returns a file of testdata, which docs/proxies.md quotes.
func documented(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "proxies.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "\n"+string(text)+"```\n", "docs/proxies.md does not quote %s", name)
	return string(text)
}

func TestProxiesAreDocumented(t *testing.T) {
	files, err := os.ReadDir("testdata")
	require.NoError(t, err)
	require.Greater(t, len(files), 4)
	for _, file := range files {
		documented(t, file.Name())
	}
}

// backstage is everything behind a proxy: counterd with the documented rules, and
// a service.
type backstage struct {
	counterd, service *httptest.Server
	served            atomic.Int64 // requests that came to the service
	storeDown         atomic.Bool
}

// newBackstage starts both. The service says what came to it, and 403 to
// /forbidden. Without a store counterd refuses.
func newBackstage(t *testing.T) *backstage {
	t.Helper()
	return newGuardedBackstage(t, nil)
}

// newGuardedBackstage starts both; counterd wants those tokens, if any, and counts those
// methods, or all.
func newGuardedBackstage(t *testing.T, tokens func() *service.Tokens, methods ...string) *backstage {
	t.Helper()
	b := &backstage{}
	store := &switchedStore{memcache.NewEmbedded(memcache.EmbeddedConfig{}), &b.storeDown}
	// The machine that runs the tests may be busy: a wide grace keeps hits trusted.
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Grace: 40 * time.Second}))
	require.NoError(t, err)
	rules, err := rulesfile.Parse([]byte(documented(t, documentedRules)))
	require.NoError(t, err)
	for i := range rules.Events["api"].Rules {
		rules.Events["api"].Rules[i].OnError = events.OnErrorDeny
	}
	rules.Events["api"].Methods = methods
	leaktest.Check(t)
	decides, err := service.New(service.Config{
		Rules:    func() *events.Rules { return rules },
		Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store})),
		Limiter:  decider,
	})
	require.NoError(t, err)
	b.counterd = httptest.NewServer(api.NewServerHandler(api.ServerConfig{
		LoopbackOnly: tokens == nil, // as in a process without flags
		Service:      decides,
		Gate:         service.NewGate(service.GateConfig{Tokens: tokens}),
		Log:          slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(b.counterd.Close)
	b.service = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.served.Add(1)
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, body)
	}))
	t.Cleanup(b.service.Close)
	return b
}

// switchedStore fails while it is down.
type switchedStore struct {
	store.Store
	down *atomic.Bool
}

func (s *switchedStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if storetest.IsTrip(op) && s.down.Load() {
			op.Err = context.DeadlineExceeded
			return
		}
		s.Store.Do(ctx, op)
	})
}

// place puts the ends of the test into a documented configuration, and listen in
// the place of what it says to listen on.
func (b *backstage) place(t *testing.T, config, documentedListen, listen string) string {
	t.Helper()
	for from, to := range map[string]string{
		documentedCounterd: b.counterd.Listener.Addr().String(), documentedService: b.service.Listener.Addr().String(), documentedListen: listen,
	} {
		if from != "" {
			require.Contains(t, config, from)
			config = strings.ReplaceAll(config, from, to)
		}
	}
	return config
}

// runProxy runs a proxy until the test ends. start returns its command for a port
// of the loopback, in an empty directory. It returns the proxy's address.
func runProxy(t *testing.T, start func(dir, port string) *exec.Cmd) string {
	t.Helper()
	var output string
	for range 5 { // another process may take the port
		leaktest.Check(t)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addr := listener.Addr().String()
		require.NoError(t, listener.Close())
		_, port, _ := net.SplitHostPort(addr)
		command := start(t.TempDir(), port)
		var log bytes.Buffer
		command.Stdout, command.Stderr = &log, &log
		require.NoError(t, command.Start())
		ended := make(chan struct{})
		go func() {
			_ = command.Wait()
			close(ended)
		}()
		stop := func() {
			_ = command.Process.Signal(syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
				_ = command.Process.Kill()
				<-ended
			}
		}
		if answers(addr, ended) {
			t.Cleanup(func() {
				stop()
				if t.Failed() {
					t.Logf("the proxy said: %s", &log)
				}
			})
			return addr
		}
		stop()
		output = log.String()
	}
	t.Fatalf("the proxy does not start: %s", output)
	return ""
}

// answers reports whether something listens there before the process ends.
func answers(addr string, ended <-chan struct{}) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		select {
		case <-ended:
			return false
		default:
		}
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// caller makes requests from one address of the loopback.
type caller struct {
	t      *testing.T
	proxy  string
	client *http.Client
}

func newCaller(t *testing.T, proxy, address string) *caller {
	t.Helper()
	transport := &http.Transport{
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t, proxy, &http.Client{Transport: transport}}
}

// do makes a request, with headers given as name and value.
func (c *caller) do(method, path, body string, header ...string) (response *http.Response, answer string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.proxy+path, strings.NewReader(body))
	require.NoError(c.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	response, err = c.client.Do(r)
	require.NoError(c.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	return response, string(text)
}

// traits are in what proxies differ.
type traits struct {
	headersOfAdmitted bool // the client of an admitted request sees RateLimit
	duplicated        int  // the answer to a request with two tokens
	unreachable       int  // the answer where counterd is not there
}

// testProxy plays clients of a proxy that limits a service by counterd.
func testProxy(t *testing.T, b *backstage, proxy string, has traits) {
	// Clients are at other addresses than the proxy, which is trusted.
	first, second, third := newCaller(t, proxy, "127.0.0.2"), newCaller(t, proxy, "127.0.0.3"), newCaller(t, proxy, "127.0.0.4")

	response, answer := first.do("POST", "/a?b=c&deny_status=500", "the body")
	require.Equal(t, 200, response.StatusCode, answer)
	assert.Equal(t, "POST /a?b=c&deny_status=500 the body", answer, "the request comes whole to the service")
	if has.headersOfAdmitted {
		assert.Equal(t, `"ip-20-per-1m";r=19`, response.Header.Get("RateLimit"))
		assert.Equal(t, `"ip-20-per-1m";q=20;w=60`, response.Header.Get("RateLimit-Policy"))
	}

	response, answer = first.do("GET", "/forbidden", "")
	assert.Equal(t, 403, response.StatusCode, "what the service forbids is not taken for a denial")
	assert.Equal(t, "GET /forbidden ", answer)

	for i := range 18 {
		// Whatever the client claims to be.
		other := fmt.Sprintf("198.51.100.%d", i)
		response, answer = first.do("GET", "/", "", "X-Forwarded-For", other, "X-Real-IP", other, "Forwarded", "for="+other)
		require.Equal(t, 200, response.StatusCode, answer)
	}
	served := b.served.Load()
	assert.Equal(t, int64(20), served)
	for _, method := range []string{"GET", "POST", "HEAD"} {
		response, answer = first.do(method, "/", "", "X-Forwarded-For", "198.51.100.99", "X-Forwarded-For", "127.0.0.1")
		require.Equal(t, 429, response.StatusCode, answer)
		wait, err := strconv.Atoi(response.Header.Get("Retry-After"))
		require.NoError(t, err)
		assert.True(t, 0 < wait && wait <= 60, "%d", wait)
		assert.Equal(t, fmt.Sprintf(`"ip-20-per-1m";r=0;t=%d`, wait), response.Header.Get("RateLimit"))
		assert.Equal(t, `"ip-20-per-1m";q=20;w=60`, response.Header.Get("RateLimit-Policy"))
		assert.Equal(t, wire.TypeProblem, response.Header.Get("Content-Type"))
		if method != "HEAD" {
			assert.Contains(t, answer, wire.TypeQuotaExceeded)
		}
	}
	for _, header := range [][]string{
		{"Connection", "X-Forwarded-For"}, {"Connection", "close, X-Forwarded-For"}, {"X-Forwarded-For", ""}, {"X-Forwarded-For", "unknown"},
	} {
		response, answer = first.do("GET", "/?deny_status=401", "", header...)
		require.Equal(t, 429, response.StatusCode, answer)
	}
	assert.Equal(t, served, b.served.Load(), "the service is spared")

	for range 10 {
		response, answer = second.do("GET", "/", "", "Authorization", "Bearer abc")
		require.Equal(t, 200, response.StatusCode, answer)
	}
	response, _ = third.do("GET", "/", "", "Authorization", "Bearer abc")
	assert.Equal(t, 429, response.StatusCode, "the user is limited, from wherever")
	response, _ = third.do("GET", "/", "", "Authorization", "Bearer def")
	assert.Equal(t, 200, response.StatusCode)

	response, _ = third.do("GET", "/", "", "Authorization", "Bearer def", "Authorization", "Bearer ghi")
	assert.Equal(t, has.duplicated, response.StatusCode)

	served = b.served.Load()
	b.storeDown.Store(true)
	response, _ = third.do("GET", "/", "")
	assert.Equal(t, 503, response.StatusCode)
	b.storeDown.Store(false)
	response, _ = third.do("GET", "/", "")
	assert.Equal(t, 200, response.StatusCode)

	b.counterd.CloseClientConnections()
	b.counterd.Close()
	response, _ = third.do("GET", "/", "")
	assert.Equal(t, has.unreachable, response.StatusCode)
	assert.Equal(t, served+1, b.served.Load(), "nothing goes through undecided")
}

// If nginx passes on what counterd cannot decide, no header of a client makes its request one of those. Caddy passes
// none on.
func TestNoHeaderOfAClientLeavesALimit(t *testing.T) {
	b := newBackstage(t)
	const undecided = "return 503;"
	site := documented(t, "nginx.conf")
	require.Equal(t, 1, strings.Count(site, undecided))
	client := newCaller(t, runNginx(t, b, strings.Replace(site, undecided, "proxy_pass http://127.0.0.1:3000;", 1)), "127.0.0.2")
	var many, long []string
	for i := range 200 {
		many = append(many, fmt.Sprint("X-", i), "x")
	}
	for i := range 3 {
		long = append(long, fmt.Sprint("X-", i), strings.Repeat("x", 7000))
	}
	for name, header := range map[string][]string{
		"two tokens": {"Authorization", "Bearer abc", "Authorization", "Bearer def"}, "many": many,
	} {
		response, answer := client.do("GET", "/", "", header...)
		assert.Equal(t, 400, response.StatusCode, "%s: %s", name, answer)
	}
	assert.Zero(t, b.served.Load())
	for i := range 11 {
		response, answer := client.do("GET", "/", "", append(long, "Authorization", "Bearer "+strings.Repeat("x", 2000))...)
		assert.Equal(t, map[bool]int{true: 200, false: 429}[i < 10], response.StatusCode, answer)
	}
	b.storeDown.Store(true)
	response, answer := client.do("GET", "/", "")
	assert.Equal(t, 200, response.StatusCode, answer)
	b.storeDown.Store(false)

	served := b.served.Load()
	for _, name := range []string{"forward_auth.caddy", "Caddyfile"} {
		client := newCaller(t, runCaddy(t, b, documented(t, name)), "127.0.0.3")
		response, answer := client.do("GET", "/", "", many...)
		assert.Equal(t, 431, response.StatusCode, "%s: %s", name, answer)
	}
	assert.Equal(t, served, b.served.Load())
}

// program returns the path of a program, which hint says how to install.
func program(t *testing.T, name, hint string) string {
	t.Helper()
	for _, folder := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
		if path, err := exec.LookPath(folder + name); err == nil {
			return path
		}
	}
	require.FailNow(t, "this test needs "+name+": "+hint)
	return ""
}

// runNginx runs nginx with that site in front of what is behind.
func runNginx(t *testing.T, b *backstage, site string) (proxy string) {
	t.Helper()
	nginx := program(t, "nginx", "apt-get install nginx-light (with the module auth_request)")
	return runProxy(t, func(dir, port string) *exec.Cmd {
		write(t, dir, "site.conf", b.place(t, site, "listen 80;", "listen 127.0.0.1:"+port+";\n    deny 127.0.0.6;"))
		write(t, dir, "nginx.conf", `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include site.conf;
}
`)
		return exec.Command(nginx, "-e", "stderr", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	})
}

// runCaddy runs Caddy with that site in front of what is behind.
func runCaddy(t *testing.T, b *backstage, site string) (proxy string) {
	t.Helper()
	caddy := program(t, "caddy", "apt-get install caddy")
	return runProxy(t, func(dir, port string) *exec.Cmd {
		write(t, dir, "site.caddy", b.place(t, site, ":80 {", "http://:"+port+" {\n\tbind 127.0.0.1"))
		write(t, dir, "Caddyfile", "{\n\tadmin off\n}\nimport site.caddy\n")
		command := exec.Command(caddy, "run", "--config", filepath.Join(dir, "Caddyfile"), "--adapter", "caddyfile")
		command.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
		return command
	})
}

// tokenLines are what docs/proxies.md says to add, and behind what.
var tokenLines = map[string]struct {
	file, behind, line string
	run                func(*testing.T, *backstage, string) string
}{
	"nginx": {"nginx.conf", "deny_status=403;", `proxy_set_header Counterd-Token "kX2vN7qTf0ZrLw9sYb4hDg";`, runNginx},
	"Caddy": {"forward_auth.caddy", "deny_status=429", "header_up Counterd-Token kX2vN7qTf0ZrLw9sYb4hDg", runCaddy},
}

// A proxy that has a token shows its own, whatever its client sends, and the client's
// Authorization is a feature as ever. Without one nothing goes through.
func TestProxiesShowATokenOfTheirOwn(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "proxies.md"))
	require.NoError(t, err)
	tokens, err := service.ParseTokens([]byte("edge decide kX2vN7qTf0ZrLw9sYb4hDg"))
	require.NoError(t, err)
	for name, with := range tokenLines {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, string(page), "`"+with.line+"`")
			b := newGuardedBackstage(t, func() *service.Tokens { return tokens })
			site := documented(t, with.file)
			client := newCaller(t, with.run(t, b, site), "127.0.0.2")
			response, _ := client.do("GET", "/", "", "Counterd-Token", "nobody-has-this-token", "Authorization", "Bearer of-the-service")
			assert.Equal(t, 401, response.StatusCode)
			assert.Zero(t, b.served.Load())

			require.Contains(t, site, with.behind)
			client = newCaller(t, with.run(t, b, strings.Replace(site, with.behind, with.behind+"\n"+with.line, 1)), "127.0.0.2")
			for i := range 11 {
				response, answer := client.do("GET", "/", "", "Counterd-Token", "nobody-has-this-token", "Authorization", "Bearer of-the-service")
				if i < 10 {
					assert.Equal(t, 200, response.StatusCode, answer)
				} else {
					assert.Equal(t, 429, response.StatusCode, "the user of the service has had his")
				}
			}
		})
	}
}

func TestNginx(t *testing.T) {
	b := newBackstage(t)
	proxy := runNginx(t, b, documented(t, "nginx.conf"))
	testProxy(t, b, proxy, traits{headersOfAdmitted: true, duplicated: 400, unreachable: 503})
	for _, internal := range []string{"/counterd", "/counterd?deny_status=401"} {
		response, _ := newCaller(t, proxy, "127.0.0.5").do("GET", internal, "")
		assert.Equal(t, 404, response.StatusCode, "clients do not ask counterd themselves")
	}
	response, _ := newCaller(t, proxy, "127.0.0.6").do("GET", "/", "")
	assert.Equal(t, 403, response.StatusCode, "what nginx forbids is not taken for a denial")
	assert.Empty(t, response.Header.Get("Retry-After"))
}

func TestCaddy(t *testing.T) {
	for file, has := range map[string]traits{
		"Caddyfile":          {headersOfAdmitted: true, duplicated: 400, unreachable: 502},
		"forward_auth.caddy": {headersOfAdmitted: false, duplicated: 400, unreachable: 502},
	} {
		t.Run(file, func(t *testing.T) {
			b := newBackstage(t)
			testProxy(t, b, runCaddy(t, b, documented(t, file)), has)
		})
	}
}

// Traefik is in no Debian package, so it is not run: its forwardAuth is played
// here as its documentation describes it.
func TestTraefiksRequest(t *testing.T) {
	b := newBackstage(t)
	testProxy(t, b, runTraefik(t, b), traits{headersOfAdmitted: false, duplicated: 400, unreachable: 500})
}

// runTraefik plays Traefik with the documented configuration.
func runTraefik(t *testing.T, b *backstage) (proxy string) {
	t.Helper()
	var config struct {
		HTTP struct {
			Routers     map[string]struct{ Middlewares []string }
			Middlewares map[string]struct {
				ForwardAuth struct{ Address string } `yaml:"forwardAuth"`
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(b.place(t, documented(t, "traefik.yaml"), "", "")), &config))
	name := config.HTTP.Routers["api"].Middlewares[0]
	leaktest.Check(t)
	traefik := httptest.NewServer(&forwardAuth{t, config.HTTP.Middlewares[name].ForwardAuth.Address, b.service})
	t.Cleanup(traefik.Close)
	return traefik.Listener.Addr().String()
}

// Each of the documented configurations says the method of the client's request, whatever
// the client says it is.
func TestProxiesSayTheMethod(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, b *backstage) string{
		"nginx":              func(t *testing.T, b *backstage) string { return runNginx(t, b, documented(t, "nginx.conf")) },
		"Caddyfile":          func(t *testing.T, b *backstage) string { return runCaddy(t, b, documented(t, "Caddyfile")) },
		"forward_auth.caddy": func(t *testing.T, b *backstage) string { return runCaddy(t, b, documented(t, "forward_auth.caddy")) },
		"Traefik":            runTraefik,
	} {
		t.Run(name, func(t *testing.T) {
			b := newGuardedBackstage(t, nil, "POST", "PUT", "PATCH", "DELETE")
			client := newCaller(t, run(t, b), "127.0.0.2")
			passes := func() {
				for _, method := range []string{"GET", "HEAD", "OPTIONS", "PROPFIND"} {
					response, answer := client.do(method, "/", "")
					require.Equal(t, 200, response.StatusCode, "%s: %s", method, answer)
					require.Empty(t, response.Header.Get("RateLimit"))
				}
			}
			for range 6 { // 24 of 20 a minute
				passes()
			}
			methods := []string{"POST", "PUT", "PATCH", "DELETE"}
			lies := []string{"X-Forwarded-Method", "GET", "X-Original-Method", "GET", "X-Http-Method-Override", "GET", "Connection", "X-Forwarded-Method, X-Original-Method"}
			for i := range 20 {
				response, answer := client.do(methods[i%len(methods)], "/", "", lies[:2*(i%5)]...)
				require.Equal(t, 200, response.StatusCode, answer)
			}
			for _, method := range methods {
				for n := range 5 {
					response, _ := client.do(method, "/", "", lies[:2*n]...)
					assert.Equal(t, 429, response.StatusCode, "%s, with %q", method, lies[:2*n])
				}
			}
			passes()
		})
	}
}

// forwardAuth asks an address about each request as Traefik does by default: a GET
// without body, with the request's headers but those of one hop, and its own
// X-Forwarded ones in the place of the client's. 2xx lets the request through, any
// other answer is handed to the client.
type forwardAuth struct {
	t       *testing.T
	address string
	service *httptest.Server
}

func (f *forwardAuth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	question, err := http.NewRequestWithContext(r.Context(), http.MethodGet, f.address, nil)
	if !assert.NoError(f.t, err) {
		return
	}
	question.Header = r.Header.Clone()
	for _, hop := range []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailers", "Transfer-Encoding", "Upgrade"} {
		question.Header.Del(hop)
	}
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	assert.NoError(f.t, err)
	question.Header.Set("X-Forwarded-For", client)
	question.Header.Set("X-Forwarded-Method", r.Method)
	question.Header.Set("X-Forwarded-Proto", "http")
	question.Header.Set("X-Forwarded-Host", r.Host)
	question.Header.Set("X-Forwarded-Uri", r.URL.RequestURI())
	answer, err := f.service.Client().Do(question)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.StatusCode)
		_, err := io.Copy(w, answer.Body)
		assert.NoError(f.t, err)
		return
	}
	f.service.Config.Handler.ServeHTTP(w, r)
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}
