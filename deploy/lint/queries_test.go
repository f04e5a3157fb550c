package lint_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// series are the metrics of a scrape: of each its labels, and of each label its values.
type series map[string]map[string]map[string]bool

func (s series) add(name string, of []*dto.LabelPair, more ...string) {
	if s[name] == nil {
		s[name] = map[string]map[string]bool{}
	}
	for _, pair := range of {
		more = append(more, pair.GetName(), pair.GetValue())
	}
	for i := 0; i < len(more); i += 2 {
		if s[name][more[i]] == nil {
			s[name][more[i]] = map[string]bool{}
		}
		s[name][more[i]][more[i+1]] = true
	}
}

// parseScrape returns the series of a scrape, with the ones that Prometheus adds: up, and
// the labels job and instance.
func parseScrape(t *testing.T, text io.Reader) series {
	t.Helper()
	scrape := expfmt.NewTextParser(model.UTF8Validation)
	families, err := scrape.TextToMetricFamilies(text)
	require.NoError(t, err)
	found := series{}
	found.add("up", nil)
	for name, family := range families {
		for _, metric := range family.Metric {
			if family.GetType() != dto.MetricType_HISTOGRAM {
				found.add(name, metric.Label)
				continue
			}
			found.add(name+"_sum", metric.Label)
			found.add(name+"_count", metric.Label)
			found.add(name+"_bucket", metric.Label, "le", "+Inf")
		}
	}
	for name := range found {
		found.add(name, nil, "job", "counterd", "instance", "127.0.0.1:9090")
	}
	return found
}

const rulesForTests = `events:
  url_shorten:
    limits:
      - {per: ip, rate: 2/h}
      - {per: ip, rate: 1/d, shadow: true}
  login_failed:
    limits:
      - {per: ip, rate: 5/m, on_error: deny}
`

// selfSigned writes a certificate for this machine, and its key.
func selfSigned(t *testing.T) (cert, key string, client *http.Client) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "counterd"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	signed, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	require.NoError(t, err)
	encoded, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	cert = file(t, "cert.pem", string(certPEM))
	key = file(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	return cert, key, &http.Client{Transport: transport}
}

// file writes a file that only its owner reads.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// scrapeReal returns the series of a counterd with all that it can have, on real servers,
// that has decided, denied, refused, and lost its servers.
func scrapeReal(t *testing.T) series {
	t.Helper()
	servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t), memcachedtest.Start(t)}
	cert, key, client := selfSigned(t)
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	p := start(t, exec.Command(counterd(t), "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-rls", "127.0.0.1:0",
		"-rules", file(t, "rules.yaml", rulesForTests), "-tokens", file(t, "tokens", tokensForTests),
		"-tls-cert", cert, "-tls-key", key, "-key-secret", file(t, "key-secret", strings.Repeat("k", 32)), "-replicas", "2", "-otlp-endpoint", collector.URL,
		"-memcached-file", file(t, "servers", servers[0].Addr+","+servers[1].Addr+","+servers[2].Addr)))
	ask := func(token, method, url, body string) (int, io.Reader) {
		request, err := http.NewRequestWithContext(t.Context(), method, "https://"+url, strings.NewReader(body))
		require.NoError(t, err)
		if body != "" {
			request.Header.Set("Content-Type", "application/json")
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, strings.NewReader(string(text))
	}
	const caller, prometheus = "0123456789abcdef0123", "fedcba98765432100123"
	hit := func(event string) int {
		status, _ := ask(caller, http.MethodPost, p.api+"/v1/events/"+event+"/hit", `{"features": {"ip": "192.0.2.1"}}`)
		return status
	}
	assert.Equal(t, http.StatusOK, hit("url_shorten"))
	assert.Equal(t, http.StatusOK, hit("url_shorten"))
	assert.Equal(t, http.StatusTooManyRequests, hit("url_shorten"))
	status, _ := ask(caller, http.MethodGet, p.api+"/v1/events/url_shorten/check?feature=ip:192.0.2.1", "")
	assert.Equal(t, http.StatusOK, status)
	status, _ = ask(caller, http.MethodPost, p.api+"/json", `{"domain": "unknown", "descriptors": [{}]}`)
	assert.Equal(t, http.StatusOK, status)
	status, _ = ask("", http.MethodGet, p.api+"/v1/events", "")
	assert.Equal(t, http.StatusUnauthorized, status)
	status, _ = ask("", http.MethodGet, p.api+"/readyz", "")
	assert.Equal(t, http.StatusOK, status)
	for _, server := range servers {
		server.Stop()
	}
	assert.Equal(t, http.StatusServiceUnavailable, hit("login_failed"))
	status, text := ask(prometheus, http.MethodGet, p.admin+"/metrics", "")
	require.Equal(t, http.StatusOK, status)
	found := parseScrape(t, text)
	p.end(t)
	return found
}

// query is a PromQL expression and where it is from.
type query struct{ where, expr, legend string }

// readDashboard returns the dashboard as it is written.
func readDashboard(t *testing.T) (dashboard map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(read(t, "grafana/dashboard.json"), &dashboard))
	return dashboard
}

// labelValues matches a variable's question.
var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// readQueries returns the queries of the alerts and of the dashboard, wherever they stand.
func readQueries(t *testing.T) (list []query) {
	t.Helper()
	for _, alert := range readAlerts(t) {
		list = append(list, query{where: alert.Alert, expr: alert.Expr})
	}
	var walk func(where string, node any)
	walk = func(where string, node any) {
		switch n := node.(type) {
		case []any:
			for _, of := range n {
				walk(where, of)
			}
		case map[string]any:
			if title, ok := n["title"].(string); ok {
				where = title
			}
			if expr, ok := n["expr"].(string); ok {
				legend, _ := n["legendFormat"].(string)
				list = append(list, query{where, expr, legend})
			}
			if of, ok := n["definition"].(string); ok {
				match := labelValues.FindStringSubmatch(of)
				require.NotNil(t, match, of)
				list = append(list, query{where + ", a variable", "count by (" + match[2] + ") (" + match[1] + ")", "{{" + match[2] + "}}"})
			}
			for _, name := range slices.Sorted(maps.Keys(n)) {
				walk(where, n[name])
			}
		}
	}
	walk("dashboard", readDashboard(t))
	require.Greater(t, len(list), 80)
	return list
}

// legendLabel matches a label in what Grafana writes beside a line.
var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// faults returns what a query asks for that the series do not have.
func (s series) faults(t *testing.T, q query) (faults []string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(strings.ReplaceAll(q.expr, "$__rate_interval", "5m"))
	if err != nil {
		return []string{err.Error()}
	}
	known := map[string]bool{} // labels of any of the metrics
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			faults = append(faults, s.selects(selector)...)
			for label := range s[selector.Name] {
				known[label] = true
			}
		}
		return nil
	})
	used := []string{}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			used = append(used, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				used = append(used, n.VectorMatching.MatchingLabels...)
				used = append(used, n.VectorMatching.Include...)
			}
		}
		return nil
	})
	for _, match := range legendLabel.FindAllStringSubmatch(q.legend, -1) {
		used = append(used, match[1])
	}
	for _, label := range used {
		if !known[label] {
			faults = append(faults, "no metric of it has the label "+label)
		}
	}
	return faults
}

// selects returns what is wrong with a selector. A value that is named in full has to
// exist, too.
func (s series) selects(selector *parser.VectorSelector) (faults []string) {
	of, exists := s[selector.Name]
	if !exists {
		return []string{"no metric " + selector.Name}
	}
	for _, matcher := range selector.LabelMatchers {
		if matcher.Name == model.MetricNameLabel {
			continue
		}
		values, exists := of[matcher.Name]
		if !exists {
			faults = append(faults, selector.Name+" has no label "+matcher.Name)
			continue
		}
		if strings.Contains(matcher.Value, "$") || matcher.Type == labels.MatchRegexp && matches(matcher, values) {
			continue
		}
		if !values[matcher.Value] && matcher.Type != labels.MatchRegexp {
			faults = append(faults, selector.Name+" has no "+matcher.Name+" of the value "+matcher.Value)
		}
	}
	return faults
}

func matches(matcher *labels.Matcher, values map[string]bool) bool {
	for value := range values {
		if matcher.Matches(value) {
			return true
		}
	}
	return false
}

// All queries are over metrics, labels and values that a real counterd has; and all that
// it says of itself is on the dashboard.
func TestQueriesAreOverWhatThereIs(t *testing.T) {
	found := scrapeReal(t)
	asked := map[string]bool{}
	for _, q := range readQueries(t) {
		assert.Empty(t, found.faults(t, q), "%s: %s", q.where, q.expr)
		for _, name := range regexp.MustCompile(`[a-z]+_[a-z_]+`).FindAllString(q.expr, -1) {
			asked[name] = true
		}
	}
	for name := range found {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
		if strings.HasPrefix(name, "counterd_") && name == base {
			assert.True(t, asked[name], "%s is on no panel", name)
		}
	}
	for _, wrong := range []string{
		"counterd_nothing", "counterd_pending{server=\"a\"}", "sum by (server) (counterd_pending)", "counterd_pending ==",
		"counterd_decisions_total{call=\"hits\"}", "counterd_pending and on (limit) counterd_connections",
	} {
		assert.NotEmpty(t, found.faults(t, query{expr: wrong}), wrong)
	}
}

// Panels say what they show, in units, of the data source and the processes that are
// chosen.
func TestTheDashboardIsWhole(t *testing.T) {
	dashboard := readDashboard(t)
	defined := map[string]bool{"__rate_interval": true, "__all": true}
	for _, variable := range dashboard["templating"].(map[string]any)["list"].([]any) {
		defined[variable.(map[string]any)["name"].(string)] = true
	}
	for _, match := range regexp.MustCompile(`\$\{?(\w+)`).FindAllSubmatch(read(t, "grafana/dashboard.json"), -1) {
		assert.True(t, defined[string(match[1])], "no variable %s", match[1])
	}
	for _, node := range dashboard["panels"].([]any) {
		panel := node.(map[string]any)
		title := panel["title"].(string)
		if panel["type"] == "row" {
			continue
		}
		assert.NotEmpty(t, panel["description"], title)
		assert.Equal(t, map[string]any{"type": "prometheus", "uid": "${datasource}"}, panel["datasource"], title)
		if panel["type"] == "timeseries" || panel["type"] == "stat" {
			assert.NotEmpty(t, panel["fieldConfig"].(map[string]any)["defaults"].(map[string]any)["unit"], title)
		}
		for _, target := range panel["targets"].([]any) {
			assert.Contains(t, target.(map[string]any)["expr"], `job=~"$job", instance=~"$instance"`, title)
		}
	}
	text, err := os.ReadFile(filepath.Join(project, operations))
	require.NoError(t, err)
	for _, node := range dashboard["panels"].([]any) {
		if panel := node.(map[string]any); panel["type"] == "row" {
			assert.Contains(t, string(text), "| "+panel["title"].(string)+" |", "docs/operations.md does not explain the row")
		}
	}
}
