package counterd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// A middleware has requests wait for their turns, which are 50 ms apart, and denies what the queue has no
// room for.
func TestAMiddlewareWaits(t *testing.T) {
	limiter := start(t, parse(t, "events: {login: {limits: [{per: ip, rate: 20/s, queue: 4}]}}"), counterd.WithGrace(5*time.Second), counterd.WithTimeout(2500*time.Millisecond))
	var mu sync.Mutex
	served := map[time.Duration]bool{}
	handler := limiter.Middleware("login")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, found := counterd.DecisionOf(r.Context())
		assert.True(t, found)
		mu.Lock()
		defer mu.Unlock()
		served[d.Wait] = true
	}))
	begin := time.Now()
	statuses := map[int]int{}
	var running sync.WaitGroup
	for range 5 { // of which no more than one turn is over before the last has come
		running.Go(func() {
			request := httptest.NewRequest("GET", "/", nil)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, request)
			mu.Lock()
			defer mu.Unlock()
			statuses[w.Code]++
		})
	}
	running.Wait()
	require.Equal(t, map[int]int{200: 5}, statuses)
	var longest time.Duration
	for wait := range served {
		longest = max(longest, wait)
	}
	assert.GreaterOrEqual(t, time.Since(begin), longest)
	assert.LessOrEqual(t, longest, 200*time.Millisecond, "the queue by the rate")
}

const queueRules = `events:
  export:
    limits:
      - {per: ip, rate: 1/m, queue: 2, on_error: deny}
      - {per: ip, rate: 100/h, algorithm: sliding-log, on_error: deny}
      - {per: [], rate: 100/d, on_error: deny}
`

const leasedQueueRules = queueRules + "      - {per: ip, concurrent: 9, lease: 3m, on_error: deny}\n"

// countsOf returns what the limits of a visitor's event count.
func countsOf(t *testing.T, l *counterd.Limiter, event string) (counts []int64) {
	d, err := l.Check(ctx, event, visitor)
	require.NoError(t, err)
	for _, limit := range d.Limits {
		counts = append(counts, limit.Count)
	}
	return counts
}

// A request that does not wait until its turn gives it back, with all that it counts, and the next one has it:
// when its client leaves, and at once where its time does not suffice.
func TestARequestGivesItsTurnBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := start(t, parse(t, leasedQueueRules))
		handler := l.Middleware("export")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		begin := time.Now()
		type answer struct {
			status int
			after  time.Duration
			text   string
		}
		request := func(ctx context.Context) <-chan answer {
			done := make(chan answer, 1)
			go func() {
				r, w := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx), httptest.NewRecorder()
				r.RemoteAddr = visitor["ip"] + ":1"
				handler.ServeHTTP(w, r)
				done <- answer{w.Code, time.Since(begin).Truncate(time.Second), w.Body.String()}
			}()
			synctest.Wait()
			return done
		}
		assert.Equal(t, answer{status: 200}, <-request(ctx))
		second := request(ctx)
		left, leave := context.WithCancel(ctx)
		third := request(left)
		assert.Equal(t, 429, (<-request(ctx)).status)
		assert.Equal(t, []int64{3, 3, 3, 2}, countsOf(t, l, "export"))

		time.Sleep(10 * time.Second)
		leave()
		a := <-third
		assert.Equal(t, []any{503, 10 * time.Second}, []any{a.status, a.after})
		assert.Contains(t, a.text, "given up")
		assert.Equal(t, []int64{2, 2, 2, 1}, countsOf(t, l, "export"))
		third = request(ctx)
		assert.Equal(t, 429, (<-request(ctx)).status)

		assert.Equal(t, answer{status: 200, after: time.Minute}, <-second)
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		for range 3 {
			a = <-request(short)
			assert.Equal(t, []any{503, time.Minute}, []any{a.status, a.after})
			assert.Contains(t, a.text, "time was over")
		}
		fourth := request(ctx)
		assert.Equal(t, 429, (<-request(ctx)).status)
		assert.Equal(t, answer{status: 200, after: 2 * time.Minute}, <-third)
		assert.Equal(t, answer{status: 200, after: 3 * time.Minute}, <-fourth)
		assert.Equal(t, []int64{1, 4, 4, 0}, countsOf(t, l, "export"), "those that were served")
	})
}

// A turn is given back on any process, with what the hit counts elsewhere and its lease, and once.
func TestGivingATurnBack(t *testing.T) {
	fleets(t, func(t *testing.T, one, other *counterd.Limiter) {
		hit := func(l *counterd.Limiter) counterd.Decision {
			d, err := l.Hit(ctx, "report", bob)
			require.NoError(t, err)
			return d
		}
		assert.Zero(t, hit(one).Wait)
		second, third := hit(one), hit(other)
		assert.Greater(t, second.Wait, 30*time.Second)
		assert.Greater(t, third.Wait, second.Wait)
		assert.False(t, hit(one).Allowed)
		for range 3 {
			require.NoError(t, other.Release(ctx, second.Reservation))
			require.NoError(t, one.Release(ctx, second.Reservation))
			for _, limit := range stateOf(t, one, "report").Limits {
				assert.EqualValues(t, 2, limit.Count, "%+v", limit)
			}
		}
		assert.True(t, hit(other).Allowed)
		assert.False(t, hit(other).Allowed)
	})
}

// After its turn a hit stays, and its lease is released.
func TestATurnIsUsed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := start(t, parse(t, reservingRules))
		first, err := l.Hit(ctx, "report", bob)
		require.NoError(t, err)
		d, err := l.Hit(ctx, "report", bob)
		require.NoError(t, err)
		require.Equal(t, time.Minute, d.Wait)
		time.Sleep(d.Wait)
		require.NoError(t, l.Release(ctx, d.Reservation))
		require.NoError(t, l.Release(ctx, first.Reservation))
		var counts []int64
		for _, limit := range stateOf(t, l, "report").Limits {
			counts = append(counts, limit.Count)
		}
		assert.Equal(t, []int64{1, 2, 2, 0}, counts)
	})
}

// A client that disconnects while its request waits gives the turn back.
func TestADisconnectedClientGivesItsTurnBack(t *testing.T) {
	l := start(t, parse(t, queueRules), counterd.WithGrace(20*time.Second), counterd.WithTimeout(10*time.Second))
	user := counterd.FeatureFrom("ip", func(*http.Request) (string, error) { return visitor["ip"], nil })
	server := httptest.NewServer(l.Middleware("export", user)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	answer, err := http.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)

	left, leave := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(left, http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		_, err := http.DefaultClient.Do(request)
		done <- err
	}()
	hours := func(count int64) func() bool {
		return func() bool { return countsOf(t, l, "export")[1] == count }
	}
	require.Eventually(t, hours(2), 30*time.Second, time.Millisecond, "it waits")
	leave()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Eventually(t, hours(1), 30*time.Second, time.Millisecond, "its turn is in a minute")
}

// The client gives turns back for which it does not wait.
func TestTheClientGivesTurnsBack(t *testing.T) {
	l := start(t, parse(t, leasedQueueRules), counterd.WithGrace(20*time.Second), counterd.WithTimeout(10*time.Second))
	server := httptest.NewServer(handlerOf(l))
	defer server.Close()
	dial := func(waiting int) *client.Client {
		c, err := client.New(client.Config{URL: server.URL, Timeout: 5 * time.Minute, MaxWaiting: waiting})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	c, features := dial(1), events.Features(visitor)
	_, err := c.Hit(ctx, "export", features, 1)
	require.NoError(t, err)

	short, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for range 3 {
		d, err := c.Hit(short, "export", features, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, client.ErrUnavailable)
		require.Greater(t, d.Wait, 20.0)
		assert.False(t, d.Allowed)
		assert.Equal(t, []int64{1, 1, 1, 1}, countsOf(t, l, "export"))
	}

	left, leave := context.WithCancel(ctx)
	done := make(chan error)
	for range 2 {
		go func() {
			_, err := c.Hit(left, "export", features, 1)
			done <- err
		}()
	}
	require.ErrorContains(t, <-done, "too many hits wait") // the other one waits
	assert.Equal(t, []int64{2, 2, 2, 2}, countsOf(t, l, "export"))
	leave()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.Equal(t, []int64{1, 1, 1, 1}, countsOf(t, l, "export"))

	d, err := dial(-1).Hit(ctx, "export", features, 1)
	require.NoError(t, err)
	require.NoError(t, c.Release(ctx, d.Reservation))
	assert.Equal(t, []int64{1, 1, 1, 1}, countsOf(t, l, "export"))
}

// Clients whose tokens have different rights get no names of turns, and settle none. Requests give theirs back.
func TestTurnsWithoutASecretBesideTokens(t *testing.T) {
	options := []counterd.Option{counterd.WithMemcached(memcachedtest.Start(t).Addr), counterd.WithGrace(20 * time.Second), counterd.WithTimeout(10 * time.Second)}
	open := start(t, parse(t, queueRules), options...)
	l := start(t, parse(t, queueRules), append(options, func(c *assembly.Config) { c.Unsealed = true })...)
	_, err := open.Hit(ctx, "export", visitor)
	require.NoError(t, err)
	d, err := open.Hit(ctx, "export", visitor)
	require.NoError(t, err)
	require.ErrorIs(t, l.Release(ctx, d.Reservation), counterd.ErrOutOfRange, "anyone could write it")
	d, err = l.Hit(ctx, "export", visitor)
	require.NoError(t, err)
	assert.NotZero(t, d.Wait)
	assert.Empty(t, d.Reservation)
	require.NoError(t, open.Reset(ctx, "export", visitor))

	_, err = open.Hit(ctx, "export", visitor)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	handler := l.Middleware("export")(http.NotFoundHandler())
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	r.RemoteAddr = visitor["ip"] + ":1"
	handler.ServeHTTP(w, r.WithContext(short))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, []int64{1, 1}, countsOf(t, open, "export")[:2])
}
