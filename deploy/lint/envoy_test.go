package lint_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	contourv1 "github.com/projectcontour/contour/apis/projectcontour/v1"
	contourv1alpha1 "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	istiov1alpha3 "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// envoyPage is docs/envoy.md, and what its snippets have in common.
type envoyPage struct {
	text   string
	domain string // of its configuration of envoyproxy/ratelimit
	port   uint64 // of -rls
}

// shownYAML matches the blocks of a page that show YAML.
var shownYAML = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func readEnvoyPage(t *testing.T) *envoyPage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(project, "docs", "envoy.md"))
	require.NoError(t, err)
	page := &envoyPage{text: string(text)}
	serves := regexp.MustCompile(`(?m)^go run ./cmd/counterd -rls \S+:(\d+) `).FindStringSubmatch(page.text)
	domain := regexp.MustCompile("```yaml\ndomain: (\\w+)\n").FindStringSubmatch(page.text)
	require.NotNil(t, serves)
	require.NotNil(t, domain)
	page.domain = domain[1]
	page.port, err = strconv.ParseUint(serves[1], 10, 16)
	require.NoError(t, err)
	return page
}

// object is an object of Kubernetes whose spec is still to be decoded.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
}

// Each snippet of docs/envoy.md is what the program that it is for reads, strictly: Envoy's messages pass their own
// validation, and ask counterd where the page has it serve.
func TestTheSnippetsOfEnvoy(t *testing.T) {
	page := readEnvoyPage(t)
	known := map[string]int{}
	for _, block := range shownYAML.FindAllStringSubmatch(page.text, -1) {
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			text, err := yaml.YAMLToJSONStrict([]byte(document))
			require.NoError(t, err, document)
			kind, _, _ := strings.Cut(document, ":")
			if kind == "apiVersion" {
				var of object
				strict(t, text, &of)
				kind = of.APIVersion + " " + of.Kind
				assert.NotEmpty(t, of.Name)
				assert.NotEmpty(t, of.Namespace)
				page.object(t, kind, text, of.Spec)
			} else {
				page.envoy(t, kind, text)
			}
			known[kind]++
		}
	}
	assert.Equal(t, map[string]int{
		"domain": 2, "events": 1, "http_filters": 1, "typed_per_filter_config": 1, "transport_socket": 1, "networking.istio.io/v1alpha3 EnvoyFilter": 1,
		"projectcontour.io/v1alpha1 ExtensionService": 1, "projectcontour.io/v1alpha1 ContourConfiguration": 1,
		"projectcontour.io/v1 HTTPProxy": 1, "gateway.envoyproxy.io/v1alpha1 EnvoyPatchPolicy": 1,
	}, known)
}

// strict decodes as the API server does it.
func strict(t *testing.T, text []byte, into any) {
	t.Helper()
	faults, err := kjson.UnmarshalStrict(text, into)
	require.NoError(t, err, "%s", text)
	require.Empty(t, faults, "%s", text)
}

// envoy checks what is part of Envoy's own configuration. The configurations of counterd have tests in docs.
func (page *envoyPage) envoy(t *testing.T, kind string, text []byte) {
	t.Helper()
	switch kind {
	case "http_filters":
		var parts map[string]json.RawMessage
		strict(t, text, &parts)
		require.Len(t, parts, 3)
		page.all(t, parts["http_filters"], &hcmv3.HttpFilter{})
		page.all(t, parts["rate_limits"], &routev3.RateLimit{})
		page.all(t, parts["clusters"], &clusterv3.Cluster{})
	case "typed_per_filter_config":
		route := &routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}}
		require.NoError(t, protojson.Unmarshal(text, route))
		for _, of := range route.TypedPerFilterConfig {
			message, err := of.UnmarshalNew()
			require.NoError(t, err)
			require.NoError(t, message.(interface{ ValidateAll() error }).ValidateAll())
		}
	case "transport_socket":
		cluster := &clusterv3.Cluster{Name: "counterd"}
		require.NoError(t, protojson.Unmarshal(text, cluster))
		page.valid(t, cluster.TransportSocket)
	}
}

// object checks what is an object of Kubernetes.
func (page *envoyPage) object(t *testing.T, kind string, text, spec []byte) {
	t.Helper()
	switch kind {
	case "networking.istio.io/v1alpha3 EnvoyFilter":
		page.istio(t, spec)
	case "gateway.envoyproxy.io/v1alpha1 EnvoyPatchPolicy":
		page.gateway(t, spec)
	case "projectcontour.io/v1alpha1 ExtensionService":
		var of contourv1alpha1.ExtensionService
		strict(t, text, &of)
		require.Len(t, of.Spec.Services, 1)
		assert.EqualValues(t, page.port, of.Spec.Services[0].Port)
		assert.Equal(t, "h2c", *of.Spec.Protocol)
		timeout, err := time.ParseDuration(of.Spec.TimeoutPolicy.Response)
		require.NoError(t, err)
		assert.Equal(t, defaultTimeout, timeout)
	case "projectcontour.io/v1alpha1 ContourConfiguration":
		var of contourv1alpha1.ContourConfiguration
		strict(t, text, &of)
		assert.Equal(t, page.domain, of.Spec.RateLimitService.Domain)
		service := of.Spec.RateLimitService.ExtensionService
		named := "kind: ExtensionService\nmetadata: {name: " + service.Name + ", namespace: " + service.Namespace + "}\n"
		assert.True(t, strings.Contains(page.text, named), "no snippet has %s", named)
	case "projectcontour.io/v1 HTTPProxy":
		var of contourv1.HTTPProxy
		strict(t, text, &of)
		assert.NotNil(t, of.Spec.VirtualHost.RateLimitPolicy.Global.Descriptors[0].Entries[0].RemoteAddress)
	}
}

// istio checks the patches of an EnvoyFilter.
func (page *envoyPage) istio(t *testing.T, spec []byte) {
	t.Helper()
	of := &istiov1alpha3.EnvoyFilter{}
	require.NoError(t, protojson.Unmarshal(spec, of))
	require.Len(t, of.ConfigPatches, 2)
	for _, patch := range of.ConfigPatches {
		value, err := protojson.Marshal(patch.Patch.Value)
		require.NoError(t, err)
		switch patch.ApplyTo {
		case istiov1alpha3.EnvoyFilter_HTTP_FILTER:
			page.one(t, value, &hcmv3.HttpFilter{})
		case istiov1alpha3.EnvoyFilter_VIRTUAL_HOST:
			host := &routev3.VirtualHost{} // a part of one
			require.NoError(t, protojson.Unmarshal(value, host))
			require.Len(t, host.RateLimits, 1)
			page.valid(t, host.RateLimits[0])
		default:
			assert.Fail(t, patch.ApplyTo.String())
		}
	}
}

// patchPolicy is the spec of an EnvoyPatchPolicy. The types of Envoy Gateway need another version of Kubernetes'.
type patchPolicy struct {
	TargetRef struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
		Name  string `json:"name"`
	} `json:"targetRef"`
	Type        string `json:"type"`
	JSONPatches []struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Operation struct {
			Op    string          `json:"op"`
			Path  string          `json:"path"`
			Value json.RawMessage `json:"value"`
		} `json:"operation"`
	} `json:"jsonPatches"`
}

// gateway checks the patches of an EnvoyPatchPolicy: each path leads to a field of its resource, of which its value is
// one, or one of several.
func (page *envoyPage) gateway(t *testing.T, spec []byte) {
	t.Helper()
	var of patchPolicy
	strict(t, spec, &of)
	assert.Equal(t, "JSONPatch", of.Type)
	assert.Equal(t, "gateway.networking.k8s.io Gateway", of.TargetRef.Group+" "+of.TargetRef.Kind)
	require.Len(t, of.JSONPatches, 3)
	for _, patch := range of.JSONPatches {
		assert.Equal(t, "add", patch.Operation.Op)
		resource, err := protoregistry.GlobalTypes.FindMessageByURL(patch.Type)
		require.NoError(t, err)
		at, list := resource.Descriptor(), false
		for _, segment := range strings.FieldsFunc(patch.Operation.Path, func(r rune) bool { return r == '/' }) {
			if list && segment == "0" {
				list = false
				continue
			}
			require.False(t, list, "%s: a list has numbers", patch.Operation.Path)
			if at.FullName() == "google.protobuf.Any" {
				at = (&hcmv3.HttpConnectionManager{}).ProtoReflect().Descriptor()
			}
			field := at.Fields().ByTextName(segment)
			require.NotNil(t, field, "%s has no %s: %s", at.FullName(), segment, patch.Operation.Path)
			at, list = field.Message(), field.IsList()
		}
		value, err := protoregistry.GlobalTypes.FindMessageByName(at.FullName())
		require.NoError(t, err)
		if list {
			page.all(t, patch.Operation.Value, value.New().Interface())
		} else {
			page.one(t, patch.Operation.Value, value.New().Interface())
		}
	}
}

// all checks a list of messages like the given one.
func (page *envoyPage) all(t *testing.T, text []byte, like proto.Message) {
	t.Helper()
	var list []json.RawMessage
	strict(t, text, &list)
	require.NotEmpty(t, list)
	for _, text := range list {
		page.one(t, text, like.ProtoReflect().New().Interface())
	}
}

// one checks a message.
func (page *envoyPage) one(t *testing.T, text []byte, into proto.Message) {
	t.Helper()
	require.NoError(t, protojson.Unmarshal(text, into), "%s", text)
	page.valid(t, into)
}

const defaultTimeout = 100 * time.Millisecond // of -timeout

// outbound is the name that Istio gives a cluster.
var outbound = regexp.MustCompile(`^outbound\|(\d+)\|\|counterd\.counterd\.svc\.cluster\.local$`)

// valid checks a message and those in it by Envoy's own validation, and that they mean counterd.
func (page *envoyPage) valid(t *testing.T, message proto.Message) {
	t.Helper()
	require.NoError(t, protorange.Range(message.ProtoReflect(), func(at protopath.Values) error {
		of, isMessage := at.Index(-1).Value.Interface().(protoreflect.Message)
		if !isMessage {
			return nil
		}
		if valid, ok := of.Interface().(interface{ ValidateAll() error }); ok {
			assert.NoError(t, valid.ValidateAll())
		}
		switch of := of.Interface().(type) {
		case *ratelimitv3.RateLimit:
			assert.Equal(t, page.domain, of.Domain)
			assert.Equal(t, defaultTimeout, of.Timeout.AsDuration())
			name := of.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName
			if match := outbound.FindStringSubmatch(name); match != nil {
				assert.Equal(t, strconv.FormatUint(page.port, 10), match[1])
			} else {
				assert.Equal(t, "counterd", name)
			}
		case *clusterv3.Cluster:
			page.cluster(t, of)
		}
		return nil
	}))
}

// cluster checks the cluster that is counterd.
func (page *envoyPage) cluster(t *testing.T, of *clusterv3.Cluster) {
	t.Helper()
	assert.Equal(t, "counterd", of.Name)
	assert.Equal(t, of.Name, of.LoadAssignment.ClusterName)
	address := of.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address
	assert.EqualValues(t, page.port, address.GetSocketAddress().GetPortValue())
	protocol := &httpv3.HttpProtocolOptions{}
	require.NoError(t, of.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].UnmarshalTo(protocol))
	assert.NotNil(t, protocol.GetExplicitHttpConfig().GetHttp2ProtocolOptions(), "gRPC needs HTTP/2")
}

// The configuration of the example is a whole one of Envoy, and asks the counterd of its page.
func TestTheExampleOfEnvoy(t *testing.T) {
	folder := filepath.Join(project, "examples", "envoy")
	text, err := os.ReadFile(filepath.Join(folder, "envoy.yaml"))
	require.NoError(t, err)
	text, err = yaml.YAMLToJSONStrict(text)
	require.NoError(t, err)
	envoy := &bootstrapv3.Bootstrap{}
	require.NoError(t, protojson.Unmarshal(text, envoy))
	require.NoError(t, envoy.ValidateAll())
	clusters := envoy.StaticResources.Clusters
	require.Len(t, clusters, 2)
	require.Equal(t, "service", clusters[0].Name)
	envoy.StaticResources.Clusters = clusters[1:]
	page := readEnvoyPage(t)
	page.valid(t, envoy)

	shop, err := os.ReadFile(filepath.Join(folder, "shop.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(shop), "\ndomain: "+page.domain+"\n")
	shown, err := os.ReadFile(filepath.Join(folder, "README.md"))
	require.NoError(t, err)
	assert.Contains(t, string(shown), "-rls 127.0.0.1:"+strconv.FormatUint(page.port, 10)+" -rls-config shop.yaml\n")
}

// The flags of the page are those of counterd.
func TestTheFlagsOfEnvoy(t *testing.T) {
	page := readEnvoyPage(t)
	known := readFlags(t)
	flags := regexp.MustCompile("(?:`|counterd.* )-([a-z][a-z-]+)[ `=]").FindAllStringSubmatch(page.text, -1)
	assert.Greater(t, len(flags), 20)
	for _, match := range flags {
		assert.True(t, known[match[1]], "counterd knows no -%s", match[1])
	}
}
