package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
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
	fault func(r *http.Request) (*http.Response, error) // of exchanges that are released; nil: all hits are admitted
}

// asked is an exchange, and what ends it.
type asked struct {
	path    string
	body    string
	users   []string
	context context.Context
	release chan struct{}
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a := &asked{path: r.URL.Path, body: string(body), context: r.Context(), release: make(chan struct{})}
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
	s.mu.Unlock()
	select {
	case <-a.release:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if s.fault != nil {
		if w, err := s.fault(r); w != nil || err != nil {
			return w, err
		}
	}
	var results wire.Results
	for _, user := range a.users {
		results.Results = append(results.Results, wire.Result{Status: 200, Decision: &wire.Decision{Allowed: true, Event: "of " + user, At: wire.Moment{Time: time.Now().UTC()}}})
	}
	text, err := json.Marshal(results)
	if r.URL.Path != "/v1/batch" {
		text, err = json.Marshal(results.Results[0].Decision)
	}
	return reply(r, 200, "application/json", string(text)), err
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
func (s *script) end(i int) { close(s.asked[i].release) }

// caller is hits that are called one after the other, each in a goroutine of its own.
type caller struct {
	t      *testing.T
	client *client.Client
	mu     sync.Mutex
	done   map[string]error
}

func newCaller(t *testing.T, transport http.RoundTripper) *caller {
	return &caller{t: t, client: open(t, client.Config{URL: "http://counterd.test", Transport: transport}), done: map[string]error{}}
}

func (c *caller) hit(ctx context.Context, user string) {
	go func() {
		d, err := c.client.Hit(ctx, "login", events.Features{"user": user}, 1)
		if err == nil && d.Event != "of "+user {
			err = fmt.Errorf("%s has the decision %+v", user, d)
		}
		c.mu.Lock()
		c.done[user] = err
		c.mu.Unlock()
	}()
	synctest.Wait()
}

// ended returns what became of a hit, and whether it has ended.
func (c *caller) ended(user string) (error, bool) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	err, done := c.done[user]
	return err, done
}

func (c *caller) admitted(users ...string) {
	c.t.Helper()
	for _, user := range users {
		err, done := c.ended(user)
		assert.True(c.t, done, user)
		assert.NoError(c.t, err, user)
	}
}

// A hit goes at once if none is under way. What gathers meanwhile goes together, in the order of the calls.
func TestHitsGatherWhileARequestIsUnderWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		assert.Equal(t, [][]string{{"a"}}, s.exchanges())
		assert.Equal(t, "/v1/events/login/hit", s.asked[0].path)
		for _, user := range []string{"b", "c", "d"} {
			c.hit(t.Context(), user)
		}
		assert.Len(t, s.exchanges(), 1)
		s.end(0)
		c.admitted("a")
		assert.Equal(t, [][]string{{"a"}, {"b", "c", "d"}}, s.exchanges())
		assert.Equal(t, "/v1/batch", s.asked[1].path)
		c.hit(t.Context(), "e")
		s.end(1)
		c.admitted("b", "c", "d")
		assert.Equal(t, [][]string{{"a"}, {"b", "c", "d"}, {"e"}}, s.exchanges())
		s.end(2)
		c.admitted("e")

		// Nothing is under way: the next one is alone again.
		c.hit(t.Context(), "f")
		assert.Equal(t, []string{"f"}, s.exchanges()[3])
		assert.Equal(t, "/v1/events/login/hit", s.asked[3].path)
		s.end(3)
		c.admitted("f")
	})
}

func TestNoCoalescing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.client = open(t, client.Config{URL: "http://counterd.test", Transport: s, NoCoalescing: true})
		c.hit(t.Context(), "a")
		c.hit(t.Context(), "b")
		assert.Equal(t, [][]string{{"a"}, {"b"}}, s.exchanges())
		s.end(1)
		c.admitted("b")
		s.end(0)
		c.admitted("a")
	})
}

// A batch is of 1,000 hits at most, and of half the bytes that the server reads.
func TestBatchesAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		for i := range 2500 {
			c.hit(t.Context(), fmt.Sprint(i))
		}
		s.end(0)
		assert.Len(t, s.exchanges()[1], 1000)
		assert.Equal(t, "999", s.asked[1].users[999])
		s.end(1)
		beside := s.exchanges()[2:]
		assert.ElementsMatch(t, []int{750, 750}, []int{len(beside[0]), len(beside[1])})
		s.end(2)
		s.end(3)
		assert.Len(t, s.exchanges(), 4)

		c.hit(t.Context(), "b")
		long := strings.Repeat("x", 60<<10)
		for i := range 10 {
			c.hit(t.Context(), fmt.Sprint(long, i))
		}
		s.end(4)
		assert.Len(t, s.exchanges()[5], 8, "8 hits of 60 KiB, and not 9, are below 512 KiB")
		s.end(5)
		assert.Len(t, s.exchanges()[6], 2)
		s.end(6)
	})
}

// When an exchange of many hits ends and as many wait, they are shared out, to at most three exchanges side by side.
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
		s.end(0)
		assert.Equal(t, []int{40}, next(), "the one before had one hit")
		many(15)
		s.end(1)
		assert.Equal(t, []int{15}, next(), "few wait")
		many(40)
		s.end(2)
		assert.Equal(t, []int{40}, next(), "the one before had few")
		many(41)
		assert.Empty(t, next(), "no hit goes before one ends")
		s.end(3)
		assert.Equal(t, []int{21, 20}, next())
		many(40)
		s.end(4)
		assert.Equal(t, []int{20, 20}, next())
		many(40)
		s.end(5)
		assert.Equal(t, []int{40}, next(), "three are under way, and no more")
		many(1)
		s.end(6)
		assert.Equal(t, []int{1}, next())
		s.end(7)
		assert.Empty(t, next())
		many(2)
		assert.Empty(t, next(), "they wait for those under way")

		// Exchanges that hang hold up no others.
		s.end(8)
		assert.Equal(t, []int{2}, next())
		many(3)
		time.Sleep(1001 * time.Millisecond)
		assert.Equal(t, []int{3}, next())
		for i := range 3 {
			s.end(9 + i)
		}
		for i := range called {
			c.admitted(fmt.Sprintf("%04d", i))
		}

		// When none waits it is one again.
		many(41)
		assert.Equal(t, []int{1}, next())
		s.end(12)
		assert.Equal(t, []int{40}, next())
		many(31)
		s.end(13)
		assert.Equal(t, []int{31}, next(), "too few for two")
		s.end(14)
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
		s.end(0)
		assert.Equal(t, []string{"b"}, s.exchanges()[2])
		s.end(1)
		s.end(2)
		c.admitted("a", "b")
	})
}

// A caller that gives up returns at once. Its hit is not sent, if it was not, and those of others are.
func TestACallerGivesUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		waits, giveUp := context.WithCancelCause(t.Context())
		c.hit(waits, "b")
		c.hit(t.Context(), "c")
		because := errors.New("a reason")
		giveUp(because)
		err, done := c.ended("b")
		assert.True(t, done)
		assert.ErrorIs(t, err, client.ErrUnavailable)
		assert.ErrorIs(t, err, because)
		s.end(0)
		assert.Equal(t, []string{"c"}, s.exchanges()[1], "b was never sent")
		s.end(1)
		c.admitted("a", "c")

		// One whose hit is under way, the first of its batch.
		c.hit(t.Context(), "d")
		waits, giveUp = context.WithCancelCause(context.WithValue(t.Context(), key{}, "trace"))
		c.hit(waits, "e")
		c.hit(t.Context(), "f")
		s.end(2)
		assert.Equal(t, []string{"e", "f"}, s.exchanges()[3])
		assert.Equal(t, "trace", s.asked[3].context.Value(key{}))
		giveUp(because)
		err, done = c.ended("e")
		assert.True(t, done)
		assert.ErrorIs(t, err, because)
		_, done = c.ended("f")
		assert.False(t, done)
		s.end(3)
		c.admitted("d", "f")
	})
}

type key struct{}

// An exchange ends when all of its callers have given up, and the waiting hits go.
func TestAllCallersGiveUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		waits, giveUp := context.WithCancel(t.Context())
		c.hit(waits, "b")
		c.hit(waits, "c")
		s.end(0)
		assert.Len(t, s.exchanges(), 2)
		c.hit(t.Context(), "d")
		giveUp()
		assert.Equal(t, [][]string{{"a"}, {"b", "c"}, {"d"}}, s.exchanges())
		s.end(2)
		c.admitted("a", "d")
	})
}

// Each call ends by the timeout, with its wait; an exchange that hangs holds up others for a second, also if none comes
// after them.
func TestAnExchangeThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		time.Sleep(300 * time.Millisecond)
		c.hit(t.Context(), "b")
		time.Sleep(600 * time.Millisecond)
		c.hit(t.Context(), "c")
		assert.Len(t, s.exchanges(), 1)
		time.Sleep(101 * time.Millisecond)
		assert.Equal(t, [][]string{{"a"}, {"b", "c"}}, s.exchanges())
		c.hit(t.Context(), "d")
		s.end(0)
		c.admitted("a")
		assert.Len(t, s.exchanges(), 2, "d waits for the exchange that has begun last")
		time.Sleep(1001 * time.Millisecond)
		assert.Equal(t, []string{"d"}, s.exchanges()[2])
		s.end(2)
		c.admitted("d")
		time.Sleep(client.DefaultTimeout - 1702*time.Millisecond - time.Nanosecond)
		_, done := c.ended("b")
		assert.False(t, done)
		time.Sleep(time.Nanosecond)
		for _, user := range []string{"b", "c"} {
			err, done := c.ended(user)
			assert.True(t, done)
			assert.ErrorIs(t, err, client.ErrUnavailable)
		}
	})
}

// One of a thousand hits holds up the hits behind it no longer.
func TestAFullExchangeThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		for i := range 1201 {
			c.hit(t.Context(), fmt.Sprint(i))
		}
		time.Sleep(1001 * time.Millisecond)
		assert.Len(t, s.exchanges()[1], 1000)
		time.Sleep(1001 * time.Millisecond)
		assert.Len(t, s.exchanges()[2], 200)
		for i := range 3 {
			s.end(i)
		}
		c.admitted("0", "1", "1200")
	})
}

// With a short timeout others are held up for a quarter of it.
func TestAnExchangeThatHangsWithAShortTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.client = open(t, client.Config{URL: "http://counterd.test", Transport: s, Timeout: 400 * time.Millisecond})
		c.hit(t.Context(), "a")
		c.hit(t.Context(), "b")
		time.Sleep(101 * time.Millisecond)
		assert.Equal(t, [][]string{{"a"}, {"b"}}, s.exchanges())
		s.end(1)
		c.admitted("b")
		s.end(0)
	})
}

// A batch that the server takes no part of is sent hit by hit; what else it answers is the answer to all.
func TestBatchesThatAreRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		status := 0
		s := &script{fault: func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != "/v1/batch" {
				return nil, nil
			}
			if status == 0 {
				return nil, errors.New("the connection is lost")
			}
			return reply(r, status, "application/problem+json", fmt.Sprintf(`{"title":"x","status":%d}`, status)), nil
		}}
		c := newCaller(t, s)
		for _, test := range []struct {
			status int
			alone  bool
			want   error
		}{
			{0, false, client.ErrUnavailable}, {200, false, client.ErrUnexpected},
			{400, true, nil}, {404, true, nil}, {405, true, nil}, {413, true, nil},
			{401, false, client.ErrRefused}, {403, false, client.ErrRefused}, {429, false, client.ErrUnavailable},
			{500, false, client.ErrUnavailable}, {503, false, client.ErrUnavailable},
		} {
			status = test.status
			before := len(s.exchanges())
			users := []string{fmt.Sprint("a", status), fmt.Sprint("b", status), fmt.Sprint("c", status)}
			for _, user := range users {
				c.hit(t.Context(), user)
			}
			s.end(before)
			synctest.Wait()
			s.end(before + 1)
			if test.alone {
				assert.Len(t, s.exchanges(), before+4, status)
				s.end(before + 2)
				s.end(before + 3)
				c.admitted(users...)
				continue
			}
			assert.Len(t, s.exchanges(), before+2, status)
			for _, user := range users[1:] {
				err, done := c.ended(user)
				assert.True(t, done)
				assert.ErrorIs(t, err, test.want, status)
				if fault, ok := errors.AsType[*client.Error](err); ok {
					assert.Equal(t, "request-1", fault.RequestID)
				}
			}
		}
	})
}

// held is a transport that holds its first exchange until enough hits wait.
type held struct {
	once    sync.Once
	entered chan struct{}
	release chan struct{}
	batches atomic.Int64
}

func (h *held) RoundTrip(r *http.Request) (*http.Response, error) {
	h.once.Do(func() {
		close(h.entered)
		<-h.release
	})
	if r.URL.Path == "/v1/batch" {
		h.batches.Add(1)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// Hits that go together have the decisions, and the errors, that they would have had alone.
func TestDecisionsOfABatchAreThoseOfHits(t *testing.T) {
	server := realServer(t)
	h := &held{entered: make(chan struct{}), release: make(chan struct{})}
	together := open(t, client.Config{URL: server.URL, Transport: h})
	alone := open(t, client.Config{URL: server.URL, NoCoalescing: true})
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	type call struct {
		event    string
		features events.Features
		cost     int64
	}
	calls := []call{
		{"url_shorten", events.Features{"ip": "203.0.113.1"}, 2},
		{"url_shorten", events.Features{"ip": "203.0.113.1"}, 6}, // never
		{"url_shorten", events.Features{"ip": "nowhere"}, 1},
		{"url_shorten", events.Features{"ip": "nowhere"}, 0},
		{"unknown", events.Features{"ip": "203.0.113.1"}, 1},
		{"url_shorten", events.Features{"user": "42"}, 1},
		{"url_shorten", nil, 1},
		{"url_shorten", events.Features{"ip": "203.0.113.2"}, 1},
	}
	var first sync.WaitGroup
	first.Go(func() {
		_, err := together.Check(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.7"}, 1)
		assert.NoError(t, err)
	})
	<-h.entered // of a check: hits do not wait for it
	close(h.release)
	first.Wait()

	h.once, h.entered, h.release = sync.Once{}, make(chan struct{}), make(chan struct{})
	first.Go(func() {
		_, err := together.Hit(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.8"}, 1)
		assert.NoError(t, err)
	})
	<-h.entered
	decisions, errs := make([]wire.Decision, len(calls)), make([]error, len(calls))
	for i, call := range calls {
		first.Go(func() {
			decisions[i], errs[i] = together.Hit(t.Context(), call.event, call.features, call.cost)
		})
	}
	assert.Eventually(t, func() bool { return together.Waiting() == len(calls) }, 30*time.Second, time.Millisecond)
	close(h.release)
	first.Wait()
	assert.EqualValues(t, 1, h.batches.Load())

	for _, user := range []string{"203.0.113.1", "203.0.113.2"} {
		require.NoError(t, alone.Reset(t.Context(), "url_shorten", events.Features{"ip": user}))
	}
	for i, call := range calls {
		decision, err := alone.Hit(t.Context(), call.event, call.features, call.cost)
		assert.Equal(t, decision.Allowed, decisions[i].Allowed, i)
		assert.Equal(t, decision.RetryAfter, decisions[i].RetryAfter, i)
		if err == nil {
			assert.NoError(t, errs[i], i)
			assert.Equal(t, decision.Limits[0].Name, decisions[i].Limits[0].Name)
			continue
		}
		want, got := new(client.Error), new(client.Error)
		require.ErrorAs(t, err, &want)
		require.ErrorAs(t, errs[i], &got, i)
		want.RequestID, got.RequestID = "", ""
		assert.Equal(t, want, got, i)
	}
}

// Of 200 hits at once, of each of eight new users, as many are admitted as the limit has.
func TestCoalescedHitsAreExact(t *testing.T) {
	server := realServer(t)
	h := &held{entered: make(chan struct{}), release: make(chan struct{})}
	close(h.release)
	c := open(t, client.Config{URL: server.URL, Transport: h})
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	var admitted [8]atomic.Int64
	var all sync.WaitGroup
	for i := range 200 * len(admitted) {
		all.Go(func() {
			d, err := c.Hit(t.Context(), "url_shorten", events.Features{"ip": fmt.Sprintf("198.51.100.%d", i%len(admitted))}, 1)
			assert.NoError(t, err)
			if d.Allowed {
				admitted[i%len(admitted)].Add(1)
			}
		})
	}
	all.Wait()
	for i := range admitted {
		count, err := c.Count(t.Context(), "url_shorten", events.Features{"ip": fmt.Sprintf("198.51.100.%d", i)}, time.Minute, time.Time{})
		require.NoError(t, err)
		assert.Equal(t, count.Count, admitted[i].Load())
		assert.LessOrEqual(t, admitted[i].Load(), int64(5))
		assert.Positive(t, admitted[i].Load())
	}
	assert.Less(t, h.batches.Load(), int64(800))
}

// A hit that a rule refuses because the store fails is an error, in a batch, too.
func TestAStoreThatFailsInABatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{fault: func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != "/v1/batch" {
				return nil, nil
			}
			refused := `{"status":503,"allowed":false,"event":"login","at":"2026-11-21T04:52:30Z","retry_after":0,"limits":[]}`
			return reply(r, 200, "application/json", `{"results":[`+refused+`]}`), nil
		}}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		c.hit(t.Context(), "b")
		s.end(0)
		synctest.Wait()
		s.end(1)
		err, _ := c.ended("b")
		require.ErrorIs(t, err, client.ErrUnavailable)
		assert.EqualError(t, err, "counterd: 503 Service Unavailable: The store did not answer, or not in time.")
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
