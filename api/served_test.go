package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/memcache"
)

// OnRequest is called for every request, with its route and method, or other, and its status.
func TestRequestsAreTold(t *testing.T) {
	var told []string
	rules := testRules()
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock, Grace: 40 * time.Second}))
	require.NoError(t, err)
	h := newDescribed(api.ServerConfig{
		Service: newService(service.Config{
			Rules:    func() *events.Rules { return rules },
			Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock})),
			Limiter:  decider,
		}),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") }),
		Page:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }),
		OnRequest: func(route, method string, status int, took time.Duration) {
			assert.GreaterOrEqual(t, took, time.Duration(0))
			told = append(told, fmt.Sprint(method, " ", route, " ", status))
		},
	})
	for _, test := range []struct{ method, target, body, want string }{
		{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9"}}`, "POST /v1/events/{event}/hit 200"},
		{"POST", "/v1/events/url_shorten/hit", `{`, "POST /v1/events/{event}/hit 400"},
		{"POST", "/v1/events/nobody_knows/hit", `{"features": {"ip": "203.0.113.9"}}`, "POST /v1/events/{event}/hit 404"},
		{"POST", "/v1/events/url_shorten/hit", `"` + strings.Repeat("a", 1<<20) + `"`, "POST /v1/events/{event}/hit 413"},
		{"DELETE", "/v1/events/url_shorten/counters?feature=ip:203.0.113.9", "", "DELETE /v1/events/{event}/counters 204"},
		{"GET", "/healthz", "", "GET /healthz 200"},
		{"HEAD", "/healthz", "", "HEAD /healthz 200"},
		{"GET", "/metrics", "", "GET /metrics 200"},
		{"GET", "/ui/rules", "", "GET /ui 200"},
		{"GET", "/ui", "", "GET /ui 200"},
		{"POST", "/ui/reset", "", "POST /ui/reset 200"},
		{"GET", "/203.0.113.9", "", "GET other 404"},
		{"GET", "/v1/events/a%2Fb/count", "", "GET other 404"},
		{"POST", "/healthz", "", "POST other 405"},
		{"BREW", "/healthz", "", "other other 405"},
		{"BREW", "/v1/authorize/url_shorten", "", "other /v1/authorize/{event} 204"},
	} {
		told = nil
		r := request(t, h, test.method, test.target, test.body)
		require.Equal(t, []string{test.want}, told, r.Body)
	}
	rules = nil
	told = nil
	request(t, h, "GET", "/v1/events", "") // which panics
	require.Equal(t, []string{"GET /v1/events 500"}, told)
}
