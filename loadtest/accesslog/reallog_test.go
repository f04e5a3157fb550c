package accesslog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/accesslog/accesslogtest"
)

// Every line of the real log is read whole: put together again, its fields are the line. One
// line is cut off.
func TestReadRealLog(t *testing.T) {
	text := accesslogtest.RealText(t)
	want := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	require.Len(t, want, 10_000)
	format, err := accesslog.NewCommon("host", "ident", "user", "request", "status", "bytes", "referer", "agent")
	require.NoError(t, err)
	var differ []int
	n := 0
	for record, err := range accesslog.Read(strings.NewReader(text), format) {
		require.NoError(t, err, "line %d", n+1)
		f := record.Field
		line := fmt.Sprintf(`%s %s %s [%s] "%s" %s %s "%s" "%s"`, f("host"), f("ident"), f("user"), record.Time.Format(accesslog.TimeLayout),
			f("request"), f("status"), f("bytes"), f("referer"), f("agent"))
		if line != want[n] {
			differ = append(differ, n+1)
			assert.Equal(t, want[n]+`"`, line)
		}
		n++
	}
	assert.Equal(t, 10_000, n)
	assert.Equal(t, []int{8899}, differ)
}
