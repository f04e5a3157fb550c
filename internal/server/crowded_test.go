package server

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// crowdedAdmin serves operators as a process does, with metrics and a page that the test holds back. It
// returns the address.
func crowdedAdmin(t *testing.T, metrics, page http.Handler) string {
	t.Helper()
	leaktest.Check(t)
	log := slog.New(slog.DiscardHandler)
	p, err := Listen(Settings{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Settings: settings.Settings{Log: log}}, &Access{}, 10)
	require.NoError(t, err)
	p.Handle(api.ServerConfig{Metrics: metrics, Page: page, Log: log}, 10)
	p.admin.server.ReadHeaderTimeout, p.admin.server.ReadTimeout = 0, 0
	served := make(chan error, 1)
	go func() { served <- p.admin.serve() }()
	t.Cleanup(func() {
		require.NoError(t, p.close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		require.NoError(t, p.clients.Close())
	})
	return p.admin.Addr().String()
}

// Connections stay idle for as long as the settings say, on each address.
func TestIdleTimeout(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	p, err := Listen(Settings{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", IdleTimeout: 700 * time.Second, Settings: settings.Settings{Log: log}}, &Access{}, 10)
	require.NoError(t, err)
	defer p.close()
	require.Equal(t, 700*time.Second, p.clients.server.IdleTimeout)
	require.Equal(t, 700*time.Second, p.admin.server.IdleTimeout)
}

// Slow connections to the address of operators, more than it takes, leave room for probes.
func TestSlowConnectionsStarveNoProbe(t *testing.T) {
	address := crowdedAdmin(t, http.NotFoundHandler(), http.NotFoundHandler())
	for i := range 5 * adminConnections {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, []string{"", "GET /healthz HTTP/1.1\r\nHost: x\r\nA: ", "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"}[i%3])
		require.NoError(t, err)
		answered, _ := ask(t, "http://"+address+"/healthz")
		require.Equal(t, 200, answered, "with %d slow connections", i)
	}
}

// Requests that take long, more than the address of operators takes, leave room for probes:
// those beyond the bound are refused.
func TestLongRequestsStarveNoProbe(t *testing.T) {
	arrived, release := make(chan struct{}, 2*adminConnections), make(chan struct{})
	address := crowdedAdmin(t, http.NotFoundHandler(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	answers := make(chan int, 2*adminConnections)
	var asking sync.WaitGroup
	for i := range 2 * adminConnections {
		asking.Go(func() {
			answered, _ := ask(t, "http://"+address+"/ui/")
			answers <- answered
		})
		if i < adminRequests {
			<-arrived
		} else {
			assert.Equal(t, 503, <-answers)
		}
		answered, _ := ask(t, "http://"+address+"/healthz")
		require.Equal(t, 200, answered, fmt.Sprint(i))
	}
	close(release)
	asking.Wait()
	for range adminRequests {
		assert.Equal(t, 200, <-answers)
	}
}

// Forms whose bodies do not come, more than the address of operators takes, leave room for probes, also on connections of
// which a request was admitted.
func TestSlowFormsStarveNoProbe(t *testing.T) {
	for name, before := range map[string]string{"strangers": "", "operators": "GET /ui/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan struct{}, adminConnections)
			address := crowdedAdmin(t, http.NotFoundHandler(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					arrived <- struct{}{}
				}
				_, _ = io.ReadAll(r.Body)
			}))
			var conns []net.Conn
			for range adminConnections - 8 {
				conn, err := net.Dial("tcp", address)
				require.NoError(t, err)
				defer conn.Close()
				conns = append(conns, conn)
				if before != "" {
					_, err = io.WriteString(conn, before)
					require.NoError(t, err)
					response, err := http.ReadResponse(bufio.NewReader(conn), nil)
					require.NoError(t, err)
					require.Equal(t, 200, response.StatusCode)
				}
			}
			for i, conn := range conns {
				_, err := io.WriteString(conn, "POST /ui/reset HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
				require.NoError(t, err)
				if i < adminRequests {
					<-arrived
				} else {
					response, err := http.ReadResponse(bufio.NewReader(conn), nil)
					require.NoError(t, err, "it is refused at once")
					require.Equal(t, 503, response.StatusCode)
				}
				answered, _ := ask(t, "http://"+address+"/healthz")
				require.Equal(t, 200, answered, "with %d slow forms", i)
			}
		})
	}
}
