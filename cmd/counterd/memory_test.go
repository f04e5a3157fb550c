package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

// newFlooded returns the HTTP interface of a limiter with one limit.
func newFlooded(t *testing.T, limit string, options ...counterd.Option) http.Handler {
	t.Helper()
	rules, err := counterd.ParseRules([]byte("events: {e: {limits: [" + limit + "]}}"))
	require.NoError(t, err)
	l, err := counterd.New(rules, append(options, counterd.WithLog(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return api.NewHandler(l, api.Config{})
}

// batch hits with each of the addresses, and returns the answer.
func batch(t *testing.T, h http.Handler, addresses []string) string {
	var hits []string
	for _, address := range addresses {
		hits = append(hits, fmt.Sprintf(`{"event":"e","features":{"ip":%q}}`, address))
	}
	r := httptest.NewRequest("POST", "/v1/batch", strings.NewReader(`{"hits":[`+strings.Join(hits, ",")+`]}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

// Addresses of one network share a counter: the owner of a /64, or of a network of the rule's prefix, is limited like the
// owner of one address.
func TestAFloodFromOneNetwork(t *testing.T) {
	const addresses = 1 << 12
	for _, test := range []struct {
		rule     string
		format   string // of an address, by a number of 12 bits
		counters int
	}{
		{"{per: ip, rate: 5/d}", "2001:db8:0:1::%x", 1},
		{"{per: ip, rate: 5/d}", "2001:db8:0:%x::1", addresses},
		{"{per: ip, rate: 5/d, ipv6_prefix: 48}", "2001:db8:0:%x::1", 1},
		{"{per: ip, rate: 5/d, ipv6_prefix: 56}", "2001:db8:0:%x::1", addresses >> 8},
	} {
		rules, err := rulesfile.Parse([]byte("events: {e: {limits: [" + test.rule + "]}}"))
		require.NoError(t, err)
		counters := map[string]bool{}
		for i := range addresses {
			applied, err := rules.Events["e"].Apply(nil, events.Features{"ip": fmt.Sprintf(test.format, i)})
			require.NoError(t, err)
			counters[applied[0].ID] = true
		}
		assert.Len(t, counters, test.counters, test)
	}

	// And the limit is that of the network.
	f, admitted := newFlooded(t, "{per: ip, rate: 5/d}"), 0
	for round := range 2 {
		var list []string
		for i := range 1000 {
			list = append(list, fmt.Sprintf("2001:db8:0:1:%x::%x", round, i))
		}
		admitted += strings.Count(batch(t, f, list), `"status":200`)
	}
	assert.Equal(t, 5, admitted)
}
