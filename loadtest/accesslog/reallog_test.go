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
	format, err := accesslog.NewCombined("host", "ident", "user", "request", "status", "bytes", "referer", "agent")
	require.NoError(t, err)
	var differ []int
	for n, text := range want {
		record, err := format.Parse(text)
		require.NoError(t, err, "line %d", n+1)
		f := record.Field
		line := fmt.Sprintf(`%s %s %s [%s] "%s" %s %s "%s" "%s"`, f("host"), f("ident"), f("user"), record.Time.Format(accesslog.TimeLayout),
			f("request"), f("status"), f("bytes"), f("referer"), f("agent"))
		if line != text {
			differ = append(differ, n+1)
			assert.Equal(t, text+`"`, line)
		}
	}
	assert.Equal(t, []int{8899}, differ)
}
