package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// script is a transport whose exchanges with hits end when the test says so.
type script struct {
	mu    sync.Mutex
	asked []*asked
	log   []string // what has happened, as in "sends a b", "cancels a b", "a is admitted"
}

// asked is an exchange, and what ends it.
type asked struct {
	path    string
	body    string
	users   []string
	context context.Context
	end     chan ending
}

// ending is how an exchange ends. The zero value admits all of its hits.
type ending struct {
	Status  int                       `json:"status"`  // not 0: of an answer to the whole
	Foreign bool                      `json:"foreign"` // that is a proxy's page
	Broken  bool                      `json:"broken"`  // there is no answer
	Panic   string                    `json:"-"`       // not empty: of the transport
	Results map[string]jsontext.Value `json:"results"` // of hits that are not admitted
}

// name is that of the exchange in the table.
func (a *asked) name() string {
	if len(a.users) == 1 && a.path == "/v1/batch" {
		return "a batch of " + a.users[0]
	}
	return strings.Join(counted(a.users), " ")
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a := &asked{path: r.URL.Path, body: string(body), context: r.Context(), end: make(chan ending, 1)}
	if r.URL.Path == "/v1/batch" {
		var batch wire.Batch
		if err := json.Unmarshal(body, &batch); err != nil {
			return nil, err
		}
		for _, hit := range batch.Hits {
			a.users = append(a.users, hit.Features["user"])
		}
	} else {
		var hit wire.Hit
		if err := json.Unmarshal(body, &hit); err != nil {
			return nil, err
		}
		a.users = []string{hit.Features["user"]}
	}
	s.mu.Lock()
	s.asked = append(s.asked, a)
	s.log = append(s.log, "sends "+a.name())
	s.mu.Unlock()
	select {
	case end := <-a.end:
		return a.answer(r, end)
	case <-r.Context().Done():
		s.logs("cancels " + a.name())
		return nil, context.Cause(r.Context())
	}
}

func (s *script) logs(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, text)
}

// logged returns the log when all goroutines wait.
func (s *script) logged() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (a *asked) answer(r *http.Request, end ending) (*http.Response, error) {
	switch {
	case end.Panic != "":
		panic(end.Panic)
	case end.Broken:
		return nil, errors.New("the connection is lost")
	case end.Foreign:
		return reply(r, end.Status, "application/problem+json", "<html>"), nil
	case end.Status != 0:
		return reply(r, end.Status, "application/problem+json", fmt.Sprintf(`{"title":"x","status":%d}`, end.Status)), nil
	}
	results := make([]string, len(a.users))
	for i, user := range a.users {
		results[i] = string(end.Results[user])
		if results[i] == "" {
			results[i] = fmt.Sprintf(`{"status":200,"allowed":true,"event":%q,"at":"2026-11-21T04:52:30Z","retry_after":0,"limits":[]}`, user)
		}
	}
	if a.path != "/v1/batch" {
		return reply(r, 200, "application/json", results[0]), nil
	}
	return reply(r, 200, "application/json", `{"results":[`+strings.Join(results, ",")+`]}`), nil
}

func reply(r *http.Request, status int, mediaType, body string) *http.Response {
	header := http.Header{"Content-Type": {mediaType}, "X-Request-Id": {"request-1"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}
}

// exchanges returns the users of the exchanges so far, when all goroutines wait.
func (s *script) exchanges() (all [][]string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		all = append(all, a.users)
	}
	return all
}

// end ends the i-th exchange.
func (s *script) end(i int, end ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[i].end <- end
}

// caller is hits that are called one after the other, each in a goroutine of its own.
type caller struct {
	t      *testing.T
	client *client.Client
	script *script
}

func newCaller(t *testing.T, s *script) *caller {
	return &caller{t, open(t, client.Config{URL: "http://counterd.test", Transport: s}), s}
}

func (c *caller) hit(ctx context.Context, user string) {
	go func() {
		d, err := c.client.Hit(ctx, "login", events.Features{"user": user}, 1)
		if err == nil && d.Event != user {
			err = fmt.Errorf("%s has the decision %+v", user, d)
		}
		c.script.logs(user + " is " + outcome(c.t, err))
	}()
	synctest.Wait()
}

func (c *caller) admitted(users ...string) {
	c.t.Helper()
	log := c.script.logged()
	for _, user := range users {
		assert.Contains(c.t, log, user+" is admitted")
	}
}

func TestNoCoalescing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.client = open(t, client.Config{URL: "http://counterd.test", Transport: s, NoCoalescing: true})
		c.hit(t.Context(), "a")
		c.hit(t.Context(), "b")
		assert.Equal(t, [][]string{{"a"}, {"b"}}, s.exchanges())
		s.end(1, ending{})
		c.admitted("b")
		s.end(0, ending{})
		c.admitted("a")
	})
}

// A batch is of half the bytes that the server reads.
func TestBatchesAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		for range 900 {
			c.hit(t.Context(), strings.Repeat("x", 600))
		}
		s.end(0, ending{})
		s.exchanges()
		assert.LessOrEqual(t, len(s.asked[1].body), 512<<10)
		assert.Greater(t, len(s.asked[1].body), 511<<10)
		s.end(1, ending{})
		assert.Len(t, slices.Concat(s.exchanges()...), 901)
		for i := range len(s.asked) - 2 {
			s.end(2+i, ending{})
		}
	})
}

// When an exchange of many hits ends and many wait, they are shared out, to at most three exchanges side by side.
func TestManyHitsGoSideBySide(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		called, gone := 0, 0 // hits, and exchanges that were looked at
		many := func(hits int) {
			for range hits {
				c.hit(t.Context(), fmt.Sprintf("%04d", called))
				called++
			}
		}
		// next returns how many hits the exchanges have that have begun since, and holds their hits against the calls.
		next := func() (sizes []int) {
			begun := slices.SortedFunc(slices.Values(s.exchanges()[gone:]), slices.Compare)
			gone += len(begun)
			assert.True(t, slices.IsSorted(slices.Concat(begun...)), "each has the hits of calls in a row: %v", begun)
			for _, users := range begun {
				sizes = append(sizes, len(users))
			}
			return sizes
		}
		many(41)
		assert.Equal(t, []int{1}, next())
		s.end(0, ending{})
		assert.Equal(t, []int{40}, next(), "the one before had one hit")
		many(15)
		s.end(1, ending{})
		assert.Equal(t, []int{15}, next(), "too few for two")
		many(16)
		assert.Empty(t, next(), "no hit goes before one ends")
		s.end(2, ending{})
		assert.Equal(t, []int{8, 8}, next())
		many(100)
		s.end(3, ending{})
		assert.Equal(t, []int{50, 50}, next())
		many(40)
		s.end(4, ending{})
		assert.Equal(t, []int{40}, next(), "three are under way, and no more")
		many(1)
		s.end(5, ending{})
		assert.Equal(t, []int{1}, next())
		s.end(6, ending{})
		assert.Empty(t, next(), "none waits")
		many(2)
		assert.Empty(t, next(), "they wait for those under way")
		s.end(7, ending{})
		assert.Equal(t, []int{2}, next())

		// Exchanges that hang hold up no others.
		many(3)
		time.Sleep(1001 * time.Millisecond)
		assert.Equal(t, []int{3}, next())
		for i := range 3 {
			s.end(8+i, ending{})
		}
		for i := range called {
			c.admitted(fmt.Sprintf("%04d", i))
		}
	})
}

// What no batch takes goes by itself, and holds up nothing.
func TestHitsThatGoAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		c.hit(t.Context(), strings.Repeat("x", 65<<10))
		assert.Len(t, s.exchanges(), 2)
		_, err := c.client.Hit(t.Context(), "no/name", nil, 1)
		require.ErrorIs(t, err, client.ErrInvalid)
		_, err = c.client.Hit(t.Context(), "login", events.Features{"user": "\xff"}, 1)
		require.ErrorIs(t, err, client.ErrInvalid)
		c.hit(t.Context(), "b")
		assert.Len(t, s.exchanges(), 2)
		s.end(0, ending{})
		assert.Equal(t, []string{"b"}, s.exchanges()[2])
		s.end(1, ending{})
		s.end(2, ending{})
		c.admitted("a", "b")
	})
}

// An exchange has the values of the first caller's context.
func TestTheContextOfABatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		c.hit(context.WithValue(t.Context(), key{}, "trace"), "b")
		c.hit(t.Context(), "c")
		s.end(0, ending{})
		assert.Equal(t, []string{"b", "c"}, s.exchanges()[1])
		assert.Equal(t, "trace", s.asked[1].context.Value(key{}))
		s.end(1, ending{})
	})
}

type key struct{}

// Hits that go together have the decisions, and the errors, that they would have had alone.
func TestDecisionsOfABatchAreThoseOfHits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		handler := newHandler(t)
		batches, first, release := 0, true, make(chan struct{})
		transport := transport(func(r *http.Request) (*http.Response, error) {
			if first {
				first = false
				<-release
			}
			if r.URL.Path == "/v1/batch" {
				batches++
			}
			asked := r.Clone(r.Context())
			if asked.Body == nil { // never so in a server
				asked.Body = http.NoBody
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, asked)
			return w.Result(), nil
		})
		together := open(t, client.Config{URL: "http://counterd.test", Transport: transport})
		alone := open(t, client.Config{URL: "http://counterd.test", Transport: transport, NoCoalescing: true})
		calls := []struct {
			event    string
			features events.Features
			cost     int64
		}{
			{"url_shorten", events.Features{"ip": "203.0.113.8"}, 1},
			{"url_shorten", events.Features{"ip": "203.0.113.1"}, 2},
			{"url_shorten", events.Features{"ip": "203.0.113.1"}, 6}, // never
			{"url_shorten", events.Features{"ip": "nowhere"}, 1},
			{"url_shorten", events.Features{"ip": "nowhere"}, 0},
			{"unknown", events.Features{"ip": "203.0.113.1"}, 1},
			{"url_shorten", events.Features{"user": "42"}, 1},
			{"url_shorten", nil, 1},
			{"url_shorten", events.Features{"ip": "203.0.113.2"}, 1},
		}
		decisions, errs := make([]wire.Decision, len(calls)), make([]error, len(calls))
		var all sync.WaitGroup
		for i, call := range calls {
			all.Go(func() { decisions[i], errs[i] = together.Hit(t.Context(), call.event, call.features, call.cost) })
			synctest.Wait()
		}
		close(release)
		all.Wait()
		assert.Equal(t, 1, batches)
		for _, user := range []string{"203.0.113.1", "203.0.113.2"} {
			require.NoError(t, alone.Reset(t.Context(), "url_shorten", events.Features{"ip": user}))
		}
		for i, call := range calls[1:] {
			decision, err := alone.Hit(t.Context(), call.event, call.features, call.cost)
			assert.Equal(t, decision.Allowed, decisions[i+1].Allowed, i)
			assert.Equal(t, decision.RetryAfter, decisions[i+1].RetryAfter, i)
			if err == nil {
				assert.NoError(t, errs[i+1], i)
				assert.Equal(t, decision.Limits[0].Name, decisions[i+1].Limits[0].Name)
				continue
			}
			want, got := new(client.Error), new(client.Error)
			require.ErrorAs(t, err, &want)
			require.ErrorAs(t, errs[i+1], &got, i)
			want.RequestID, got.RequestID = "", ""
			assert.Equal(t, want, got, i)
		}
	})
}

// What embeds a decision is read with all of its members.
func TestAnExplanationIsNoDecision(t *testing.T) {
	c := open(t, client.Config{URL: "http://counterd.test", Transport: transport(func(r *http.Request) (*http.Response, error) {
		return reply(r, 200, "application/json", `{"allowed":true,"event":"login","at":"2026-11-21T04:52:30Z","retry_after":0,"limits":[]}`), nil
	})})
	explained, err := c.Explain(t.Context(), "login", events.Features{"user": "42"}, 1)
	require.NoError(t, err)
	assert.NotNil(t, explained.Limits)
	assert.Nil(t, explained.Decision.Limits)
}
