package memproto

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The connection ends with its context, also if that ends just when it turns out to be of no use.
func TestTheContextEndsWhileAConnectionIsGivenUp(t *testing.T) {
	for range 200 {
		ours, theirs := net.Pipe()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			line, _ := bufio.NewReader(theirs).ReadString('\n')
			assert.NotEmpty(t, line)
			go io.Copy(io.Discard, theirs) // the rest of the probe
			_, _ = io.WriteString(theirs, "NF Oprb\r\nMN\r\n")
		}()
		ctx, cancel := context.WithCancel(t.Context())
		endpoint := &Endpoint{Dialing: func(context.Context, string, time.Time) (net.Conn, error) { return ours, nil }}
		conn, err := DialMeta(ctx, time.Now().Add(time.Minute), endpoint, func(net.Conn) error {
			cancel()
			return io.ErrUnexpectedEOF
		})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Nil(t, conn)
		require.NoError(t, theirs.Close())
		<-answered
	}
}
