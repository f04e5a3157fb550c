package counterd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

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
	bubble.Test(t, func(t *testing.T) { giveTurnsBack(t) })
	bubble.Test(t, func(t *testing.T) { giveTurnsBack(t, counterd.ReserveFor(time.Minute)) })
}

func giveTurnsBack(t *testing.T, options ...counterd.MiddlewareOption) {
	l := start(t, parse(t, leasedQueueRules))
	handler := l.Middleware("export", options...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
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
