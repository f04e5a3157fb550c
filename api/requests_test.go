package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// The body of a route that takes none is not ignored: what it names would not be
// what is forgotten.
func TestABodyThatNobodyReadsDeletesNothing(t *testing.T) {
	s := newServer()
	require.Equal(t, 200, request(t, s, "POST", "/v1/events/export/increment", `{"features": {"ip": "203.0.113.9"}, "by": 3}`).Code)
	for _, body := range []io.Reader{
		strings.NewReader(`{"features": {"ip": "203.0.113.9"}}`),
		io.MultiReader(strings.NewReader(`{"features": {"ip": "203.0.113.9"}}`)), // of no known length
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("DELETE", "/v1/events/export/counters", body))
		p := problem(t, w, 400)
		assert.Equal(t, "this route takes no body: what is asked for stands in the path and the query", p.Detail)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("DELETE", "/v1/events/export/counters", io.MultiReader(bytes.NewReader(make([]byte, 1<<20+1)))))
	problem(t, w, 413)
	assert.Equal(t, int64(3), answer[wire.Count](t, request(t, s, "GET", "/v1/events/export/count?window=1m", "")).Count)

	w = httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("DELETE", "/v1/events/export/counters", io.MultiReader()))
	assert.Equal(t, 204, w.Code, "an empty one of no known length is none")
}

func TestTheLargestBody(t *testing.T) {
	s := newServer()
	for size, status := range map[int]int{1 << 20: 200, 1<<20 + 1: 413} {
		body := `{"features": {"user": "42"}}`
		body += strings.Repeat(" ", size-len(body))
		assert.Equal(t, status, request(t, s, "POST", "/v1/events/plain/increment", body).Code, size)
		r := httptest.NewRequest("POST", "/v1/events/plain/increment", io.MultiReader(strings.NewReader(body)))
		r.Header.Set("Content-Type", wire.TypeJSON)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		assert.Equal(t, status, w.Code, "%d, of no known length", size)
	}
}

// A client that asks before it sends a body that is too large need not send it.
func TestABodyThatIsTooLargeIsNotAskedFor(t *testing.T) {
	leaktest.Check(t)
	server := httptest.NewServer(newServer())
	defer server.Close()
	for _, head := range []string{
		"POST /v1/events/plain/increment", "POST /v1/events/plain/hit", "POST /v1/batch", "DELETE /v1/events/export/counters",
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(longest)))
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", head, 1<<20+1)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, head)
		response.Body.Close()
		assert.Equal(t, 413, response.StatusCode, head)
	}
}

// A name in a body may be a value that lost its way.
func TestNamesThatAreNotTheContractsAreNotRepeated(t *testing.T) {
	s := newServer()
	for _, secret := range []string{"alice@example.org", "Secret", "4915112345", strings.Repeat("x", 500_000), "a/b", "~", "\u2028"} {
		for body, place := range map[string]string{
			`{%s: 1}`:                                 "",
			`{%s: {"a": {}}}`:                         "",
			`{"features": {%s: 7}}`:                   "/features",
			`{"features": {%s: {}}}`:                  "/features",
			`{"features": {%[1]s: "a", %[1]s: "b"}}`:  "/features",
			`{"features": {%s: "a}`:                   "/features",
			`{"hits": [{"event": "plain", %s: "a"}]}`: "/hits/0",
		} {
			name, err := json.Marshal(secret)
			require.NoError(t, err)
			target := "/v1/events/plain/increment"
			if strings.Contains(body, "hits") {
				target = "/v1/batch"
			}
			w := request(t, s, "POST", target, fmt.Sprintf(body, name))
			p := problem(t, w, 400)
			assert.NotContains(t, w.Body.String(), string(name[1:len(name)-1])+"\"", "%.100s", body)
			assert.Less(t, w.Body.Len(), 1000)
			assert.Equal(t, place, p.Errors[0].Pointer, "%.100s %.100s", secret, body)
		}
	}
	p := problem(t, request(t, s, "POST", "/v1/events/plain/increment", `{"csot": 1}`), 400)
	assert.Equal(t, "/csot", p.Errors[0].Pointer, "a slip of the finger is shown")
}

// The same request has the same answer, and however much is wrong, a bounded one.
func TestProblemsAreSteadyAndBounded(t *testing.T) {
	s := newServer()
	var first string
	for i := range 20 {
		w := request(t, s, "GET", "/v1/events/url_shorten/count?at=1&at=2&window=1m&window=2m&d=1&c=1&b=1&a=1&feature=ip:x", "")
		problem(t, w, 400)
		if i == 0 {
			first = w.Body.String()
		}
		require.Equal(t, first, w.Body.String())
	}
	for _, query := range []string{strings.Repeat("feature=&", 9_000), strings.Repeat("feature=a:b&", 9_000)} {
		for _, route := range []string{"count?window=1m&", "check?", "history?level=hour&"} {
			w := request(t, s, "GET", "/v1/events/url_shorten/"+route+query, "")
			p := problem(t, w, 400)
			assert.Equal(t, "a request has at most 16 features, this one has more", p.Errors[0].Detail)
			assert.LessOrEqual(t, len(p.Errors), 17)
			assert.Less(t, w.Body.Len(), 4<<10)
		}
	}
	var unknown strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&unknown, "x%d=1&", i)
	}
	w := request(t, s, "GET", "/v1/events/url_shorten/count?window=1m&feature=ip:203.0.113.9&"+unknown.String(), "")
	assert.Len(t, problem(t, w, 400).Errors, 1)
}

// broken is a handler whose rules panic, or whatever else do does.
func broken(log io.Writer, do func() *events.Rules) http.Handler {
	return newDescribed(api.ServerConfig{Service: newService(service.Config{Rules: do}), Log: slog.New(slog.NewTextHandler(log, nil))})
}

func TestAPanicIsAnsweredAndLogged(t *testing.T) {
	var log bytes.Buffer
	h := broken(&log, func() *events.Rules { panic("out of order") })
	w := request(t, h, "GET", "/v1/events", "")
	problem(t, w, 500)
	assert.Contains(t, log.String(), "level=ERROR")
	assert.Contains(t, log.String(), `panic="a string"`)
	assert.NotContains(t, log.String(), "out of order", "it may be the value of a feature")
	assert.Contains(t, log.String(), "requests_test.go", "and where")
	assert.NotContains(t, w.Body.String(), "order")

	h = broken(io.Discard, func() *events.Rules { panic(http.ErrAbortHandler) })
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { request(t, h, "GET", "/v1/events", "") })
}

// namedStore fails as that server does.
type namedStore struct{ fail func() error }

func (s namedStore) Do(_ context.Context, ops ...*store.Op) {
	for _, op := range ops {
		op.Err = s.fail()
	}
}

func (s namedStore) Capabilities() store.Capabilities { return store.Capabilities{} }

// What fails is logged once a second for each cause, with how often it did.
func TestFailuresOfTheStoreAreLoggedByCause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := 0
		h := newHandler(namedStore{fail: func() error {
			n++
			if n%2 == 0 {
				return errors.New("server b is down")
			}
			return fmt.Errorf("server a: %w", &net.OpError{
				Op: "read", Net: "tcp", Err: errors.New("connection reset by peer"),
				Source: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: n}, Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 11211},
			})
		}}, &log, nil)
		for range 10 {
			request(t, h, "GET", url24h+"203.0.113.9", "")
		}
		assert.Equal(t, 1, strings.Count(log.String(), "server a"), &log)
		assert.Equal(t, 1, strings.Count(log.String(), "server b"), &log)
		time.Sleep(time.Second)
		log.Reset()
		request(t, h, "GET", url24h+"203.0.113.9", "")
		assert.Contains(t, log.String(), "server a")
		assert.Contains(t, log.String(), "suppressed=4")
	})
}

// stuckLog is a standard error that no process reads, until it is let go.
type stuckLog struct {
	release chan struct{}
	mu      sync.Mutex
	bytes.Buffer
}

func (l *stuckLog) Write(p []byte) (int, error) {
	<-l.release
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func TestALogThatIsStuckHoldsUpOneRequest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := &stuckLog{release: make(chan struct{})}
		failing := newHandler(failingStore{}, log, nil)
		panicking := broken(log, func() *events.Rules { panic("no rules") })
		refusing := newLimits(t, "events: {e: {limits: [{per: ip, rate: 2/d, on_error: deny}]}}")
		refusing.broken.Store(true)
		refusing.Handler = newDescribed(api.ServerConfig{
			Service: newService(service.Config{
				Rules:   refusing.rules.Load,
				Limiter: limiterOf(t, breakable{refusing.store, &refusing.broken, &refusing.adds}),
			}),
			Log: slog.New(slog.NewTextHandler(log, nil)),
		})
		for _, ask := range []func() int{
			func() int { return request(t, failing, "GET", url24h+"203.0.113.9", "").Code },
			func() int { return request(t, panicking, "GET", "/v1/events", "").Code },
			func() int { return refusing.hit(t).Code },
		} {
			go ask()
			synctest.Wait() // it is stuck
			for range 10 {
				assert.GreaterOrEqual(t, ask(), 500)
			}
		}
		close(log.release)
	})
}

func limiterOf(t *testing.T, store store.Store) *limiter.Limiter {
	t.Helper()
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock, Grace: 40 * time.Second}))
	require.NoError(t, err)
	return decider
}

// What net/http has to say is a warning, once a second, and no request waits for the log.
func TestTheServersOwnLog(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := &stuckLog{release: make(chan struct{})}
		server := api.NewServer(http.NotFoundHandler(), slog.New(slog.NewTextHandler(log, nil)))
		for i := range 10 {
			server.ErrorLog.Printf("http: Accept error: %d", i)
		}
		synctest.Wait()
		close(log.release)
		synctest.Wait()
		assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
		assert.Contains(t, log.String(), "Accept error")
		time.Sleep(time.Second)
		server.ErrorLog.Print("http: one more")
		synctest.Wait()
		assert.Contains(t, log.String(), "suppressed=9")
	})
}

// Rules may have any number of kinds: the faults that are listed are bounded.
func TestFaultsAreBounded(t *testing.T) {
	var limits, from []string
	r := httptest.NewRequest("GET", "/v1/authorize/e", nil)
	for i := range 40 {
		limits = append(limits, fmt.Sprintf("{per: k%d, rate: 1/d}", i))
		from = append(from, fmt.Sprintf("k%d: header K%d", i, i))
		r.Header[fmt.Sprintf("K%d", i)] = []string{"a", "b"}
	}
	l := newLimits(t, "events: {e: {limits: ["+strings.Join(limits, ", ")+"], from: {"+strings.Join(from, ", ")+"}}}")
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	p := problem(t, w, 400)
	require.Len(t, p.Errors, 33)
	assert.Equal(t, "and 8 more", p.Errors[32].Detail)
}
