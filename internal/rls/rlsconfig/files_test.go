package rlsconfig

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/yamlfile"
)

func write(t *testing.T, folder string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

func limitsOf(c *Config) (names []string) {
	for _, limit := range c.limits {
		names = append(names, limit.String())
	}
	return names
}

const oneLimit = "\ndescriptors: [{key: k, rate_limit: {unlimited: true}}]"

// readAll parses the listed files of a path.
func readAll(path string) (*Config, error) {
	names, _, err := List(path)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, text})
	}
	return Parse(files)
}

func TestAFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, folder, map[string]string{
		"b.yaml": "domain: z" + oneLimit, "a.yml": "domain: y" + oneLimit, "c.yaml": "domain: x" + oneLimit,
		".hidden.yaml": "not: [read", "notes.txt": "not: [read", "below.yaml/d.yaml": "not: [read", "..data/e.yaml": "domain: w" + oneLimit,
	})
	require.NoError(t, os.Symlink("..data/e.yaml", filepath.Join(folder, "e.yaml")))
	c, err := readAll(folder)
	require.NoError(t, err)
	assert.Equal(t, []string{"y.k", "z.k", "x.k", "w.k"}, limitsOf(c))
	assert.Equal(t, []string{"w", "x", "y", "z"}, c.Domains())
	assert.Equal(t, "rls/w", c.Event("w").Name)
	assert.Nil(t, c.Event("v"))
	assert.Len(t, c.Rules().All(), 4)
	limit, _ := c.Find("z", of("k", "v"))
	assert.Equal(t, filepath.Join(folder, "b.yaml"), limit.File)

	c, err = readAll(filepath.Join(folder, "b.yaml"))
	require.NoError(t, err)
	assert.Equal(t, []string{"z"}, c.Domains())
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	_, _, err := List(filepath.Join(folder, "missing.yaml"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, _, err = List(folder)
	require.ErrorContains(t, err, folder+" has no *.yaml or *.yml file: add one")
	require.NoError(t, os.Symlink("nowhere", filepath.Join(folder, "a.yaml")))
	_, _, err = List(folder)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Parse([]File{{"large.yaml", []byte("domain: d\n" + strings.Repeat("#", yamlfile.MaxSize))}})
	require.ErrorContains(t, err, "large.yaml: the file exceeds 1048576 bytes")
}

// The faults of all files come at once, in the order of the files and then of the lines.
func TestFaultsOfSeveralFiles(t *testing.T) {
	t.Parallel()
	_, err := Parse([]File{
		{"one.yaml", []byte("domain: d\ndescriptors:\n- value: x\n- {key: a, rate_limit: {unit: foo}}")},
		{"two.yaml", []byte("domain: [")},
	})
	require.EqualError(t, err, `line 3, column 3: one.yaml: descriptors[0]: key is missing or empty: it is the key of a request's descriptor, as in key: user
line 4, column 31: one.yaml: descriptors[1].rate_limit.unit: unknown unit: there is second, minute, hour, day, week, month
line 1: two.yaml: this is not YAML: did not find expected node content`)
}

// Files may have the same domain.
func TestMerge(t *testing.T) {
	t.Parallel()
	files := []File{
		{"1.yaml", []byte("domain: d\ndescriptors:\n- {key: a, value: x*, rate_limit: {unlimited: true, replaces: [{name: later}]}}")},
		{"2.yaml", []byte("domain: e" + oneLimit)},
		{"3.yaml", []byte("domain: d\ndescriptors:\n- {key: a, value: '*', rate_limit: {unlimited: true}}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1, name: later}}")},
	}
	c, err := Parse(files)
	require.NoError(t, err)
	assert.Empty(t, c.Warnings)
	assert.Equal(t, []string{"d", "e"}, c.Domains())
	assert.Equal(t, []string{"d.a_x*", "e.k", "d.a_*", "d.b"}, limitsOf(c))
	for value, file := range map[string]string{"xy": "1.yaml", "y": "3.yaml"} {
		limit, _ := c.Find("d", of("a", value))
		assert.Equal(t, file, limit.File)
	}

	_, err = Parse(append(files, File{"4.yaml", []byte("domain: d\ndescriptors: [{key: b, descriptors: [{key: c}]}]")}))
	require.EqualError(t, err, "line 2, column 15: 4.yaml: descriptors[0]: the list has this key and value twice, first in 3.yaml, line 4: remove one")
}

// A name is one of its domain.
func TestReplacesWithinADomain(t *testing.T) {
	t.Parallel()
	c, err := Parse([]File{
		{"1.yaml", []byte("domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, replaces: [{name: other}]}}]")},
		{"2.yaml", []byte("domain: e\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, name: other}}, " +
			"{key: b, rate_limit: {unlimited: true, replaces: [{name: other}]}}]")},
	})
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
	assert.Equal(t, "line 2, column 72: 1.yaml: descriptors[0].rate_limit.replaces[0].name: no limit of the domain has this name: nothing is replaced", c.Warnings[0].Error())
}

func TestNoFiles(t *testing.T) {
	t.Parallel()
	c, err := Parse(nil)
	require.NoError(t, err)
	assert.Empty(t, c.Domains())
	limit, _ := c.Find("d", of("a", "b"))
	assert.Nil(t, limit)
}
