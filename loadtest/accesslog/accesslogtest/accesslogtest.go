// Package accesslogtest has the real log, and reads logs, for tests of what is made of them.
package accesslogtest

import (
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/accesslog"
)

// RealText returns the text of the real log, in packages beside accesslog.
func RealText(t *testing.T) string {
	t.Helper()
	file, err := os.Open("../testdata/apache_logs.log.gz")
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	text, err := io.ReadAll(unzipped)
	require.NoError(t, err)
	return string(text)
}

// Read reads a log in the combined format, whose fields are features as the mapping says.
func Read(t *testing.T, text, mapping string) *accesslog.Log {
	t.Helper()
	kinds, err := accesslog.ParseMapping(mapping)
	require.NoError(t, err)
	format, err := accesslog.NewCombined(kinds.Fields()...)
	require.NoError(t, err)
	log, err := accesslog.ReadLog(t.Context(), format, kinds, accesslog.Stream("", strings.NewReader(text)))
	require.NoError(t, err)
	return log
}
