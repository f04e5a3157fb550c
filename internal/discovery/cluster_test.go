package discovery

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// configured is what a cluster answers to a question.
func configured(head string, version int, nodes string) string {
	body := fmt.Sprintf("%d\n%s\n", version, nodes)
	return fmt.Sprintf("%s0 %d\r\n%s\r\nEND\r\n", head, len(body), body)
}

const (
	twoNodes = "c.0001.use1.example|10.82.235.120|11211 c.0002.use1.example|10.80.249.27|11211"
	oneNode  = "c.0002.use1.example|10.80.249.27|11211"
)

// endpoint is the configuration endpoint of a fake cluster.
type endpoint struct {
	net.Listener
	running sync.WaitGroup

	mu      sync.Mutex
	answers map[string]string // by question
	asked   []string
	closed  chan struct{} // receives once for each connection that the other side closes
}

func startEndpoint(t *testing.T) *endpoint {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &endpoint{Listener: listener, closed: make(chan struct{}, 100)}
	e.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			e.running.Go(func() { e.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		e.running.Wait()
	})
	return e
}

func (e *endpoint) set(answers map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers, e.asked = answers, nil
}

func (e *endpoint) serve(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		question := lines.Text() + "\n" // the scanner leaves out \r, too
		e.mu.Lock()
		e.asked = append(e.asked, lines.Text())
		answer, known := e.answers[strings.Replace(question, "\n", "\r\n", 1)]
		e.mu.Unlock()
		if !known {
			answer = "ERROR\r\n"
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
	e.closed <- struct{}{}
}

func (e *endpoint) source() *Cluster { return &Cluster{Endpoint: e.Addr().String()} }

func TestAClusterTellsOfItsNodes(t *testing.T) {
	e := startEndpoint(t)
	for _, is := range []struct {
		answers map[string]string
		asked   []string
	}{
		{map[string]string{askConfig: configured(headConfig, 12, twoNodes)}, []string{"config get cluster"}},
		{map[string]string{askKey: configured(headKey, 12, twoNodes)}, []string{"config get cluster", "get AmazonElastiCache:cluster"}},
	} {
		e.set(is.answers)
		servers, err := List(t.Context(), e.source())
		require.NoError(t, err)
		assert.Equal(t, []string{"10.80.249.27:11211", "10.82.235.120:11211"}, servers)
		assert.Equal(t, is.asked, e.asked)
	}
	for range 2 { // no connection is left behind
		receive(t, e.closed)
	}
}

// A real memcached does not know the new command, and is asked in the old way.
func TestARealServerIsAskedInTheOldWay(t *testing.T) {
	server := memcachedtest.Start(t)
	source := &Cluster{Endpoint: server.Addr}
	_, err := List(t.Context(), source)
	require.ErrorContains(t, err, "it knows of no cluster")
	body := "3\n" + twoNodes + "\n"
	conn, err := net.Dial("tcp", server.Addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "set AmazonElastiCache:cluster 0 0 %d\r\n%s\r\n", len(body), body)
	answer, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "STORED\r\n", answer)
	servers, err := List(t.Context(), source)
	require.NoError(t, err)
	assert.Equal(t, []string{"10.80.249.27:11211", "10.82.235.120:11211"}, servers)
}

func TestAClusterThatChanges(t *testing.T) {
	e := startEndpoint(t)
	source := e.source()
	tells := func(version int, nodes string) ([]string, error) {
		e.set(map[string]string{askConfig: configured(headConfig, version, nodes)})
		return List(t.Context(), source)
	}
	servers, err := tells(1, twoNodes)
	require.NoError(t, err)
	require.Len(t, servers, 2)
	servers, err = tells(2, oneNode)
	require.NoError(t, err)
	require.Len(t, servers, 1)
	// A node that does not know of the change yet.
	_, err = tells(1, twoNodes)
	require.ErrorContains(t, err, "version 1, after 2")
	_, err = tells(2, oneNode)
	require.NoError(t, err)
	// A cluster that was built anew under the old name.
	for range maxStale {
		_, err = tells(1, twoNodes)
		require.Error(t, err)
	}
	servers, err = tells(1, twoNodes)
	require.NoError(t, err)
	assert.Len(t, servers, 2)
	_, err = tells(2, oneNode)
	assert.NoError(t, err)
}

// With TLS nodes are named by what certificates are for. Neither two hosts of one name nor two
// of one address are taken for two servers.
func TestNodesAreNamedByHost(t *testing.T) {
	e := startEndpoint(t)
	source := e.source()
	source.ByHost = true
	for nodes, want := range map[string][]string{
		twoNodes:                           {"c.0001.use1.example:11211", "c.0002.use1.example:11211"},
		"0001.c.example|10.0.0.1|1":        {"0001.c.example:1"},
		"|10.0.0.1|1 a.example||1":         {"10.0.0.1:1", "a.example:1"},
		"|2001:DB8:0::1|1 a|2001:db8::2|1": {"[2001:db8::1]:1", "a:1"},
	} {
		e.set(map[string]string{askConfig: configured(headConfig, 1, nodes)})
		servers, err := List(t.Context(), source)
		require.NoError(t, err, nodes)
		assert.Equal(t, want, servers, nodes)
	}
	for nodes, want := range map[string]string{
		"a.example|10.0.0.1|1 a.example|10.0.0.2|1": "a.example:1 is named twice",
		"a.example|10.0.0.1|1 b.example|10.0.0.1|1": "10.0.0.1:1 is named twice",
	} {
		e.set(map[string]string{askConfig: configured(headConfig, 2, nodes)})
		_, err := List(t.Context(), source)
		assert.ErrorContains(t, err, want)
	}
	e.set(map[string]string{askConfig: configured(headConfig, 1, oneNode)})
	_, err := List(t.Context(), source)
	assert.NoError(t, err, "the version of an answer that is none is forgotten")
}

func TestWhatIsNoAnswerOfACluster(t *testing.T) {
	e := startEndpoint(t)
	body := "1\n" + oneNode + "\n"
	for answer, want := range map[string]string{
		configured(headConfig, 1, ""):                                                   "no server is named",
		configured(headConfig, 1, "a|10.0.0.1|1 b|10.0.0.1|1"):                          "10.0.0.1:1 is named twice",
		configured(headConfig, 1, "a|10.0.0.1|1  b|10.0.0.2|1"):                         "not host|address|port",
		configured(headConfig, 1, oneNode+" "):                                          "not host|address|port",
		configured(headConfig, 1, oneNode+"\n"+oneNode):                                 "more than a version and a list",
		configured(headConfig, 1, "a|10.0.0.1"):                                         "not host|address|port",
		configured(headConfig, 1, "a|10.0.0.1|1|2"):                                     "not host|address|port",
		configured(headConfig, 1, "||1"):                                                "neither a host nor an address",
		configured(headConfig, 1, "a|10.0.0.300|1"):                                     "not an address",
		configured(headConfig, 1, "a|fe80::1%eth0|1"):                                   "not an address",
		configured(headConfig, 1, "a/b||1"):                                             "not a host",
		configured(headConfig, 1, "a|10.0.0.1|0"):                                       "not the number of a port",
		configured(headConfig, 1, "a|10.0.0.1|65536"):                                   "not the number of a port",
		configured(headConfig, 1, "a|10.0.0.1|http"):                                    "not the number of a port",
		configured(headConfig, 1, "a|10.0.0.1|01"):                                      "not the number of a port",
		configured(headConfig, 1, oneNode+"\r"):                                         "not the number of a port",
		configured(headConfig, -1, oneNode):                                             "not a version",
		configured(headKey, 1, oneNode):                                                 "not how a cluster answers",
		fmt.Sprintf("CONFIG cluster 0 %d\r\n%s\nEND\r\n", len(body), body):              "not how a cluster answers",
		fmt.Sprintf("CONFIG cluster 0 %d\r\n%sx\r\nEND\r\n", len(body), body):           "does not end after",
		fmt.Sprintf("CONFIG cluster 0 %d\r\n%s\r\nENDE\r\n", len(body), body):           "does not end after",
		fmt.Sprintf("CONFIG cluster 0 %d\n%s\r\nEND\r\n", len(body), body):              "not how a cluster answers",
		fmt.Sprintf("CONFIG cluster %d\r\n%s\r\nEND\r\n", len(body), body):              "not how a cluster answers",
		"CONFIG cluster 0 -1\r\n":                                                       "not how a cluster answers",
		"CONFIG cluster 0 99999999999999999999\r\n":                                     "not how a cluster answers",
		"CONFIG cluster 0 65537\r\n":                                                    "longer than 65536",
		configured(headConfig, 1, strings.Repeat("a|10.0.0.1|1 ", 1000)+"a|10.0.0.1|1"): "1001 nodes are more than 1000",
		"CONFIG cluster 0 0\r\n\r\nEND\r\n":                                             "not a version",
		"SERVER_ERROR out of memory\r\n":                                                "SERVER_ERROR out of memory",
		"END\r\n":                                                                       "it knows of no cluster",
		"HTTP/1.1 400 Bad Request\r\n\r\n":                                              "not how a cluster answers",
		strings.Repeat("x", 1<<20):                                                      "too long",
		configured(headConfig, 1, oneNode) + "END\r\n":                                  "more is said than was asked",
	} {
		e.set(map[string]string{askConfig: answer})
		_, err := List(t.Context(), e.source())
		if assert.ErrorContains(t, err, want, "%.100q", answer) {
			assert.ErrorContains(t, err, e.Addr().String())
		}
	}
	e.set(nil)
	_, err := List(t.Context(), e.source())
	assert.ErrorIs(t, err, errUnknownCommand)
	e.Close()
	_, err = List(t.Context(), e.source())
	assert.ErrorContains(t, err, "refused")
}

// said is a connection on which all that will ever be said is there, and what is said in
// return goes nowhere.
type said struct{ io.Reader }

func (said) Write(p []byte) (int, error) { return len(p), nil }

// An answer that is cut short, wherever that happens, is none; be it the first or the one
// after the way back to the old command.
func TestAnAnswerThatIsCutShort(t *testing.T) {
	for _, whole := range []string{configured(headConfig, 12, twoNodes), "ERROR\r\n" + configured(headKey, 12, twoNodes)} {
		// A pipe hands over each byte by itself.
		byBytes := func(text string) io.Reader { return &slowReader{strings.NewReader(text)} }
		told, err := converse(said{byBytes(whole)})
		require.NoError(t, err)
		require.Len(t, told.nodes, 2)
		for cut := range len(whole) {
			_, err := converse(said{byBytes(whole[:cut])})
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", whole[:cut])
		}
	}
}

// slowReader reads a byte at a time.
type slowReader struct{ from io.Reader }

func (r *slowReader) Read(p []byte) (int, error) { return r.from.Read(p[:min(1, len(p))]) }

// An endpoint that falls silent, after however many bytes, is waited for as long as the
// context says, and its connection is closed.
func TestAnEndpointThatFallsSilent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		whole := configured(headConfig, 12, twoNodes)
		for cut := range len(whole) {
			here, there := net.Pipe()
			source := &Cluster{Endpoint: "c.cfg.example:11211", Dial: func(_ context.Context, network, address string) (net.Conn, error) {
				assert.Equal(t, "tcp c.cfg.example:11211", network+" "+address)
				return here, nil
			}}
			ended := make(chan error)
			go func() {
				io.ReadFull(there, make([]byte, len(askConfig)))
				io.WriteString(there, whole[:cut])
				_, err := io.Copy(io.Discard, there)
				ended <- err
			}()
			ctx, cancel := context.WithTimeout(t.Context(), DefaultTimeout)
			began := time.Now()
			_, err := List(ctx, source)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, DefaultTimeout, time.Since(began))
			require.NoError(t, <-ended, "it is closed")
			cancel()
		}
	})
}

func TestHowAnEndpointIsWritten(t *testing.T) {
	for _, good := range []string{"my.cfg.use1.cache.example:11211", "10.0.0.3:11211", "[::1]:1"} {
		source, err := ParseCluster(good)
		require.NoError(t, err)
		assert.Equal(t, good, source.Endpoint)
	}
	for _, bad := range []string{"", "cache", ":1", "cache:", "cache:0", "cache:http", "::1:1", "a b:1", "a:1,b:1", "aws:a:1"} {
		_, err := ParseCluster(bad)
		assert.Error(t, err, bad)
	}
}

// The answer round-trips: the nodes of an answer, written anew, parse to the same nodes.
// And no part of an answer is one.
func FuzzCluster(f *testing.F) {
	for _, body := range []string{"12\n" + twoNodes + "\n", "1\n" + oneNode, "1\na||1\n", "1\n|::1|1\n", "1\n\n", "", "\n\n\n", "007\na|::ffff:1.2.3.4|1\n"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxAnswer {
			return
		}
		told, err := parseCluster(body)
		whole := fmt.Appendf(nil, "%s0 %d\r\n%s\r\nEND\r\n", headConfig, len(body), body)
		read, readErr := readAnswer(bufio.NewReader(bytes.NewReader(whole)), headConfig)
		require.Equal(t, err, readErr)
		if err != nil {
			return
		}
		require.Equal(t, told, read)
		require.NotEmpty(t, told.nodes)
		var nodes []string
		for _, n := range told.nodes {
			require.NoError(t, CheckServer(n.name(false)))
			require.NoError(t, CheckServer(n.name(true)))
			address := ""
			if n.address.IsValid() {
				address = n.address.String()
			}
			nodes = append(nodes, fmt.Sprintf("%s|%s|%d", n.host, address, n.port))
		}
		again, err := parseCluster(fmt.Appendf(nil, "%d\n%s\n", told.version, strings.Join(nodes, " ")))
		require.NoError(t, err)
		require.Equal(t, told, again)
		for cut := range min(len(whole), 300) {
			_, err := readAnswer(bufio.NewReader(bytes.NewReader(whole[:len(whole)-1-cut])), headConfig)
			require.Error(t, err)
		}
	})
}

// Whatever is said, it is understood or refused.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(configured(headConfig, 12, twoNodes)))
	f.Add([]byte("ERROR\r\n" + configured(headKey, 12, twoNodes)))
	f.Add([]byte("CONFIG cluster 0 4294967295\r\n"))
	f.Fuzz(func(t *testing.T, all []byte) {
		told, err := converse(said{bytes.NewReader(all)})
		if err != nil {
			return
		}
		require.NotEmpty(t, told.nodes)
		if len(all) < 4096 { // of more not all is looked at
			require.True(t, bytes.HasSuffix(all, []byte("\r\nEND\r\n")))
		}
	})
}
