package loopback_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/loopback"
)

// What is found is below the ports that are given out by themselves, the first of a block, and can be listened on.
func TestFreeAddr(t *testing.T) {
	found := map[string]bool{}
	for range 200 {
		addr, err := loopback.FreeAddr()
		require.NoError(t, err)
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		assert.Equal(t, "127.0.0.1", host)
		assert.False(t, found[addr], "it is another caller's")
		found[addr] = true
		number, err := strconv.Atoi(port)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, number, 10000)
		assert.Less(t, number, 32768)
		assert.Zero(t, number%loopback.Block)
		listener, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, listener.Close())
	}
}
