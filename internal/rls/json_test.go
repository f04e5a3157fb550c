package rls_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/service"
)

// posted returns a request to /json.
func posted(ctx context.Context, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/json", body)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	return r
}

// A body that is cheap to send takes little memory: it has at most 64 KiB and 1,000 descriptors, and reading stops there.
// Other media types, which a web page may send to another origin, are refused.
func TestHostileJSON(t *testing.T) {
	k := newKit(t, setting{config: shop})
	descriptors := func(n int, last string) string {
		return `{"domain": "shop", "descriptors": [` + strings.Repeat("{},", n-1) + "{}]" + last + "}"
	}
	for _, test := range []struct {
		name, body, media string
		status            int
		says              string
	}{
		{"honest", descriptors(1000, ""), "application/json", 200, "OK"},
		{"many", descriptors(20_000, ""), "application/json", 400, "at most 1000"},
		{"many, and then a fault", descriptors(1001, ","), "application/json", 400, "at most 1000"},
		{"very many", descriptors(349_000, ""), "application/json", 413, "64 KiB"},
		{"text", descriptors(1, ""), "text/plain", 415, "application/json"},
		{"a form", descriptors(1, ""), "application/x-www-form-urlencoded", 415, "application/json"},
		{"none", descriptors(1, ""), "", 415, "application/json"},
	} {
		r := posted(t.Context(), strings.NewReader(test.body))
		r.Header.Set("Content-Type", test.media)
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		k.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		assert.Equal(t, test.status, w.Code, test.name)
		assert.Contains(t, w.Body.String(), test.says, test.name)
		taken := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d KiB", test.name, taken>>10)
		assert.Less(t, taken, uint64(2<<20), test.name)
	}
}

// fullWriter has no memory for a long answer.
type fullWriter struct{ *httptest.ResponseRecorder }

func (fullWriter) HoldAnswer(int64) error { return service.ErrOverload }
func (fullWriter) HeldAnswer() int64      { return 0 }

// A long answer in JSON takes of the memory for all answers.
func TestUnsentJSONIsBounded(t *testing.T) {
	k := newKit(t, setting{config: shop})
	w := fullWriter{httptest.NewRecorder()}
	body := `{"domain": "shop", "descriptors": [` + strings.Repeat("{},", 999) + "{}]}"
	k.ServeHTTP(w, posted(t.Context(), strings.NewReader(body)))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Less(t, w.Body.Len(), 100)
}

// A request in JSON is decided as over gRPC, and a fault in it is named.
func TestJSON(t *testing.T) {
	k := newKit(t, setting{config: shop, rules: `events: {both: {limits: [{per: user, concurrent: 3, lease: 1m}]}}`})
	ask := func(body string) (int, string) {
		w := httptest.NewRecorder()
		k.ServeHTTP(w, posted(t.Context(), strings.NewReader(body)))
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
	k.ServeHTTP(w, posted(ctx, strings.NewReader(bob)))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	w = httptest.NewRecorder()
	k.ServeHTTP(w, posted(t.Context(), iotest.ErrReader(service.ErrOverload)))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code, "there is no memory for the body")
}
