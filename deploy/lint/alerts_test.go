package lint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// alert is one of alerts.yaml.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func readAlerts(t *testing.T) (list []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string  `json:"name"`
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	require.NoError(t, yaml.UnmarshalStrict(read(t, "prometheus/alerts.yaml"), &file))
	for _, group := range file.Groups {
		list = append(list, group.Rules...)
	}
	require.Greater(t, len(list), 20)
	return list
}

// promtool runs it in deploy/prometheus.
func promtool(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.Command(tool(t, "promtool"), args...)
	command.Dir = filepath.Join(deploy, "prometheus")
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return string(output)
}

func TestPromtool(t *testing.T) {
	assert.Contains(t, promtool(t, "check", "rules", "alerts.yaml"), "SUCCESS")
	assert.Contains(t, promtool(t, "test", "rules", "alerts_test.yaml"), "SUCCESS")
	assert.Contains(t, promtool(t, "check", "config", "--syntax-only", "scrape.yaml"), "SUCCESS")
}

// Each alert is shown to fire and not to fire.
func TestEachAlertIsTestedBothWays(t *testing.T) {
	var file struct {
		RuleFiles          []string `json:"rule_files"`
		EvaluationInterval string   `json:"evaluation_interval"`
		Tests              []struct {
			Interval      string           `json:"interval"`
			InputSeries   []map[string]any `json:"input_series"`
			AlertRuleTest []struct {
				EvalTime  string `json:"eval_time"`
				AlertName string `json:"alertname"`
				ExpAlerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	require.NoError(t, yaml.UnmarshalStrict(read(t, "prometheus/alerts_test.yaml"), &file))
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, one := range test.AlertRuleTest {
			if len(one.ExpAlerts) > 0 {
				fires[one.AlertName] = true
			} else {
				silent[one.AlertName] = true
			}
		}
	}
	for _, alert := range readAlerts(t) {
		assert.True(t, fires[alert.Alert], "no test has %s fire", alert.Alert)
		assert.True(t, silent[alert.Alert], "no test has %s not fire", alert.Alert)
	}
}

const operations = "docs/operations.md"

// entry matches the heading of a runbook entry.
var entry = regexp.MustCompile(`(?m)^#+ (Counterd[A-Za-z]+)$`)

// Each alert has its entry in the runbook, where its link leads, and each entry its alert.
func TestTheRunbookHasEachAlert(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(project, operations))
	require.NoError(t, err)
	entries, alerts := []string{}, []string{}
	for _, match := range entry.FindAllSubmatch(text, -1) {
		entries = append(entries, string(match[1]))
	}
	for _, alert := range readAlerts(t) {
		alerts = append(alerts, alert.Alert)
		assert.Contains(t, []string{"warning", "critical"}, alert.Labels["severity"], alert.Alert)
		assert.NotEmpty(t, alert.Annotations["summary"], alert.Alert)
		assert.NotEmpty(t, alert.Annotations["description"], alert.Alert)
		assert.True(t, strings.HasSuffix(alert.Annotations["runbook_url"], "/"+operations+"#"+strings.ToLower(alert.Alert)), alert.Alert)
	}
	assert.Equal(t, alerts, entries, "the runbook is in the order of the alerts")
}
