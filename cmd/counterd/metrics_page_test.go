package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

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
	_, err := p.client(t).Hit(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.9"}, 1)
	require.NoError(t, err)
	require.Equal(t, "OK", answers(t.Context(), p.rls(t, insecure.NewCredentials()), "url_shorten", "ip", "203.0.113.9"))
	p.get(t, "/metrics") // of which the next one tells
	status, text := p.get(t, "/metrics")
	require.Equal(t, http.StatusOK, status)
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
