package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds the waits for what has to happen.
const soon = time.Minute

// ask returns the status and body of a GET on a connection of its own.
func ask(t *testing.T, url string) (status int, body string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func status(t *testing.T, url string) int {
	t.Helper()
	status, _ := ask(t, url)
	return status
}

// newListener serves a handler until the test ends.
func newListener(t *testing.T, h http.Handler) *listener {
	t.Helper()
	leaktest.Check(t)
	p, err := listen(Settings{Settings: settings.Settings{Log: slog.New(slog.DiscardHandler)}}, "127.0.0.1:0", 10, nil)
	require.NoError(t, err)
	p.server.Handler = h
	return p
}

// A profile takes longer than the time for a request and its answer.
func TestLongProfiles(t *testing.T) {
	p := newListener(t, nil)
	p.server.Handler = api.NewAdminHandler(api.ServerConfig{Profiles: profiles()})
	const longest = time.Second // also for the request, on a busy machine
	p.server.ReadTimeout, p.server.WriteTimeout = longest, longest
	served := make(chan error, 1)
	go func() { served <- p.serve() }()
	defer func() {
		require.NoError(t, p.server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	}()
	url := "http://" + p.Addr().String()
	for _, path := range []string{"/debug/pprof/trace?seconds=1.5", "/debug/pprof/profile?seconds=2"} {
		began := time.Now()
		status, _ := ask(t, url+path)
		assert.Equal(t, 200, status, path)
		assert.GreaterOrEqual(t, time.Since(began), 3*longest/2, "%s is whole", path)
	}
}

// Operators see the end: their address is served until the last request of a client has
// been answered.
func TestOperatorsSeeTheEnd(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	p := Listeners{
		clients: newListener(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-release
			io.WriteString(w, "done")
		})),
		admin: newListener(t, nil),
	}
	var draining atomic.Bool
	p.admin.server.Handler = api.NewAdminHandler(api.ServerConfig{Health: service.Health{Drain: draining.Load}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.serveUntil(ctx, 0, &draining, slog.New(slog.DiscardHandler)) }()
	answers := make(chan string, 1)
	go func() {
		_, text := ask(t, "http://"+p.clients.Addr().String())
		answers <- text
	}()
	<-arrived
	stop()
	admin := "http://" + p.admin.Addr().String()
	testkit.Await(t, soon, "the process drains", draining.Load)
	require.Equal(t, 503, status(t, admin+"/readyz"))
	require.Equal(t, 200, status(t, admin+"/healthz"))
	close(release)
	assert.Equal(t, "done", <-answers)
	require.NoError(t, <-ended)
	_, err := http.Get(admin + "/healthz")
	require.Error(t, err)
}

// The page is where operators are, or where none but programs of this machine are.
func TestWhichAddressHasThePage(t *testing.T) {
	leaktest.Check(t)
	for _, of := range []struct {
		listen, admin  string
		clients, there int
	}{{"127.0.0.1:0", "", 200, 0}, {"localhost:0", "", 200, 0}, {"0.0.0.0:0", "", 404, 0}, {"127.0.0.1:0", "127.0.0.1:0", 404, 200}, {"0.0.0.0:0", "127.0.0.1:0", 404, 200}} {
		log := slog.New(slog.DiscardHandler)
		l, err := Listen(Settings{Listen: of.listen, Admin: of.admin, Tokens: OpenToAll, Settings: settings.Settings{Log: log}}, &Access{}, 10)
		require.NoError(t, err)
		defer l.close()
		page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "page") })
		l.Handle(api.ServerConfig{Page: page, Log: log}, 10)
		status := func(h http.Handler) int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/ui/", nil))
			return w.Code
		}
		assert.Equal(t, of.clients, status(l.clients.server.Handler), of)
		if l.admin != nil {
			assert.Equal(t, of.there, status(l.admin.server.Handler), of)
		}
	}
}

// Where one of the addresses fails, the process ends, and the other one with it.
func TestAnAddressThatFails(t *testing.T) {
	p := Listeners{clients: newListener(t, http.NotFoundHandler()), admin: newListener(t, http.NotFoundHandler())}
	var draining atomic.Bool
	ended := make(chan error, 1)
	go func() { ended <- p.serveUntil(t.Context(), 0, &draining, slog.New(slog.DiscardHandler)) }()
	require.Equal(t, 404, status(t, "http://"+p.clients.Addr().String()))
	require.NoError(t, p.admin.Listener.Close())
	err := <-ended
	require.Error(t, err)
	assert.True(t, strings.Contains(err.Error(), "closed"), "%v", err)
	_, err = http.Get("http://" + p.clients.Addr().String())
	require.Error(t, err)
}

// The answer to a request that was in flight when the signal came ends its
// connection.
func TestShutdownClosesKeptConnections(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	p := Listeners{clients: newListener(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		io.WriteString(w, "done")
	}))}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	log := &testkit.Log{}
	var draining atomic.Bool
	go func() { ended <- p.serveUntil(ctx, 0, &draining, slog.New(slog.NewTextHandler(log, nil))) }()
	answers := make(chan *http.Response, 1)
	go func() {
		response, err := http.Get("http://" + p.clients.Addr().String())
		if assert.NoError(t, err) {
			response.Body.Close()
		}
		answers <- response
	}()
	<-arrived
	stop()
	testkit.Await(t, soon, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", p.clients.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(release)
	assert.True(t, (<-answers).Close, "Connection: close")
	require.NoError(t, <-ended)
	assert.True(t, draining.Load())
}
