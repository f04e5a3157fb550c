package main

import (
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
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/server"
	"github.com/counterd/counterd/internal/settings"
)

// optionsOfFlags are, for each flag of the limiter, a value that is not its default and the option with
// the same value. The other flags are of the server.
var optionsOfFlags = map[string]struct {
	value  string
	of     any // the function
	option counterd.Option
}{
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
}

// programOptions are options without a flag.
var programOptions = []string{"WithLog", "WithContext"}

func parsedFlags(t *testing.T, args ...string) (serveFlags, flagSet) {
	t.Helper()
	var s serveFlags
	flags := newFlags("counterd", io.Discard, "", "")
	s.register(flags)
	require.NoError(t, flags.Parse(args))
	return s, flags
}

// The flags of the limiter are options of the root package: each has the flag's name, and sets the
// same. Without flags all settings are the defaults of the options.
func TestFlagsOfTheLimiterAreOptions(t *testing.T) {
	defaults, _ := parsedFlags(t)
	assert.Equal(t, server.DefaultSettings(), defaults.Settings)
	for flag, same := range optionsOfFlags {
		set, _ := parsedFlags(t, "-"+flag+"="+same.value)
		assert.NotEqual(t, defaults.Settings, set.Settings, "-%s=%s is the default", flag, same.value)
		want := assembly.Config{Settings: settings.Default()}
		same.option(&want)
		assert.Equal(t, want.Settings, set.Settings.Settings, "-%s", flag)
		name := runtime.FuncForPC(reflect.ValueOf(same.of).Pointer()).Name()
		assert.Equal(t, settings.OptionName(flag), name[strings.LastIndexByte(name, '.')+1:])
	}
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
