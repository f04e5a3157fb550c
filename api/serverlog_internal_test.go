package api

import (
	"bytes"
	"errors"
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServerLines(t *testing.T) {
	const peer = "203.0.113.9:1234"
	for line, want := range map[string]string{
		"http: TLS handshake error from " + peer + ": EOF":                                                                 "http: TLS handshake error: EOF",
		"http: TLS handshake error from " + peer + ": remote error: tls: bad certificate\n":                                "http: TLS handshake error: remote error: tls: bad certificate",
		"http: TLS handshake error from [2001:db8::9]:1: read tcp [::1]:1->[2001:db8::9]:1: connection reset by peer":      "http: TLS handshake error: connection reset by peer",
		"http: TLS handshake error from " + peer + `: tls: client requested unsupported application protocols (["alice"])`: "http: TLS handshake error: client requested unsupported application protocols",
		"http: TLS handshake error from " + peer + `: tls: alice`:                                                          "http: TLS handshake error: a reason that is not logged, since it may name a client",
		"http: TLS handshake error from " + peer + `: alice: remote error: tls: alice`:                                     "http: TLS handshake error: a reason that is not logged, since it may name a client",
		"http: Accept error: accept tcp [::]:8080: too many open files; retrying in 5ms":                                   "http: Accept error: accept tcp [::]:8080: too many open files; retrying in 5ms",
		"http2: server connection error from " + peer + ": alice":                                                          "http2: server connection error",
		"http2: server closing client connection: alice":                                                                   "http2: server closing client connection",
		"http: WriteHeader called with both Transfer-Encoding of \"alice\" and a Content-Length of 1":                      "http: WriteHeader called with both Transfer-Encoding of",
		"alice did something from " + peer:                                                                                 "http: something that is not logged, since it may name a client",
		"":                                                                                                                 "http: something that is not logged, since it may name a client",
	} {
		text, stack := withoutClients(line)
		assert.Equal(t, want, text, line)
		assert.Empty(t, stack, line)
	}
}

// Of a panic that reached net/http the places remain.
func TestServerLinesOfPanics(t *testing.T) {
	stack := make([]byte, 64<<10)
	stack = stack[:runtime.Stack(stack, false)]
	for _, says := range []string{"alice", "alice\n\t/alice.go:1", "alice\ngoroutine 7 [alice]:\n\t/alice.go:1"} {
		text, places := withoutClients(fmt.Sprintf("http: panic serving 203.0.113.9:1: %s\n%s", says, stack))
		assert.Equal(t, "http: panic", text)
		assert.Contains(t, places, "serverlog_internal_test.go:")
		assert.NotContains(t, text+places, "alice")
		assert.NotContains(t, text+places, "0x")
	}
}

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
