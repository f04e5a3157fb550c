package rls

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/panics"
	"github.com/counterd/counterd/internal/service"
)

// Bounds of a call, so that none can hold the server up or fill its memory.
const (
	maxMessage       = 1 << 20  // bytes of a request: a value may be as long as the headers of a proxy's client
	maxWindow        = 64 << 10 // bytes of a connection's requests that are not read yet
	maxHeader        = 64 << 10 // of its metadata, uncompressed: a client's tracestate may be as long
	maxFields        = 64       // values of its metadata
	maxTraceState    = 512      // bytes, of the tracestate that is used
	maxStreams       = 100      // calls at a time of a connection
	fewDescriptors   = 16       // whose answer is small
	statusBytes      = 1 << 10  // about what the status of one takes in an answer, with headers
	bufferSize       = 8 << 10  // of a connection, for each direction
	workers          = 64       // goroutines that keep their stacks from call to call: a tenth of the time otherwise
	handshakeTimeout = 5 * time.Second
	callTimeout      = 10 * time.Second // of a call whose caller sets no shorter one; shorter than an orderly end may take
	// A dead client's connection ends after the first two; a living client's after an hour, so that clients find
	// processes that are new.
	pingAfter, pingTimeout = time.Minute, 20 * time.Second
	maxAge, maxAgeGrace    = time.Hour, time.Minute
	minPing                = 10 * time.Second // between pings of a client
)

// NewGRPC returns a gRPC server of ShouldRateLimit, of health checks, and of reflection, with TLS unless
// secure is nil. It bounds the messages, metadata and calls of a connection, and the calls whose messages are
// not read yet. The caller serves a connections.Listener, and stops it.
func (s *Server) NewGRPC(secure *tls.Config) *grpc.Server {
	over := insecure.NewCredentials()
	if secure != nil {
		over = credentials.NewTLS(secure)
	}
	server := grpc.NewServer(
		grpc.Creds(transport{over}),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.InTapHandle(s.begin),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialWindowSize(maxWindow),
		grpc.InitialConnWindowSize(maxWindow),
		grpc.ReadBufferSize(bufferSize),
		grpc.WriteBufferSize(bufferSize),
		grpc.NumStreamWorkers(workers),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: pingAfter, Timeout: pingTimeout, MaxConnectionAge: maxAge, MaxConnectionAgeGrace: maxAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	)
	s.Register(server)
	healthpb.RegisterHealthServer(server, &health{Health: s.config.Health})
	reflection.Register(server)
	return server
}

// transport makes the connection of a listener known to the calls on it.
type transport struct {
	credentials.TransportCredentials
}

// accepted is the AuthInfo of a connection.
type accepted struct {
	credentials.AuthInfo
	conn *connections.Connection // nil: no Listener accepted it
}

func (t transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ServerHandshake(raw)
	return conn, accepted{info, connections.OfGRPC(raw)}, err
}

func (t transport) Clone() credentials.TransportCredentials {
	return transport{t.TransportCredentials.Clone()}
}

// connectionOf returns the connection of a call, or nil.
func connectionOf(ctx context.Context) *connections.Connection {
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(accepted); ok {
			return info.conn
		}
	}
	return nil
}

// unread is a call whose request has not been read yet.
type unread struct {
	conn  *connections.Connection // nil: no Listener accepted it
	timer *time.Timer             // ends the call; nil: its caller does
	leave func() bool             // has the end of the call not be noted; nil: its connection is a stranger's
}

// unbind has the call last as long as it does. That of nil does nothing.
func (u *unread) unbind() {
	if u != nil && u.timer != nil {
		u.timer.Stop()
	}
}

type unreadKey struct{}

// begin begins a call, of which the metadata is known. It admits the connection of a client. A call with a wrong token
// goes on, to be refused by its handler: gRPC would keep the timer of one that is refused here.
func (s *Server) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	conn := connectionOf(ctx)
	if trim(info.Header) > maxFields {
		conn.Evict() // to refuse the call alone would keep its metadata, as above
	}
	u, stream := &unread{conn: conn}, ctx // gRPC cancels the stream's context at its end
	if deadline, bounded := ctx.Deadline(); !bounded || time.Until(deadline) > callTimeout {
		bound, end := context.WithCancel(ctx)
		ctx, u.timer = bound, time.AfterFunc(callTimeout, end)
	}
	if class := classOf(info.FullMethodName); class != service.ClassPublic && conn.IsStranger() && s.config.Gate.Knows(class, tokenIn(info.Header)) {
		conn.Admit()
	}
	if conn.IsStranger() {
		conn.Begin()
		context.AfterFunc(stream, func() {
			conn.End()
			u.unbind()
		})
		return context.WithValue(ctx, unreadKey{}, u), nil
	}
	conn.Await()
	u.leave = context.AfterFunc(stream, func() {
		conn.Received()
		u.unbind()
	})
	return context.WithValue(ctx, unreadKey{}, u), nil
}

// usedFields are the fields of the metadata that the server reads.
var usedFields = map[string]bool{"counterd-token": true, "authorization": true, "traceparent": true, "tracestate": true}

// trim removes unused fields from the metadata of a call, since gRPC keeps the metadata until the call ends. It returns
// the number of values that the metadata had.
func trim(header metadata.MD) (n int) {
	for name, values := range header {
		n += len(values)
		if !usedFields[name] || name == "tracestate" && len(strings.Join(values, "")) > maxTraceState {
			delete(header, name)
		}
	}
	return n
}

// received notes that the request of a call has been read, and returns what it was until then, if that is known.
func received(ctx context.Context) *unread {
	u, known := ctx.Value(unreadKey{}).(*unread)
	if known && u.leave != nil && u.leave() {
		u.conn.Received()
	}
	return u
}

// classOf returns the class of a method. Health is for probes, which have no token.
func classOf(method string) service.Class {
	switch method {
	case healthpb.Health_Check_FullMethodName, healthpb.Health_Watch_FullMethodName, healthpb.Health_List_FullMethodName:
		return service.ClassPublic
	}
	return service.ClassDecide
}

func (s *Server) unary(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
	received(ctx).unbind() // the store's timeout bounds what follows
	defer s.recover(ctx, &err)
	if request, ok := in.(*rlsv3.RateLimitRequest); ok {
		if bytes := bytesOf(request); bytes > fewDescriptors*statusBytes {
			if err := s.hold(ctx, bytes); err != nil {
				return nil, s.failed(ctx, err)
			}
		}
	}
	return next(ctx, in)
}

// bytesOf returns about how many bytes a request and its answer take.
func bytesOf(request *rlsv3.RateLimitRequest) int {
	bytes := len(request.Descriptors) * statusBytes
	for _, d := range request.Descriptors {
		for _, e := range d.GetEntries() {
			bytes += len(e.GetKey()) + len(e.GetValue())
		}
	}
	return bytes
}

// hold takes memory for a large call, until its client has taken the answer.
func (s *Server) hold(ctx context.Context, bytes int) error {
	answer, err := s.config.Gate.Admit(service.ClassPublic, service.Token{}) // it is no further call
	if err == nil {
		err = answer.Hold(int64(bytes))
	}
	context.AfterFunc(ctx, answer.Release)
	return err
}

// receiving is a stream that notes when a request has been read. A watch then lasts as long as its client wants.
type receiving struct {
	grpc.ServerStream
	watch bool
}

func (r receiving) RecvMsg(into any) error {
	err := r.ServerStream.RecvMsg(into)
	if u := received(r.Context()); r.watch {
		u.unbind()
	}
	return err
}

func (s *Server) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	defer s.recover(ctx, &err)
	if class := classOf(info.FullMethod); class != service.ClassPublic {
		admission, err := s.config.Gate.Admit(class, tokenOf(ctx))
		defer admission.Release()
		if err != nil {
			return s.failed(ctx, err)
		}
	}
	return next(server, receiving{stream, info.FullMethod == healthpb.Health_Watch_FullMethodName})
}

// recover has a call that panicked fail.
func (s *Server) recover(ctx context.Context, err *error) {
	if fault := recover(); fault != nil {
		stack := panics.Stack()
		s.lines.Do("panic", func(suppressed int64) {
			s.logOf(ctx).Error("a call panicked", "panic", panics.Fault(fault), "stack", stack, "suppressed", suppressed)
		})
		*err = status.Error(codes.Internal, "the call failed: the log says why")
	}
}

// tokenOf returns the token of a call.
func tokenOf(ctx context.Context) service.Token {
	return service.TokenOf(metadata.ValueFromIncomingContext(ctx, "counterd-token"), metadata.ValueFromIncomingContext(ctx, "authorization"))
}

// tokenIn returns the token in the metadata of a call.
func tokenIn(header metadata.MD) service.Token {
	return service.TokenOf(header["counterd-token"], header["authorization"])
}
