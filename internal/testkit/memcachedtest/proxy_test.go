package memcachedtest_test

import (
	"bufio"
	"github.com/counterd/counterd/internal/testkit"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// maxWait bounds the wait for an answer.
const maxWait = time.Minute

// wire is a connection on which mn is asked, and answered MN.
type wire struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, address string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &wire{t, conn, bufio.NewReader(conn)}
}

func (w *wire) ask() {
	w.t.Helper()
	_, err := io.WriteString(w.conn, "mn\r\n")
	require.NoError(w.t, err)
}

func (w *wire) answered() {
	w.t.Helper()
	require.NoError(w.t, w.conn.SetReadDeadline(time.Now().Add(maxWait)))
	line, err := w.in.ReadString('\n')
	require.NoError(w.t, err)
	require.Equal(w.t, "MN\r\n", line)
}

// quiet waits for a moment in which nothing must come.
func (w *wire) quiet() {
	w.t.Helper()
	require.NoError(w.t, w.conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := w.in.ReadByte()
	require.ErrorIs(w.t, err, os.ErrDeadlineExceeded)
}

func (w *wire) fails(with error) {
	w.t.Helper()
	require.NoError(w.t, w.conn.SetReadDeadline(time.Now().Add(maxWait)))
	_, err := w.in.ReadByte()
	require.ErrorIs(w.t, err, with)
}

// wasReset makes a connection that is reset, be it while connecting or right after.
func wasReset(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err == nil {
		(&wire{t, conn, bufio.NewReader(conn)}).fails(syscall.ECONNRESET)
		require.NoError(t, conn.Close())
		return
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestAProxyPassesOn(t *testing.T) {
	p := memcachedtest.StartProxy(t, memcachedtest.Start(t))
	w := dial(t, p.Addr)
	for range 3 {
		w.ask()
		w.answered()
	}
	assert.Equal(t, 1, p.Connections())
	w.conn.Close()
	testkit.Await(t, maxWait, "no connection is left", func() bool { return p.Connections() == 0 })
}

// What a partition keeps back arrives when it heals, in either direction.
func TestAPartitionKeepsBack(t *testing.T) {
	held := memcachedtest.Way{Held: true}
	for name, ways := range map[string][2]memcachedtest.Way{"both": {held, held}, "to the server": {held, {}}, "back": {{}, held}} {
		t.Run(name, func(t *testing.T) {
			p := memcachedtest.StartProxy(t, memcachedtest.Start(t))
			old := dial(t, p.Addr)
			p.Route(ways[0], ways[1])
			anew := dial(t, p.Addr)
			old.ask()
			anew.ask()
			old.quiet()
			anew.quiet()
			p.Heal()
			old.answered()
			anew.answered()
		})
	}
}

func TestASilentConnectionStaysSilent(t *testing.T) {
	p := memcachedtest.StartProxy(t, memcachedtest.Start(t))
	old := dial(t, p.Addr)
	old.ask()
	old.answered()
	p.Silence()
	old.ask()
	old.quiet()
	anew := dial(t, p.Addr)
	anew.ask()
	anew.answered()
	p.Heal()
	old.quiet()
	assert.Equal(t, 2, p.Connections())
}

func TestAResetIsSeen(t *testing.T) {
	p := memcachedtest.StartProxy(t, memcachedtest.Start(t))
	w := dial(t, p.Addr)
	w.ask()
	w.answered()
	p.Reset()
	w.fails(syscall.ECONNRESET)
	w = dial(t, p.Addr)
	w.ask()
	w.answered()
	p.Refuse()
	_, err := net.Dial("tcp", p.Addr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	w.ask()
	w.answered()
	p.Accept()
	dial(t, p.Addr).ask()
}

// The proxy of a stopped server resets its connections.
func TestAProxyWithoutAServer(t *testing.T) {
	s := memcachedtest.Start(t)
	p := memcachedtest.StartProxy(t, s)
	w := dial(t, p.Addr)
	w.ask()
	w.answered()
	s.Stop()
	require.NoError(t, w.conn.SetReadDeadline(time.Now().Add(maxWait)))
	_, err := w.in.ReadByte()
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	wasReset(t, p.Addr)
	s.Restart()
	w = dial(t, p.Addr)
	w.ask()
	w.answered()
}

func TestLatencyDelays(t *testing.T) {
	p := memcachedtest.StartProxy(t, memcachedtest.Start(t))
	w := dial(t, p.Addr)
	p.Route(memcachedtest.Way{Latency: 20 * time.Millisecond}, memcachedtest.Way{Latency: 20 * time.Millisecond, Jitter: 10 * time.Millisecond})
	for range 3 {
		began := time.Now()
		w.ask()
		w.ask() // in the order, whatever the jitter
		w.answered()
		w.answered()
		assert.GreaterOrEqual(t, time.Since(began), 40*time.Millisecond)
	}
}
