package page_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/insight/dryrun"
)

// The text of each rule of the rules is one that can be tried, and is decided as the engine decides it.
func TestWhatIf(t *testing.T) {
	w := newDay(t)
	h := w.Handler()
	for event, n := range map[string]int{"url_shorten": 4, "login": 1, "export": 1, "hourly": 1} {
		for rule := range n {
			body := get(t, h, "/ui/whatif?event="+event+"&rule="+strconv.Itoa(rule)).Body.String()
			_, text, found := strings.Cut(body, `aria-describedby="text-hint">`)
			require.True(t, found)
			text, _, _ = strings.Cut(text, "</textarea>")
			answer := get(t, h, whatIf(event, text))
			require.Equal(t, http.StatusOK, answer.Code, "%s: %s", text, textOf(answer.Body.String()))
		}
	}
	parsed, err := rulesfile.Parse([]byte("events: {url_shorten: {limits: [{per: ip, rate: 3/m}]}}"))
	require.NoError(t, err)
	features := events.Features{"ip": "198.51.100.0"}
	event, err := w.Event("url_shorten")
	require.NoError(t, err)
	counter, err := event.Counter(features)
	require.NoError(t, err)
	w.DeniedIn = func(time.Time) int64 { return 0 }
	past, err := dryrun.PastOf(t.Context(), w, counter, now.Add(-23*time.Hour), now)
	require.NoError(t, err)
	require.False(t, past.ByMinute)
	result, err := dryrun.Decide(t.Context(), parsed.Events["url_shorten"], features, past)
	require.NoError(t, err)
	require.Equal(t, dryrun.Result{Hits: 10, Denied: 7}, result)
	text := shown(t, h, whatIf("url_shorten", "{per: ip, rate: 3/m}"))
	assert.Contains(t, text, "Feature Hits of the last day Were denied Would be denied")
	assert.Contains(t, text, "ip:198.51.100.0 10 0 7")
	assert.NotContains(t, text, "user:bob", "it is of another kind")
	assert.NotContains(t, text, "were left out")
	assert.Contains(t, shown(t, h, whatIf("url_shorten", "{per: path, rate: 3/m}")), "No feature of these kinds had hits")
}

// What is no rule is a fault in words, and the text stays.
func TestWhatIfFaults(t *testing.T) {
	w := newDay(t)
	h := w.Handler()
	for rule, words := range map[string]string{
		"{per: ip, rate: 3}":                   "rate",
		"{per: ip}":                            "rate",
		"{":                                    "",
		"{per: ip, rate: 3/m}, {per: ip}":      "",
		"{per: ip, rate: 3/m, burst: x}":       "burst",
		hostile[0]:                             "",
		"{per: ip, rate: 3/m} # " + hostile[0]: "-",
		"{per: ip, name: " + strings.Repeat("x", 5000) + "}": "longer than 4096 bytes",
	} {
		answer := get(t, h, whatIf("url_shorten", rule))
		if words == "-" {
			assert.Equal(t, http.StatusOK, answer.Code)
		} else {
			assert.Equal(t, http.StatusBadRequest, answer.Code, rule)
			assert.Contains(t, textOf(answer.Body.String()), words)
		}
		assert.NotContains(t, answer.Body.String(), "<script>")
	}
	assert.Equal(t, http.StatusNotFound, get(t, h, whatIf("nothing", "{per: ip, rate: 3/m}")).Code)
	w.Down = assert.AnError
	assert.Equal(t, http.StatusServiceUnavailable, get(t, h, whatIf("url_shorten", "{per: ip, rate: 3/m}")).Code)
}
