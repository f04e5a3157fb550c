package memcache

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// A server whose answers are changed at every byte, and which
// then hangs up. No trip hangs, and one that succeeds has its own values.
func TestConnectionsWhoseAnswersAreChanged(t *testing.T) {
	expires := time.Now().Add(time.Hour).Unix()
	answer := []byte("VA 2 O000\r\n77\r\nVA 2 f0 O001\r\n77\r\nEN O002\r\n")
	leaktest.Check(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	answers := make(chan []byte, 1)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer listener.Close()
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 4096)
			conn.Read(b)
			io.WriteString(conn, "NF Oprb\r\nMN\r\n")
			conn.Read(b)
			conn.Write(<-answers)
			conn.Close()
		}
	})
	trip := func(changed []byte) {
		fleet, err := NewFleet(t.Context(), Unwatched(Config{Servers: []string{listener.Addr().String()}, Timeout: 20 * time.Second}))
		require.NoError(t, err)
		answers <- changed
		values := make([]int64, 3)
		landed, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{expires}, []uint64{1, 2}, values)
		require.NotErrorIs(t, err, memproto.ErrNoReply)
		if err == nil {
			require.Equal(t, 1, landed.On(0))
			for _, value := range values { // of a number, one digit may have changed
				require.LessOrEqual(t, value, int64(997))
			}
		}
		require.NoError(t, fleet.Close())
	}
	for place := range answer {
		trip(answer[:place])
		trip(slices.Delete(bytes.Clone(answer), place, place+1))
		trip(slices.Insert(bytes.Clone(answer), place, '9'))
		flipped := bytes.Clone(answer)
		flipped[place] ^= 1 << (place % 8)
		trip(flipped)
	}
}
