package main

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/internal/settings"
)

// processFlags are flags of the process alone: the rules are an argument of counterd.New, and a
// program has its own log (WithLog).
var processFlags = []string{"rules", "log"}

// optionsOfFlags are, for each other flag, a value that is not its default and the option with
// the same value.
var optionsOfFlags = map[string]struct {
	value  string
	of     any // the function
	option counterd.Option
}{
	"peers":                 {"http://a:1,https://b", counterd.WithPeers, counterd.WithPeers("http://a:1", "https://b")},
	"listen":                {"127.0.0.1:1", counterd.WithListen, counterd.WithListen("127.0.0.1:1")},
	"memcached":             {"a:1,b:1", counterd.WithMemcached, counterd.WithMemcached("a:1", "b:1")},
	"memcached-file":        {"servers", counterd.WithMemcachedFile, counterd.WithMemcachedFile("servers")},
	"memcached-tls":         {"true", counterd.WithMemcachedTLS, counterd.WithMemcachedTLS()},
	"memcached-ca":          {"ca", counterd.WithMemcachedCA, counterd.WithMemcachedCA("ca")},
	"memcached-cert":        {"cert", counterd.WithMemcachedCert, counterd.WithMemcachedCert("cert")},
	"memcached-key":         {"key", counterd.WithMemcachedKey, counterd.WithMemcachedKey("key")},
	"memcached-server-name": {"name", counterd.WithMemcachedServerName, counterd.WithMemcachedServerName("name")},
	"memcached-auth":        {"auth", counterd.WithMemcachedAuth, counterd.WithMemcachedAuth("auth")},
	"key-secret":            {"secret", counterd.WithKeySecret, counterd.WithKeySecret("secret")},
	"protocol":              {"classic", counterd.WithProtocol, counterd.WithProtocol("classic")},
	"replicas":              {"2", counterd.WithReplicas, counterd.WithReplicas(2)},
	"timeout":               {"7ms", counterd.WithTimeout, counterd.WithTimeout(7 * time.Millisecond)},
	"grace":                 {"7s", counterd.WithGrace, counterd.WithGrace(7 * time.Second)},
	"max-pending":           {"7", counterd.WithMaxPending, counterd.WithMaxPending(7)},
	"max-connections":       {"7", counterd.WithMaxConnections, counterd.WithMaxConnections(7)},
	"admin":                 {"127.0.0.1:1", counterd.WithAdmin, counterd.WithAdmin("127.0.0.1:1")},
	"drain-delay":           {"7s", counterd.WithDrainDelay, counterd.WithDrainDelay(7 * time.Second)},
	"tokens":                {"tokens", counterd.WithTokens, counterd.WithTokens("tokens")},
	"tls-cert":              {"cert", counterd.WithTLSCert, counterd.WithTLSCert("cert")},
	"tls-key":               {"key", counterd.WithTLSKey, counterd.WithTLSKey("key")},
	"tls-client-ca":         {"ca", counterd.WithTLSClientCA, counterd.WithTLSClientCA("ca")},
	"rls":                   {"127.0.0.1:1", counterd.WithRLS, counterd.WithRLS("127.0.0.1:1")},
	"rls-config":            {"folder", counterd.WithRLSConfig, counterd.WithRLSConfig("folder")},
	"otlp-endpoint":         {"http://127.0.0.1:4318", counterd.WithOTLPEndpoint, counterd.WithOTLPEndpoint("http://127.0.0.1:4318")},
	"access-log":            {"true", counterd.WithAccessLog, counterd.WithAccessLog()},
}

// programOptions are options without a flag.
var programOptions = []string{"WithLog", "WithTracer", "WithContext", "WithReload"}

func parsedFlags(t *testing.T, args ...string) (serveFlags, flagSet) {
	t.Helper()
	var s serveFlags
	flags := newFlags("counterd", io.Discard, "", "")
	s.register(flags)
	require.NoError(t, flags.Parse(args))
	return s, flags
}

// Each flag of the server is an option of the root package: it has the flag's name, and sets the
// same. Without flags all settings are the defaults of the options.
func TestEveryFlagIsAnOption(t *testing.T) {
	defaults, flags := parsedFlags(t)
	assert.Equal(t, settings.Default(), defaults.Settings)
	seen := map[string]bool{}
	flags.VisitAll(func(f *flag.Flag) {
		for _, name := range processFlags {
			if f.Name == name {
				return
			}
		}
		same, has := optionsOfFlags[f.Name]
		if !assert.True(t, has, "-%s has no option", f.Name) {
			return
		}
		seen[f.Name] = true
		set, _ := parsedFlags(t, "-"+f.Name+"="+same.value)
		assert.NotEqual(t, defaults.Settings, set.Settings, "-%s=%s is the default", f.Name, same.value)
		want := settings.Default()
		same.option(&want)
		assert.Equal(t, want, set.Settings, "-%s", f.Name)
		name := runtime.FuncForPC(reflect.ValueOf(same.of).Pointer()).Name()
		assert.Equal(t, settings.OptionName(f.Name), name[strings.LastIndexByte(name, '.')+1:])
	})
	assert.Len(t, seen, len(optionsOfFlags), "an option is of a flag that there is not")
}

// Each option of the root package is a flag of the server, or of the few that only programs have.
func TestEveryOptionIsAFlag(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "../../options.go", nil, 0)
	require.NoError(t, err)
	var options []string
	for _, declared := range parsed.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok && function.Name.IsExported() {
			options = append(options, function.Name.Name)
		}
	}
	want := programOptions
	for name := range optionsOfFlags {
		want = append(want, settings.OptionName(name))
	}
	assert.ElementsMatch(t, want, options)
}
