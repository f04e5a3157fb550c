package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/telemetry/metrics"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// Metrics show each followed file, and no other, as refused while it holds a version that was
// refused.
func TestFilesThatAreRefused(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	const good = "ops all ops-token-of-the-test"
	tokens := testkit.SecretFile(t, good)
	log := &testkit.Log{}
	s := DefaultSettings()
	s.Log = slog.New(slog.NewTextHandler(log, nil))
	s.Tokens, s.TLSCert, s.TLSKey = tokens, id.CertFile, id.KeyFile
	a, err := OpenAccess(s)
	require.NoError(t, err)
	defer a.Close()
	m := metrics.New()
	a.WatchFiles(m, map[string]Refused{})
	eventually := func(tls, tokens int) {
		t.Helper()
		want := fmt.Sprintf("# TYPE counterd_file_reload_failing gauge\ncounterd_file_reload_failing{file=\"tls\"} %d\ncounterd_file_reload_failing{file=\"tokens\"} %d\n# ", tls, tokens)
		testkit.Await(t, soon, want, func() bool {
			answer := httptest.NewRecorder()
			m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			return strings.Contains(answer.Body.String(), want)
		})
	}
	eventually(0, 0)
	testkit.ReplaceFile(t, tokens, "ops")
	eventually(0, 1)
	testkit.ReplaceFile(t, id.KeyFile, "no key")
	eventually(1, 1)
	testkit.ReplaceFile(t, tokens, good)
	eventually(1, 0)
	next := authority.Issue(t)
	for from, to := range map[string]string{next.KeyFile: id.KeyFile, next.CertFile: id.CertFile} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		testkit.ReplaceFile(t, to, string(text))
	}
	eventually(0, 0)
}
