package connections

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dialled are connections that come from addresses of the test's choice.
type dialled chan net.Conn

func (d dialled) Accept() (net.Conn, error) {
	conn, ok := <-d
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (dialled) Close() error   { return nil }
func (dialled) Addr() net.Addr { return &net.TCPAddr{} }

// fromConn is a connection from an address.
type fromConn struct {
	net.Conn
	from string
}

func (c fromConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1}
}

// lateConn has its last read return bytes after it was closed.
type lateConn struct {
	net.Conn
	closed chan struct{}
}

func (lateConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (c lateConn) Read(p []byte) (int, error) {
	<-c.closed
	return len(p), nil
}

func (c lateConn) Close() error {
	close(c.closed)
	return nil
}

// Room is made by the address that holds the most strangers' connections, an IPv6 network
// being one address: of them the oldest goes.
func TestRoomIsMadeByTheBusiestAddress(t *testing.T) {
	incoming := make(dialled, 1)
	l := NewListener(incoming, 8)
	var others []net.Conn
	defer func() {
		for _, conn := range others {
			conn.Close()
		}
	}()
	dial := func(from string) net.Conn {
		mine, theirs := net.Pipe()
		others = append(others, mine, theirs)
		incoming <- fromConn{theirs, from}
		_, err := l.Accept()
		require.NoError(t, err)
		return mine
	}
	closed := func(conn net.Conn) bool {
		return conn.SetReadDeadline(time.Now()) != nil // a pipe says so
	}
	first := dial("192.0.2.1")
	second := dial("192.0.2.2")
	var many []net.Conn
	for i := range 6 {
		many = append(many, dial(fmt.Sprintf("2001:db8::%x", i)))
	}
	dial("192.0.2.3")
	assert.True(t, closed(many[0]))
	dial("192.0.2.3")
	dial("192.0.2.3")
	dial("192.0.2.3")
	assert.True(t, closed(many[1]))
	assert.True(t, closed(many[2]))
	dial("192.0.2.4")
	for _, conn := range []net.Conn{first, second, many[4], many[5]} {
		assert.False(t, closed(conn))
	}
	assert.Equal(t, 8, l.Open())
	assert.Zero(t, l.Refused())
}

// What a connection reads while it is closed does not count against other connections later.
func TestReadsOfClosedConnectionsAreNotHeld(t *testing.T) {
	incoming := make(dialled, 1)
	l := NewListener(incoming, 8)
	accept := func(conn net.Conn) net.Conn {
		incoming <- conn
		accepted, err := l.Accept()
		require.NoError(t, err)
		return accepted
	}
	for range 100 { // together more than all connections may hold
		conn := accept(lateConn{closed: make(chan struct{})})
		require.NoError(t, conn.Close())
		_, err := conn.Read(make([]byte, 64<<10))
		require.NoError(t, err)
	}
	mine, theirs := net.Pipe()
	defer mine.Close()
	conn := accept(theirs)
	go mine.Write(make([]byte, 4<<10))
	_, err := io.ReadFull(conn, make([]byte, 4<<10))
	require.NoError(t, err)
	assert.Equal(t, 1, l.Open(), "the connection is open")
}

// A client that is refused sees the end of the answer before the connection is closed.
func TestTheEndOfAnAnswerIsNotHeldBack(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := NewListener(inner, 1)
	defer listener.Close()
	client, err := net.Dial("tcp", inner.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.SetDeadline(time.Now().Add(time.Minute)))
	conn, err := listener.Accept()
	require.NoError(t, err)
	defer conn.Close()
	half, ok := conn.(interface{ CloseWrite() error })
	require.True(t, ok, "net/http asks for it")
	require.NoError(t, half.CloseWrite())
	_, err = client.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	assert.Equal(t, 1, listener.Open())
}
