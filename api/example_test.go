package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/memcache"
)

// The HTTP interface in a server of one's own.
func ExampleNewServerHandler() {
	rules := events.Example()
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
	decider, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store}))
	if err != nil {
		fmt.Println(err)
		return
	}
	counting, err := service.New(service.Config{
		Rules:    func() *events.Rules { return rules },
		Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store})),
		Limiter:  decider,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := api.NewServerHandler(api.ServerConfig{Service: counting})
	server := httptest.NewServer(handler) // or api.NewServer(handler, slog.Default()) on a listener
	defer server.Close()

	response, err := http.Post(server.URL+"/v1/events/url_shorten/hit", "application/json",
		strings.NewReader(`{"features": {"ip": "192.168.0.1"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	response.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	fmt.Println(response.Status)
	// Output: 200 OK
}
