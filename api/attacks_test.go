package api_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// memoryInUse returns the bytes of the heap and of stacks that are in use.
func memoryInUse() int64 {
	for range 3 { // a pool is empty after the second
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse)
}

// stalled is a connection over HTTP/2 that never lets the server send a body.
type stalled struct {
	*tls.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	next   uint32
	again  []byte // the headers as HPACK has them from the second time on
}

func (c *clients) dialStalled(config *tls.Config) *stalled {
	c.t.Helper()
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", c.listener.Addr().String(), config)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { conn.Close() })
	require.NoError(c.t, conn.SetDeadline(time.Now().Add(10*longest)))
	s := &stalled{Conn: conn, framer: http2.NewFramer(conn, conn), next: 1}
	s.hpack = hpack.NewEncoder(&s.block)
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(c.t, err)
	require.NoError(c.t, s.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	return s
}

// ask sends the headers of a request, the same ones each time, or as much of them as the
// server takes.
func (s *stalled) ask(method, path string, fields []hpack.HeaderField) error {
	left := s.again
	if left == nil {
		s.block.Reset()
		for _, field := range append([]hpack.HeaderField{
			{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "127.0.0.1"}, {Name: ":path", Value: path},
		}, fields...) {
			if err := s.hpack.WriteField(field); err != nil {
				return err
			}
		}
		left = s.block.Bytes()
		if s.next > 1 {
			s.again = left
		}
	}
	const most = 16 << 10 // of a frame
	id, first := s.next, min(most, len(left))
	s.next += 2
	err := s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: left[:first], EndStream: true, EndHeaders: first == len(left)})
	for left = left[first:]; err == nil && len(left) > 0; {
		more := min(most, len(left))
		err = s.framer.WriteContinuation(id, more == len(left), left[:more])
		left = left[more:]
	}
	return err
}

// settle waits until the server has read all that was sent, or has closed the connection.
func (s *stalled) settle() {
	if s.framer.WritePing(false, [8]byte{1}) != nil {
		return
	}
	for {
		frame, err := s.framer.ReadFrame()
		if err != nil {
			return
		}
		if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() {
			return
		}
	}
}

// fieldsOf returns so many header fields with values of so many bytes. None of them is
// remembered by HPACK unless indexed.
func fieldsOf(count, size int, indexed bool) (fields []hpack.HeaderField) {
	for i := range count {
		fields = append(fields, hpack.HeaderField{Name: fmt.Sprintf("x%x", i), Value: strings.Repeat("v", size), Sensitive: !indexed})
	}
	return fields
}

// Requests over HTTP/2 without a token whose answers are never taken hold little memory,
// however large or many their headers are, and also where net/http itself refuses them.
func TestStalledAnswersHoldLittleMemory(t *testing.T) {
	for name, test := range stalledAnswers {
		t.Run(name, func(t *testing.T) {
			c, newClient := secureClients(t, bare(newGuarded(t).client), 0)
			secure := newClient(true).Transport.(*http.Transport).TLSClientConfig
			before := memoryInUse()
			sent := 0
			for range test.connections {
				s := c.dialStalled(secure)
				for range test.streams {
					if s.ask("GET", test.path, test.fields) != nil {
						break
					}
					sent++
				}
				s.settle()
			}
			grown := memoryInUse() - before
			t.Logf("%d requests, %d connections are left: %d MiB", sent, c.listener.Open(), grown>>20)
			assert.Less(t, grown, test.most<<20)
			assert.LessOrEqual(t, c.listener.Open(), 64, "connections of strangers with requests")
			// A client is served meanwhile.
			request, err := http.NewRequest("GET", "https://"+c.listener.Addr().String()+"/v1/events", nil)
			require.NoError(t, err)
			request.Header.Set("Authorization", "Bearer "+secret("rules"))
			response, err := newClient(true).Do(request)
			require.NoError(t, err)
			response.Body.Close()
			assert.Equal(t, 200, response.StatusCode)
		})
	}
}

// stalledAnswer is an attack by requests whose answers are never taken.
type stalledAnswer struct {
	path                 string
	fields               []hpack.HeaderField
	connections, streams int
	most                 int64 // MiB: less than half of what all their headers take
}

// stalledAnswers are the attacks. The tag testall adds more of them.
var stalledAnswers = map[string]stalledAnswer{
	"large":              {"/v1/events", fieldsOf(12, 5<<10, false), 12, 100, 40},
	"tiny":               {"/v1/events", fieldsOf(1500, 0, false), 16, 100, 100},
	"invalid, and small": {"/v1/events", []hpack.HeaderField{{Name: "connection", Value: "x"}}, 80, 2, 100},
}

// A request with more header fields than any client has a use for is refused.
func TestHeaderFieldsAreBounded(t *testing.T) {
	ask := func(fields int) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/events", nil)
		for i := range fields {
			r.Header.Add(fmt.Sprintf("X-%d", i%7), "v")
		}
		w := httptest.NewRecorder()
		newServer().ServeHTTP(w, r)
		if w.Code != 200 {
			problem(t, w, 431)
			assert.Contains(t, w.Body.String(), "more than 128 header fields")
		}
		return w.Code
	}
	assert.Equal(t, 200, ask(128))
	assert.Equal(t, 431, ask(129))
	assert.Equal(t, 431, ask(10_000))
}

// hitWith sends a hit with the token over the connection and returns the status of the
// answer; 0: there is none.
func (c *clients) hitWith(conn *rawConn, token string) int {
	c.t.Helper()
	_, err := fmt.Fprintf(conn, "%sAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", postHit, token, len(who), who)
	if err != nil {
		return 0
	}
	response, err := http.ReadResponse(conn.reader, nil)
	if err != nil {
		return 0
	}
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(c.t, err)
	return response.StatusCode
}

// strangersOn are connections that never get as far as a request that is let in.
var strangersOn = map[string]string{
	"silent":       "",
	"slow headers": "GET /healthz HTTP/1.1\r\nHost: x\r\nA: ",
	"refused":      "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n",
	"slow body":    postHit + "Content-Length: 100000\r\n\r\n{",
	"probes":       healthz,
}

// Whatever strangers do with however many connections: a client keeps its own, one after the
// other of its hits is served on it, and a new client gets one.
func TestStrangersPushOutNoClient(t *testing.T) {
	for name, text := range strangersOn {
		t.Run(name, func(t *testing.T) {
			const most = 20
			c := newClients(t, newGuarded(t).client, most)
			kept := c.dial()
			served := func(status int) { t.Helper(); require.Contains(t, []int{200, 429}, status) }
			served(c.hitWith(kept, secret("decide")))
			for i := range 10 * most {
				_, err := io.WriteString(c.dial(), text)
				require.NoError(t, err)
				served(c.hitWith(kept, secret("decide")))
				if i%10 == 0 {
					served(c.hitWith(c.dial(), secret("decide")))
				}
				require.LessOrEqual(t, c.listener.Open(), most)
			}
			assert.Zero(t, c.listener.Refused())
		})
	}
}

// Without tokens, too, a client that has had an answer keeps its connection.
func TestSilentConnectionsPushOutNoClientWithoutTokens(t *testing.T) {
	for _, text := range []string{"", strangersOn["slow headers"], strangersOn["slow body"]} {
		const most = 20
		c := newClients(t, nil, most)
		kept := c.dial()
		for range 10 * most {
			require.Contains(t, []int{200, 429}, c.hitWith(kept, ""))
			_, err := io.WriteString(c.dial(), text)
			require.NoError(t, err)
		}
		assert.Zero(t, c.listener.Refused())
	}
}
