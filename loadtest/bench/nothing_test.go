package bench

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/memcache"
)

// The handler that does nothing says what counterd says, in other numbers: else the
// two could not be compared.
func TestNothingAnswersAsCounterdDoes(t *testing.T) {
	rules, err := rulesfile.Parse([]byte("events:\n" + rulesOf("e", webRates)))
	require.NoError(t, err)
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{Store: store, Grace: 40 * time.Second}))
	require.NoError(t, err)
	counting, err := service.New(service.Config{
		Rules:    func() *events.Rules { return rules },
		Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store})),
		Limiter:  decider,
	})
	require.NoError(t, err)
	counterd := api.NewServerHandler(api.ServerConfig{Service: counting})
	ask := func(handler http.Handler) (http.Header, map[string]any) {
		r := httptest.NewRequest(http.MethodPost, "/v1/events/e/hit", strings.NewReader(`{"features":{"ip":"10.0.0.1"},"cost":1}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		var body map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
		return w.Header(), body
	}
	wantHeader, want := ask(counterd)
	gotHeader, got := ask(NewNothing())
	for _, name := range []string{"Content-Type", "RateLimit-Policy", "RateLimit"} {
		assert.Equal(t, wantHeader.Values(name), gotHeader.Values(name), name)
	}
	// Both were asked within a second, or not.
	delete(want, "at")
	at, found := got["at"]
	assert.True(t, found)
	assert.Len(t, at, len("2006-01-02T15:04:05Z"))
	delete(got, "at")
	for _, limit := range want["limits"].([]any) {
		delete(limit.(map[string]any), "exact") // counterd decides on bounds where that will do
	}
	assert.Equal(t, want, got)
	assert.Equal(t, []string{"allowed", "event", "limits", "retry_after"}, slices.Sorted(maps.Keys(got)))
}
