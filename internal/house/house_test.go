package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
)

var update = flag.Bool("update", false, "write what is found as the allowances: they only ever fall")

const allowancesFile = "testdata/allowances.txt"

// allowances are the lines of a package or page that may still hold a word of the lists. A
// place without an entry is clean, and stays so.
type allowances map[string][2]int

const allowancesHead = `# Lines of each package (tests included) and page that hold a word of the lists in
# language.go: of the dialect, and of retired terms. A place that is not listed holds none.
# The figures only fall: go test ./internal/house -update writes what is found.
`

func readAllowances(t *testing.T) allowances {
	t.Helper()
	text, err := os.ReadFile(allowancesFile)
	require.NoError(t, err)
	all := allowances{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var place string
		var counts [2]int
		_, err := fmt.Sscan(line, &counts[0], &counts[1], &place)
		require.NoError(t, err, "%q", line)
		all[place] = counts
	}
	return all
}

func (a allowances) write() error {
	var text bytes.Buffer
	text.WriteString(allowancesHead)
	for _, place := range slices.Sorted(maps.Keys(a)) {
		if counts := a[place]; counts != [2]int{} {
			fmt.Fprintf(&text, "%4d %4d %s\n", counts[0], counts[1], place)
		}
	}
	return os.WriteFile(allowancesFile, text.Bytes(), 0o600)
}

// Comments and documents use the standard language's subjects and the glossary's terms.
func TestVocabulary(t *testing.T) {
	tree, err := readTree("../..")
	require.NoError(t, err)
	documents, err := readDocuments("../..")
	require.NoError(t, err)
	allowed, found := readAllowances(t), allowances{}
	for i, list := range []*regexp.Regexp{dialect, retired} {
		for place, s := range shares(tree, documents, list) {
			counts := found[place]
			counts[i] = s.found
			found[place] = counts
			assert.True(t, *update || s.found <= allowed[place][i], "%s has %d lines with words to be replaced; go run ./internal/house -words %[1]s lists them", place, s.found)
		}
	}
	for place := range allowed {
		if found[place] == [2]int{} {
			t.Logf("%s is clean, or gone: go test ./internal/house -update", place)
		}
	}
	if *update {
		require.NoError(t, found.write())
	}
}

func TestWordsOfTheLists(t *testing.T) {
	for text, word := range map[string]string{
		"so that nobody waits": "nobody", "Whoever calls": "whoever", "callers who wait": "who", "each is told of it": "is told",
		"what stands behind it": "what stands", "closed by those that opened it": "those that", "fails for want of time": "for want of",
		"the whole of it": "", "a rule whose window ends": "", "tolerance": "",
	} {
		assert.Equal(t, word, wordIn(dialect, text), text)
	}
	for text, word := range map[string]string{
		"The mender reads": "mender", "it is taken back": "taken back", "debts are paid": "debts", "flushes": "flushes", "a crowded counter": "crowded",
		"Memcached's flush_all": "", "it implements http.Flusher": "", "recommended": "", "a plane": "", "P stands for it": "",
	} {
		assert.Equal(t, word, wordIn(retired, text), text)
	}
}

func TestWordsOfIdentifiers(t *testing.T) {
	for identifier, words := range map[string][]string{
		"HTTPServer2": {"http", "server"}, "nextStamp": {"next", "stamp"}, "max_wait": {"max", "wait"}, "T": nil, "ipV6Prefix": {"ip", "prefix"}, "ID": {"id"},
	} {
		assert.Equal(t, words, wordsOf(identifier), identifier)
	}
}

// The table is printed, and has a value for each figure.
func TestReport(t *testing.T) {
	var out strings.Builder
	require.NoError(t, report(&out, "../..", true, false))
	rows, _, _ := strings.Cut(out.String(), "\n\n")
	assert.Regexp(t, `(?m)^methods on the largest type +\S+\.\S+ \d+`, rows)
	assert.Regexp(t, `(?m)^optional interfaces .* \d`, rows)
	assert.Regexp(t, `(?m)^loadtest +\d+ lines .* \d+ packages, [1-9]\d* commands, [1-9]\d* flags`, rows)
}

// The files of a hit are those of the layers that it goes through.
func TestFilesOfAHit(t *testing.T) {
	testkit.Long(t) // the whole server is compiled with coverage counters
	f, err := hitFigure("../..")
	require.NoError(t, err)
	for _, folder := range []string{"api/", "events/", "hierarchy/", "memcache/"} {
		assert.True(t, slices.ContainsFunc(f.details, func(file string) bool { return strings.HasPrefix(file, folder) }), "%s: %v", folder, f.details)
	}
	assert.NotContains(t, f.details, "memcache/embedded.go")
}
