// Package docs_test holds the documentation to the code.
package docs_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
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

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(programsFolder)
		os.Exit(status)
	}))
}

const module = "github.com/counterd/counterd"

// arrow is a line of the design's block of arrows: a folder, and what it may
// import of this module.
var arrow = regexp.MustCompile(`(?m)^(\S+) +-> +(.+)$`)

// readArrows returns what the design allows each folder.
func readArrows(t *testing.T) map[string][]string {
	t.Helper()
	design, err := os.ReadFile("design.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(design), "```arrows\n")
	require.True(t, found, "design.md has no block of arrows")
	block, _, _ = strings.Cut(block, "```")
	arrows := map[string][]string{}
	for _, match := range arrow.FindAllStringSubmatch(block, -1) {
		arrows[match[1]] = strings.Split(match[2], ", ")
	}
	return arrows
}

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

// readImports returns what the packages of the module import of one another,
// tests left out.
func readImports(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	walkSources(t, func(file string) error {
		folder := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(file, "../")))
		if folder == "." {
			folder = path.Base(module) // the root package
		}
		imports[folder] = append(imports[folder], []string{}...)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if of, ours := strings.CutPrefix(name, path.Dir(module)+"/"); ours {
				imports[folder] = append(imports[folder], strings.TrimPrefix(of, path.Base(module)+"/"))
			}
		}
		return nil
	})
	return imports
}

func TestTheArrowsOfTheDesign(t *testing.T) {
	arrows, imports := readArrows(t), readImports(t)
	require.Greater(t, len(imports), 8)
	for folder, list := range imports {
		for _, of := range list { // a folder without a line may import none
			assert.Contains(t, arrows[folder], of, "%s imports %s", folder, of)
		}
	}
	for folder := range arrows {
		assert.Contains(t, imports, folder, "the design has a package that is not there")
	}
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

func TestSlugsOfHeadings(t *testing.T) {
	page := "# A page: of `its` own\n\n```sh\n# a comment\n```\n\n## replay -suggest: limits\n### CounterdDown\n"
	assert.Equal(t, []string{"a-page-of-its-own", "replay--suggest-limits", "counterddown"}, slugsOf([]byte(page)))
}

// gorilla/mux and gomemcache stay behind one door each. Beside that they are what
// counterd is measured against.
func TestDependenciesStayInTheirRoom(t *testing.T) {
	for name, rooms := range map[string][]string{
		"github.com/gorilla/mux":                                            {"api/routes.go", "loadtest/bench/nothing.go"},
		"github.com/bradfitz/gomemcache/memcache":                           {"memcache/", "loadtest/bench/gomemcache.go"},
		"github.com/dunglas/httpsfv":                                        {"loadtest/verify/contract/headers.go"},
		"go.yaml.in/yaml/v3":                                                {"api/description.go", "events/rulesfile/", "internal/rls/rlsconfig/", "internal/yamlfile/"},
		"github.com/peterbourgon/ff/v3":                                     {"cmd/counterd/flags.go"},
		"github.com/fsnotify/fsnotify":                                      {"internal/filewatch/filewatch.go"},
		"github.com/prometheus/client_golang/prometheus":                    {"metrics/"},
		"github.com/kamstrup/intmap":                                        {"hierarchy/reader.go"},
		"github.com/HdrHistogram/hdrhistogram-go":                           {"loadtest/run/histogram.go"},
		"github.com/prometheus/common/expfmt":                               {"loadtest/run/metrics.go"},
		"github.com/coocood/freecache":                                      {"hierarchy/cache.go", "internal/replica/repair/census.go"},
		"github.com/cenkalti/backoff/v5":                                    {"memcache/breaker.go"},
		"google.golang.org/grpc":                                            {"internal/rls/", "loadtest/", "internal/serving/listeners.go"},
		"github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3": {"internal/rls/", "loadtest/"},
		"go.opentelemetry.io/otel/sdk/trace":                                {"internal/telemetry/otlp/"},
		"github.com/go-logr/logr":                                           {"internal/telemetry/otlp/redacted.go", "internal/telemetry/otlp/otlp.go"},
		"go.opentelemetry.io/otel/trace":                                    {"api/", "internal/rls/", "internal/service/", "internal/telemetry/", "internal/telemetry/otlp/", "internal/settings/settings.go", "options.go", "spans.go"},
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
