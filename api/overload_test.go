package api_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	"github.com/counterd/counterd/memcache"
)

// heldStore lets no trip go on before it is released, and says when one has come.
type heldStore struct {
	store.Store
	arrived, released chan struct{}
}

func (s heldStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if storetest.IsTrip(op) {
			s.arrived <- struct{}{}
			<-s.released
		}
		s.Store.Do(ctx, op)
	})
}

// What finds too much waiting is refused at once, says when to come back, and nothing
// is counted of it; hits are decided by their on_error.
func TestOverloadIsAnswered(t *testing.T) {
	store := heldStore{memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), make(chan struct{}), make(chan struct{})}
	rules, err := rulesfile.Parse([]byte(`events:
  allow: {limits: [{per: ip, rate: 2/m}]}
  deny:  {limits: [{per: ip, rate: 2/m, on_error: deny}]}`))
	require.NoError(t, err)
	const patience = time.Minute // held requests wait for as long as the others take
	decider, err := limiter.New(limiter.Config{MaxPending: 1, Timeout: patience}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock, Grace: 2 * patience}))
	require.NoError(t, err)
	h := newDescribed(api.ServerConfig{
		Service: newService(service.Config{
			Rules:    func() *events.Rules { return rules },
			Counters: counting.New(counting.Config{MaxPending: 1}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock, Grace: 2 * patience})),
			Limiter:  decider,
		}),
		Log: slog.New(slog.DiscardHandler),
	})
	const body = `{"features": {"ip": "203.0.113.9"}}`
	var waiting sync.WaitGroup
	for _, action := range []string{"hit", "increment"} {
		waiting.Go(func() { assert.Equal(t, 200, request(t, h, "POST", "/v1/events/allow/"+action, body).Code) })
		<-store.arrived
	}
	for _, test := range []struct{ method, target, body string }{
		{"POST", "/v1/events/allow/increment", body},
		{"GET", "/v1/events/allow/count?window=1m&feature=ip:203.0.113.9", ""},
		{"GET", "/v1/events/allow/history?level=minute&feature=ip:203.0.113.9", ""},
		{"DELETE", "/v1/events/allow/counters?feature=ip:203.0.113.9", ""},
	} {
		w := request(t, h, test.method, test.target, test.body)
		problem(t, w, 503)
		assert.Equal(t, "1", w.Header().Get("Retry-After"), test.target)
		assert.Contains(t, w.Body.String(), "too much to do", test.target)
	}
	d := answer[wire.Decision](t, request(t, h, "POST", "/v1/events/allow/hit", body))
	assert.Equal(t, "allow", d.Limits[0].OnError)
	w := request(t, h, "POST", "/v1/events/deny/hit", body)
	assert.Equal(t, 503, w.Code)
	assert.Empty(t, w.Header().Get("Retry-After"))
	results := answer[wire.Results](t, request(t, h, "POST", "/v1/batch", `{"hits": [{"event": "allow", "features": {"ip": "203.0.113.9"}}, {"event": "deny", "features": {"ip": "203.0.113.9"}}]}`)).Results
	assert.Equal(t, []int{200, 503}, []int{results[0].Status, results[1].Status})
	close(store.released)
	waiting.Wait()
	go func() {
		for range store.arrived {
		}
	}()
	defer close(store.arrived)
	count := answer[wire.Count](t, request(t, h, "GET", "/v1/events/allow/count?window=1m&feature=ip:203.0.113.9", ""))
	assert.Equal(t, int64(2), count.Count, "the two that waited")
}

// gatedBody is a body of which the end does not come before the gate is open.
type gatedBody struct {
	io.Reader
	read chan<- struct{}
	gate <-chan struct{}
}

func (b gatedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.read <- struct{}{}
		<-b.gate
	}
	return n, err
}

// Slow clients with large bodies hold bounded memory: one more of them is refused, and
// small requests go on.
func TestLargeBodiesShareABound(t *testing.T) {
	s := newServer()
	large := who + strings.Repeat(" ", 1<<20-len(who))
	send := func(body io.Reader) int {
		r := httptest.NewRequest("POST", "/v1/events/url_shorten/increment", body)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 200 {
			problem(t, w, 503)
			assert.Equal(t, "1", w.Header().Get("Retry-After"))
		}
		return w.Code
	}
	read, gate := make(chan struct{}), make(chan struct{})
	const fit = 65 // of 1 MiB less the 20 KiB that each may have besides, in 64 MiB
	var waiting sync.WaitGroup
	for range fit {
		waiting.Go(func() { assert.Equal(t, 200, send(gatedBody{strings.NewReader(large), read, gate})) })
		<-read
	}
	assert.Equal(t, 503, send(strings.NewReader(large)))
	assert.Equal(t, 503, send(io.MultiReader(strings.NewReader(large))), "of no known length")
	assert.Equal(t, 200, send(strings.NewReader(who+strings.Repeat(" ", 10<<10))))
	many := `{"hits": [` + strings.TrimSuffix(strings.Repeat(`{"event": "url_shorten", "features": {"ip": "203.0.113.8"}},`, 1000), ",") + `]}`
	w := request(t, s, "POST", "/v1/batch", many)
	problem(t, w, 503)
	w = request(t, s, "GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=second&from="+fmt.Sprint(now.Unix()-9999), "")
	problem(t, w, 503)
	assert.Equal(t, 200, request(t, s, "POST", "/v1/events/url_shorten/hit", who).Code)
	close(gate)
	waiting.Wait()
	for range 3 {
		assert.Equal(t, 200, send(strings.NewReader(large)), "the room was given back")
	}
	w = request(t, s, "POST", "/v1/batch", many)
	require.Equal(t, 200, w.Code)
	assert.Equal(t, 2, strings.Count(w.Body.String(), `"status":200`), "nothing of the batch was counted before")
	assert.Less(t, w.Body.Len(), 1000<<10, "what is reckoned for it")
	w = request(t, s, "GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=second&from="+fmt.Sprint(now.Unix()-9999), "")
	require.Equal(t, 200, w.Code)
	assert.Less(t, w.Body.Len(), 10_000*64)
}

// newBusy returns a handler without tokens. Each GET /metrics says that it has arrived, and
// is answered when it is released.
func newBusy(t *testing.T) (h http.Handler, arrived, release chan struct{}) {
	arrived, release = make(chan struct{}), make(chan struct{})
	g := newGuarded(t)
	g.config.Gate = nil
	g.config.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	return newDescribed(g.config), arrived, release
}

const getMetrics = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"

// The refusal of a connection is a problem document.
func TestARefusedConnectionIsToldSo(t *testing.T) {
	h, arrived, release := newBusy(t)
	c := newClients(t, h, 1)
	busy := c.dial()
	_, err := io.WriteString(busy, getMetrics)
	require.NoError(t, err)
	<-arrived
	response, err := http.ReadResponse(c.dial().reader, nil)
	require.NoError(t, err)
	assert.Equal(t, 503, response.StatusCode)
	assert.Equal(t, "1", response.Header.Get("Retry-After"))
	assert.True(t, response.Close)
	w := httptest.NewRecorder()
	w.Code = response.StatusCode
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	_, err = io.Copy(w.Body, response.Body)
	require.NoError(t, err)
	problem(t, w, 503)
	assert.Equal(t, int64(1), c.listener.Refused())
	close(release)
	response, err = http.ReadResponse(busy.reader, nil)
	require.NoError(t, err)
	assert.Equal(t, 200, response.StatusCode)
}
