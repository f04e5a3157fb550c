package counterd_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// serveAll returns a client of the whole HTTP interface of a limiter.
func serveAll(t *testing.T, l *counterd.Limiter) *client.Client {
	t.Helper()
	server := httptest.NewServer(handlerOf(l))
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{URL: server.URL})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// An explanation is a check, with what each limit's count consists of, when that leaves, and the place of its rule.
func TestExplain(t *testing.T) {
	l := start(t, parse(t, someRules), onBusyMachine...)
	c := serveAll(t, l)
	features := events.Features{"ip": "192.0.2.1", "email": "a@example.com"}
	for range 2 {
		_, err := l.Hit(ctx, "login", counterd.Features(features))
		require.NoError(t, err)
	}
	check, err := c.Check(ctx, "login", features, 1)
	require.NoError(t, err)
	explained, err := c.Explain(ctx, "login", features, 1)
	require.NoError(t, err)
	require.Len(t, explained.Limits, len(check.Limits))
	for i, limit := range explained.Limits {
		assert.Equal(t, check.Limits[i], limit.LimitState)
		require.NotEmpty(t, limit.Sum)
		sum, freed := int64(0), int64(0)
		for _, part := range limit.Sum {
			sum += part.Count
			assert.Contains(t, []string{"second", "minute", "hour", "day"}, part.Level)
			assert.False(t, part.To.Before(part.From.Time))
		}
		for _, some := range limit.Frees {
			freed += some.Count
			assert.True(t, some.At.After(explained.At.Time))
		}
		assert.EqualValues(t, 2, sum)
		assert.EqualValues(t, 2, freed, "%+v", limit)
	}
	assert.Equal(t, "line 4: events.login.limits[0]", explained.Limits[0].Rule)
	assert.Equal(t, "line 5: events.login.limits[1]", explained.Limits[1].Rule)
	explained.Limits, check.Limits = nil, nil
	explained.Decision.Limits = nil
	explained.At = check.At
	assert.Equal(t, check, explained.Decision)

	unused, err := c.Explain(ctx, "login", events.Features{"ip": "192.0.2.2"}, 4)
	require.NoError(t, err)
	assert.False(t, unused.Allowed)
	assert.Nil(t, unused.RetryAfter, "the cost never fits")
	assert.Equal(t, []wire.Part{}, unused.Limits[0].Sum)
	assert.Equal(t, []wire.Freed{}, unused.Limits[0].Frees)
}

// The features with the most hits, as this process has decided them, also from memory.
func TestTop(t *testing.T) {
	l := start(t, parse(t, someRules), onBusyMachine...)
	c := serveAll(t, l)
	hit := func(event string, features counterd.Features, n int) {
		for range n {
			_, err := l.Hit(ctx, event, features)
			require.NoError(t, err)
		}
	}
	other := map[string]string{"ip": "192.0.2.2"}
	hit("login", visitor, 8)
	hit("login", counterd.Features{"ip": "192.0.2.2", "email": "a@example.com"}, 4)
	hit("login", counterd.Features{"ip": "192.0.2.3"}, 1)
	hit("export", nil, 12) // the event as a whole is no feature
	denied, err := c.Top(ctx, client.TopQuery{N: 10})
	require.NoError(t, err)
	assert.Equal(t, wire.Top{Features: []wire.TopFeature{
		{Event: "login", Feature: "ip:192.0.2.1", Features: visitor, Count: 5, Limits: []wire.TopLimit{{Name: "ip-3-per-24h", Count: 5}}},
		{Event: "login", Feature: "ip:192.0.2.2", Features: other, Count: 1, Limits: []wire.TopLimit{{Name: "ip-3-per-24h", Count: 1}}},
	}}, denied)
	admitted, err := c.Top(ctx, client.TopQuery{Outcome: "admitted", Event: "login", N: 3, Window: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, wire.Top{Features: []wire.TopFeature{
		{Event: "login", Feature: "email:a@example.com+ip:192.0.2.2", Features: map[string]string{"email": "a@example.com", "ip": "192.0.2.2"}, Count: 3},
		{Event: "login", Feature: "ip:192.0.2.1", Features: visitor, Count: 3}, {Event: "login", Feature: "ip:192.0.2.2", Features: other, Count: 3},
	}, Rest: 1}, admitted)
}

// What cannot be answered is an error in words.
func TestFaultsOfExplainAndTop(t *testing.T) {
	h := handlerOf(start(t, parse(t, someRules), onBusyMachine...))
	for path, want := range map[string]int{
		"/v1/top": 200, "/v1/top?outcome=denied&event=&limit=20&window=1h": 200, "/v1/top?peers=no": 400, "/v1/top?event=nothing": 404, "/v1/top?outcome=all": 400,
		"/v1/top?limit=0": 400, "/v1/top?limit=1001": 400, "/v1/top?limit=x": 400, "/v1/top?window=90s": 400, "/v1/top?window=0s": 400,
		"/v1/top?window=61m": 400, "/v1/top?window=": 400, "/v1/top?limit=1&limit=2": 400, "/v1/top?feature=ip:192.0.2.1": 400,
		"/v1/events/login/explain?feature=ip:192.0.2.1": 200, "/v1/events/login/explain": 400, "/v1/events/login/explain?feature=ip:x": 400,
		"/v1/events/login/explain?feature=ip:192.0.2.1&cost=0": 400, "/v1/events/nothing/explain?feature=ip:192.0.2.1": 404,
		"/v1/events/signup/explain?feature=ip:192.0.2.1": 400,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		assert.Equal(t, want, w.Code, "%s: %s", path, w.Body)
		if want != 200 {
			var problem wire.Problem
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
			assert.NotEmpty(t, problem.Detail, path)
		}
	}
}

// While the store does not answer, what is not known has no parts.
func TestExplainWithoutAStore(t *testing.T) {
	server := memcachedtest.Start(t)
	l := start(t, parse(t, `events: {login: {limits: [{per: ip, rate: 3/d}, {per: ip, rate: 9/d, on_error: local}]}}`), append(onBusyMachine, counterd.WithMemcached(server.Addr))...)
	c := serveAll(t, l)
	_, err := l.Hit(ctx, "login", visitor)
	require.NoError(t, err)
	server.Stop()
	explained, err := c.Explain(ctx, "login", events.Features(visitor), 1)
	require.NoError(t, err)
	require.Len(t, explained.Limits, 2)
	assert.Equal(t, "allow", explained.Limits[0].OnError)
	assert.Empty(t, explained.Limits[0].Sum)
	assert.Equal(t, "local", explained.Limits[1].OnError)
	sum := int64(0)
	for _, part := range explained.Limits[1].Sum {
		sum += part.Count
	}
	assert.Equal(t, explained.Limits[1].Count, sum)
}

// Three processes with one list of peers, which names each of them, and one of them by two URLs, add up what each has
// decided, once; one that does not answer is named.
func TestTopOfAFleet(t *testing.T) {
	tokens, err := service.ParseTokens([]byte("ops see see-token-of-the-test\nedge decide edge-token-of-the-test"))
	require.NoError(t, err)
	gate := service.NewGate(service.GateConfig{Tokens: func() *service.Tokens { return tokens }})
	handlers, servers := make([]http.Handler, 3), make([]*httptest.Server, 4)
	urls := make([]string, len(servers))
	for i := range servers {
		servers[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handlers[i%3].ServeHTTP(w, r) }))
		defer servers[i].Close()
		urls[i] = servers[i].URL
	}
	for i := range handlers {
		limiter, fleet := start(t, parse(t, someRules), onBusyMachine...), peers.New(urls)
		defer fleet.Close()
		handlers[i] = api.NewServerHandler(api.ServerConfig{Service: limiter.Parts().Service, Gate: gate, Peers: fleet})
		for range 4 + i { // three are admitted
			_, err := limiter.Hit(ctx, "login", visitor)
			require.NoError(t, err)
		}
	}
	c, err := client.New(client.Config{URL: urls[1], Token: func() (string, error) { return "see-token-of-the-test", nil }})
	require.NoError(t, err)
	defer c.Close()
	top := func(q client.TopQuery) wire.Top {
		found, err := c.Top(ctx, q)
		require.NoError(t, err)
		return found
	}
	feature := func(count int64) []wire.TopFeature {
		return []wire.TopFeature{{Event: "login", Feature: "ip:192.0.2.1", Features: visitor, Count: count, Limits: []wire.TopLimit{{Name: "ip-3-per-24h", Count: count}}}}
	}
	assert.Equal(t, wire.Top{Features: feature(1 + 2 + 3), Processes: 3}, top(client.TopQuery{}))
	alone := top(client.TopQuery{Alone: true})
	assert.NotEmpty(t, alone.Process)
	assert.Equal(t, wire.Top{Features: feature(2), Process: alone.Process}, alone)
	servers[2].Close()
	assert.Equal(t, wire.Top{Features: feature(1 + 2), Processes: 2, Unanswered: urls[2:3]}, top(client.TopQuery{}))
}
