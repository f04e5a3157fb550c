package main

import (
	"bytes"
	"context"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/server"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
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

// serverFlags are, for each flag of the server, a value that is not its default and the setting with that value.
var serverFlags = map[string]struct {
	value string
	set   func(*server.Settings)
}{
	"peers":           {"http://a:1,https://b", func(s *server.Settings) { s.Peers = []string{"http://a:1", "https://b"} }},
	"peers-ca":        {"ca", func(s *server.Settings) { s.PeersCA = "ca" }},
	"listen":          {"127.0.0.1:1", func(s *server.Settings) { s.Listen = "127.0.0.1:1" }},
	"max-connections": {"7", func(s *server.Settings) { s.MaxConnections = 7 }},
	"idle-timeout":    {"10m", func(s *server.Settings) { s.IdleTimeout = 10 * time.Minute }},
	"admin":           {"127.0.0.1:1", func(s *server.Settings) { s.Admin = "127.0.0.1:1" }},
	"drain-delay":     {"7s", func(s *server.Settings) { s.DrainDelay = 7 * time.Second }},
	"tokens":          {"tokens", func(s *server.Settings) { s.Tokens = "tokens" }},
	"tls-cert":        {"cert", func(s *server.Settings) { s.TLSCert = "cert" }},
	"tls-key":         {"key", func(s *server.Settings) { s.TLSKey = "key" }},
	"tls-client-ca":   {"ca", func(s *server.Settings) { s.TLSClientCA = "ca" }},
	"rls":             {"127.0.0.1:1", func(s *server.Settings) { s.RLS = "127.0.0.1:1" }},
	"rls-config":      {"folder", func(s *server.Settings) { s.RLSConfig = "folder" }},
	"otlp-endpoint":   {"http://127.0.0.1:4318", func(s *server.Settings) { s.OTLPEndpoint = "http://127.0.0.1:4318" }},
	"access-log":      {"true", func(s *server.Settings) { s.AccessLog = true }},
}

// processFlags are flags of the process alone.
var processFlags = []string{"rules", "log"}

func parsedFlags(t *testing.T, args ...string) (serveFlags, flagSet) {
	t.Helper()
	var s serveFlags
	flags := newFlags("counterd", io.Discard, "", "")
	s.register(flags)
	require.NoError(t, flags.Parse(args))
	return s, flags
}

// setOption applies an option of the root package to the settings of a server.
func setOption(option counterd.Option, s *server.Settings) {
	config := assembly.Config{Settings: s.Settings}
	option(&config)
	s.Settings = config.Settings
}

// Each flag is an option of the root package or a setting of the server, and an environment variable: they have the flag's
// name, and set the same. Without flags all settings are the defaults.
func TestEveryFlagIsASetting(t *testing.T) {
	defaults, flags := parsedFlags(t)
	help := output(t, exitOK, "-h")
	assert.Equal(t, server.DefaultSettings(), defaults.Settings)
	all := server.DefaultSettings()
	flags.VisitAll(func(f *flag.Flag) {
		if slices.Contains(processFlags, f.Name) {
			return
		}
		option, ofLimiter := optionsOfFlags[f.Name]
		own, ofServer := serverFlags[f.Name]
		require.True(t, ofLimiter != ofServer, "-%s is not in one of the tables", f.Name)
		value, apply := own.value, own.set
		if ofLimiter {
			value, apply = option.value, func(s *server.Settings) { setOption(option.option, s) }
			name := runtime.FuncForPC(reflect.ValueOf(option.of).Pointer()).Name()
			assert.Equal(t, settings.OptionName(f.Name), name[strings.LastIndexByte(name, '.')+1:])
		}
		set, _ := parsedFlags(t, "-"+f.Name+"="+value)
		assert.NotEqual(t, defaults.Settings, set.Settings, "-%s=%s is the default", f.Name, value)
		want := server.DefaultSettings()
		apply(&want)
		assert.Equal(t, want, set.Settings, "-%s", f.Name)
		assert.Contains(t, help, "-"+f.Name)
		assert.Contains(t, help, envName(f.Name))
		t.Setenv(envName(f.Name), value)
		if f.Name != "memcached-file" {
			apply(&all)
		}
	})
	_, err := parseServe(nil, io.Discard)
	require.ErrorIs(t, err, errUsage, "one place of servers is enough")
	t.Setenv("COUNTERD_MEMCACHED_FILE", "")
	s, err := parseServe([]string{"-timeout", "60ms"}, io.Discard)
	require.NoError(t, err)
	all.TracesURL = "http://127.0.0.1:4318/v1/traces"
	all.Timeout = 60 * time.Millisecond // a flag goes before the environment
	assert.Equal(t, all, s.Settings)
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

func TestWrongUseIsOneLineAndStatus2(t *testing.T) {
	for _, args := range [][]string{
		{"-nonsense"}, {"serve"}, {"-timeout", "soon"}, {"-timeout", "2s"}, {"-timeout", "0s"}, {"-grace", "0s"}, {"-grace", "1h"},
		{"-log", "xml"}, {"-replicas", "2"}, {"-replicas", "6"}, {"-replicas", "0"}, {"-replicas", "x"}, {"-listen"}, {"-protocol", "binary"}, {"-protocol", ""},
		{"-listen", ""}, {"-listen", "localhost"}, {"-listen", "8080"}, {"-listen", "127.0.0.1:"}, {"-listen", ":65536"}, {"-listen", ":-1"},
		{"-listen", ":no-such-port"}, {"-listen", "::1:8080"}, {"-listen", "a\nb"},
		{"-memcached", ""}, {"-memcached", ","}, {"-memcached", "localhost"}, {"-memcached", "127.0.0.1:"}, {"-memcached", ":11211"},
		{"-memcached", "127.0.0.1:0"}, {"-memcached", "127.0.0.1:65536"}, {"-memcached", "127.0.0.1:no-such-port"}, {"-memcached", "::1:11211"},
		{"-memcached", "127.0.0.1:11211,127.0.0.1:11211"}, {"-memcached", "/run/a.sock, /run/a.sock"}, {"-memcached", "a\nb"},
		{"-memcached", "unix:///run/memcached.sock"}, {"-memcached", "tcp://127.0.0.1:11211"},
		{"-memcached", "dns:cache.internal"}, {"-memcached", "dns:10.0.0.1:11211"}, {"-memcached", "dns:cache.internal:http"}, {"-memcached", "dns:[::1]:1"},
		{"-memcached", "dns:cache.internal:11211,10.0.0.1:11211"}, {"-memcached", "a:1,aws:b:1"}, {"-memcached", "dns:a:1,dns:b:1"},
		{"-memcached", "aws:my.cfg.example"}, {"-memcached", "aws:my.cfg.example:0"}, {"-memcached", "srv:cache.internal:11211"},
		{"-memcached-file", ""}, {"-memcached-file", "servers", "-memcached", "10.0.0.1:11211"},
		{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached-file", "servers", "-memcached", "10.0.0.1:11211"},
		{"-memcached", "aws:a.example:1", "-memcached-auth", "/x"}, {"-memcached", "aws:a.example:1", "-memcached-tls", "-memcached-auth", "/x"},
		{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached", "a:1", "-memcached-ca", "/x"},
		{"-memcached-tls"}, {"-memcached-auth", "/x"}, {"-memcached-tls", "-memcached", "/run/a.sock"}, {"-memcached-tls=maybe", "-memcached", "a:1"},
		{"-memcached", "a:1", "-memcached-ca", "/x"}, {"-memcached", "a:1", "-memcached-cert", "/x", "-memcached-key", "/x"},
		{"-memcached", "a:1", "-memcached-server-name", "x"}, {"-memcached", "a:1", "-memcached-tls", "-memcached-key", "/x"},
		{"-memcached", "a:1", "-memcached-tls", "-memcached-cert", "/x"},
		{"-otlp-endpoint", "127.0.0.1:4318"}, {"-otlp-endpoint", "grpc://127.0.0.1:4317"}, {"-access-log=perhaps"},
		{"-max-pending", "0"}, {"-max-pending", "-1"}, {"-max-pending", "many"}, {"-max-connections", "0"}, {"-max-connections", "-1"},
		{"-tls-cert", "c"}, {"-tls-key", "k"}, {"-tls-client-ca", "a"}, {"-tls-client-ca", "a", "-listen", ":0"}, {"-listen", ":0"}, {"-admin", ":0"},
		{"-admin", "localhost"}, {"-admin", "127.0.0.1:x"}, {"-drain-delay", "-1s"}, {"-drain-delay", "11m"}, {"-drain-delay", "soon"},
		{"-idle-timeout", "0s"}, {"-idle-timeout", "25h"}, {"-idle-timeout", "long"},
		{"-version", "more"}, {"help", "unknown"},
		{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached", "localhost"},
		{"keys"}, {"keys", "-event", "unknown", "-feature", "ip:203.0.113.9"}, {"keys", "-event", "url_shorten"},
		{"keys", "-event", "url_shorten", "-feature", "203.0.113.9"}, {"keys", "-event", "url_shorten", "-feature", "ip:x"},
		{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "more"}, {"validate"}, {"validate", "a", "b"},
	} {
		said := output(t, exitUsage, args...)
		assert.True(t, strings.HasPrefix(said, "counterd: "), "nothing is logged before: %s", said)
		assert.Equal(t, 1, strings.Count(said, "\n"), "%q: %s", args, said)
		assert.NotContains(t, said, "203.0.113.9")
	}
	assert.Contains(t, output(t, exitUsage, "-memcached", "unix:///run/memcached.sock"), "by its path alone: /run/memcached.sock")
	t.Setenv("COUNTERD_TIMEOUT", "30")
	assert.Contains(t, output(t, exitUsage), "\"COUNTERD_TIMEOUT\": 30 has no unit: write 30s")
}

// What is close to a flag, a command or a variable is named; Kubernetes' variables for a service
// named counterd are no flags.
func TestMisspelledNamesAreErrorsThatNameTheRightOne(t *testing.T) {
	t.Setenv("COUNTERD_PORT", "tcp://10.0.0.1:8080")
	t.Setenv("COUNTERD_SERVICE_HOST", "10.0.0.1")
	for text, args := range map[string][]string{
		`unknown flag -replica: did you mean "replicas"?`:                              {"-replica", "2"},
		`unknown argument "valdate": did you mean "validate"?`:                         {"valdate"},
		`unknown argument "serve": there is keys, probe, ratelimit, validate, version`: {"serve"},
		`unknown flag -rules-file: there are `:                                         {"-rules-file", "x"},
		`-event is missing: name an event of the rules`:                                {"keys", "-feature", "ip:203.0.113.9"},
	} {
		assert.Contains(t, output(t, exitUsage, args...), text)
	}
	output(t, exitOK, "-h")
	t.Setenv("COUNTERD_MEMCACHE", "10.0.0.1:11211")
	assert.Contains(t, output(t, exitUsage), "unknown variable COUNTERD_MEMCACHE: did you mean COUNTERD_MEMCACHED?")
}

// What a flag names has to be there at the start, and good. The error is one line, which names the flag or the file.
func TestFailuresAtTheStartAreStatus1(t *testing.T) {
	leaktest.Check(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	authority := memcachedtest.NewAuthority(t)
	id, other, expired := authority.Issue(t), authority.Issue(t), authority.Issue(t, outOfDate)
	folder := t.TempDir()
	missing, rubbish := filepath.Join(folder, "missing"), filepath.Join(folder, "rubbish")
	testkit.WriteFile(t, rubbish, "rubbish\nof some length\n")
	faulty, empty := testkit.SecretFile(t, "edge decide "+edgeToken+"\nedge "+edgeToken+"\n"), testkit.SecretFile(t, "# none\n")
	short := testkit.SecretFile(t, "fifteen-letters\nand another line")
	local := []string{"-memcached", "127.0.0.1:1"}
	served := []string{"-tls-cert", id.CertFile, "-tls-key", id.KeyFile}
	server := []string{"-memcached", "aws:127.0.0.1:1", "-memcached-tls", "-memcached-cert", id.CertFile, "-memcached-key", id.KeyFile}
	keys := []string{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9"}
	for _, test := range []struct {
		says string
		args []string
		more []string
	}{
		{"address already in use", nil, []string{"-listen", taken.Addr().String()}},
		{"address already in use", nil, []string{"-admin", taken.Addr().String()}},
		{missing, nil, []string{"-rules", missing}},
		{missing, nil, []string{"-memcached-file", missing}},
		{rubbish, nil, []string{"-memcached-file", rubbish}},
		{rubbish, keys, []string{"-memcached-file", rubbish}},
		{missing, local, []string{"-memcached-auth", missing}},
		{rubbish, local, []string{"-memcached-auth", rubbish}},
		{missing, server, []string{"-memcached-ca", missing}},
		{rubbish, server, []string{"-memcached-ca", rubbish}},
		{missing, server, []string{"-memcached-cert", missing}},
		{rubbish, server, []string{"-memcached-cert", rubbish}},
		{missing, server, []string{"-memcached-key", missing}},
		{rubbish, server, []string{"-memcached-key", rubbish}},
		{missing, nil, []string{"-peers", "https://a", "-peers-ca", missing}},
		{rubbish, nil, []string{"-peers", "https://a", "-peers-ca", rubbish}},
		{missing, nil, []string{"-tokens", missing}},
		{"line 2: there are 2", nil, []string{"-tokens", faulty}},
		{"there is no token", nil, []string{"-tokens", empty}},
		{"not a regular file", nil, []string{"-tokens", os.DevNull}},
		{"private key does not", served, []string{"-tls-key", other.KeyFile}},
		{"the certificate expired", nil, []string{"-tls-cert", expired.CertFile, "-tls-key", expired.KeyFile}},
		{"failed to find any PEM", served, []string{"-tls-cert", faulty}},
		{missing, served, []string{"-tls-key", missing}},
		{missing, served, []string{"-tls-client-ca", missing}},
		{"holds no certificate", served, []string{"-tls-client-ca", faulty}},
		{"has 15 characters", local, []string{"-key-secret", short}},
		{"has 0 characters", local, []string{"-key-secret", testkit.SecretFile(t, "")}},
		{"-key-secret", local, []string{"-key-secret", folder}},
		{"has 15 characters", keys, []string{"-key-secret", short}},
		{missing, []string{"validate"}, []string{missing}},
	} {
		args := slices.Concat(test.args, test.more)
		if strings.HasPrefix(args[0], "-") {
			args = append([]string{"-listen", "127.0.0.1:0"}, args...)
		}
		text := output(t, exitFailed, args...)
		assert.Contains(t, text, test.says, "%q", args)
		logged, said, _ := strings.Cut("\n"+text, "\ncounterd: ")
		assert.NotContains(t, logged, "level=ERROR", "%q", args)
		assert.Equal(t, 1, strings.Count(said, "\n"), "%q: %s", args, said)
		for _, secret := range []string{edgeToken, "fifteen-letters", "msg=serving"} {
			assert.NotContains(t, text, secret, "%q", args)
		}
	}

	// The faults of a rules file have a line each.
	broken := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, broken, "events:\n  a: {limit: 1}\n  b: {limit: 1}\n")
	for _, args := range [][]string{{"-rules", broken}, {"validate", broken}} {
		assert.Equal(t, 5, strings.Count(output(t, exitFailed, args...), "\n"))
	}
}

// What is given instead of the name of a file with a secret may be the secret: no error repeats it.
func TestSecretsInsteadOfTheirFiles(t *testing.T) {
	id := memcachedtest.NewAuthority(t).Issue(t)
	const key = "-----BEGIN PRIVATE KEY-----\nsesame"
	for flag, given := range map[string][]string{
		"-tokens": {"user:sesame-open-sesame"}, "-memcached-auth": {"user:sesame-open-sesame"}, "-key-secret": {"user:sesame-open-sesame"},
		"-tls-key": {key, "-tls-cert", id.CertFile}, "-memcached-key": {key, "-memcached-cert", id.CertFile},
	} {
		args := append([]string{"-listen", "127.0.0.1:0", "-memcached", "127.0.0.1:1", "-memcached-tls"}, given[1:]...)
		text := output(t, exitFailed, append(args, flag, given[0])...)
		assert.Contains(t, text, flag+" takes the name of a file, and its value, which is not shown since it may be the secret itself, cannot be opened: no such file")
		assert.NotContains(t, text, "sesame")
		assert.Contains(t, output(t, exitFailed, append(args, flag, "missing.txt")...), flag+": missing.txt cannot be opened: no such file")
	}
}

// output returns what the command prints on both outputs. It stops a server that starts although it should not.
func output(t *testing.T, exit int, args ...string) string {
	t.Helper()
	var text testkit.Log
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	assert.Equal(t, exit, run(ctx, args, &text, &text), "%q: %s", args, &text)
	return text.String()
}

// An address that other machines reach is served only if a setting limits the callers.
func TestSecureByDefault(t *testing.T) {
	tls := []string{"-tls-cert", "c", "-tls-key", "k"}
	for _, good := range [][]string{
		nil, {"-listen", "localhost:0"}, {"-listen", "127.9.9.9:0"}, {"-listen", "[::1]:0"}, {"-admin", "127.0.0.1:0"}, {"-drain-delay", "10s"},
		{"-listen", ":0", "-tokens", "none"}, {"-listen", ":0", "-tokens", "file"}, append(tls, "-listen", ":0", "-tls-client-ca", "ca"),
		{"-rls", ":0", "-tokens", "none"}, {"-rls", "127.0.0.1:0"}, append(tls, "-rls", ":0", "-tls-client-ca", "ca"),
		{"-admin", ":0", "-tokens", "none"}, {"-admin", ":0", "-listen", ":0", "-tokens", "file"}, append(tls, "-admin", "[::1]:0"),
	} {
		_, err := parseServe(good, io.Discard)
		assert.NoError(t, err, "%q", good)
	}
	for _, bad := range [][]string{
		{"-listen", ":0"}, {"-listen", "0.0.0.0:0"}, {"-listen", "[::]:0"}, {"-listen", "192.0.2.1:0"}, {"-listen", "counterd.example:0"},
		append(tls, "-listen", ":0"), {"-rls", ":0"}, {"-rls", "192.0.2.1:0"}, append(tls, "-rls", ":0"), {"-admin", ":0"}, {"-admin", "192.0.2.1:0"}, append(tls, "-admin", ":0", "-tls-client-ca", "ca"),
	} {
		_, err := parseServe(bad, io.Discard)
		require.ErrorIs(t, err, errUsage, "%q", bad)
		assert.Contains(t, err.Error(), "-tokens none", "it says what to do")
	}
}

func TestServersAndAddresses(t *testing.T) {
	for _, good := range []string{
		"127.0.0.1:11211", "[::1]:11211", "a.example:11211,b.example:11211", "/run/memcached.sock", "./m.sock", "a:1,/x",
		"dns:11211,aws:11211", "dns:cache.internal:11211", "dns:cache.internal.:11211,", "aws:my.cfg.use1.cache.amazonaws.com:11211", "aws:10.0.0.3:11211",
	} {
		assert.NoError(t, new(serverList).Set(good), good)
	}
	for _, good := range []string{":8080", "127.0.0.1:0", "[::1]:8080", "localhost:http", ":0"} {
		assert.NoError(t, server.CheckListen(good), good)
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("COUNTERD_VERSION", "1.2.3") // of the deployment
	for _, arg := range []string{"-version", "--version", "version"} {
		assert.Regexp(t, `^counterd \S+ go1\.\S+.*\n$`, output(t, exitOK, arg))
	}
	_, err := parseServe(nil, io.Discard)
	assert.NoError(t, err)

	build := debug.BuildInfo{GoVersion: "go1.26.8", Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}}}
	assert.Equal(t, "(devel) go1.26.8 linux/arm64", describe(&build))
	build.Main.Version = "v0.1.0"
	build.Settings = append(build.Settings, debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}, debug.BuildSetting{Key: "vcs.time", Value: "2026-11-27T09:00:00Z"},
		debug.BuildSetting{Key: "vcs.modified", Value: "false"})
	assert.Equal(t, "v0.1.0 (commit 0123abcd, 2026-11-27T09:00:00Z) go1.26.8 linux/arm64", describe(&build))
	build.Settings[len(build.Settings)-1].Value = "true"
	assert.Equal(t, "v0.1.0 (commit 0123abcd, 2026-11-27T09:00:00Z, modified) go1.26.8 linux/arm64", describe(&build))
}

// A number in a log of JSON has its unit in its key.
func TestJSONLogsHaveUnits(t *testing.T) {
	var out bytes.Buffer
	newLog("json", &out).With("took", time.Second).Info("done", "timeout", 100*time.Millisecond, slog.Group("g", "for", 1500*time.Microsecond), "bytes", 7)
	assert.Contains(t, out.String(), `"took_ms":1000,"timeout_ms":100,"g":{"for_ms":1.5},"bytes":7}`)
	out.Reset()
	newLog("text", &out).Info("done", "timeout", 100*time.Millisecond)
	assert.Contains(t, out.String(), "timeout=100ms")
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"help"}, {"keys", "-h"}, {"validate", "-h"}, {"help", "keys"}, {"help", "validate"}} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitOK, run(t.Context(), args, &stdout, &stderr), "%q", args)
		assert.Contains(t, stdout.String(), "Usage:", "%q", args)
		assert.Empty(t, stderr.String(), "%q", args)
	}
	assert.Equal(t, ratelimitUsage, output(t, exitOK, "help", "ratelimit"))
}
