package api_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
)

// params are the integers of one string in a structured list.
type params map[string]int64

// structured reads a header as RFC 9651 has it: a list of strings with integers.
func structured(t *testing.T, header http.Header, name string) (names []string, all map[string]params) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(header.Values(name))
	require.NoError(t, err, "%s: %q", name, header.Get(name))
	all = map[string]params{}
	for _, member := range list {
		item := member.(httpsfv.Item)
		limit := item.Value.(string)
		names, all[limit] = append(names, limit), params{}
		for _, key := range item.Params.Names() {
			value, _ := item.Params.Get(key)
			all[limit][key] = value.(int64)
		}
	}
	return names, all
}

// What the headers say is what the body says, hit by hit.
func TestHeadersAgreeWithTheBody(t *testing.T) {
	l := newLimits(t, `
headers: [ratelimit, x-ratelimit]
events: {e: {limits: [{per: ip, rate: [3/s, 6/90s, 20/d]}, {per: [], rate: 4/h, shadow: true}]}}
`)
	seconds := map[string]int64{"ip-3-per-1s": 1, "ip-6-per-90s": 90, "ip-20-per-24h": 86400}
	order := []string{"ip-3-per-1s", "ip-6-per-90s", "ip-20-per-24h"}
	denials := 0
	for i := range 12 {
		if i%4 == 0 {
			l.late += 7e9
		}
		w := l.hit(t)
		var d wire.Decision
		if w.Code == http.StatusOK {
			d = answer[wire.Decision](t, w)
			assert.Empty(t, w.Header().Values("Retry-After"))
		} else {
			denial := denied(t, w)
			d = denial.Decision
			denials++
			assert.Equal(t, strconv.FormatInt(*d.RetryAfter, 10), w.Header().Get("Retry-After"))
			var violated []string
			var longest int64
			for _, limit := range d.Limits {
				if !limit.Allowed && !limit.Shadow {
					violated = append(violated, limit.Name)
					longest = max(longest, *limit.Reset)
				}
			}
			assert.Equal(t, violated, denial.ViolatedPolicies)
			assert.Equal(t, longest, *d.RetryAfter)
		}
		policyNames, policies := structured(t, w.Header(), "RateLimit-Policy")
		names, states := structured(t, w.Header(), "RateLimit")
		assert.Equal(t, order, policyNames)
		assert.Equal(t, order, names, "a shadow limit is not among them")
		require.Len(t, d.Limits, 4)
		for _, limit := range d.Limits[:3] {
			assert.Equal(t, params{"q": limit.Limit, "w": seconds[limit.Name]}, policies[limit.Name])
			want := params{"r": limit.Remaining}
			if !limit.Allowed {
				want["t"] = *limit.Reset
			}
			assert.Equal(t, want, states[limit.Name], "hit %d", i)
		}
	}
	assert.Positive(t, denials)
}

func TestTheHeadersOfTheContract(t *testing.T) {
	l := newLimits(t, "events: {url_shorten: {limits: [{per: ip, rate: 5/m}]}}")
	var header http.Header
	for range 6 {
		header = request(t, l, "POST", "/v1/events/url_shorten/hit", who).Header()
	}
	assert.Equal(t, []string{`"ip-5-per-1m";q=5;w=60`}, header.Values("RateLimit-Policy"))
	assert.Equal(t, []string{`"ip-5-per-1m";r=0;t=60`}, header.Values("RateLimit"))
	assert.Equal(t, []string{"60"}, header.Values("Retry-After"))
}

// Of lists that are longer than proxies and clients read, the limit is left that a client has to mind first.
func TestLongHeaders(t *testing.T) {
	var rates []string
	for i := range 100 {
		rates = append(rates, fmt.Sprintf("%d/%dm", 1100-i, 100-i))
	}
	l := newLimits(t, "events: {url_shorten: {limits: [{per: ip, rate: ["+strings.Join(rates, ", ")+"]}]}}")
	header := request(t, l, "POST", "/v1/events/url_shorten/hit", who).Header()
	assert.Equal(t, []string{`"ip-1001-per-1m";q=1001;w=60`}, header.Values("RateLimit-Policy"))
	assert.Equal(t, []string{`"ip-1001-per-1m";r=1000`}, header.Values("RateLimit"))
}

// A handler around this one may add to a header, or change what is there: of
// another header, and of another answer, that is not the header.
func TestHeadersShareNothing(t *testing.T) {
	l := newLimits(t, "headers: [ratelimit, x-ratelimit]\nevents: {e: {limits: [{per: ip, rate: 1/d}]}}")
	l.hit(t)
	first := l.hit(t).Header()
	require.Len(t, first, 9)
	second := l.hit(t).Header()
	want := second.Clone()
	for name := range first {
		first.Add(name, "added")
		first[name][0] = "changed"
	}
	for name := range second {
		second.Add(name, "added")
	}
	for name, values := range want {
		assert.Equal(t, []string{"changed", "added"}, first[name])
		assert.Equal(t, append(values, "added"), second[name])
	}
}

func TestRulesChooseTheHeaders(t *testing.T) {
	for headers, want := range map[string][2]bool{ // RateLimit, X-RateLimit
		"":                                    {true, false},
		"headers: ratelimit\n":                {true, false},
		"headers: [x-ratelimit]\n":            {false, true},
		"headers: [ratelimit, x-ratelimit]\n": {true, true},
		"headers: none\n":                     {false, false},
	} {
		l := newLimits(t, headers+"events: {e: {limits: [{per: ip, rate: 1/m}]}}")
		for _, status := range []int{200, 429} {
			w := l.hit(t)
			require.Equal(t, status, w.Code)
			assert.Equal(t, want[0], w.Header().Get("RateLimit") != "", headers)
			assert.Equal(t, want[0], w.Header().Get("RateLimit-Policy") != "", headers)
			for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
				assert.Equal(t, want[1], w.Header().Get(name) != "", "%s: %s", headers, name)
			}
			assert.Equal(t, status == 429, w.Header().Get("Retry-After") != "", "it is no choice: %s", headers)
		}
	}
}

// The older headers have one limit: the one that a client has to mind first.
func TestTheTightestLimit(t *testing.T) {
	l := newLimits(t, `
headers: x-ratelimit
events: {e: {limits: [{per: ip, rate: [9/s, 3/m, 4/h]}, {per: [], rate: 1/d, shadow: true}]}}
`)
	for i, want := range []struct{ limit, remaining, reset string }{
		{"3", "2", "0"}, // the least remaining
		{"3", "1", "0"},
		{"3", "0", "0"},
		{"3", "0", "60"}, // the one that denies, though the hour has less than nothing to spare
	} {
		header := l.hit(t).Header()
		assert.Equal(t, want.limit, header.Get("X-RateLimit-Limit"), i)
		assert.Equal(t, want.remaining, header.Get("X-RateLimit-Remaining"), i)
		assert.Equal(t, want.reset, header.Get("X-RateLimit-Reset"), i)
	}
	l.late = 60e9
	assert.Equal(t, http.StatusOK, l.hit(t).Code)
	header := l.hit(t).Header()
	assert.Equal(t, "4", header.Get("X-RateLimit-Limit"), "the hour denies, the minute has room")
	assert.Equal(t, "3540", header.Get("X-RateLimit-Reset"))
	for range 3 {
		header = request(t, l, "POST", "/v1/events/e/hit", `{"features": {"ip": "203.0.113.9"}, "cost": 3}`).Header()
	}
	assert.Equal(t, "4", header.Get("X-RateLimit-Limit"), "of two that deny the one that does it for longer")
}
