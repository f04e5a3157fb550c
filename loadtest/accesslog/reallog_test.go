package accesslog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/accesslog/accesslogtest"
)

// Every line of the real log is an entry, and all but the one that is cut off
// are written back as they were.
func TestReadRealLog(t *testing.T) {
	text := accesslogtest.RealText(t)
	want := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	require.Len(t, want, 10_000)

	var differ []int
	n := 0
	for line := range strings.Lines(text) {
		entry, err := accesslog.Parse(strings.TrimSuffix(line, "\n"))
		require.NoError(t, err, "line %d", n+1)
		if entry.String() != want[n] {
			differ = append(differ, n+1)
			assert.Equal(t, want[n]+`"`, entry.String())
		}
		n++
	}
	assert.Equal(t, 10_000, n)
	assert.Equal(t, []int{8899}, differ)
}
