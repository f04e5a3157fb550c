package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of one deployment, by kind and name.
type manifests map[string]metav1.Object

// newObject returns an object of the kind to decode into.
func newObject(t *testing.T, kind metav1.TypeMeta) metav1.Object {
	t.Helper()
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 ConfigMap":
		return &corev1.ConfigMap{}
	case "v1 Secret":
		return &corev1.Secret{}
	case "v1 Service":
		return &corev1.Service{}
	case "apps/v1 Deployment":
		return &appsv1.Deployment{}
	case "apps/v1 StatefulSet":
		return &appsv1.StatefulSet{}
	case "policy/v1 PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	case "networking.k8s.io/v1 NetworkPolicy":
		return &networkingv1.NetworkPolicy{}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return &monitoringv1.ServiceMonitor{}
	}
	require.Fail(t, "a kind that the test does not know", "%s %s", kind.APIVersion, kind.Kind)
	return nil
}

// add decodes manifests strictly: a field that the API does not have, or one that is there twice, is a fault.
func (m manifests) add(t *testing.T, file, text string) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(document), &kind), file)
		if kind.Kind == "" {
			require.Empty(t, strings.TrimSpace(document), file)
			continue
		}
		object := newObject(t, kind)
		text, err := yaml.YAMLToJSONStrict([]byte(document))
		require.NoError(t, err, "%s: %s", file, document)
		// As the API server does it, which tells names of fields in capitals apart.
		strict, err := json.UnmarshalStrict(text, object)
		require.NoError(t, err, "%s: %s", file, document)
		assert.Empty(t, strict, file)
		assert.Empty(t, validation.IsDNS1123Label(object.GetName()), "%s: %s", file, object.GetName())
		assert.Equal(t, "counterd", object.GetNamespace(), "%s: %s", file, object.GetName())
		id := kind.Kind + " " + object.GetName()
		require.NotContains(t, m, id)
		m[id] = object
	}
}

// deployments are what the chart makes of several sets of values.
func deployments(t *testing.T) map[string]manifests {
	t.Helper()
	all := map[string]manifests{}
	for name, set := range valueSets {
		list := manifests{}
		list.add(t, name, renderChart(t, set.values))
		list.add(t, name, set.given)
		all[name] = list
	}
	return all
}

// one returns the only object of a type.
func one[T metav1.Object](t *testing.T, list manifests) T {
	t.Helper()
	var found []T
	for _, object := range list {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

func get[T metav1.Object](t *testing.T, list manifests, id string) T {
	t.Helper()
	require.Contains(t, list, id)
	return list[id].(T)
}

// pods returns the templates of pods, by the name of what has them made.
func (m manifests) pods(t *testing.T) map[string]corev1.PodTemplateSpec {
	t.Helper()
	pods := map[string]corev1.PodTemplateSpec{"counterd": one[*appsv1.Deployment](t, m).Spec.Template}
	if m.hasMemcached() {
		pods["memcached"] = one[*appsv1.StatefulSet](t, m).Spec.Template
	}
	return pods
}

// hasMemcached says whether the deployment has servers of its own.
func (m manifests) hasMemcached() bool {
	for _, object := range m {
		if _, ok := object.(*appsv1.StatefulSet); ok {
			return true
		}
	}
	return false
}

// Pods are what the restricted security standard wants, and a little more.
func TestPodsMayDoNothingTheyNeedNot(t *testing.T) {
	for name, list := range deployments(t) {
		t.Run(name, func(t *testing.T) { checkRestricted(t, list) })
	}
}

func checkRestricted(t *testing.T, list manifests) {
	for name, template := range list.pods(t) {
		pod := template.Spec
		require.NotNil(t, pod.SecurityContext, name)
		assert.True(t, *pod.SecurityContext.RunAsNonRoot, name)
		assert.Positive(t, *pod.SecurityContext.RunAsUser, name)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, name)
		assert.False(t, *pod.AutomountServiceAccountToken, name)
		assert.False(t, *pod.EnableServiceLinks, name)
		require.Len(t, pod.Containers, 1)
		c := pod.Containers[0]
		assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
		assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
		assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
		assert.Empty(t, c.SecurityContext.Capabilities.Add, name)
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			assert.Contains(t, list, corev1.ResourceMemory, name)
		}
		assert.NotContains(t, c.Image, "latest", name)
	}
}

// Each selector of pods selects pods of the manifests; each port has a name that the pod
// knows.
func TestSelectorsAndPortsMeet(t *testing.T) {
	for name, list := range deployments(t) {
		t.Run(name, func(t *testing.T) { checkSelectors(t, list) })
	}
}

func checkSelectors(t *testing.T, list manifests) {
	pods := list.pods(t)
	selected := func(selector *metav1.LabelSelector) (of []corev1.PodSpec) {
		s, err := metav1.LabelSelectorAsSelector(selector)
		require.NoError(t, err)
		for _, pod := range pods {
			if s.Matches(labels.Set(pod.Labels)) {
				of = append(of, pod.Spec)
			}
		}
		return of
	}
	port := func(id string, of []corev1.PodSpec, wanted intstr.IntOrString) {
		for _, pod := range of {
			known := false
			for _, p := range pod.Containers[0].Ports {
				known = known || p.Name == wanted.StrVal || p.ContainerPort == wanted.IntVal
			}
			assert.True(t, known, "%s: the pod has no port %s", id, wanted.String())
		}
	}
	for id, object := range list {
		switch o := object.(type) {
		case *corev1.Service:
			of := selected(&metav1.LabelSelector{MatchLabels: o.Spec.Selector})
			assert.Len(t, of, 1, id)
			for _, p := range o.Spec.Ports {
				port(id, of, p.TargetPort)
			}
		case *policyv1.PodDisruptionBudget:
			assert.Len(t, selected(o.Spec.Selector), 1, id)
		case *appsv1.Deployment:
			assert.Len(t, selected(o.Spec.Selector), 1, id)
			assert.GreaterOrEqual(t, *o.Spec.Replicas, int32(2), id)
		case *appsv1.StatefulSet:
			assert.Len(t, selected(o.Spec.Selector), 1, id)
			get[*corev1.Service](t, list, "Service "+o.Spec.ServiceName)
		case *networkingv1.NetworkPolicy:
			of := selected(&o.Spec.PodSelector)
			assert.NotEmpty(t, of, id)
			for _, rule := range o.Spec.Ingress {
				assert.NotEmpty(t, rule.From, "%s: anybody", id)
				for _, p := range rule.Ports {
					port(id, of, *p.Port)
				}
			}
			for _, rule := range o.Spec.Egress {
				for _, peer := range rule.To {
					if peer.NamespaceSelector != nil || peer.PodSelector == nil {
						continue // outside
					}
					to := selected(peer.PodSelector)
					assert.Len(t, to, 1, id)
					for _, p := range rule.Ports {
						port(id, to, *p.Port)
					}
				}
			}
		case *monitoringv1.ServiceMonitor:
			checkMonitor(t, o, list)
		}
	}
}

// The processes of a release find one another, and are let through.
func TestProcessesFindOneAnother(t *testing.T) {
	for name, list := range deployments(t) {
		pod := list.pods(t)["counterd"]
		service, port, found := strings.Cut(strings.TrimPrefix(settingsOf(t, pod.Spec.Containers[0])["COUNTERD_PEERS"], "dns:"), ":")
		require.True(t, found, name)
		headless := get[*corev1.Service](t, list, "Service "+service)
		assert.Equal(t, corev1.ClusterIPNone, headless.Spec.ClusterIP, name)
		pods := metav1.LabelSelector{MatchLabels: headless.Spec.Selector}
		assert.Subset(t, pod.Labels, headless.Spec.Selector, name)
		assert.True(t, slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
			return p.Name == "api" && fmt.Sprint(p.ContainerPort) == port
		}), name)
		for _, object := range list {
			policy, isPolicy := object.(*networkingv1.NetworkPolicy)
			if !isPolicy || !reflect.DeepEqual(policy.Spec.PodSelector, pods) {
				continue
			}
			isPeer := func(p networkingv1.NetworkPolicyPeer) bool { return reflect.DeepEqual(p.PodSelector, &pods) }
			assert.True(t, slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
				return slices.ContainsFunc(r.From, isPeer) && r.Ports[0].Port.StrVal == "api"
			}), name)
			assert.True(t, slices.ContainsFunc(policy.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
				return slices.ContainsFunc(r.To, isPeer) && r.Ports[0].Port.String() == port
			}), name)
		}
	}
}

// settingsOf are what a pod's arguments and environment say.
func settingsOf(t *testing.T, c corev1.Container) settings {
	t.Helper()
	s := settings{}
	s.addArgs(t, c.Args)
	for _, variable := range c.Env {
		s[variable.Name] = variable.Value
	}
	return s
}

// What the Deployment tells counterd counterd knows; the files are mounted; the servers are
// those of the StatefulSet; the memory limit leaves room above that of Go.
func TestTheDeploymentAgreesWithCounterd(t *testing.T) {
	for name, list := range deployments(t) {
		t.Run(name, func(t *testing.T) { checkDeployment(t, list) })
	}
}

func checkDeployment(t *testing.T, list manifests) {
	pod := list.pods(t)["counterd"].Spec
	c := pod.Containers[0]
	s := settingsOf(t, c)
	s.check(t, readFlags(t))
	for _, p := range c.Ports {
		name := map[string]string{"api": "COUNTERD_LISTEN", "admin": "COUNTERD_ADMIN", "grpc-rls": "COUNTERD_RLS"}[p.Name]
		assert.Equal(t, s.port(name), fmt.Sprint(p.ContainerPort), p.Name)
	}

	files := map[string]bool{}
	for _, volume := range pod.Volumes {
		for _, mount := range c.VolumeMounts {
			if mount.Name != volume.Name {
				continue
			}
			assert.Empty(t, mount.SubPath, "what is mounted so is never replaced")
			if volume.ConfigMap != nil {
				files[mount.MountPath] = true
				for key := range get[*corev1.ConfigMap](t, list, "ConfigMap "+volume.ConfigMap.Name).Data {
					files[mount.MountPath+"/"+key] = true
				}
			}
			if volume.Secret != nil {
				assert.Zero(t, *volume.Secret.DefaultMode&0o007, "others may read it")
				for key := range get[*corev1.Secret](t, list, "Secret "+volume.Secret.SecretName).StringData {
					files[mount.MountPath+"/"+key] = true
				}
			}
		}
	}
	for name, value := range s {
		if strings.HasPrefix(value, "/") {
			assert.True(t, files[value], "%s: nothing is mounted as %s", name, value)
		}
	}

	if list.hasMemcached() {
		set := one[*appsv1.StatefulSet](t, list)
		servers := []string{}
		for i := range *set.Spec.Replicas {
			servers = append(servers, fmt.Sprintf("%s-%d.%s:11211", set.Name, i, set.Spec.ServiceName))
		}
		assert.Equal(t, strings.Join(servers, ","), s["COUNTERD_MEMCACHED"])
	}

	s.checkMemory(t, c.Resources.Limits.Memory().Value())
}

// checkMemory finds a limit of memory that is too low for the connections taken, by what
// docs/security.md reckons, or that Go does not know of.
func (s settings) checkMemory(t *testing.T, limit int64) {
	t.Helper()
	known, err := resource.ParseQuantity(strings.TrimSuffix(s["GOMEMLIMIT"], "B"))
	require.NoError(t, err)
	assert.Less(t, known.Value(), limit, "GOMEMLIMIT")
	assert.Greater(t, known.Value(), limit*8/10, "GOMEMLIMIT")
	connections, err := strconv.ParseInt(s["COUNTERD_MAX_CONNECTIONS"], 10, 64)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(project, "docs", "security.md"))
	require.NoError(t, err)
	match := regexp.MustCompile(`(\d+) MiB and (\d+) KiB for each connection`).FindSubmatch(text)
	require.NotNil(t, match)
	fixed, err := strconv.ParseInt(string(match[1]), 10, 64)
	require.NoError(t, err)
	each, err := strconv.ParseInt(string(match[2]), 10, 64)
	require.NoError(t, err)
	assert.LessOrEqual(t, fixed<<20+connections*each<<10, limit)
}

// Prometheus finds all pods, ready or not: while the store is away none is.
func TestPrometheusFindsThePods(t *testing.T) {
	var config struct {
		ScrapeConfigs []struct {
			JobName string `json:"job_name"`
			DNS     []struct {
				Names []string `json:"names"`
				Type  string   `json:"type"`
				Port  int32    `json:"port"`
			} `json:"dns_sd_configs"`
		} `json:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(read(t, "prometheus/scrape.yaml"), &config))
	require.Len(t, config.ScrapeConfigs, 1)
	assert.Equal(t, "counterd", config.ScrapeConfigs[0].JobName, "alerts go by it")
	require.Len(t, config.ScrapeConfigs[0].DNS, 1)
	found := config.ScrapeConfigs[0].DNS[0]
	service := get[*corev1.Service](t, defaults(t), "Service counterd-admin")
	assert.Equal(t, corev1.ClusterIPNone, service.Spec.ClusterIP)
	assert.True(t, service.Spec.PublishNotReadyAddresses)
	assert.Equal(t, []string{service.Name + "." + service.Namespace + ".svc.cluster.local"}, found.Names)
	assert.Equal(t, "A", found.Type)
	assert.Equal(t, service.Spec.Ports[0].Port, found.Port)
}

// The patch of the runbook replaces what is there: the path that readiness asks, by that of
// liveness.
func TestThePatchOfTheRunbook(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(project, operations))
	require.NoError(t, err)
	match := regexp.MustCompile(`patch deployment counterd --type=json -p '(.*)'`).FindSubmatch(text)
	require.NotNil(t, match)
	var patch []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	require.NoError(t, yaml.UnmarshalStrict(match[1], &patch))
	require.Len(t, patch, 1)
	assert.Equal(t, "replace", patch[0].Op)
	deployment := get[*appsv1.Deployment](t, defaults(t), "Deployment counterd")
	node, err := runtime.DefaultUnstructuredConverter.ToUnstructured(deployment)
	require.NoError(t, err)
	var at any = node
	for name := range strings.SplitSeq(strings.TrimPrefix(patch[0].Path, "/"), "/") {
		if list, ok := at.([]any); ok {
			i, err := strconv.Atoi(name)
			require.NoError(t, err)
			at = list[i]
			continue
		}
		at = at.(map[string]any)[name]
	}
	c := deployment.Spec.Template.Spec.Containers[0]
	assert.Equal(t, c.ReadinessProbe.HTTPGet.Path, at)
	assert.Equal(t, c.LivenessProbe.HTTPGet.Path, patch[0].Value)
}

// Liveness does not depend on the store, readiness does; and a pod that ends has the time
// for it.
func TestProbesAndTheEndOfAPod(t *testing.T) {
	for name, list := range deployments(t) {
		t.Run(name, func(t *testing.T) { checkProbes(t, list, name != "much") })
	}
}

func checkProbes(t *testing.T, list manifests, readyByStore bool) {
	pod := list.pods(t)["counterd"].Spec
	c := pod.Containers[0]
	s := settingsOf(t, c)
	scheme := corev1.URIScheme("")
	if s["COUNTERD_TLS_CERT"] != "" {
		scheme = corev1.URISchemeHTTPS
	}
	ready := "/healthz"
	if readyByStore {
		ready = "/readyz"
	}
	for probe, path := range map[*corev1.Probe]string{
		c.StartupProbe: "/healthz", c.LivenessProbe: "/healthz", c.ReadinessProbe: ready,
	} {
		assert.Equal(t, path, probe.HTTPGet.Path)
		assert.Equal(t, "admin", probe.HTTPGet.Port.StrVal)
		assert.Equal(t, scheme, probe.HTTPGet.Scheme)
	}
	delay, err := time.ParseDuration(s["COUNTERD_DRAIN_DELAY"])
	require.NoError(t, err)
	sleep := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	assert.Greater(t, grace, sleep+delay+longestEnd(t))
	noticed := time.Duration(c.ReadinessProbe.PeriodSeconds*c.ReadinessProbe.FailureThreshold) * time.Second
	assert.GreaterOrEqual(t, delay, noticed, "a pod that says it is not ready is asked until that is noticed")
}
