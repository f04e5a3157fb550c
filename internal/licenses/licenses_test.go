package licenses_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/builttest"
)

var update = flag.Bool("update", false, "write THIRD_PARTY_LICENSES anew")

const (
	root = "../.."
	file = root + "/THIRD_PARTY_LICENSES"
	rule = "================================================================================"
)

// systems are the systems of the binaries: some packages are linked on one of them only.
var systems = []string{"linux", "darwin", "windows"}

// isLicense matches the names of files that a module's terms are in.
var isLicense = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// module is a module that a program links, and the folders of its linked packages.
type module struct {
	name, version, dir string
	packages           []string
}

// linked returns the modules that the programs link, by name, without this one.
func linked(t *testing.T) []*module {
	t.Helper()
	for _, name := range []string{"go.mod", "go.sum"} { // a result in go test's cache is of these
		_, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
	}
	found := map[string]*module{}
	for _, system := range systems {
		list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "./cmd/counterd", "./loadtest")
		list.Dir = root
		list.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
		var complaint bytes.Buffer
		list.Stderr = &complaint
		out, err := list.Output()
		require.NoError(t, err, "%s", &complaint)
		for line := range strings.Lines(string(out)) {
			part := strings.Split(strings.TrimRight(line, "\r\n"), "\t")
			if len(part) != 4 {
				continue // of this module, or of the standard library
			}
			m := found[part[0]]
			if m == nil {
				m = &module{name: part[0], version: part[1], dir: part[2]}
				found[m.name] = m
			}
			m.packages = append(m.packages, part[3])
		}
	}
	var list []*module
	for _, m := range found {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *module) int { return strings.Compare(a.name, b.name) })
	return list
}

// licenses returns the files with the terms of the linked packages: in their folders, in those
// above up to the module's, and in a folder licenses of the module.
func (m *module) licenses(t *testing.T) []string {
	t.Helper()
	folders := map[string]bool{m.dir: true}
	for _, folder := range m.packages {
		for ; strings.HasPrefix(folder, m.dir) && folder != m.dir; folder = filepath.Dir(folder) {
			folders[folder] = true
		}
	}
	var files []string
	for folder := range folders {
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, e := range entries {
			if !e.IsDir() && isLicense.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go") {
				files = append(files, filepath.Join(folder, e.Name()))
			}
		}
	}
	more, err := filepath.Glob(filepath.Join(m.dir, "licenses", "*"))
	require.NoError(t, err)
	files = append(files, more...)
	slices.Sort(files)
	return files
}

// text is what THIRD_PARTY_LICENSES should be.
func text(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("The licenses of all Go modules that counterd and loadtest link, as they are in the modules.\n" +
		"The Go standard library has that of golang.org/x/sync. Made by go test ./internal/licenses -update.\n")
	for _, m := range linked(t) {
		files := m.licenses(t)
		require.NotEmpty(t, files, "%s has no license", m.name)
		fmt.Fprintf(&b, "\n%s\n%s %s\n", rule, m.name, m.version)
		for _, f := range files {
			terms, err := os.ReadFile(f)
			require.NoError(t, err)
			name, err := filepath.Rel(m.dir, f)
			require.NoError(t, err)
			fmt.Fprintf(&b, "\n--- %s\n\n%s\n", filepath.ToSlash(name), strings.TrimSpace(strings.ReplaceAll(string(terms), "\r\n", "\n")))
		}
	}
	return b.String()
}

// Every linked module is in the file, in its version and with all its terms; and no other is.
func TestLicensesAreThoseOfWhatIsLinked(t *testing.T) {
	want := text(t)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, m := range linked(t) {
		assert.True(t, strings.Contains(string(got), "\n"+m.name+" "+m.version+"\n"), "%s %s is linked, and not in THIRD_PARTY_LICENSES: go test ./internal/licenses -update", m.name, m.version)
	}
	assert.True(t, string(got) == want, "THIRD_PARTY_LICENSES is not that of what is linked: go test ./internal/licenses -update")
}

// A built program tells what it links, and that is in the file.
func TestLicensesHoldABuiltProgram(t *testing.T) {
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	dir := t.TempDir()
	for _, build := range []func(string) (string, error){builttest.Counterd, builttest.Loadtest} {
		program, err := build(dir)
		require.NoError(t, err)
		said, err := exec.Command("go", "version", "-m", program).Output()
		require.NoError(t, err)
		modules := 0
		for line := range strings.Lines(string(said)) {
			if field := strings.Fields(line); len(field) >= 3 && field[0] == "dep" {
				modules++
				assert.True(t, strings.Contains(string(got), "\n"+field[1]+" "+field[2]+"\n"), "%s links %s %s, which is not in THIRD_PARTY_LICENSES", program, field[1], field[2])
			}
		}
		assert.Greater(t, modules, 10, "%s", program)
	}
}

// NOTICE names the project and the file of licenses.
func TestNotice(t *testing.T) {
	notice, err := os.ReadFile(root + "/NOTICE")
	require.NoError(t, err)
	assert.Contains(t, string(notice), "counterd")
	assert.Contains(t, string(notice), "THIRD_PARTY_LICENSES")
}
