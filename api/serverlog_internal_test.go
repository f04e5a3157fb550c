package api

import (
	"bytes"
	"errors"
	"go/build"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What net/http's server says in this version of Go is known.
func TestServerLinesAreAllKnown(t *testing.T) {
	said := regexp.MustCompile(`(?s)\b(?:sc|s|conn|server)\.(?:logf|condlogf)\((?:err, )?"([^"]*)"`)
	files := []string{"server.go", "h2_bundle.go", "internal/http2/server.go"}
	found := 0
	for _, name := range files {
		source, err := os.ReadFile(filepath.Join(build.Default.GOROOT, "src/net/http", name))
		if errors.Is(err, os.ErrNotExist) {
			continue // of another version
		}
		require.NoError(t, err)
		for _, match := range said.FindAllSubmatch(source, -1) {
			format := string(match[1])
			begins, _, _ := bytes.Cut(match[1], []byte("%"))
			text, _ := withoutClients(string(begins) + "x")
			assert.NotEqual(t, unknownSaying, text, "%s: %s", name, format)
			if strings.Contains(format, "%v") {
				assert.NotContains(t, strings.TrimPrefix(text, "http: Accept error: x"), "x", "%s: %s", name, format)
			}
			found++
		}
	}
	assert.Greater(t, found, 10)
}
