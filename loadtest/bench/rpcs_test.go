package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// peer is a rate limit service that answers what the domain says.
type peer struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (peer) ShouldRateLimit(_ context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	answer := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}
	for _, d := range in.Descriptors {
		limit := &rlsv3.RateLimitResponse_RateLimit{RequestsPerUnit: rpcLimit, Unit: rlsv3.RateLimitResponse_RateLimit_HOUR}
		answer.Statuses = append(answer.Statuses, &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK, CurrentLimit: limit})
		switch d.Entries[0].Key {
		case "one remains":
			answer.Statuses[len(answer.Statuses)-1].LimitRemaining = 1
		case "nothing counts":
			answer.Statuses[len(answer.Statuses)-1].LimitRemaining = rpcLimit - 1
		}
	}
	switch in.Domain {
	case "over":
		answer.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
	case "without the store":
		answer.Statuses[len(answer.Statuses)-1].CurrentLimit = nil
	case "fails":
		return nil, status.Error(codes.Unavailable, "it fails")
	case "is large":
		answer.RawBody = make([]byte, 50_000)
	}
	return answer, nil
}

// startPeer returns the address of a peer.
func startPeer(t *testing.T) string {
	t.Helper()
	server := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(server, peer{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, server.Serve(listener)) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

// calls returns rpcs in that domain, with four descriptors, and a connection of them.
func calls(t *testing.T, domain string) (*rpcs, *rpcConn) {
	t.Helper()
	h := &rpcs{keys: []string{"a", "b", "c", "d"}}
	request := h.request(0)
	request.Domain = domain
	message, err := proto.Marshal(request)
	require.NoError(t, err)
	h.messages = [][]byte{grpcMessage(message)}
	c, err := dialRPC(startPeer(t), time.Now().Add(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return h, c
}

// More is sent and received on a connection than its windows hold at first.
func TestManyCallsOnAConnection(t *testing.T) {
	h, c := calls(t, "is large")
	received := 0
	for range 3000 / 10 {
		for range 10 {
			require.NoError(t, c.send(0, h.messages[0]))
		}
		require.NoError(t, c.out.Flush())
		for range 10 {
			call, err := c.receive()
			require.NoError(t, err)
			require.NoError(t, checkAnswer(call.answer, 4))
			received += len(call.answer)
		}
	}
	assert.Greater(t, received, 100*rpcWindow)
	assert.Empty(t, c.calls)
}

func TestAnswersThatAreNotOK(t *testing.T) {
	for domain, want := range map[string]string{
		"over": "is not OK by 4 limits", "without the store": "is not OK by 4 limits", "fails": `the status "14"`,
	} {
		h, c := calls(t, domain)
		require.NoError(t, c.send(0, h.messages[0]))
		require.NoError(t, c.out.Flush())
		call, err := c.receive()
		if err == nil {
			err = checkAnswer(call.answer, 4)
		}
		assert.ErrorContains(t, err, want)
	}
	for _, message := range []string{"", "\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x02\x08", "\x00\x00\x00\x00\x02\x08\x01", "\x00\x00\x00\x00\x04\x08\x01\x12\x05"} {
		assert.Error(t, checkAnswer([]byte(message), 4), "%q", message)
	}
}

// What is no answer to a call is an error.
func TestRPCConnTakesNothingElse(t *testing.T) {
	for name, answer := range map[string]func(*http2.Framer) error{
		"HTTP/1.1":     func(f *http2.Framer) error { return f.WriteRawFrame('H', 'T', 'T'<<16, nil) },
		"a reset":      func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeRefusedStream) },
		"it goes away": func(f *http2.Framer) error { return f.WriteGoAway(1, http2.ErrCodeNo, nil) },
		"another call": func(f *http2.Framer) error { return f.WriteData(3, false, []byte("x")) },
		"no status":    func(f *http2.Framer) error { return f.WriteData(1, true, []byte("x")) },
		"no headers": func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true})
		},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var serving sync.WaitGroup
		serving.Go(func() {
			conn, err := listener.Accept()
			if assert.NoError(t, err) {
				defer conn.Close()
				assert.NoError(t, answer(http2.NewFramer(conn, nil)))
				_, _ = bufio.NewReader(conn).ReadString(0) // until the client leaves
			}
		})
		c, err := dialRPC(listener.Addr().String(), time.Now().Add(time.Minute))
		require.NoError(t, err)
		require.NoError(t, c.send(0, nil))
		_, err = c.receive()
		assert.Error(t, err, name)
		require.NoError(t, c.Close())
		require.NoError(t, listener.Close())
		serving.Wait()
	}
}

// A server that does not say that it takes more gets no more.
func TestTheServersWindow(t *testing.T) {
	h, c := calls(t, "ok")
	var err error
	for sent := 0; err == nil; sent += len(h.messages[0]) {
		require.LessOrEqual(t, sent, rpcCredit)
		err = c.send(0, h.messages[0])
	}
	assert.ErrorContains(t, err, "does not take more")
}

// Counters that hold something else than was admitted are found.
func TestVerifyOfRPCs(t *testing.T) {
	h := &rpcs{keys: []string{"a", "b"}, addr: startPeer(t)}
	h.admitted = make([]atomic.Int64, 2)
	h.admitted[1].Store(rpcLimit) // of which the peer says that none remains
	require.NoError(t, h.verify(t.Context()))
	h.admitted[0].Store(3)
	assert.ErrorContains(t, h.verify(t.Context()), fmt.Sprintf("holds %d, and 3 were added", rpcLimit))
	h.admitted[0].Store(0)
	h.keys = []string{"a", "one remains"}
	assert.ErrorContains(t, h.verify(t.Context()), "of one value's descriptors")
	h.row.ofPeer = true
	require.NoError(t, h.verify(t.Context()))
	h.keys = []string{"nothing counts"}
	assert.ErrorContains(t, h.verify(t.Context()), "holds 1,", "a peer that admits without counting")
}
