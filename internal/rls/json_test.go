package rls_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/service"
)

// A request in JSON is decided as over gRPC, and a fault in it is named.
func TestJSON(t *testing.T) {
	k := newKit(t, setting{config: shop, rules: `events: {both: {limits: [{per: user, concurrent: 3, lease: 1m}]}}`})
	ask := func(body string) (int, string) {
		w := httptest.NewRecorder()
		k.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	const bob = `{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "bob"}], "hits_addend": 2}]}`
	code, body := ask(bob)
	assert.Equal(t, http.StatusOK, code)
	var answer struct {
		OverallCode string
		Statuses    []struct {
			Code           string
			LimitRemaining int
			CurrentLimit   struct{ RequestsPerUnit int }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	assert.Equal(t, "OK", answer.OverallCode)
	assert.Equal(t, 3, answer.Statuses[0].CurrentLimit.RequestsPerUnit)
	assert.Equal(t, 1, answer.Statuses[0].LimitRemaining)
	code, body = ask(bob)
	assert.Equal(t, http.StatusTooManyRequests, code)
	assert.Contains(t, body, "OVER_LIMIT")
	for body, says := range map[string]string{
		"": "Bad Request", "{}": "the domain is missing", `{"dom`: "Bad Request",
		"[": "in JSON, line 1:1\n", `{"domain": "a", "more": 1}`: "in JSON, line 1:17: unknown field \"more\"\n",
		`{"domain": "a", "192.0.2.7": 1}`: "in JSON, line 1:17\n", `{"domain": ["ann"]}`: "in JSON, line 1:12\n",
		`{"hitsAddend": "(line 1:1): unknown field ann"}`: "in JSON, line 1:16\n",
	} {
		code, text := ask(body)
		assert.Equal(t, http.StatusBadRequest, code, body)
		assert.Contains(t, text, says, body)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	w := httptest.NewRecorder()
	k.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/json", strings.NewReader(bob)))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	w = httptest.NewRecorder()
	k.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", iotest.ErrReader(service.ErrOverload)))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code, "there is no memory for the body")
}
