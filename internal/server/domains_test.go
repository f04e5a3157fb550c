package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/rls"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/server/follow"
	"github.com/counterd/counterd/internal/telemetry/metrics"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

const shopDomain = `domain: shop
descriptors:
  - key: Client
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: path
    value: /search
    descriptors:
      - key: Client
        rate_limit: {name: search, unit: day, requests_per_unit: 100}
  - key: file
    value: "pictures/*"
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 7}
`

// shop is a server with the domain shop.
type shop struct {
	t *testing.T
	http.Handler
}

func openShop(t *testing.T, servers []string, replicas int) shop {
	t.Helper()
	domains, err := rlsconfig.Parse([]rlsconfig.File{
		{Name: "shop.yaml", Text: []byte(shopDomain)},
		{Name: "deep.yaml", Text: []byte("domain: very/deep\ndescriptors: [{key: Client, rate_limit: {unit: day, requests_per_unit: 1}}]")},
	})
	require.NoError(t, err)
	s := DefaultSettings()
	s.Log, s.Memcached, s.Replicas = slog.New(slog.DiscardHandler), servers, replicas
	s.Timeout, s.Grace = 20*time.Second, 40*time.Second // the machine may be busy
	p := &Server{settings: s, metrics: metrics.New(), peers: peers.New(peers.Config{}), access: &Access{}, rules: follow.NewRules(
		events.Example().Hashed(), follow.RulesFile{}, func(*events.Rules) error { return nil }, s.Log)}
	// No file is followed: fake time would not pass.
	p.parts, err = assembly.Open(assembly.Config{Settings: s.Settings, Rules: p.rules.RulesInForce, Domains: domains.Rules})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, p.parts.Close())
		p.peers.Close()
		p.rules.Close()
	})
	config, limits := p.apiConfig(), p.rlsConfig(10)
	limits.Descriptors = func() *rlsconfig.Config { return domains }
	config.RLS, err = rls.New(limits)
	require.NoError(t, err)
	return shop{t, api.NewServerHandler(config)}
}

func (s shop) ask(method, target, mediaType, body string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func (s shop) get(target string, status int) string {
	s.t.Helper()
	w := s.ask("GET", target, "", "")
	require.Equal(s.t, status, w.Code, "%s: %s", target, w.Body)
	return strings.Join(strings.Fields(w.Body.String()), " ")
}

func (s shop) do(method, target, body string, status int) string {
	s.t.Helper()
	w := s.ask(method, target, wire.TypeJSON, body)
	require.Equal(s.t, status, w.Code, "%s %s: %s", method, target, w.Body)
	return w.Body.String()
}

// passes reports whether Envoy would let a request of the client pass.
func (s shop) passes(client string) bool {
	s.t.Helper()
	w := s.ask("POST", "/json", wire.TypeJSON, fmt.Sprintf(`{"domain": "shop", "descriptors": [{"entries": [{"key": "Client", "value": %q}]}]}`, client))
	require.Contains(s.t, []int{http.StatusOK, http.StatusTooManyRequests}, w.Code, w.Body)
	return w.Code == http.StatusOK
}

func (s shop) explain(query string) (e wire.Explained) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal([]byte(s.get("/v1/events/rls/shop/explain?"+query, 200)), &e))
	return e
}

// onReplicas runs a test on a store without replicas, and on one with two.
func onReplicas(t *testing.T, do func(*testing.T, shop)) {
	t.Run("embedded", func(t *testing.T) { bubble.Test(t, func(t *testing.T) { do(t, openShop(t, nil, 1)) }) })
	for replicas := 1; replicas <= 2; replicas++ {
		t.Run(fmt.Sprint(replicas, " replicas"), func(t *testing.T) {
			do(t, openShop(t, memcachedtest.StartMany(t, 2), replicas)) // no window ends so soon
		})
	}
}

// A domain of Envoy's configuration is listed, explained, reset and overridden as an event of the rules is.
func TestDomainsAreFirstClass(t *testing.T) {
	onReplicas(t, func(t *testing.T, s shop) {
		var all wire.Events
		require.NoError(t, json.Unmarshal([]byte(s.get("/v1/events", 200)), &all))
		require.Len(t, all.Events, 3)
		assert.Equal(t, "rls/shop", all.Events[0].Name)
		require.Len(t, all.Events[0].Rules, 3)
		assert.Equal(t, []string{"path", "Client"}, all.Events[0].Rules[1].Per)
		assert.Equal(t, "search", all.Events[0].Rules[1].Limits[0].Name)
		assert.Contains(t, s.get("/v1/events/rls/shop", 200), `"name":"rls/shop"`)
		assert.Contains(t, s.get("/v1/events/rls/very/deep", 200), `"name":"rls/very/deep"`)
		assert.Contains(t, s.get("/v1/events/rls/very/deep/explain?feature=Client:a", 200), `"allowed":true`)
		s.do("DELETE", "/v1/events/rls/very/deep/counters?feature=Client:a", "", 204)
		s.get("/v1/events/rls/nothing", 404)
		s.get("/v1/events/rls/nothing/explain?feature=Client:a", 404)

		assert.True(t, s.passes("a"))
		assert.True(t, s.passes("a"))
		assert.False(t, s.passes("a"))
		e := s.explain("feature=Client:a&feature=path:/search")
		assert.False(t, e.Allowed)
		require.Len(t, e.Limits, 2, "those that the features reach")
		assert.Equal(t, []any{"Client", int64(2), "Client:a"}, []any{e.Limits[0].Name, e.Limits[0].Count, e.Limits[0].Feature})
		assert.Equal(t, []any{"search", int64(0), "path:/search+Client:a"}, []any{e.Limits[1].Name, e.Limits[1].Count, e.Limits[1].Feature})
		assert.Contains(t, e.Limits[0].Rule, "shop.Client")
		assert.Equal(t, "file:pictures/*", s.explain("feature=file:pictures/a.png").Limits[0].Feature)
		assert.Contains(t, s.get("/v1/events/rls/shop/explain?feature=path:/search", 400), "wanted are Client, or path and Client, or file")

		s.do("DELETE", "/v1/events/rls/shop/counters?feature=Client:a", "", 204)
		assert.True(t, s.passes("a"), "the counter is reset")
		s.do("DELETE", "/v1/events/rls/shop/counters?feature=path:/search", "", 400)

		const override = "/v1/events/rls/shop/override"
		s.do("POST", override, `{"features": {"Client": "a"}, "verdict": "deny", "for": "1h"}`, 200)
		assert.False(t, s.passes("a"))
		assert.Contains(t, s.get("/v1/overrides", 200), `"event":"rls/shop","feature":"Client:a","verdict":"deny"`)
		e = s.explain("feature=Client:a")
		assert.True(t, e.Limits[0].Overridden)
		require.Len(t, e.Overrides, 1)
		s.do("POST", override, `{"features": {"Client": "a"}, "rates": ["3/m"], "for": "1h"}`, 200)
		assert.True(t, s.passes("a"))
		assert.True(t, s.passes("a"), "the third of three")
		assert.False(t, s.passes("a"))
		s.do("POST", override, `{"features": {"Client": "a"}, "rates": ["3/d"], "for": "1h"}`, 400)
		s.do("POST", override, `{"features": {"other": "a"}, "verdict": "deny", "for": "1h"}`, 400)
		s.do("POST", override, `{"features": {"Client": "a"}, "verdict": "allow", "for": "1h"}`, 200)
		assert.True(t, s.passes("a"))
		assert.Contains(t, s.do("DELETE", override+"?feature=Client:a", "", 200), `"removed":true`)
		assert.False(t, s.passes("a"))
		assert.True(t, s.passes("b"))

		s.do("POST", "/v1/events/rls/shop/hit", `{"features": {"Client": "c"}}`, 405)
		assert.Contains(t, s.do("POST", "/v1/batch", `{"hits": [{"event": "rls/shop", "features": {"client": "c"}}]}`, 200), `"status":404`)
		s.do("POST", "/json", `{"domain": "rls/shop", "descriptors": [{"entries": [{"key": "Client", "value": "c"}]}]}`, 200)
		assert.Zero(t, s.explain("feature=Client:c").Limits[0].Count, "that is no domain")
		assert.Contains(t, s.get("/v1/top?event=rls/shop", 200), `"feature":"Client:a"`)
	})
}

// The page shows, resets and overrides what a domain counts.
func TestDomainsOnThePage(t *testing.T) {
	onReplicas(t, func(t *testing.T, s shop) {
		for range 3 {
			s.passes("a")
		}
		const page = "/ui/feature?event=rls%2Fshop&feature=Client%3Aa"
		assert.Contains(t, s.get("/ui/", 200), `<a href="feature?event=rls%2Fshop&amp;feature=Client%3Aa">`)
		assert.Contains(t, s.get("/ui/?event=rls%2Fshop", 200), `<option selected>rls/shop</option>`)
		assert.Contains(t, s.get("/ui/limits?event=rls%2Fshop", 200), "Client")
		text := s.get(page, 200)
		assert.Contains(t, text, "A hit would be denied: 2 of 2 rls/shop in the last minute by Client a")
		assert.Contains(t, text, "Past of <bdi>Client:a</bdi>")
		assert.Contains(t, text, "whose rates are <code>2/m</code>")
		assert.Contains(t, s.get(page+"&feature=path%3A%2Fsearch", 200), "0 of 100 rls/shop in the last 24 hours by path /search and Client a")
		rules := s.get("/ui/rules", 200)
		assert.Contains(t, rules, `<h2 id="event-rls/shop">rls/shop</h2>`)
		assert.NotContains(t, rules, "whatif?event=rls", "there are no rules to try")

		form := func(path string, fields ...string) {
			values := url.Values{"of": {"counter=Client&event=rls%2Fshop&feature=Client%3Aa"}}
			for i := 0; i < len(fields); i += 2 {
				values.Set(fields[i], fields[i+1])
			}
			w := s.ask("POST", path, "application/x-www-form-urlencoded", values.Encode())
			require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		}
		form("/ui/reset")
		assert.Contains(t, s.get(page, 200), "0 of 2 rls/shop")
		form("/ui/override", "kind", "Client", "verdict", "deny", "for", "1h")
		assert.False(t, s.passes("a"))
		assert.Contains(t, s.get("/ui/rules", 200), "always denied")
		form("/ui/override", "kind", "Client", "verdict", "end")
		assert.True(t, s.passes("a"))
	})
}

// The denied hits of a domain have a history.
func TestDenialsOfDomains(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := openShop(t, nil, 1)
		for range 3 {
			s.passes("a")
		}
		time.Sleep(3 * time.Second) // of fake time: a second gathers them
		assert.Contains(t, s.get("/ui/feature?event=rls%2Fshop&feature=Client%3Aa", 200), "<title>00:00 UTC: 1 denied</title>")
	})
}
