package counterd_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/service"
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
		limiter, fleet := start(t, parse(t, someRules), onBusyMachine...), peers.New(peers.Config{URLs: urls})
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
