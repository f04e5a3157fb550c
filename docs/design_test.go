// Package docs_test holds the documentation to the code.
package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// walkSources calls visit for each Go file of the module, without tests, and without the modules in its folders.
func walkSources(t *testing.T, visit func(file string) error) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil && file != ".." {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		return visit(file)
	}))
}

var (
	// link is a Markdown link to a file of the project, to a heading of a page, or both.
	link = regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	// heading is one of a page, outside of its blocks of code.
	heading    = regexp.MustCompile(`(?m)^#+ (.+)$`)
	codeBlock  = regexp.MustCompile("(?ms)^```.*?^```$")
	notInSlugs = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// slugsOf returns the fragments by which the headings of a page are linked to.
func slugsOf(text []byte) (slugs []string) {
	for _, match := range heading.FindAllSubmatch(codeBlock.ReplaceAll(text, nil), -1) {
		slug := notInSlugs.ReplaceAllString(strings.ToLower(string(match[1])), "")
		slugs = append(slugs, strings.ReplaceAll(slug, " ", "-"))
	}
	return slugs
}

func TestLinksLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, pattern := range []string{"../*.md", "adr/*.md"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		pages = append(pages, more...)
	}
	require.Greater(t, len(pages), 4)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range link.FindAllStringSubmatch(string(codeBlock.ReplaceAll(text, nil)), -1) {
			target := page
			if match[1] != "" {
				target = path.Join(filepath.Dir(page), match[1])
			}
			_, err := os.Stat(target)
			if assert.NoError(t, err, "%s links to %s", page, target) && match[2] != "" {
				linked, err := os.ReadFile(target)
				require.NoError(t, err)
				assert.Contains(t, slugsOf(linked), match[2], "%s links to %s#%s", page, target, match[2])
			}
		}
	}
}

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(\w+ \*testing\.[TF]\)`)
	testName = regexp.MustCompile("`((?:Test|Fuzz)\\w+)[/`]")
)

// The tests that the pages name exist.
func TestNamedTestsExist(t *testing.T) {
	exist := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, match := range testFunc.FindAllSubmatch(text, -1) {
			exist[string(match[1])] = true
		}
		return err
	}))
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range testName.FindAllSubmatch(text, -1) {
			assert.True(t, exist[string(match[1])], "%s names %s", page, match[1])
			named++
		}
	}
	assert.Greater(t, named, 100)
}

// gorilla/mux and gomemcache stay behind one door each. Beside that they are what
// counterd is measured against.
func TestDependenciesStayInTheirRoom(t *testing.T) {
	for name, rooms := range map[string][]string{
		"github.com/gorilla/mux":                                            {"api/routes.go", "loadtest/bench/nothing.go"},
		"github.com/bradfitz/gomemcache/memcache":                           {"internal/memproto/", "loadtest/bench/gomemcache.go"},
		"github.com/dunglas/httpsfv":                                        {"loadtest/verify/contract/headers.go"},
		"go.yaml.in/yaml/v3":                                                {"api/description.go", "events/rulesfile/", "internal/rls/rlsconfig/", "internal/yamlfile/"},
		"github.com/peterbourgon/ff/v3":                                     {"cmd/counterd/flags.go"},
		"github.com/fsnotify/fsnotify":                                      {"internal/filewatch/filewatch.go"},
		"github.com/prometheus/client_golang/prometheus":                    {"metrics/", "internal/telemetry/metrics/", "loadtest/run/embedded.go"},
		"github.com/HdrHistogram/hdrhistogram-go":                           {"loadtest/run/histogram.go"},
		"github.com/prometheus/common/expfmt":                               {"loadtest/run/metrics.go"},
		"github.com/coocood/freecache":                                      {"internal/replica/repair/census.go"},
		"github.com/cenkalti/backoff/v5":                                    {"memcache/breaker.go"},
		"google.golang.org/grpc":                                            {"internal/rls/", "loadtest/", "internal/server/listeners.go"},
		"github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3": {"internal/rls/", "loadtest/"},
		"go.opentelemetry.io/otel/sdk/trace":                                {"internal/telemetry/otlp/"},
		"github.com/go-logr/logr":                                           {"internal/telemetry/otlp/redacted.go", "internal/telemetry/otlp/otlp.go"},
		"go.opentelemetry.io/otel/trace":                                    {"internal/rls/", "internal/telemetry/", "internal/server/spans.go"},
	} {
		found := 0
		walkSources(t, func(file string) error {
			text, err := os.ReadFile(file)
			if strings.Contains(string(text), strconv.Quote(name)) {
				found++
				inRoom := func(room string) bool { return strings.HasPrefix(strings.TrimPrefix(file, "../"), room) }
				assert.True(t, slices.ContainsFunc(rooms, inRoom), "%s imports %s", file, name)
			}
			return err
		})
		assert.Positive(t, found, name)
	}
}

// A program that embeds counterd gets few packages of others with it: those that decide.
func TestTheRootPackageIsLight(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	list.Dir = ".."
	text, err := list.Output()
	require.NoError(t, err)
	var foreign []string
	for name := range strings.FieldsSeq(string(text)) {
		first, _, _ := strings.Cut(name, "/")
		if strings.Contains(first, ".") && !strings.HasPrefix(name+"/", module+"/") {
			foreign = append(foreign, name)
		}
	}
	assert.NotEmpty(t, foreign)
	assert.LessOrEqual(t, len(foreign), 15, "%q", foreign)
	for _, heavy := range []string{"google.golang.org/", "go.opentelemetry.io/", "github.com/prometheus/", "github.com/gorilla/mux", "github.com/go-json-experiment/"} {
		assert.False(t, slices.ContainsFunc(foreign, func(name string) bool { return strings.HasPrefix(name, heavy) }), heavy)
	}
	assert.NotContains(t, strings.Fields(string(text)), module+"/api")
}
