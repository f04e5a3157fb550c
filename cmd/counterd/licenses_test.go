package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write THIRD_PARTY_LICENSES")

// isLicense matches the names of files that contain the terms of a module.
var isLicense = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// THIRD_PARTY_LICENSES contains the terms of the modules that the programs link on any system, and no others.
func TestLicenses(t *testing.T) {
	const format = "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"
	_, err := os.ReadFile("../../go.sum") // so that a cached result depends on it
	require.NoError(t, err)
	terms := map[string]map[string]string{} // by module, and by the file's name in it
	for _, system := range []string{"linux", "darwin", "windows"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "./cmd/counterd", "./loadtest")
		list.Dir = "../.."
		list.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
		out, err := list.Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			part := strings.Split(strings.TrimSpace(line), "\t")
			if len(part) != 3 {
				continue // a package of this module, or of the standard library
			}
			name, root := part[0], part[1]
			if terms[name] == nil {
				terms[name] = map[string]string{}
			}
			files, err := filepath.Glob(filepath.Join(root, "licenses", "*"))
			require.NoError(t, err)
			for folder := part[2]; strings.HasPrefix(folder, root); folder = filepath.Dir(folder) {
				entries, err := os.ReadDir(folder)
				require.NoError(t, err)
				for _, e := range entries {
					if !e.IsDir() && isLicense.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
						files = append(files, filepath.Join(folder, e.Name()))
					}
				}
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				relative, err := filepath.Rel(root, file)
				require.NoError(t, err)
				terms[name][filepath.ToSlash(relative)] = strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
			}
		}
	}
	var want strings.Builder
	want.WriteString("The licenses of all Go modules that counterd and loadtest link, as they are in the modules.\n" +
		"The Go standard library has that of golang.org/x/sync. Made by go test ./cmd/counterd -run TestLicenses -update.\n")
	for _, name := range slices.Sorted(maps.Keys(terms)) {
		require.NotEmpty(t, terms[name], "%s has no license", name)
		fmt.Fprintf(&want, "\n%s\n%s\n", strings.Repeat("=", 80), name)
		for _, file := range slices.Sorted(maps.Keys(terms[name])) {
			fmt.Fprintf(&want, "\n--- %s\n\n%s\n", file, terms[name][file])
		}
	}
	const file = "../../THIRD_PARTY_LICENSES"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want.String()), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, string(got) == want.String(), "THIRD_PARTY_LICENSES is out of date: go test ./cmd/counterd -run TestLicenses -update")
}
