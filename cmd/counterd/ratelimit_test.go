package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

func environmentOf(variables string) func(string) (string, bool) {
	set := map[string]string{}
	for _, variable := range strings.Fields(variables) {
		name, value, _ := strings.Cut(variable, "=")
		set[name] = value
	}
	return func(name string) (string, bool) {
		value, found := set[name]
		return value, found
	}
}

// Each variable of envoyproxy/ratelimit with a meaning here is a flag.
func TestTheirEnvironment(t *testing.T) {
	const least = "MEMCACHE_HOST_PORT=a:11211,b:11211 "
	flags := func(of ...string) []string {
		return append([]string{
			"-listen=0.0.0.0:8080", "-rls=0.0.0.0:8081", "-rls-config=/srv/runtime_data/current/config", "-memcached=a:11211,b:11211",
		}, of...)
	}
	for variables, want := range map[string][]string{
		"": flags("-tokens=none"),
		"BACKEND_TYPE=memcache CONFIG_TYPE=FILE SHADOW_MODE=0 USE_STATSD=false REDIS_URL=redis:6379 LOG_LEVEL=debug": flags("-tokens=none"),
		"COUNTERD_TOKENS=file":                     flags(),
		"LOG_FORMAT=JSON":                          flags("-tokens=none", "-log=json"),
		"USE_PROMETHEUS=true":                      flags("-tokens=none", "-admin=:9090"),
		"DEBUG_PORT=6071":                          flags("-tokens=none", "-admin=0.0.0.0:6071"),
		"MEMCACHE_TLS=true MEMCACHE_TLS_CACERT=ca": flags("-memcached-tls=true", "-memcached-ca=ca", "-tokens=none"),
		"GRPC_SERVER_USE_TLS=1 GRPC_SERVER_TLS_CERT=cert GRPC_SERVER_TLS_KEY=key GRPC_CLIENT_TLS_CACERT=ca":                flags("-tls-cert=cert", "-tls-key=key", "-tls-client-ca=ca", "-tokens=none"),
		"COUNTERD_LISTEN=:1 COUNTERD_RLS=:2 COUNTERD_RLS_CONFIG=c COUNTERD_MEMCACHED=d:1 MEMCACHE_TLS_CLIENT_CERT=ignored": {"-tokens=none"},
	} {
		e, err := theirEnvironment(environmentOf(least + variables))
		require.NoError(t, err, variables)
		assert.Equal(t, want, e.flags, variables)
		assert.Len(t, e.warnings, strings.Count(variables, "GRPC_SERVER_USE_TLS"), variables)
		assert.Equal(t, []events.Header{events.HeaderNone}, e.rules.Headers)
	}
	e, err := theirEnvironment(environmentOf(least + "HOST=::1 PORT=1 GRPC_HOST=10.0.0.1 GRPC_PORT=2 RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_APPDIRECTORY=files"))
	require.NoError(t, err)
	assert.Equal(t, []string{"-listen=[::1]:1", "-rls=10.0.0.1:2", "-rls-config=/data/ratelimit/files"}, e.flags[:3])

	e, err = theirEnvironment(environmentOf(least + "EXTRA_TAGS=a:b STATSD_HOST=statsd PROMETHEUS_PATH=/m LIMIT_RESPONSE_HEADERS_ENABLED=true"))
	require.NoError(t, err)
	assert.Len(t, e.warnings, 4)
	assert.Equal(t, []events.Header{events.HeaderXRateLimit}, e.rules.Headers)

	for variables, says := range map[string]string{
		"BACKEND_TYPE=memcache": "MEMCACHE_HOST_PORT is missing",
		"":                      "set BACKEND_TYPE=memcache and MEMCACHE_HOST_PORT",
		least + "BACKEND_TYPE=redis SHADOW_MODE=true":                "SHADOW_MODE=true has no counterpart: set shadow_mode: true in the limits; BACKEND_TYPE=redis",
		least + "CONFIG_TYPE=GRPC_XDS_SOTW":                          "there is no xDS",
		least + "MEMCACHE_TLS=maybe":                                 "MEMCACHE_TLS=maybe is neither true nor false",
		least + "QUOTA_MODE=maybe":                                   "QUOTA_MODE=maybe has no counterpart",
		least + "GRPC_SERVER_USE_TLS=true":                           "GRPC_SERVER_USE_TLS=true without a certificate: set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY",
		least + "GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=cert": "without a certificate",
	} {
		_, err := theirEnvironment(environmentOf(variables))
		require.ErrorIs(t, err, errUsage, variables)
		assert.ErrorContains(t, err, says)
	}
}

// variableInCode and variableInTable match the variables of envoyproxy/ratelimit.
var (
	variableInCode  = regexp.MustCompile(`(?:text|truth)\("([A-Z_]+)"|\{"([A-Z_]+)", "`)
	variableInTable = regexp.MustCompile("`([A-Z_]+)`")
)

// The table of docs/envoy.md has the variables that are read here, and no other.
func TestTheTableOfVariables(t *testing.T) {
	code, err := os.ReadFile("ratelimit.go")
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "envoy.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "\n| variable | |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	read, listed := map[string]bool{}, map[string]bool{}
	for _, match := range variableInCode.FindAllStringSubmatch(string(code), -1) {
		read[match[1]+match[2]] = true
	}
	for row := range strings.Lines(table) {
		for _, match := range variableInTable.FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			assert.False(t, listed[match[1]], "%s is listed twice", match[1])
			listed[match[1]] = true
		}
	}
	assert.Greater(t, len(read), 35)
	assert.Equal(t, read, listed)
	for _, of := range refused {
		assert.Regexp(t, `(?m)^\| .*`+of.name+"`.* \\| refused,", table)
	}
	for _, of := range ignored {
		assert.Regexp(t, `(?m)^\| .*`+of.name+"`.* \\| no effect", table)
	}
}

// The address of metrics is open to all callers there, so it has the metrics and probes alone: without a token nobody
// reads profiles or fills in the forms of the page. With tokens it is that of operators.
func TestTheMetricsOfRatelimit(t *testing.T) {
	memcached := memcachedtest.Start(t)
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "config"), 0o700))
	testkit.WriteFile(t, filepath.Join(root, "config", "ten.yaml"), tenAnHour)
	tokens := filepath.Join(root, "tokens")
	testkit.WriteFile(t, tokens, "ops all ops-ops-ops-ops-ops")
	require.NoError(t, os.Chmod(tokens, 0o600))
	for name, test := range map[string]struct {
		variables []string
		page      int
	}{
		"USE_PROMETHEUS": {[]string{"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:0"}, http.StatusNotFound},
		"DEBUG_PORT":     {[]string{"DEBUG_PORT=0"}, http.StatusNotFound},
		"on loopback":    {[]string{"DEBUG_PORT=0", "DEBUG_HOST=127.0.0.1"}, http.StatusOK},
		"with tokens":    {[]string{"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:0", "COUNTERD_TOKENS=" + tokens}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			p := startCommand(t, append(test.variables,
				"HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "RUNTIME_ROOT="+root, "MEMCACHE_HOST_PORT="+memcached.Addr,
			), "ratelimit")
			match := regexp.MustCompile(`serving operators".*address=\S+:(\d+)`).FindStringSubmatch(p.log.String())
			require.NotNil(t, match, "%s", p.log)
			admin := "http://127.0.0.1:" + match[1]
			for _, path := range []string{"/ui/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
				assert.Equal(t, test.page, status(t, admin+path), path)
			}
			for _, path := range []string{"/ui/reset", "/ui/override"} {
				code, _ := ask(t, "POST", admin+path, "")
				assert.Contains(t, []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusBadRequest, http.StatusUnsupportedMediaType}, code)
			}
			assert.Equal(t, http.StatusOK, status(t, admin+"/healthz"))
			if test.page != http.StatusUnauthorized {
				assert.Equal(t, http.StatusOK, status(t, admin+"/metrics"))
			}
		})
	}
}

// A process in the place of envoyproxy/ratelimit answers as that does: over gRPC, in JSON, and to probes.
func TestRatelimit(t *testing.T) {
	memcached := memcachedtest.Start(t)
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "ratelimit", "config"), 0o700))
	testkit.WriteFile(t, filepath.Join(root, "ratelimit", "config", "ten.yaml"), tenAnHour)
	p := startCommand(t, []string{
		"HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "USE_STATSD=false", "LOG_LEVEL=warn",
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=" + memcached.Addr,
	}, "ratelimit", "-timeout", "1s")
	conn := p.rls(t, insecure.NewCredentials())
	for range 9 {
		assert.Equal(t, "OK", answers(t.Context(), conn, "ten", "user", "bob"))
	}
	post := func() (int, string) {
		return ask(t, "POST", p.url+"/json", `{"domain": "ten", "descriptors": [{"entries": [{"key": "user", "value": "bob"}]}]}`)
	}
	code, _ := post()
	assert.Equal(t, http.StatusOK, code)
	code, body := post()
	assert.Equal(t, http.StatusTooManyRequests, code)
	assert.Regexp(t, `"overallCode": ?"OVER_LIMIT"`, body)
	code, body = p.get(t, "/healthcheck")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "OK", body)
	_, metrics := p.get(t, "/metrics")
	assert.Contains(t, metrics, `counterd_rls_requests_total{code="OK",domain="ten"} 10`)
	code, _ = p.get(t, "/v1/events/url_shorten")
	assert.Equal(t, http.StatusNotFound, code, "no event is served that is not asked for")
	memcached.Stop()
	testkit.Await(t, soon, "the probe shows the outage", func() bool { return status(t, p.url+"/healthcheck") == http.StatusServiceUnavailable })
}
