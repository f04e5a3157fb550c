package replay_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/fakeserver"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/replay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const realLog = "../testdata/apache_logs.log.gz"

// stopped is the clock of most tests, of both sides.
func stopped() time.Time { return time.Date(2026, time.March, 1, 12, 34, 56, 0, time.UTC) }

func newServer() *fakeserver.Server {
	return &fakeserver.Server{Event: events.Event{Name: "e"}, Clock: stopped}
}

// configFor returns a configuration for a server that has just been started.
func configFor(t *testing.T, handler http.Handler) replay.Config {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return configAt(t, server.URL)
}

// configWithin returns a configuration for a server that is called without a network: where
// tens of thousands of calls are made, that takes half the time, and most with the race
// detector.
func configWithin(t *testing.T, handler http.Handler) replay.Config {
	t.Helper()
	c, err := client.New(client.Config{URL: "http://counterd.test", Transport: &inProcess{server: handler}, Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return replay.Config{Client: c, Event: "e", Clock: stopped, Settle: 1}
}

func configAt(t *testing.T, url string) replay.Config {
	t.Helper()
	c, err := client.New(client.Config{URL: url, Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return replay.Config{Client: c, Event: "e", Clock: stopped, Settle: 1}
}

func readLog(t *testing.T, text string) *accesslog.Log {
	t.Helper()
	return readLogOf(t, "ip=host", text)
}

// readLogOf reads a log whose lines are not all malformed.
func readLogOf(t *testing.T, features, text string) *accesslog.Log {
	t.Helper()
	return readInput(t, features, accesslog.Stream("", strings.NewReader(text)))
}

func readRealLog(t *testing.T) *accesslog.Log {
	t.Helper()
	return readInput(t, "ip=host", accesslog.File(realLog))
}

func readInput(t *testing.T, features string, input accesslog.Input) *accesslog.Log {
	t.Helper()
	mapping, err := accesslog.ParseMapping(features)
	require.NoError(t, err)
	format, err := accesslog.New(accesslog.Config{Fields: mapping.Fields()})
	require.NoError(t, err)
	log, err := accesslog.ReadLog(t.Context(), format, mapping, input)
	require.NoError(t, err)
	return log
}

// lines returns a log with a line for each pair of a host and a time of a day.
func lines(pairs ...string) string {
	var b strings.Builder
	for _, pair := range pairs {
		host, at, _ := strings.Cut(pair, " ")
		fmt.Fprintf(&b, "%s - - [17/May/2015:%s +0000] \"GET / HTTP/1.1\" 200 1\n", host, at)
	}
	return b.String()
}

// small is a log of eight events by three addresses within ten hours.
func small(t *testing.T) *accesslog.Log {
	return readLog(t, lines("192.0.2.1 10:00:00", "192.0.2.1 19:59:00", "192.0.2.2 19:59:30", "192.0.2.2 19:59:30",
		"192.0.2.1 19:58:59", "192.0.2.3 12:00:00", "192.0.2.1 20:00:00", "192.0.2.2 19:00:00"))
}

func TestRun(t *testing.T) {
	server := newServer()
	config := configFor(t, server)
	config.Windows = []time.Duration{time.Minute, 24 * time.Hour}
	result, err := replay.Run(t.Context(), config, small(t))
	require.NoError(t, err)
	assert.Equal(t, &replay.Result{
		Event: "e", Retention: "24h", Lines: 8, Events: 8, MalformedLines: []string{}, Counters: 3,
		Windows: []string{"1m", "24h"}, LeftOutWindows: []string{}, FirstDifferences: []replay.Difference{},
		Comparisons: 3 * (4 + 1),
	}, result)
	assert.Zero(t, result.Differences)
	assert.Equal(t, 8, server.Increments())
	assert.Equal(t, 3+15, server.Counts(), "one to see that each is empty, and the comparisons")
}

// A single increment that is lost or counted twice is found, whichever it is.
func TestRunFindsEveryWrongIncrement(t *testing.T) {
	for _, times := range []int{0, 2} {
		for wrong := 1; wrong <= 8; wrong++ {
			server := newServer()
			server.Times = func(n int) int {
				if n == wrong {
					return times
				}
				return 1
			}
			result, err := replay.Run(t.Context(), configFor(t, server), small(t))
			require.NoError(t, err)
			require.NotZero(t, result.Differences, "increment %d counted %d times", wrong, times)
			require.NotZero(t, result.Differences)
			for _, d := range result.FirstDifferences {
				assert.Equal(t, int64(times-1), d.Got-d.Expected)
				assert.Equal(t, "the count is wrong", d.Reason)
			}
		}
	}
}

func TestRunFindsWrongCounts(t *testing.T) {
	moved := func(from, to int64) func(int64, int64) (int64, int64) {
		return func(first, last int64) (int64, int64) { return first + from, last + to }
	}
	move := func(m *wire.Moment, seconds int) { m.Time = m.Add(time.Duration(seconds) * time.Second) }
	for name, c := range map[string]struct {
		sum     func(int64, int64) (int64, int64)
		counted func(*wire.Count)
		reason  string
	}{
		"window without its first second": {sum: moved(1, 0), reason: "the count is wrong"},
		"window without its last second":  {sum: moved(0, -1), reason: "the count is wrong"},
		"window begins a second early":    {sum: moved(-1, 0), reason: "the count is wrong"},
		"window ends a second late":       {sum: moved(0, 1), reason: "the count is wrong"},
		"window is a second late, and says so": {
			counted: func(c *wire.Count) { move(&c.From, 1); move(&c.To, 1) }, reason: "this is not the window that was asked for"},
		"window shrinks to what is right": {
			counted: func(c *wire.Count) { c.From, c.Count = wire.Moment{Time: c.To.Add(time.Second)}, 0 }, reason: "this is not the window that was asked for"},
		"begins elsewhere":  {counted: func(c *wire.Count) { move(&c.From, -1) }, reason: "this is not the window that was asked for"},
		"of long ago":       {counted: func(c *wire.Count) { c.From.Time, c.To.Time, c.Count = time.Unix(0, 0), time.Unix(3599, 0), 0 }, reason: "this is not the window that was asked for"},
		"of another event":  {counted: func(c *wire.Count) { c.Event = "f" }, reason: "it is the answer to another question"},
		"of another ip":     {counted: func(c *wire.Count) { c.Feature = "ip:192.0.2.99" }, reason: "it is the answer to another question"},
		"of another window": {counted: func(c *wire.Count) { c.Window = "2m" }, reason: "it is the answer to another question"},
		"always zero":       {counted: func(c *wire.Count) { c.Count = 0 }, reason: "the count is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer()
			server.Sum, server.Counted = c.sum, c.counted
			config := configFor(t, server)
			config.Windows = []time.Duration{time.Hour}
			result, err := replay.Run(t.Context(), config, small(t))
			require.NoError(t, err)
			require.NotZero(t, result.Differences)
			require.Len(t, result.FirstDifferences, int(min(10, result.Differences)))
			assert.Equal(t, c.reason, result.FirstDifferences[0].Reason)
			assert.NotZero(t, result.Differences)
		})
	}
}

// A reset that the server fails is tried again; one that it fails for ever says why, in the
// server's words.
func TestRunTriesResetsAgain(t *testing.T) {
	server := newServer()
	var mu sync.Mutex
	left := map[string]int{}
	failures := 2
	config := configFor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete {
			server.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if left[r.URL.RawQuery]++; left[r.URL.RawQuery] > failures {
			server.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", wire.TypeProblem)
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": "raise counterd's -timeout"}`)
	}))
	config.Reset = true
	for range 2 { // the second time there is something to forget
		result, err := replay.Run(t.Context(), config, small(t))
		require.NoError(t, err)
		require.Zero(t, result.Differences)
		clear(left)
	}
	failures = 1 << 30
	_, err := replay.Run(t.Context(), config, small(t))
	require.ErrorContains(t, err, "resetting: ")
	require.ErrorContains(t, err, "raise counterd's -timeout")
}

// IPv6 addresses are counted by their network, and compared so, each of them.
func TestRunIPv6(t *testing.T) {
	text := lines("2001:db8::1 10:00:00", "2001:db8::2 10:00:00", "2001:DB8:0:1::1 10:00:00", "::ffff:192.0.2.1 10:00:00", "192.0.2.1 10:00:00")
	result, err := replay.Run(t.Context(), configFor(t, newServer()), readLog(t, text))
	require.NoError(t, err)
	assert.Zero(t, result.Differences)
	assert.Equal(t, 3, result.Counters)
	assert.EqualValues(t, 5*17, result.Comparisons)

	server := newServer()
	server.Event.Rules = []events.Rule{{Per: []string{"ip"}, IPv6Prefix: 48}}
	result, err = replay.Run(t.Context(), configFor(t, server), readLog(t, text))
	require.NoError(t, err)
	assert.Zero(t, result.Differences)
	assert.Equal(t, 2, result.Counters)

	// One that says 64 and counts by 48 is found.
	wrong := &fakeserver.Server{Event: server.Event, Clock: stopped}
	_, err = replay.Run(t.Context(), configFor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/e") {
			newServer().ServeHTTP(w, r)
			return
		}
		wrong.ServeHTTP(w, r)
	})), readLog(t, text))
	require.ErrorIs(t, err, replay.ErrContract)
}

func TestRunBrokenAnswers(t *testing.T) {
	for name, stamped := range map[string]func(*wire.Incremented){
		"second":   func(i *wire.Incremented) { i.At.Time = i.At.Add(time.Second) },
		"number":   func(i *wire.Incremented) { i.By = 2 },
		"event":    func(i *wire.Incremented) { i.Event = "f" },
		"counters": func(i *wire.Incremented) { i.Counters = nil },
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer()
			server.Stamped = stamped
			_, err := replay.Run(t.Context(), configFor(t, server), small(t))
			require.ErrorIs(t, err, replay.ErrContract)
		})
	}
}

// inProcess is a server that is reached without a network, which does not know fake time.
type inProcess struct{ server http.Handler }

func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.WithContext(r.Context())
	if served.Body == nil { // a server always has one
		served.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	p.server.ServeHTTP(recorder, served)
	return recorder.Result(), nil
}
