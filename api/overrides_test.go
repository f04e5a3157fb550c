package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/memcache"
)

// overridden returns a handler whose service keeps overrides.
func overridden(t *testing.T) http.Handler {
	rules := testRules()
	set := overrides.Start(t.Context(), overrides.Config{
		Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), Alone: true, Clock: clock, Rules: func() *events.Rules { return rules },
	})
	t.Cleanup(set.Close)
	return newDescribed(api.ServerConfig{Service: newService(service.Config{Rules: set.Rules, Overrides: set})})
}

func askPlain(t *testing.T, h http.Handler, method, target, body string) (status int, answer string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestOverridesOverHTTP(t *testing.T) {
	h := overridden(t)
	const route = "/v1/events/url_shorten/override"
	until := clock().Add(time.Hour).UTC().Format(time.RFC3339)
	asks := func(want int, method, target, body string) string {
		t.Helper()
		status, answer := askPlain(t, h, method, target, body)
		require.Equal(t, want, status, answer)
		return answer
	}
	hit := func(want int) string { return asks(want, "POST", "/v1/events/url_shorten/hit", who) }
	assert.JSONEq(t, `{"overrides": []}`, asks(200, "GET", "/v1/overrides", ""))

	set := asks(200, "POST", route, `{"features": {"ip": "203.0.113.9"}, "verdict": "deny", "until": "`+until+`"}`)
	want := `{"event": "url_shorten", "feature": "ip:203.0.113.9", "verdict": "deny", "until": "` + until + `", "set": "` + clock().UTC().Format(time.RFC3339) + `"}`
	assert.JSONEq(t, want, set)
	assert.JSONEq(t, `{"overrides": [`+want+`]}`, asks(200, "GET", "/v1/overrides", ""))
	hit(429)
	assert.Contains(t, asks(200, "GET", "/v1/events/url_shorten/explain?feature=ip:203.0.113.9", ""), `"overrides":[{"event":"url_shorten"`)
	assert.NotContains(t, asks(200, "GET", "/v1/events/url_shorten/explain?feature=ip:203.0.113.10", ""), `"overrides"`)
	assert.NotContains(t, asks(200, "GET", "/v1/events/url_shorten", ""), "203.0.113.9", "the rules do not name it")

	asks(200, "POST", route, `{"features": {"ip": "203.0.113.9"}, "verdict": "allow", "until": "`+until+`"}`)
	for range 20 {
		hit(200)
	}
	assert.JSONEq(t, `{"removed": true}`, asks(200, "DELETE", route+"?feature=ip:203.0.113.9", ""))
	assert.JSONEq(t, `{"removed": false}`, asks(200, "DELETE", route+"?feature=ip:203.0.113.9", ""))
	assert.JSONEq(t, `{"removed": false}`, asks(200, "DELETE", "/v1/events/gone/override?feature=ip:203.0.113.9", ""))
	assert.Contains(t, asks(404, "DELETE", "/v1/events/-/override?feature=ip:203.0.113.9", ""), "No event of this name is known")
	hit(429)
}

// Explain says of each limit on which list its hit is, and whether by a list of the rule or by an override.
func TestExplainNamesListsAndOverrides(t *testing.T) {
	h := overridden(t)
	until := clock().Add(time.Hour).UTC().Format(time.RFC3339)
	explained := func() (d wire.Explained) {
		t.Helper()
		status, answer := askPlain(t, h, "GET", "/v1/events/url_shorten/explain?feature=ip:203.0.113.9", "")
		require.Equal(t, 200, status, answer)
		require.NoError(t, json.Unmarshal([]byte(answer), &d))
		require.NotEmpty(t, d.Limits)
		return d
	}
	status, answer := askPlain(t, h, "GET", "/v1/events/url_shorten/explain?feature=ip:203.0.113.9", "")
	require.Equal(t, 200, status)
	assert.NotContains(t, answer, "overridden")
	assert.NotContains(t, answer, `"listing"`)
	for _, verdict := range []string{"deny", "allow"} {
		body := `{"features": {"ip": "203.0.113.9"}, "verdict": "` + verdict + `", "until": "` + until + `"}`
		status, answer := askPlain(t, h, "POST", "/v1/events/url_shorten/override", body)
		require.Equal(t, 200, status, answer)
		for _, limit := range explained().Limits {
			assert.Equal(t, verdict, limit.Listing)
			assert.True(t, limit.Overridden)
		}
	}
	window := explained().Limits[0].Window
	body := `{"features": {"ip": "203.0.113.9"}, "rates": ["77/` + window + `"], "until": "` + until + `"}`
	status, answer = askPlain(t, h, "POST", "/v1/events/url_shorten/override", body)
	require.Equal(t, 200, status, answer)
	for _, limit := range explained().Limits {
		assert.Empty(t, limit.Listing)
		assert.Equal(t, limit.Window == window, limit.Overridden, limit.Name)
		assert.Equal(t, limit.Window == window, limit.Limit == 77, limit.Name)
	}

	listed := newLogServer(t, memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), clock, "[{per: ip, rate: 5/m, deny: [203.0.113.9]}]")
	status, answer = askPlain(t, listed, "GET", "/v1/events/e/explain?feature=ip:203.0.113.9", "")
	require.Equal(t, 200, status, answer)
	assert.Contains(t, answer, `"listing":"deny"`)
	assert.NotContains(t, answer, "overridden")
}

// What is wrong with an override is said, each with its place.
func TestFaultsOfOverridesOverHTTP(t *testing.T) {
	h := overridden(t)
	until := clock().Add(time.Hour).UTC().Format(time.RFC3339)
	for body, want := range map[string]string{
		`{}`: `"/features"`,
		`{"features": {"ip": "203.0.113.9", "user": "bob"}, "verdict": "deny", "until": "` + until + `"}`:        "an override is of one feature: there are 2",
		`{"features": {"ip": "203.0.113.9"}, "verdict": "maybe", "until": "` + until + `"}`:                      "it is allow or deny",
		`{"features": {"ip": "203.0.113.9"}, "verdict": "deny"}`:                                                 "one of until and for is given",
		`{"features": {"ip": "203.0.113.9"}, "verdict": "deny", "for": "1h", "until": "` + until + `"}`:          "one of until and for is given",
		`{"features": {"ip": "203.0.113.9"}, "verdict": "deny", "for": "soon"}`:                                  "it is a duration",
		`{"features": {"ip": "203.0.113.9"}, "verdict": "deny", "until": 1}`:                                     "it is over",
		`{"features": {"ip": "203.0.113.9"}, "until": "` + until + `"}`:                                          "it allows, denies, or has 1 to 8 rates",
		`{"features": {"ip": "203.0.113.9"}, "rates": ["1/y"], "until": "` + until + `"}`:                        "/rates/0",
		`{"features": {"ip": "203.0.113.9"}, "rates": ["1/8s"], "until": "` + until + `"}`:                       "no limit per ip has the window 8s",
		`{"features": {"ip": "x"}, "verdict": "deny", "until": "` + until + `"}`:                                 "/features/ip",
		`{"features": {"shoe": "x"}, "verdict": "deny", "until": "` + until + `"}`:                               "no limit of url_shorten is per this kind",
		`{"features": {"ip": "203.0.113.9"}, "verdict": "deny", "until": "` + until + `", "by": "someone else"}`: "by",
	} {
		status, answer := askPlain(t, h, "POST", "/v1/events/url_shorten/override", body)
		assert.Equal(t, 400, status, body)
		assert.Contains(t, answer, want, body)
	}
	for target, want := range map[string]int{
		"/v1/events/url_shorten/override":                                       400,
		"/v1/events/url_shorten/override?feature=ip:203.0.113.9&feature=user:b": 400,
		"/v1/events/url_shorten/override?feature=ip:203.0.113.9&event=x":        400,
		"/v1/events/url_shorten/override?feature=203.0.113.9":                   400,
	} {
		status, answer := askPlain(t, h, "DELETE", target, "")
		assert.Equal(t, want, status, answer)
	}
	status, _ := askPlain(t, h, "POST", "/v1/events/gone/override", `{"features": {"ip": "203.0.113.9"}, "verdict": "deny", "for": "1h"}`)
	assert.Equal(t, 404, status)
	for i := range overrides.Max + 1 {
		status, _ = askPlain(t, h, "POST", "/v1/events/url_shorten/override", fmt.Sprintf(`{"features": {"ip": "203.0.113.%d"}, "verdict": "deny", "until": %q}`, i, until))
	}
	assert.Equal(t, 409, status, "one more than there may be")
}
