package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// metric returns the value of the line of /metrics with that name and those labels.
func (p *process) metric(t *testing.T, name string) int {
	t.Helper()
	_, text := p.get(t, "/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	require.NotNil(t, found, "%s: %s", name, text)
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return int(value)
}

// scraped is a scrape of /metrics: counterd's own series and their values, but zeros and what depends on the moment.
type scraped map[string]float64

var momentary = regexp.MustCompile(`^counterd_(http_request|store_|bucket_cache_|batche|cached_denials_|build_info|connections |` +
	`overrides_failing|server_list_failures_|denied_history_)`)

func scrape(t *testing.T, p *process) (series scraped, text string) {
	t.Helper()
	_, text = p.get(t, "/metrics")
	series = scraped{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "counterd_") || momentary.MatchString(line) {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		number, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		require.NoError(t, err, line)
		if number != 0 {
			series[line[:at]] = number
		}
	}
	return series, text
}

const scrapedRules = `events:
  main: {limits: [{per: ip, rate: 5/h, name: five, precision: hour, deny: [192.0.2.66]}]}
  shade: {limits: [{per: ip, rate: 2/h, name: shade, precision: hour, shadow: true}]}
  shut: {limits: [{per: user, rate: 5/h, name: shut, precision: hour, on_error: deny}]}
  own: {limits: [{per: user, rate: 1/h, name: own, precision: hour, on_error: local}]}
`

// One scrape after a known sequence shows its decisions and failures, and nothing else. Package metrics tests the series of
// requests and round trips.
func TestOneScrapeShowsWhatWasDone(t *testing.T) {
	folder := t.TempDir()
	rules, servers := filepath.Join(folder, "rules.yaml"), filepath.Join(folder, "servers")
	testkit.WriteFile(t, rules, scrapedRules+"  gone: {limits: [{per: user, rate: 9/h, name: gone, precision: hour}]}\n")
	server := memcachedtest.Start(t)
	testkit.WriteFile(t, servers, server.Addr)
	p := startProcess(t, "-rules", rules, "-memcached-file", servers, "-max-pending", "1")
	becomes := func(name string, value int) {
		t.Helper()
		testkit.Await(t, soon, fmt.Sprint(name, " ", value), func() bool { return p.metric(t, name) == value })
	}
	do := func(code int, method, path, body string) {
		t.Helper()
		answered, text := ask(t, method, p.url+path, body)
		require.Equal(t, code, answered, "%s %s: %s", path, body, text)
	}
	hit := func(code int, event, feature string) {
		t.Helper()
		kind, value, _ := strings.Cut(feature, ":")
		do(code, "POST", "/v1/events/"+event+"/hit", fmt.Sprintf(`{"features": {%q: %q}}`, kind, value))
	}

	for range 5 {
		hit(200, "main", "ip:192.0.2.1")
	}
	for range 3 {
		hit(429, "main", "ip:192.0.2.1")
	}
	hit(429, "main", "ip:192.0.2.66")
	for range 3 {
		hit(200, "shade", "ip:192.0.2.1")
	}
	do(200, "GET", "/v1/events/main/check?feature=ip:192.0.2.1", "")
	do(200, "HEAD", "/v1/events/main/check?feature=ip:192.0.2.2", "")
	const again = `{"event": "main", "features": {"ip": "192.0.2.3"}}`
	do(200, "POST", "/v1/batch", `{"hits": [`+again+`, `+again+`, {"event": "zebra", "features": {"ip": "192.0.2.3"}}, {"event": "main", "features": {"ip": "192.0.2.3"}, "cost": -1}]}`)
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
	becomes(`counterd_pending{of="hits"}`, 1)
	hit(200, "main", "ip:192.0.2.5")
	hit(503, "shut", "user:ada-3")
	server.Resume()
	waiting.Wait()

	// Of three rules files one is no good.
	testkit.ReplaceFile(t, rules, scrapedRules+"  fresh: {limits: [{per: user, rate: 9/h, name: fresh, precision: hour}]}\n")
	becomes("counterd_rules_generation", 2)
	hit(200, "fresh", "user:ada-1")
	testkit.ReplaceFile(t, rules, scrapedRules+"  fresh: {limits: 9}\n")
	becomes("counterd_rules_reload_failures_total", 1)
	require.NoError(t, os.Remove(servers))
	becomes(`counterd_server_list_failing{source="file"}`, 1)

	server.Stop()
	for range 3 {
		hit(200, "main", "ip:192.0.2.6")
	}
	hit(503, "shut", "user:ada-4")
	hit(503, "shut", "user:ada-4")
	hit(200, "own", "user:ada-4")
	hit(429, "own", "user:ada-4")
	do(503, "GET", "/v1/events/shut/check?feature=user:ada-4", "")

	series, text := scrape(t, p)
	want := scraped{}
	for line := range strings.Lines(`counterd_decisions_total{call="check",event="main",verdict="allowed"} 1
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
counterd_memcached_repaired_ratio{server="SERVER"} 1
counterd_on_error_decisions_total{event="main",on_error="allow"} 4
counterd_on_error_decisions_total{event="own",on_error="local"} 2
counterd_on_error_decisions_total{event="shut",on_error="deny"} 3
counterd_overload_total{of="hits"} 2
counterd_rules_generation 2
counterd_rules_reload_failures_total 1
counterd_server_list_failing{source="file"} 1
`) {
		name, value, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(line), "SERVER", server.Addr), " ")
		number, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err, line)
		want[name] = number
	}
	assert.Equal(t, want, series)
	for _, value := range []string{"192.0.2", "ada-", "zebra", "BREW"} {
		assert.NotContains(t, text, value)
	}
}

// metricRow is a row of the tables of docs/metrics.md.
var metricRow = regexp.MustCompile("(?m)^\\| `(counterd_[a-z_]+)` \\| (counter|gauge|histogram) \\| ([^|]*) \\| (.+) \\|$")

var (
	metricType = regexp.MustCompile(`(?m)^# TYPE (counterd_\S+) (\S+)$`)
	metricHelp = regexp.MustCompile(`(?m)^# HELP (counterd_\S+) (.+)$`)
	labelName  = regexp.MustCompile(`[{,]([a-z_]+)="`)
)

// The page has what a process with copies serves, and nothing else: its name, type and
// labels, and what it means in the words of its help.
func TestThePageOfTheMetrics(t *testing.T) {
	servers := filepath.Join(t.TempDir(), "servers")
	testkit.WriteFile(t, servers, strings.Join(memcachedtest.StartMany(t, 2), ","))
	p := startRLS(t, "-memcached-file", servers, "-replicas", "2", "-otlp-endpoint", startCollector(t).URL,
		"-rules", "../../deploy/rules/rules.yaml")
	_, err := p.client(t).Hit(t.Context(), "url_shorten", visitor, 1)
	require.NoError(t, err)
	require.Equal(t, "OK", answers(t.Context(), p.rls(t, insecure.NewCredentials()), "url_shorten", "ip", "203.0.113.9"))
	p.get(t, "/metrics") // the next one counts it
	_, text := p.get(t, "/metrics")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)

	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	var told []string
	for _, row := range metricRow.FindAllStringSubmatch(string(page), -1) {
		told = append(told, fmt.Sprintf("%s: a %s by [%s]: %s", row[1], row[2], strings.ReplaceAll(row[3], "`", ""), row[4]))
	}
	helps := map[string]string{}
	for _, help := range metricHelp.FindAllStringSubmatch(text, -1) {
		helps[help[1]] = help[2]
	}
	var served []string
	for _, metric := range metricType.FindAllStringSubmatch(text, -1) {
		name := metric[1]
		series := regexp.MustCompile(`(?m)^` + name + `(?:_count)?(\{.*\})? `).FindStringSubmatch(text)
		require.NotEmpty(t, series, name)
		var labels []string
		for _, label := range labelName.FindAllStringSubmatch(series[1], -1) {
			labels = append(labels, label[1])
		}
		slices.Sort(labels)
		served = append(served, fmt.Sprintf("%s: a %s by [%s]: %s", name, metric[2], strings.Join(labels, ", "), helps[name]))
	}
	require.Greater(t, len(served), 25)
	assert.ElementsMatch(t, served, told)
}
