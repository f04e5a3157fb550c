package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConn(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusBadRequest)
		}
		if r.URL.Path == "/denied" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	}))
	defer server.Close()
	c, err := dial(server.Listener.Addr().String(), time.Now().Add(time.Minute))
	require.NoError(t, err)
	defer c.Close()
	for _, size := range []int{0, 1, 500, 5000, 100_000, 3} {
		want := strings.Repeat("x", size)
		status, body, err := c.exchange(request("/", want))
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, want, string(body))
	}
	status, _, err := c.exchange(request("/denied", "{}"))
	require.NoError(t, err)
	assert.Equal(t, http.StatusTooManyRequests, status)
}

// What is not an answer, or not all of it, is an error.
func TestConnTakesNothingElse(t *testing.T) {
	for _, answer := range []string{
		"", "nonsense\r\n", "HTTP/1.1 2\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r\nbody",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
	} {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
				fmt.Fprint(far, answer)
			}
		}()
		c := &conn{Conn: near, in: bufio.NewReader(near)}
		_, _, err := c.exchange(request("/", ""))
		assert.Error(t, err, "%q", answer)
		near.Close()
	}
}
