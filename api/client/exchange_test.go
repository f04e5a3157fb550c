package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// transport makes an exchange in the network's place.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A name that is none is not sent: it could be another route.
func TestNamesOfEvents(t *testing.T) {
	c := open(t, client.Config{URL: "http://counterd.test", Transport: transport(func(r *http.Request) (*http.Response, error) {
		t.Errorf("sent: %s %s", r.Method, r.URL)
		return nil, io.EOF
	})})
	who := events.Features{"user": "42"}
	for _, name := range []string{"", ".", "..", "../events", "a/b", "a%2Fb", "Name", strings.Repeat("x", 65)} {
		for call, do := range map[string]func() error{
			"increment": func() error { _, err := c.Increment(t.Context(), name, who, 1, time.Time{}); return err },
			"count":     func() error { _, err := c.Count(t.Context(), name, who, time.Minute, time.Time{}); return err },
			"history": func() error {
				_, err := c.History(t.Context(), name, who, "hour", time.Time{}, time.Time{}, "")
				return err
			},
			"reset": func() error { return c.Reset(t.Context(), name, who) },
			"hit":   func() error { _, err := c.Hit(t.Context(), name, who, 1); return err },
			"check": func() error { _, err := c.Check(t.Context(), name, who, 1); return err },
			"event": func() error { _, err := c.Event(t.Context(), name); return err },
		} {
			assert.ErrorIs(t, do(), client.ErrInvalid, "%s of %q", call, name)
		}
	}
}

// A window is counted as it is given, or not at all.
func TestWindowsInWholeSeconds(t *testing.T) {
	c := open(t, client.Config{URL: realServer(t).URL})
	for _, window := range []time.Duration{1500 * time.Millisecond, time.Minute + 1, 999 * time.Millisecond, 0, -time.Minute} {
		_, err := c.Count(t.Context(), "url_shorten", events.Features{"user": "42"}, window, time.Time{})
		assert.ErrorIs(t, err, client.ErrInvalid, window)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var elsewhere atomic.Int64
	leaktest.Check(t)
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.RedirectHandler(other.URL, status))
		c := open(t, client.Config{URL: server.URL})
		_, err := c.Hit(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.9"}, 1)
		assert.ErrorIs(t, err, client.ErrUnexpected, status)
		_, err = c.Events(t.Context())
		assert.ErrorIs(t, err, client.ErrUnexpected, status)
		server.Close()
	}
	assert.Zero(t, elsewhere.Load())
}

func TestTheDefaultTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, err := client.New(client.Config{URL: "http://counterd.test", Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		require.NoError(t, err)
		began := time.Now()
		_, err = c.Hit(context.Background(), "url_shorten", events.Features{"ip": "203.0.113.9"}, 1)
		require.ErrorIs(t, err, client.ErrUnavailable)
		assert.Equal(t, client.DefaultTimeout, time.Since(began))
	})
}

// endless is an answer without an end.
type endless struct{ read *int64 }

func (e endless) Read(p []byte) (int, error) {
	*e.read += int64(len(p))
	return len(p), nil
}

func TestAnswersAreBounded(t *testing.T) {
	var read int64
	c := open(t, client.Config{URL: "http://counterd.test", Transport: transport(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(endless{&read}), Request: r}, nil
	})})
	_, err := c.Events(t.Context())
	require.ErrorIs(t, err, client.ErrUnexpected)
	assert.Contains(t, err.Error(), "longer than")
	assert.Less(t, read, int64(200<<20))
	read = 0
	_, err = c.Top(t.Context(), client.TopQuery{})
	require.ErrorIs(t, err, client.ErrUnexpected)
	assert.Contains(t, err.Error(), "longer than")
	assert.Less(t, read, int64(8<<20))
}

// A header without an end is an error, and takes no more memory than one of counterd.
func TestHeadersAreBounded(t *testing.T) {
	leaktest.Check(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		for line := []byte("HTTP/1.1 200 OK\r\n"); err == nil; line = []byte("X-More: more of the header\r\n") {
			_, err = conn.Write(line)
		}
	}))
	defer server.Close()
	c := open(t, client.Config{URL: server.URL})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.Events(t.Context())
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, client.ErrUnavailable)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20))
}

// Connections are kept: many calls at once, again and again, dial once each.
func TestConnectionsAreKept(t *testing.T) {
	const workers, rounds = 32, 10
	var dials atomic.Int64
	arrived := make(chan struct{}, workers)
	release := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
		w.Header().Set("Content-Type", wire.TypeJSON)
		fmt.Fprint(w, `{"events": []}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dials.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c := open(t, client.Config{URL: server.URL, Conns: workers})
	for range rounds {
		var calls sync.WaitGroup
		for range workers {
			calls.Go(func() {
				_, err := c.Events(context.Background())
				assert.NoError(t, err)
			})
		}
		for range workers { // all of them are under way at once
			<-arrived
		}
		for range workers {
			release <- struct{}{}
		}
		calls.Wait()
	}
	// A call that begins before a connection is put back may dial one more.
	assert.LessOrEqual(t, dials.Load(), int64(2*workers))
}

// An answer of a server that is not counterd takes no more memory than one of counterd.
func TestHostileAnswersTakeLittleMemory(t *testing.T) {
	const size = 3 << 20
	fill := func(before, each, after string) string {
		return before + strings.Repeat(each+",", (size-len(before)-len(after))/(len(each)+1)) + each + after
	}
	who := events.Features{"user": "42"}
	for name, test := range map[string]struct {
		status int
		body   string
		call   func(*client.Client) error
	}{
		"results": {200, fill(`{"results":[`, `{}`, `]}`), func(c *client.Client) error {
			_, err := c.Batch(t.Context(), []wire.BatchHit{{Event: "e", Features: who}})
			return err
		}},
		"limits": {200, fill(`{"limits":[`, `{}`, `]}`), func(c *client.Client) error { _, err := c.Hit(t.Context(), "e", who, 1); return err }},
		"buckets": {200, fill(`{"buckets":[`, `{}`, `]}`), func(c *client.Client) error {
			_, err := c.History(t.Context(), "e", who, "hour", time.Time{}, time.Time{}, "")
			return err
		}},
		"features":            {200, fill(`{"features":[`, `{}`, `]}`), func(c *client.Client) error { _, err := c.Top(t.Context(), client.TopQuery{}); return err }},
		"limits of a feature": {200, fill(`{"features":[{"limits":[`, `{}`, `]}]}`), func(c *client.Client) error { _, err := c.Top(t.Context(), client.TopQuery{}); return err }},
		"rules":               {200, fill(`{"events":[{"rules":[`, `{}`, `]}]}`), func(c *client.Client) error { _, err := c.Events(t.Context()); return err }},
		"limits of a denial": {429, fill(`{"type":"`+wire.TypeQuotaExceeded+`","event":"e","limits":[`, `{}`, `]}`), func(c *client.Client) error {
			_, err := c.Hit(t.Context(), "e", who, 1)
			return err
		}},
		"faults": {400, fill(`{"errors":[`, `{}`, `]}`), func(c *client.Client) error { _, err := c.Hit(t.Context(), "e", who, 1); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			media := wire.TypeJSON
			if test.status != 200 {
				media = wire.TypeProblem
			}
			c := open(t, client.Config{URL: "http://counterd.test", Transport: fakeAnswer{test.status, media, test.body}})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := test.call(c)
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			if test.status == 200 {
				require.ErrorIs(t, err, client.ErrUnexpected)
			}
			// What is read takes several times its length while it grows, and so do lists.
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(36*size))
		})
	}
}

// The densest answers of the contract are decoded, however long they are.
func TestLongAnswersAreDecoded(t *testing.T) {
	limit, who := wire.Limit{Name: "x", Window: "1s"}, events.Features{"user": "42"}
	rule := wire.Rule{Per: []string{"a"}, Limits: []wire.Limit{limit}, Precision: "hour", Count: "all", Throttle: "hard", OnError: "deny"}
	many := rule
	many.Limits = slices.Repeat([]wire.Limit{limit}, 1000)
	state := wire.LimitState{Name: "x", Window: "1s"}
	at := wire.Moment{Time: time.Unix(1773531033, 0)}
	top := wire.TopFeature{Event: "e", Feature: "a:b", Features: map[string]string{"a": "b"}, Limits: []wire.TopLimit{{Name: "x"}}}
	for name, test := range map[string]struct {
		body any
		call func(*client.Client) (any, error)
	}{
		"events": {wire.Events{Events: slices.Repeat([]wire.Event{{Name: "e", Retention: "1s", Rules: []wire.Rule{}}}, 10_000)}, func(c *client.Client) (any, error) { return c.Events(t.Context()) }},
		"rules":  {wire.Events{Events: []wire.Event{{Name: "e", Rules: slices.Repeat([]wire.Rule{rule}, 10_000)}}}, func(c *client.Client) (any, error) { return c.Events(t.Context()) }},
		"limits": {wire.Events{Events: []wire.Event{{Name: "e", Rules: slices.Repeat([]wire.Rule{many}, 100)}}}, func(c *client.Client) (any, error) { return c.Events(t.Context()) }},
		"buckets": {wire.History{From: at, To: at, Buckets: slices.Repeat([]wire.Bucket{{Start: at}}, 10_000)}, func(c *client.Client) (any, error) {
			return c.History(t.Context(), "e", who, "second", time.Time{}, time.Time{}, "")
		}},
		"results": {wire.Results{Results: slices.Repeat([]wire.Result{{Status: 429, Decision: &wire.Decision{Event: "e", At: at, Limits: []wire.LimitState{state}}}}, 1000)}, func(c *client.Client) (any, error) {
			results, err := c.Batch(t.Context(), make([]wire.BatchHit, 1000))
			return wire.Results{Results: results}, err
		}},
		"features": {wire.Top{Features: slices.Repeat([]wire.TopFeature{top}, 1000)}, func(c *client.Client) (any, error) { return c.Top(t.Context(), client.TopQuery{}) }},
		"states":   {wire.Decision{Event: "e", At: at, Limits: slices.Repeat([]wire.LimitState{state}, 10_000)}, func(c *client.Client) (any, error) { return c.Check(t.Context(), "e", who, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(test.body)
			require.NoError(t, err)
			require.Greater(t, len(text), 64<<10)
			got, err := test.call(open(t, client.Config{URL: "http://counterd.test", Transport: fakeAnswer{200, wire.TypeJSON, string(text)}}))
			require.NoError(t, err)
			again, err := json.Marshal(got)
			require.NoError(t, err)
			assert.Equal(t, len(text), len(again))
		})
	}
}
