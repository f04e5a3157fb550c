package rls_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// serveOn serves a kit on the listener until the test ends.
func serveOn(t *testing.T, k *kit, listener net.Listener) {
	t.Helper()
	server := k.NewGRPC(nil)
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, server.Serve(listener)) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
}

// dial returns a client.
func dial(t *testing.T, address string, options ...grpc.DialOption) rlsv3.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return rlsv3.NewRateLimitServiceClient(conn)
}

// through has a client connect through the listener.
func through(listener *bufconn.Listener) grpc.DialOption {
	return grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() })
}

// unfinished opens a connection, and so many calls of the method on it, with further fields of metadata, whose requests
// never come.
func unfinished(t *testing.T, conn net.Conn, calls int, method string, fields ...hpack.HeaderField) *http2.Framer {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "counterd"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	for _, field := range fields {
		require.NoError(t, encoder.WriteField(field))
	}
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&sent, nil)
	require.NoError(t, framer.WriteSettings())
	for n := range calls {
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: block.Bytes(), EndHeaders: true}))
	}
	_, _ = conn.Write(sent.Bytes()) // the server may close the connection
	return http2.NewFramer(conn, conn)
}

// Calls with very many fields of metadata, whose requests never come, take little memory: their connections are closed.
func TestManyFieldsTakeLittleMemory(t *testing.T) {
	const connected, calls, bound = 50, 100, 24 << 20
	var many []hpack.HeaderField
	for range 220 {
		many = append(many, hpack.HeaderField{Name: "a", Value: "b"})
	}
	bubble.Test(t, func(t *testing.T) {
		k := newKit(t, setting{config: shop})
		inner := bufconn.Listen(32 << 10)
		listener := connections.NewListener(inner, 0)
		serveOn(t, k, listener)
		client := dial(t, "passthrough:///bufconn", through(inner))
		before := heapInUse()
		for range connected {
			conn, err := inner.Dial()
			require.NoError(t, err)
			defer conn.Close()
			unfinished(t, conn, calls, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, many...)
		}
		synctest.Wait()
		grown := heapInUse() - before
		t.Logf("the heap has grown by %d KiB for %d calls", grown>>10, connected*calls)
		assert.Less(t, grown, int64(bound))
		assert.Zero(t, listener.Open())
		_, err := client.ShouldRateLimit(t.Context(), &request{Domain: "shop", Descriptors: []*descriptor{of("user", "bob")}})
		assert.NoError(t, err)
	})
}

// heapInUse returns the bytes that are in use.
func heapInUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// A stranger has few calls at a time, and a client as many as there may be.
func TestStrangersHaveFewCalls(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tokens, err := service.ParseTokens([]byte("edge decide edge-edge-edge-edge"))
		require.NoError(t, err)
		k := newKit(t, setting{config: shop, gate: service.GateConfig{Tokens: func() *service.Tokens { return tokens }}})
		inner := bufconn.Listen(32 << 10)
		listener := connections.NewListener(inner, 0)
		serveOn(t, k, listener)
		token := hpack.HeaderField{Name: "counterd-token", Value: "edge-edge-edge-edge"}
		for _, test := range []struct {
			calls, open int
			fields      []hpack.HeaderField
		}{{8, 1, nil}, {9, 1, nil}, {100, 1, nil}, {100, 2, []hpack.HeaderField{token}}} {
			conn, err := inner.Dial()
			require.NoError(t, err)
			defer conn.Close()
			unfinished(t, conn, test.calls, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, test.fields...)
			synctest.Wait()
			assert.Equal(t, test.open, listener.Open(), "%d calls", test.calls)
		}
	})
}

// Requests that are sent in part hold bounded memory: the connection with the most of them is closed.
func TestRequestsInPartAreBounded(t *testing.T) {
	const connected, calls, part = 3, 40, 900 << 10
	bubble.Test(t, func(t *testing.T) {
		k := newKit(t, setting{config: shop})
		inner := bufconn.Listen(1 << 20)
		listener := connections.NewListener(inner, 0)
		serveOn(t, k, listener)
		client := dial(t, "passthrough:///bufconn", through(inner))
		ask := func() error {
			_, err := client.ShouldRateLimit(t.Context(), &request{Domain: "shop", Descriptors: []*descriptor{of("user", "bob")}})
			return err
		}
		require.NoError(t, ask())
		chunk := make([]byte, 16<<10)
		for range connected {
			conn, err := inner.Dial()
			require.NoError(t, err)
			defer conn.Close()
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			framer := unfinished(t, conn, calls, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName)
			for n := range calls {
				_ = framer.WriteData(uint32(2*n+1), false, []byte{0, 0, 15, 0, 0}) // the length of the request
			}
			synctest.Wait()
			for n := range calls {
				for range part / len(chunk) {
					_ = framer.WriteData(uint32(2*n+1), false, chunk)
				}
			}
			synctest.Wait()
		}
		assert.Less(t, listener.Open(), 1+connected)
		assert.NoError(t, ask())
	})
}

// Messages and metadata are bounded, and what is refused costs no other call its answer.
func TestLargeCallsAreRefused(t *testing.T) {
	leaktest.Check(t)
	k := newKit(t, setting{config: shop})
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveOn(t, k, connections.NewListener(inner, 0))
	client := dial(t, inner.Addr().String())
	ask := func(ctx context.Context, value string) codes.Code {
		_, err := client.ShouldRateLimit(ctx, &request{Domain: "shop", Descriptors: []*descriptor{of("user", value)}})
		return statusOf(err)
	}
	for range 2 {
		assert.Equal(t, codes.ResourceExhausted, ask(t.Context(), strings.Repeat("a", 1<<20)))
		assert.NotEqual(t, codes.OK, ask(metadata.AppendToOutgoingContext(t.Context(), "a", strings.Repeat("a", 64<<10)), "bob"))
		assert.Equal(t, codes.OK, ask(t.Context(), strings.Repeat("a", 1<<20-1<<10)))
		assert.Equal(t, codes.OK, ask(metadata.AppendToOutgoingContext(t.Context(), "tracestate", strings.Repeat("a", 60<<10)), "eve"))
	}
}

// Strangers with calls that never come hold a bounded number of connections, and cost no client its own.
func TestStrangersOverGRPCAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tokens, err := service.ParseTokens([]byte("edge decide edge-edge-edge-edge"))
		require.NoError(t, err)
		k := newKit(t, setting{config: shop, gate: service.GateConfig{Tokens: func() *service.Tokens { return tokens }}})
		inner := bufconn.Listen(32 << 10)
		listener := connections.NewListener(inner, 0)
		serveOn(t, k, listener)
		client := dial(t, "passthrough:///bufconn", through(inner))
		ask := func() codes.Code {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "counterd-token", "edge-edge-edge-edge")
			_, err := client.ShouldRateLimit(ctx, &request{Domain: "shop", Descriptors: []*descriptor{of("user", "bob")}})
			return statusOf(err)
		}
		require.Equal(t, codes.OK, ask())
		const strangers, most = 80, 64
		for range strangers {
			conn, err := inner.Dial()
			require.NoError(t, err)
			defer conn.Close()
			unfinished(t, conn, 3, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName)
		}
		synctest.Wait()
		require.Equal(t, 1+most, listener.Open())
		assert.Equal(t, codes.OK, ask())
		assert.Equal(t, 1+most, listener.Open(), "the client keeps its connection")
	})
}

// A value that is not UTF-8, as a proxy passes it on, is limited as any other.
func TestValuesThatAreNotUTF8(t *testing.T) {
	leaktest.Check(t)
	k := newKit(t, setting{config: shop})
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveOn(t, k, connections.NewListener(inner, 0))
	conn, err := grpc.NewClient(inner.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	ask := func(domain, value string) (*response, error) {
		answer := &response{}
		message := field(1, domain) + field(2, field(1, field(1, "user")+field(2, value))) + field(2, field(1, field(1, "all")+field(2, "é")))
		return answer, conn.Invoke(t.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, message, answer, grpc.ForceCodec(bytesCodec{}))
	}
	for n := range 3 {
		answer, err := ask("shop", "a\xff\xfe")
		require.NoError(t, err)
		assert.Equal(t, []any{ok, ok, uint32(2 - n), ok, uint32(9 - n)}, says(answer))
	}
	answer, err := ask("shop", "a\xff\xfe")
	require.NoError(t, err)
	assert.Equal(t, over, answer.OverallCode)
	answer, err = ask("shop", "a\xff\xfd")
	require.NoError(t, err)
	assert.Equal(t, []any{ok, ok, uint32(2), ok, uint32(6)}, says(answer), "other bytes are another value")
	_, err = ask("shop\xff", "bob")
	assert.Error(t, err, "a domain is no client's")
}

func field(number protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
}

// bytesCodec sends a string as it is.
type bytesCodec struct{}

func (bytesCodec) Name() string                  { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error) { return []byte(v.(string)), nil }
func (bytesCodec) Unmarshal(message []byte, v any) error {
	return proto.Unmarshal(message, v.(proto.Message))
}

// A call whose request never comes ends, also without a deadline; a watch whose request has come does not.
func TestACallWithoutARequestEnds(t *testing.T) {
	for _, method := range []string{
		rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, healthpb.Health_Watch_FullMethodName,
		reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName,
	} {
		bubble.Test(t, func(t *testing.T) {
			k := newKit(t, setting{config: shop})
			listener := bufconn.Listen(1 << 20)
			serveOn(t, k, connections.NewListener(listener, 0))
			conn, err := listener.Dial()
			require.NoError(t, err)
			defer conn.Close()
			unfinished(t, conn, 1, method)
			began := time.Now()
			framer := http2.NewFramer(io.Discard, conn)
			for {
				frame, err := framer.ReadFrame()
				require.NoError(t, err)
				if frame.Header().StreamID == 1 {
					break
				}
			}
			assert.Equal(t, 10*time.Second, time.Since(began), method)
		})
	}
	bubble.Test(t, func(t *testing.T) {
		k := newKit(t, setting{config: shop})
		listener := bufconn.Listen(1 << 20)
		serveOn(t, k, connections.NewListener(listener, 0))
		conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()), through(listener))
		require.NoError(t, err)
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		began := time.Now()
		_, err = watch.Recv()
		require.NoError(t, err)
		_, err = watch.Recv()
		require.Error(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

// Without tokens, too, calls whose requests never come cost no other client its connection, and no more of them are
// counted than there are: neither calls that were read, nor calls that have ended.
func TestCallsWithoutRequestsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newKit(t, setting{config: shop})
		inner := bufconn.Listen(32 << 10)
		listener := connections.NewListener(inner, 0)
		serveOn(t, k, listener)
		client := dial(t, "passthrough:///bufconn", through(inner))
		ask := func() codes.Code {
			_, err := client.ShouldRateLimit(t.Context(), &request{Domain: "shop", Descriptors: []*descriptor{of("user", "bob")}})
			return statusOf(err)
		}
		require.Equal(t, codes.OK, ask())
		const others, calls = 100, 100
		for range 2 {
			before := listener.Open()
			for range others {
				conn, err := inner.Dial()
				require.NoError(t, err)
				defer conn.Close()
				unfinished(t, conn, calls, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName)
			}
			synctest.Wait()
			require.Equal(t, before+others, listener.Open())
			assert.Equal(t, codes.OK, ask())
			assert.Equal(t, before+others-1, listener.Open(), "one of the others is closed")
			time.Sleep(20 * time.Second) // the calls end
		}
	})
}

// Large answers take a bounded memory, until their clients have taken them.
func TestLargeAnswersAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newKit(t, setting{config: shop, timeout: time.Second})
		listener := bufconn.Listen(1 << 20)
		serveOn(t, k, connections.NewListener(listener, 0))
		large := &request{Domain: "shop"}
		for n := range 1000 {
			large.Descriptors = append(large.Descriptors, of("user", fmt.Sprint(n)))
		}
		client := dial(t, "passthrough:///bufconn", through(listener))
		k.store.hangs = true
		var refused atomic.Int64
		var calls sync.WaitGroup
		for range 80 {
			calls.Go(func() {
				_, err := client.ShouldRateLimit(t.Context(), large)
				if statusOf(err) == codes.ResourceExhausted {
					refused.Add(1)
					return
				}
				assert.NoError(t, err)
			})
		}
		calls.Wait()
		assert.EqualValues(t, 80-64<<20/(1000<<10-20<<10), refused.Load())
		k.store.hangs = false
		synctest.Wait()
		_, err := client.ShouldRateLimit(t.Context(), large)
		assert.NoError(t, err)
	})
}
