package contract

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Headers are read as structured fields, however they are written.
func TestHeaderFaults(t *testing.T) {
	two := int64(2)
	d := wire.Decision{RetryAfter: &two, Limits: []wire.LimitState{
		{Name: "a", Limit: 5, Window: "1m", Remaining: 3, Allowed: true, Reset: new(int64)},
		{Name: "b", Limit: 9, Window: "10s", Remaining: 0, Reset: &two},
		{Name: "s", Limit: 1, Window: "1s", Shadow: true, Reset: &two},
	}}
	right := func() http.Header {
		h := http.Header{}
		h.Set("RateLimit-Policy", `"a";q=5;w=60,   "b";q=9;w=10`)
		h.Set("RateLimit", `"a";r=3, "b";r=0;t=2`)
		h.Set("Retry-After", "2")
		h.Set("X-RateLimit-Limit", "9")
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("X-RateLimit-Reset", "2")
		return h
	}
	c, err := New(wire.Event{Name: "e", Retention: "1h", Rules: []wire.Rule{{Precision: "second", Limits: []wire.Limit{
		{Name: "a", Limit: 5, Window: "1m"}, {Name: "b", Limit: 9, Window: "10s"}, {Name: "s", Limit: 1, Window: "1s"},
	}}}})
	require.NoError(t, err)
	failed := wire.Decision{RetryAfter: &two, Limits: []wire.LimitState{{Name: "a", Limit: 5, Window: "1m", OnError: "deny"}}}
	require.Empty(t, c.HeaderFaults(http.Header{}, http.StatusServiceUnavailable, failed), "no store has decided: it tells nothing")
	require.Empty(t, c.HeaderFaults(right(), http.StatusTooManyRequests, d), "it is the first of a store, and tells which there are")
	for name, value := range map[string]string{
		"RateLimit-Policy": `"a";q=5;w=60`, "RateLimit": `"a";r=3;t=0, "b";r=0;t=2`, "Retry-After": "3",
		"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "", "X-RateLimit-Reset": "0",
	} {
		h := right()
		h.Set(name, value)
		assert.NotEmpty(t, c.HeaderFaults(h, http.StatusTooManyRequests, d), name)
		h.Del(name)
		assert.NotEmpty(t, c.HeaderFaults(h, http.StatusTooManyRequests, d), name)
	}
	assert.Len(t, NoHeaderFaults(right()), 6)
	assert.Len(t, c.HeaderFaults(right(), http.StatusServiceUnavailable, d), 1, "a 503 has no Retry-After")
	var none Contract
	require.Empty(t, none.HeaderFaults(http.Header{}, http.StatusOK, d))
	assert.Len(t, none.HeaderFaults(right(), http.StatusTooManyRequests, d), 5, "all but Retry-After")
}
