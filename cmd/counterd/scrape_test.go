package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// scraped is a scrape of /metrics: counterd's own series, as they are written there, with
// their values. What holds seconds is left out, but for how many there were.
type scraped map[string]float64

func scrape(t *testing.T, p *process) (series scraped, text string) {
	t.Helper()
	status, text := p.get(t, "/metrics")
	require.Equal(t, http.StatusOK, status)
	series = scraped{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if value == "" {
			name, value, _ = strings.Cut(name, " ")
		} else {
			name += "}"
		}
		family, _, _ := strings.Cut(name, "{")
		if !strings.HasPrefix(name, "counterd_") || strings.HasSuffix(family, "_seconds_bucket") || strings.HasSuffix(family, "_seconds_sum") {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err, line)
		series[name] = number
	}
	return series, text
}

// take returns the series that begins so, and takes it out.
func (s scraped) take(t *testing.T, prefix string) (sum float64) {
	t.Helper()
	found := false
	maps.DeleteFunc(s, func(name string, value float64) bool {
		if strings.HasPrefix(name+" ", prefix) {
			found, sum = true, sum+value
			return true
		}
		return false
	})
	require.True(t, found, prefix)
	return sum
}

const scrapedRules = `events:
  main: {limits: [{per: ip, rate: 5/h, name: five, precision: hour, deny: [192.0.2.66]}]}
  shade: {limits: [{per: ip, rate: 2/h, name: shade, precision: hour, shadow: true}]}
  shut: {limits: [{per: user, rate: 5/h, name: shut, precision: hour, on_error: deny}]}
  own: {limits: [{per: user, rate: 1/h, name: own, precision: hour, on_error: local}]}
`

// awayFromTheHour waits until a test of a few seconds has the same hour from its beginning
// to its end, and the hour before is closed: then it is known what is read.
func awayFromTheHour() {
	const before, after = 40 * time.Second, 25 * time.Second
	now := time.Now()
	if next := now.Truncate(time.Hour).Add(time.Hour); next.Sub(now) < before {
		time.Sleep(next.Add(after).Sub(now))
	} else if last := now.Truncate(time.Hour); now.Sub(last) < after {
		time.Sleep(last.Add(after).Sub(now))
	}
}

// One scrape after a known sequence shows what was done, and nothing else.
func TestOneScrapeShowsWhatWasDone(t *testing.T) {
	awayFromTheHour()
	const denials = 3
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		require.NoError(t, os.WriteFile(rules+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(rules+".new", rules))
	}
	write(scrapedRules + "  gone: {limits: [{per: user, rate: 9/h, name: gone, precision: hour}]}\n")
	server := memcachedtest.Start(t)
	servers := filepath.Join(t.TempDir(), "servers")
	require.NoError(t, os.WriteFile(servers, []byte(server.Addr), 0o600))
	p := startProcess(t, "-rules", rules, "-memcached-file", servers, "-timeout", "5s", "-grace", "10s", "-max-pending", "1")
	scrapes := 0
	look := func() (scraped, string) {
		scrapes++
		return scrape(t, p)
	}
	eventually := func(name string, value float64) {
		t.Helper()
		require.Eventually(t, func() bool {
			series, _ := look()
			return series[name] == value
		}, soon, 10*time.Millisecond, "%s %v", name, value)
	}
	do := func(code int, method, path, body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, p.url+path, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		if body != "" {
			request.Header.Set("Content-Type", "application/json")
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, code, response.StatusCode, "%s %s", path, body)
	}
	hit := func(code int, event, feature string) {
		t.Helper()
		kind, value, _ := strings.Cut(feature, ":")
		do(code, "POST", "/v1/events/"+event+"/hit", fmt.Sprintf(`{"features": {%q: %q}}`, kind, value))
	}

	for range 5 {
		hit(200, "main", "ip:192.0.2.1")
	}
	for range denials {
		hit(429, "main", "ip:192.0.2.1")
	}
	hit(429, "main", "ip:192.0.2.66")
	for range 3 {
		hit(200, "shade", "ip:192.0.2.1")
	}
	do(200, "GET", "/v1/events/main/check?feature=ip:192.0.2.1", "")
	do(200, "HEAD", "/v1/events/main/check?feature=ip:192.0.2.2", "")
	const again = `{"event": "main", "features": {"ip": "192.0.2.3"}}`
	do(200, "POST", "/v1/batch", `{"hits": [`+again+`, `+again+`, {"event": "zebra", "features": {"ip": "192.0.2.3"}}, {"event": "main", "features": {"ip": "192.0.2.3"}, "cost": 0}]}`)
	hit(200, "shut", "user:ada-1")
	hit(200, "own", "user:ada-1")
	hit(200, "gone", "user:ada-1")
	hit(404, "zebra", "user:ada-1")
	do(200, "POST", "/v1/events/main/increment", `{"features": {"ip": "192.0.2.4"}, "by": 3}`)
	do(200, "GET", "/v1/events/main/count?feature=ip:192.0.2.4&window=1h", "")
	do(204, "DELETE", "/v1/events/main/counters?feature=ip:192.0.2.4", "")
	do(404, "GET", "/zebra", "")
	do(405, "BREW", "/v1/batch", "")

	// Too much waits for a server that is paused.
	server.Pause()
	var waiting sync.WaitGroup
	waiting.Go(func() { hit(200, "shut", "user:ada-2") })
	eventually(`counterd_pending{of="hits"}`, 1)
	hit(200, "main", "ip:192.0.2.5")
	hit(503, "shut", "user:ada-3")
	server.Resume()
	waiting.Wait()

	// Of three rules files one is no good.
	write(scrapedRules + "  fresh: {limits: [{per: user, rate: 9/h, name: fresh, precision: hour}]}\n")
	eventually("counterd_rules_generation", 2)
	hit(200, "fresh", "user:ada-1")
	write(scrapedRules + "  fresh: {limits: 9}\n")
	eventually("counterd_rules_reload_failures_total", 1)
	require.NoError(t, os.Remove(servers))
	eventually(`counterd_server_list_failing{source="file"}`, 1)

	server.Stop()
	for range 3 {
		hit(200, "main", "ip:192.0.2.6")
	}
	hit(503, "shut", "user:ada-4")
	hit(503, "shut", "user:ada-4")
	hit(200, "own", "user:ada-4")
	hit(429, "own", "user:ada-4")
	do(503, "GET", "/v1/events/shut/check?feature=user:ada-4", "")

	series, text := scrape(t, p) // which it does not know of itself

	// What is of the moment: denials and closed buckets are remembered for a second, and the first
	// trips to a dead server tell that it is dead in one way or another, unless a look has told it.
	assert.Equal(t, 1.0, series.take(t, "counterd_build_info"))
	assert.Positive(t, series.take(t, "counterd_connections "))
	recalled := series.take(t, "counterd_cached_denials_total")
	missed := series.take(t, "counterd_bucket_cache_misses_total")
	series.take(t, "counterd_overrides_failing") // as soon as they are read without the server
	assert.Positive(t, series.take(t, "counterd_server_list_failures_total"), "it is looked for again and again")
	trip := func(outcome string) float64 {
		return series.take(t, fmt.Sprintf(`counterd_store_round_trips_total{kind="exchange",outcome=%q`, outcome))
	}
	taken := func(name string) float64 {
		return series.take(t, fmt.Sprintf("counterd_store_%s_total{server=%q}", name, server.Addr))
	}
	failed, done, down := trip("refused")+trip("error")+trip("timeout"), trip("ok"), trip("down")
	adds, reads, ended := taken("adds"), taken("reads"), series.take(t, "counterd_store_round_trip_duration_seconds_count")
	assert.LessOrEqual(t, recalled, float64(denials-1), "the first denial is the store's")
	looked := denials - 1 - recalled
	others := reads - 7 - missed - looked // two checks and the count read the hour that goes on, a reset four
	// The history of denied hits adds to three levels of a counter, about a second later, and reads nothing.
	written := done + failed - 22 - looked - others // 22: 15 lists of hits, two checks, an increment, a count, and a reset: a look and two epochs
	assert.GreaterOrEqual(t, written, 0.0)
	dead := adds - 18 - 3*written // hits that reached the server, the increment, two epochs of the reset, and the hits that did not
	assert.LessOrEqual(t, dead, 3.0)
	assert.GreaterOrEqual(t, dead, 0.0)
	assert.Positive(t, others-dead, "the temporary overrides are read at the start, and each second")
	assert.GreaterOrEqual(t, down, 8-dead, "seven hits and a check when the server was gone")
	assert.Equal(t, done+failed, ended)
	assert.LessOrEqual(t, series.take(t, `counterd_denied_history_dropped_total{reason="store"}`), denials+2.0)

	want := zeros(server.Addr, map[string]string{"main": "five", "shade": "shade", "shut": "shut", "own": "own", "fresh": "fresh"})
	for line := range strings.Lines(fmt.Sprintf(`counterd_bucket_cache_hits_total %v
counterd_clock_ahead_seconds 0
counterd_clock_wrong 0
counterd_connections_refused_total 0
counterd_decisions_total{call="check",event="main",verdict="allowed"} 1
counterd_decisions_total{call="check",event="main",verdict="denied"} 1
counterd_decisions_total{call="check",event="shut",verdict="unavailable"} 1
counterd_decisions_total{call="hit",event="fresh",verdict="allowed"} 1
counterd_decisions_total{call="hit",event="main",verdict="allowed"} 11
counterd_decisions_total{call="hit",event="main",verdict="denied"} 4
counterd_decisions_total{call="hit",event="own",verdict="allowed"} 2
counterd_decisions_total{call="hit",event="own",verdict="denied"} 1
counterd_decisions_total{call="hit",event="shade",verdict="allowed"} 3
counterd_decisions_total{call="hit",event="shut",verdict="allowed"} 2
counterd_decisions_total{call="hit",event="shut",verdict="unavailable"} 3
counterd_file_reload_failing{file="rules"} 1
counterd_batched_hits_total %v
counterd_batches_total %v
counterd_http_request_duration_seconds_count{route="/metrics"} %v
counterd_http_request_duration_seconds_count{route="/v1/batch"} 1
counterd_http_request_duration_seconds_count{route="/v1/events/{event}/check"} 3
counterd_http_request_duration_seconds_count{route="/v1/events/{event}/count"} 1
counterd_http_request_duration_seconds_count{route="/v1/events/{event}/counters"} 1
counterd_http_request_duration_seconds_count{route="/v1/events/{event}/hit"} 27
counterd_http_request_duration_seconds_count{route="/v1/events/{event}/increment"} 1
counterd_http_request_duration_seconds_count{route="other"} 2
counterd_http_requests_total{code="200",method="GET",route="/metrics"} %v
counterd_http_requests_total{code="200",method="GET",route="/v1/events/{event}/check"} 1
counterd_http_requests_total{code="200",method="GET",route="/v1/events/{event}/count"} 1
counterd_http_requests_total{code="200",method="HEAD",route="/v1/events/{event}/check"} 1
counterd_http_requests_total{code="200",method="POST",route="/v1/batch"} 1
counterd_http_requests_total{code="200",method="POST",route="/v1/events/{event}/hit"} 18
counterd_http_requests_total{code="200",method="POST",route="/v1/events/{event}/increment"} 1
counterd_http_requests_total{code="204",method="DELETE",route="/v1/events/{event}/counters"} 1
counterd_http_requests_total{code="404",method="GET",route="other"} 1
counterd_http_requests_total{code="404",method="POST",route="/v1/events/{event}/hit"} 1
counterd_http_requests_total{code="405",method="other",route="other"} 1
counterd_http_requests_total{code="429",method="POST",route="/v1/events/{event}/hit"} 5
counterd_http_requests_total{code="503",method="GET",route="/v1/events/{event}/check"} 1
counterd_http_requests_total{code="503",method="POST",route="/v1/events/{event}/hit"} 3
counterd_limit_decisions_total{event="fresh",limit="fresh",verdict="allowed"} 1
counterd_limit_decisions_total{event="main",limit="five",verdict="allowed"} 7
counterd_limit_decisions_total{event="main",limit="five",verdict="denied"} 4
counterd_limit_decisions_total{event="own",limit="own",verdict="allowed"} 2
counterd_limit_decisions_total{event="own",limit="own",verdict="denied"} 1
counterd_limit_decisions_total{event="shade",limit="shade",verdict="allowed"} 2
counterd_limit_decisions_total{event="shade",limit="shade",verdict="shadow_denied"} 1
counterd_limit_decisions_total{event="shut",limit="shut",verdict="allowed"} 2
counterd_limit_near_total{event="main",limit="five"} 2
counterd_limit_near_total{event="own",limit="own"} 2
counterd_limit_near_total{event="shade",limit="shade"} 1
counterd_memcached_breaker_openings_total{server="SERVER"} 1
counterd_memcached_evictions_total{server="SERVER"} 0
counterd_memcached_lost_since_timestamp_seconds{server="SERVER"} 0
counterd_memcached_repaired_ratio{server="SERVER"} 1
counterd_memcached_key_secret_mismatch{server="SERVER"} 0
counterd_memcached_up{server="SERVER"} 0
counterd_on_error_decisions_total{event="main",on_error="allow"} 4
counterd_on_error_decisions_total{event="own",on_error="local"} 2
counterd_on_error_decisions_total{event="shut",on_error="deny"} 3
counterd_overload_total{of="counts"} 0
counterd_overload_total{of="hits"} 2
counterd_overrides{state="effective"} 0
counterd_overrides{state="idle"} 0
counterd_pending{of="counts"} 0
counterd_pending{of="hits"} 0
counterd_rules_generation 2
counterd_rules_reload_failures_total 1
counterd_server_list_failing{source="file"} 1
counterd_store_round_trips_total{kind="delete",outcome="ok",server="SERVER"} 1
counterd_store_round_trips_total{kind="roll_back",outcome="ok",server="SERVER"} 1
`,
		18+looked-missed,     // each hit, check and count wants one, except hits with a cached denial
		23+looked, 22+looked, // two hits of the batch are one
		scrapes, scrapes)) {
		name, value, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(line), "SERVER", server.Addr), " ")
		number, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err, line)
		want[name] = number
	}
	assert.Equal(t, want, series)
	for _, value := range []string{"192.0.2", "ada-", "zebra", "BREW"} {
		assert.False(t, strings.Contains(text, value), value)
	}
}

// zeros returns the series that are there from the beginning, but those of trips that fail.
func zeros(server string, limits map[string]string) scraped {
	series := scraped{}
	for event, limit := range limits {
		for _, verdict := range []string{"allowed", "denied", "unavailable"} {
			for _, call := range []string{"check", "hit"} {
				series[fmt.Sprintf("counterd_decisions_total{call=%q,event=%q,verdict=%q}", call, event, verdict)] = 0
			}
		}
		for _, verdict := range []string{"allowed", "denied", "shadow_denied"} {
			series[fmt.Sprintf("counterd_limit_decisions_total{event=%q,limit=%q,verdict=%q}", event, limit, verdict)] = 0
		}
		for _, onError := range []string{"allow", "deny", "local"} {
			series[fmt.Sprintf("counterd_on_error_decisions_total{event=%q,on_error=%q}", event, onError)] = 0
		}
		series[fmt.Sprintf("counterd_limit_near_total{event=%q,limit=%q}", event, limit)] = 0
	}
	for _, class := range []string{"decide", "increment", "read", "see", "reset", "override", "rules", "operate"} {
		for _, reason := range []string{"missing", "unknown", "forbidden"} {
			series[fmt.Sprintf("counterd_unauthorized_total{class=%q,reason=%q}", class, reason)] = 0
		}
	}
	for _, name := range []string{"tokens_reload_failures_total", "tls_reload_failures_total", "tls_certificate_expiry_timestamp_seconds", "tls_certificate_lifetime_seconds"} {
		series["counterd_"+name] = 0
	}
	for _, kind := range []string{"exchange", "roll_back", "delete", "repair_read", "repair_write"} {
		for _, outcome := range []string{"ok", "timeout", "down", "refused", "closed", "error"} {
			series[fmt.Sprintf("counterd_store_round_trips_total{kind=%q,outcome=%q,server=%q}", kind, outcome, server)] = 0
		}
	}
	series[`counterd_denied_history_dropped_total{reason="full"}`] = 0
	for _, outcome := range []string{"timeout", "refused", "error", "down", "ok"} {
		delete(series, fmt.Sprintf("counterd_store_round_trips_total{kind=%q,outcome=%q,server=%q}", "exchange", outcome, server))
	}
	return series
}
