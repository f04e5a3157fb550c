package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

// Answers that their clients do not read hold at most 64 MiB in all. One more is a 503, and if it is a hit nothing is
// counted. They are answered again when the clients have left.
func TestUnsentAnswersAreBounded(t *testing.T) {
	var limits []string
	for i := range 8 {
		limits = append(limits, fmt.Sprintf("{per: user, rate: 9/%dh}", i+1))
	}
	rules := "events: {e: {limits: [" + strings.Join(limits, ", ") + "]}}"
	var hits []string
	for i := range 1000 {
		hits = append(hits, fmt.Sprintf(`{"event":"e","features":{"user":"%d%s"}}`, i, strings.Repeat("u", 980)))
	}
	batch := `{"hits":[` + strings.Join(hits, ",") + `]}`
	bubble.Test(t, func(t *testing.T) {
		h, _ := newAuthorizer(t, rules, newStore())
		c := newPipedClients(t, h, nil)
		ask := func() (conn net.Conn, response *http.Response) {
			raw := c.dial()
			go fmt.Fprintf(raw, "POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(batch), batch)
			response, err := http.ReadResponse(raw.reader, nil)
			require.NoError(t, err)
			return raw, response
		}
		var unread []net.Conn
		var bytes int64
		for range 9 {
			conn, response := ask()
			if response.StatusCode != http.StatusOK {
				require.Equal(t, 503, response.StatusCode)
				assert.Equal(t, "1", response.Header.Get("Retry-After"), "it says that nothing was done")
			} else {
				bytes += response.ContentLength
			}
			unread = append(unread, conn)
		}
		assert.Greater(t, bytes, int64(16<<20))
		assert.LessOrEqual(t, bytes, int64(64<<20))
		for _, conn := range unread {
			require.NoError(t, conn.Close())
		}
		conn, response := ask()
		require.Equal(t, 200, response.StatusCode)
		_, err := io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	})
}

// Of metrics and of profiles, whose size nobody knows before, five answers at a time may be unread. One more is a 503.
func TestUnreadMetricsAndProfilesAreBounded(t *testing.T) {
	large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20))
	})
	for _, path := range []string{"/metrics", "/debug/pprof/heap"} {
		bubble.Test(t, func(t *testing.T) {
			g := newGuarded(t)
			g.config.Gate, g.config.Metrics, g.config.Profiles = nil, large, large
			c := newPipedClients(t, newDescribedAdmin(g.config), nil)
			ask := func() (*rawConn, *http.Response) {
				conn := c.dial()
				_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
				require.NoError(t, err)
				response, err := http.ReadResponse(conn.reader, nil)
				require.NoError(t, err)
				return conn, response
			}
			var unread []*rawConn
			for range 5 {
				conn, response := ask()
				require.Equal(t, 200, response.StatusCode)
				unread = append(unread, conn)
			}
			conn, response := ask()
			require.Equal(t, 503, response.StatusCode)
			assert.Equal(t, "1", response.Header.Get("Retry-After"))
			require.NoError(t, conn.Close())
			for _, conn := range unread {
				require.NoError(t, conn.Close())
			}
			synctest.Wait()
			conn, response = ask()
			require.Equal(t, 200, response.StatusCode)
			require.NoError(t, conn.Close())
		})
	}
}
