package lint_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	yamlv3 "go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

var update = flag.Bool("update", false, "write the table in deploy/chart/README.md anew")

// valueSets are values of the chart, and the objects that they take to be there.
var valueSets = map[string]struct{ values, given string }{
	"defaults": {"{}", secret},
	"external": {`
memcached: {enabled: false, servers: ["cache-1.internal:11211", "cache-2.internal:11211", "cache-3.internal:11212"]}
image: {tag: 0.1.0-test}
networkPolicy: {enabled: false}
`, secret},
	"tls": {`
existingRules: limits
existingSecret: access
tls: {existingSecret: certificate, clientCA: true}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
memcached: {enabled: false, servers: ["10.0.0.1:11211", "10.0.0.2:11211"]}
`, strings.Replace(secret, "name: counterd", "name: access", 1) + `
---
apiVersion: v1
kind: Secret
metadata: {name: certificate, namespace: counterd}
type: kubernetes.io/tls
stringData: {tls.crt: "", tls.key: "", ca.crt: ""}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: counterd}
data: {rules.yaml: ""}
`},
	"envoy": {`
rls:
  enabled: true
  port: 8082
  config:
    shop.yaml: |
      domain: shop
      descriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 20}}]
networkPolicy: {envoys: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: istio-system}}}]}
`, secret},
	"envoy by rules": {"rls: {enabled: true}", secret},
	"envoy of another": {"rls: {enabled: true, existingConfig: limits, config: {unused.yaml: ''}}", secret + `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: counterd}
data: {shop.yaml: ""}
`},
	"much": {`
fullnameOverride: limits
replicaCount: 7
image: {repository: registry.example/counterd, pullPolicy: Always, pullSecrets: [registry]}
memory: 2600
cpu: 2
maxConnections: 10000
drainDelay: 10
readinessPath: /healthz
extraArgs: [-timeout=50ms, -max-pending=5000]
extraEnv: [{name: OTEL_RESOURCE_ATTRIBUTES, value: deployment.environment.name=test}]
memcached: {replicaCount: 4, memory: 4096, cpu: 1500m, nodeEach: false}
service: {type: LoadBalancer, port: 8080, annotations: {example.com/internal: "true"}}
networkPolicy:
  callers: [{podSelector: {matchLabels: {team: shop}}}]
  egress: [{to: [{ipBlock: {cidr: 169.254.20.10/32}}], ports: [{port: 53, protocol: UDP}]}]
podLabels: {team: platform}
podAnnotations: {example.com/scrape: "false"}
nodeSelector: {kubernetes.io/arch: arm64}
tolerations: [{key: dedicated, operator: Exists}]
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}]}]
`, secret},
}

const secret = `
apiVersion: v1
kind: Secret
metadata: {name: counterd, namespace: counterd}
stringData: {tokens: "", key-secret: ""}
`

// render returns the chart's manifests, as helm template prints them.
func render(values string) (string, error) {
	files, err := renderFiles(values)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for name, file := range files {
		if strings.HasSuffix(name, ".yaml") {
			text.WriteString("\n---\n" + file)
		}
	}
	return text.String(), nil
}

// renderFiles returns what each template of the chart makes.
func renderFiles(values string) (map[string]string, error) {
	chart, err := loader.LoadDir(filepath.Join(deploy, "chart"))
	if err != nil {
		return nil, err
	}
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "counterd", Namespace: "counterd", IsInstall: true}
	full, err := util.ToRenderValues(chart, given, release, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, full)
}

// The notes lead from the secrets to a first answer: they show a token, the label of callers and a request. Their
// commands for the secrets make what counterd reads, and the request is one that it admits.
func TestTheNotesOfTheChart(t *testing.T) {
	notes := func(values string) string {
		files, err := renderFiles(values)
		require.NoError(t, err)
		return files["counterd/templates/NOTES.txt"]
	}
	text := notes("{}")
	for _, want := range []string{
		"http://counterd.counterd:80/v1/events/login_failed/hit", "--labels=counterd/caller=true", `-H "Authorization: Bearer $(cat caller.token)"`,
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "Envoy")
	assert.Contains(t, notes(`{rules: "events: {sign_up: {limits: [{per: ip, rate: 5/h}]}}", service: {port: 8080}}`), "http://counterd.counterd:8080/v1/events/sign_up/hit")
	assert.Contains(t, notes("{existingRules: limits}"), "/v1/events/EVENT/hit")
	assert.Contains(t, notes("{tls: {existingSecret: certificate}}"), "-k https://counterd.counterd:80/")
	assert.NotContains(t, notes("{networkPolicy: {enabled: false}}"), "label")
	assert.Contains(t, notes("{networkPolicy: {enabled: false}}"), "key-secret\n\nA first request:\n")
	assert.Contains(t, notes("{rls: {enabled: true}}"), "counterd.counterd.svc.cluster.local:8081")
	assert.Contains(t, notes("{rls: {enabled: true}}"), "counterd-token")

	var commands []string
	for line := range strings.Lines(text) {
		if command, shown := strings.CutPrefix(line, "  "); shown && !strings.HasPrefix(command, "kubectl") && !strings.HasPrefix(command, "  ") {
			commands = append(commands, command)
		}
	}
	require.Len(t, commands, 3)
	folder := t.TempDir()
	shell := exec.Command("sh", "-ec", strings.Join(commands, ""))
	shell.Dir = folder
	output, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", output)
	for _, name := range []string{"tokens", "key-secret"} {
		require.NoError(t, os.Chmod(filepath.Join(folder, name), 0o600))
	}
	token, err := os.ReadFile(filepath.Join(folder, "caller.token"))
	require.NoError(t, err)
	p := start(t, exec.Command(counterd(t), "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-rules", filepath.Join(deploy, "rules", "rules.yaml"), "-memcached", memcachedtest.Start(t).Addr,
		"-tokens", filepath.Join(folder, "tokens"), "-key-secret", filepath.Join(folder, "key-secret")))
	path := regexp.MustCompile(`counterd:80(/\S+)`).FindStringSubmatch(text)
	body := regexp.MustCompile(`--json '(.*?)'`).FindStringSubmatch(text)
	require.NotNil(t, path)
	require.NotNil(t, body)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.api+path[1], strings.NewReader(body[1]))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, response.Body.Close())
	p.end(t)
}

func renderChart(t *testing.T, values string) string {
	t.Helper()
	text, err := render(values)
	require.NoError(t, err)
	return text
}

// helm lint has nothing to say of the chart, but that it has no icon.
func TestHelmTakesTheChart(t *testing.T) {
	oldest, err := common.ParseKubeVersion("1.30.0")
	require.NoError(t, err)
	for name, set := range valueSets {
		var values map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(set.values), &values))
		linter := lint.RunAll(filepath.Join(deploy, "chart"), values, "counterd", lint.WithKubeVersion(oldest))
		for _, message := range linter.Messages {
			if message.Severity == support.InfoSev {
				assert.ErrorContains(t, message.Err, "icon is recommended", name)
				continue
			}
			assert.NoError(t, message, name)
		}
	}
}

// Values that counterd or Kubernetes would refuse are refused before anything is applied.
func TestTheChartRefusesWrongValues(t *testing.T) {
	for values, complaint := range map[string]string{
		"{replicas: 3}":                           "additional properties 'replicas' not allowed",
		"{replicaCount: three}":                   "replicaCount",
		"{memcached: {enabled: false}}":           "/memcached/servers",
		"{memcached: {servers: [a:11211]}}":       "/memcached/servers",
		"{memcached: {counterReplicas: 3}}":       "/memcached/counterReplicas",
		"{tls: {clientCA: true}}":                 "/tls/existingSecret",
		"{rls: {config: {a.yaml: ''}}}":           "/rls/config",
		"{rls: {enabled: true, config: {a: ''}}}": "/rls/config",
		"{memcached: {replicaCount: 1}}":          "memcached.counterReplicas: 2 need as many servers",
		"{extraArgs: [-tokens none]}":             "/extraArgs/0",
		"{existingSecret: ''}":                    "/existingSecret",
		"{drainDelay: 1}":                         "/drainDelay",
		"{networkPolicy: {callers: []}}":          "/networkPolicy/callers",
		"{maxConnections: 2171}":                  "memory: 1024 is too small for maxConnections: 2171: set memory to 1025 or more",
		"{memory: 100}":                           "memory: 100 is too small for maxConnections: 2000: set memory to 991 or more",
		"{image: {tag: 'sha256:abc'}}":            "/image/tag",
		"{image: {digest: 'sha256:abc'}}":         "/image/digest",
	} {
		_, err := render(values)
		if assert.Error(t, err, values) {
			assert.Contains(t, strings.ReplaceAll(err.Error(), "'/", "/"), complaint, values)
		}
	}
	renderChart(t, "{memory: 991}")
	renderChart(t, "{memcached: {replicaCount: 1, counterReplicas: 1}}")
	renderChart(t, "{memcached: {enabled: false, servers: ['dns:cache.internal:11211']}}")
	most := renderChart(t, "{maxConnections: 2170}")
	list := manifests{}
	list.add(t, "most", most)
	c := list.pods(t)["counterd"].Spec.Containers[0]
	settingsOf(t, c).checkMemory(t, c.Resources.Limits.Memory().Value())
}

// checkMonitor finds out whether Prometheus finds the port, by the labels of a Service, under the job of the alerts.
func checkMonitor(t *testing.T, monitor *monitoringv1.ServiceMonitor, list manifests) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	require.NoError(t, err)
	var found []*corev1.Service
	for _, object := range list {
		if s, ok := object.(*corev1.Service); ok && selector.Matches(labels.Set(s.Labels)) {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1)
	assert.True(t, found[0].Spec.PublishNotReadyAddresses)
	assert.Equal(t, "counterd", found[0].Labels[monitor.Spec.JobLabel], "alerts go by it")
	require.Len(t, monitor.Spec.Endpoints, 1)
	assert.Equal(t, found[0].Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)
}

// defaults are the chart's manifests without a value.
func defaults(t *testing.T) manifests {
	t.Helper()
	list := manifests{}
	list.add(t, "chart", renderChart(t, "{}"))
	return list
}

// The rules of the chart are those of the compose file, and valid.
func TestTheRulesOfTheChart(t *testing.T) {
	text := one[*corev1.ConfigMap](t, defaults(t)).Data["rules.yaml"]
	assert.YAMLEq(t, string(read(t, "rules/rules.yaml")), text)
	output, err := exec.Command(counterd(t), "validate", file(t, "rules.yaml", text)).CombinedOutput()
	assert.NoError(t, err, "%s", output)
}

// describe returns a row of the README for each value, from its comment in values.yaml.
func describe(t *testing.T, path string, node *yamlv3.Node) (rows []string) {
	t.Helper()
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := path + key.Value
		if key.HeadComment == "" {
			require.Equal(t, yamlv3.MappingNode, value.Kind, "%s has no comment", name)
			rows = append(rows, describe(t, name+".", value)...)
			continue
		}
		comments := strings.Split(key.HeadComment, "\n\n") // the first one is of the file
		comment := strings.ReplaceAll(strings.ReplaceAll(comments[len(comments)-1], "\n# ", " "), "# ", "")
		shown := "see values.yaml"
		if len(value.Content) == 0 && !strings.Contains(value.Value, "\n") {
			text, err := yaml.Marshal(mustDecode(t, value))
			require.NoError(t, err)
			shown = "`" + strings.TrimSpace(string(text)) + "`"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", name, shown, comment))
	}
	return rows
}

func mustDecode(t *testing.T, node *yamlv3.Node) (value any) {
	t.Helper()
	require.NoError(t, node.Decode(&value))
	return value
}

// The README of the chart lists each value, with its default and its comment.
func TestTheReadmeOfTheChartListsTheValues(t *testing.T) {
	var values yamlv3.Node
	require.NoError(t, yamlv3.Unmarshal(read(t, "chart/values.yaml"), &values))
	rows := describe(t, "", values.Content[0])
	require.Greater(t, len(rows), 30)
	table := "| value | default | |\n| --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n"
	readme := string(read(t, "chart/README.md"))
	start := strings.Index(readme, "| value | default | |")
	require.Positive(t, start)
	if *update {
		readme = readme[:start] + table
		require.NoError(t, os.WriteFile(filepath.Join(deploy, "chart/README.md"), []byte(readme), 0o644))
	}
	assert.Equal(t, table, readme[start:], "go test -run TheReadmeOfTheChart -update")

	// The schema knows them, too: what it does not know it refuses.
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	require.NoError(t, yaml.Unmarshal(read(t, "chart/values.schema.json"), &schema))
	for name := range schema.Properties {
		known := slices.ContainsFunc(rows, func(row string) bool {
			return strings.HasPrefix(row, "| `"+name+"`") || strings.HasPrefix(row, "| `"+name+".")
		})
		assert.True(t, known || name == "global", "values.yaml has no %s", name)
	}
}

// The image is of the chart's version. A digest is its whole reference: a tag beside it says nothing.
func TestTheImageOfTheChart(t *testing.T) {
	chart, err := loader.LoadDir(filepath.Join(deploy, "chart"))
	require.NoError(t, err)
	assert.Equal(t, "ghcr.io/counterd/counterd:"+chart.Metadata.AppVersion, defaults(t).pods(t)["counterd"].Spec.Containers[0].Image)
	digest := "sha256:" + strings.Repeat("0a", 32)
	list := manifests{}
	list.add(t, "chart", renderChart(t, "{image: {repository: registry.example/counterd, tag: 0.1.0, digest: '"+digest+"'}}"))
	assert.Equal(t, "registry.example/counterd@"+digest, list.pods(t)["counterd"].Spec.Containers[0].Image)
}
