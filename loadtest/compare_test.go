package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/compare"
)

// Without a file there are two comparisons in one table; the same flags give the same one.
func TestCompare(t *testing.T) {
	args := []string{"compare", "-limit", "40/2m"}
	got := runWith(t, nil, args...)
	require.Equal(t, exitOK, got.status, got.err)
	assert.Empty(t, got.err)
	for _, text := range []string{
		"1: 10,000 features by Zipf's law (s=1.1), 30 hits a second for 3h\n", "323,255 hits by 9,614 features, ",
		"2: 10,000 lines of a real access log",
		"10,000 hits by 1,753 features, 40/2m each, judged by the second\n", "\n1, 40/2m\n", "\n2, 40/2m\n", "\nGCRA ",
	} {
		assert.Contains(t, got.out, text)
	}
	assert.Equal(t, got, runWith(t, nil, args...))
}

func TestCompareJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	require.NoError(t, os.WriteFile(file, []byte(log+"nonsense\n"), 0o600))
	for name, args := range map[string][]string{file: {file}, "-": {"-"}} {
		args = append([]string{"compare", "-json", "-exactly", "-features", "host", "-limit", "1/h"}, args...)
		got := runWith(t, strings.NewReader(log+"nonsense\n"), args...)
		require.Equal(t, exitOK, got.status, got.err)
		assert.Equal(t, "loadtest: 1 malformed lines: 6; 1: it is not in the common or combined log format\n", got.err)
		var report compare.Report
		require.NoError(t, json.Unmarshal([]byte(got.out), &report, json.RejectUnknownMembers(true)))
		require.Len(t, report.Comparisons, 1)
		c := report.Comparisons[0]
		assert.Equal(t, name, c.Traffic)
		assert.Equal(t, []any{5, 3, 1, "1/h", "nanosecond"}, []any{c.Hits, c.Features, c.Malformed, c.Limit, c.Resolution})
		assert.Equal(t, "counterd", c.Rows[0].Name)
		assert.EqualValues(t, 1, c.Rows[0].Denied)
		assert.Equal(t, "log, 16 at once", c.Rows[len(c.Rows)-1].Name)
	}
}

func TestCompareUsage(t *testing.T) {
	for text, args := range map[string][]string{
		"names one kind":        {"-features", "ip=host,user", "a"},
		"-format is for a FILE": {"-format", "sshd"},
		"flags stand in front":  {"a", "-json"},
		"-limit":                {"-limit", "5"},
		"-limit: compare":       {"-limit", "0/m"},
	} {
		t.Run(text, func(t *testing.T) {
			got := runWith(t, strings.NewReader(log), append([]string{"compare"}, args...)...)
			assert.Equal(t, exitUsage, got.status)
			assert.Empty(t, got.out)
			assert.Contains(t, got.err, text)
			assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line, not %q", got.err)
		})
	}
	got := runWith(t, nil, "compare", filepath.Join(t.TempDir(), "nothing.log"))
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "nothing.log")
	got = runWith(t, nil, "compare", "-h")
	assert.Equal(t, exitOK, got.status)
	assert.Contains(t, got.out, "loadtest compare -limit 100/m")
}
