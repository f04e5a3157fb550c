package loopback_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/loopback"
)

// What is found is below the ports that are given out by themselves, and can be listened on.
func TestFreeAddr(t *testing.T) {
	for range 200 {
		addr, err := loopback.FreeAddr()
		require.NoError(t, err)
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		assert.Equal(t, "127.0.0.1", host)
		number, err := strconv.Atoi(port)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, number, 10000)
		assert.Less(t, number, 32768)
		listener, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, listener.Close())
	}
}
