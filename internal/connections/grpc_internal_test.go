package connections

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a handshake sent before gRPC is given back as it was counted: else the bound of all connections' headers
// grows with each of them.
func TestAHandshakeBeforeGRPCIsGivenBack(t *testing.T) {
	l := NewListener(nil, 0)
	for _, handshake := range []int{freePartial2, freePartial2 + 1000, freePartial + 1000} {
		server, client := net.Pipe()
		c, ok := l.admit(server).(*Connection)
		require.True(t, ok)
		go func() { _, _ = client.Write(make([]byte, handshake)) }() // the reader finds a short one
		_, err := io.ReadFull(c, make([]byte, handshake))
		require.NoError(t, err)
		assert.Same(t, c, OfGRPC(c))
		assert.Zero(t, l.partial.Load(), "after %d bytes", handshake)
		c.Admit()
		require.NoError(t, c.Close())
		require.NoError(t, client.Close())
		assert.Zero(t, l.partial.Load(), "after %d bytes", handshake)
	}
}

// Where too many requests are not read, the connection goes that has the most of them, and gives them all back.
func TestTheConnectionWithTheMostUnreadRequestsIsClosed(t *testing.T) {
	l := NewListener(nil, 0)
	open := func() *Connection {
		server, client := net.Pipe()
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		c, ok := l.admit(server).(*Connection)
		require.True(t, ok)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	few, many := open(), open()
	few.Await()
	for range maxUnread - 1 {
		many.Await()
	}
	require.Equal(t, 2, l.Open())
	few.Await()
	assert.True(t, many.removed.Load())
	assert.False(t, few.removed.Load())
	assert.EqualValues(t, 2, l.unread.Load())
	many.Await()
	many.Received()
	few.Received()
	few.Received()
	assert.Zero(t, l.unread.Load())
	(*Connection)(nil).Await()
	(*Connection)(nil).Received()
}

// A client's connection over gRPC makes room for a new one once it has had no call for a minute.
func TestIdleConnectionsOverGRPCMakeRoom(t *testing.T) {
	l := NewListener(nil, 2)
	open := func() net.Conn {
		server, client := net.Pipe()
		t.Cleanup(func() { assert.NoError(t, errors.Join(client.Close(), server.Close())) })
		return l.admit(server)
	}
	var clients []*Connection
	for range 2 {
		c := OfGRPC(open())
		c.Admit()
		c.Await()
		c.Received()
		clients = append(clients, c)
	}
	assert.Nil(t, open(), "both have just been called")
	ago := time.Now().Add(-idleAfter).UnixNano()
	clients[0].called.Store(ago)
	clients[1].called.Store(ago - 1)
	assert.NotNil(t, open())
	assert.True(t, clients[1].removed.Load())
	assert.False(t, clients[0].removed.Load())
	clients[0].Await()
	assert.NotNil(t, open(), "the one before is a stranger's")
	assert.False(t, clients[0].removed.Load())
}
