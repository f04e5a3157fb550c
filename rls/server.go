package rls

import (
	"context"
	"errors"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/rls/rlsconfig"
	"github.com/counterd/counterd/service"
)

// Config sets up a Server. Service and Gate are needed.
type Config struct {
	Service *service.Service
	Gate    *service.Gate
	// Descriptors returns the configuration of envoyproxy/ratelimit in force; nil: there is none, and each
	// domain is an event of the rules.
	Descriptors func() *rlsconfig.Config
	// OnError gets each error that is answered, in the goroutine of the call; nil: it is not called.
	OnError func(ctx context.Context, err error)
}

// Server answers ShouldRateLimit. It is safe for concurrent use.
type Server struct {
	rlsv3.UnimplementedRateLimitServiceServer
	config Config
}

// New returns a Server. Its error reports what the config lacks.
func New(config Config) (*Server, error) {
	if config.Service == nil || config.Gate == nil {
		return nil, errors.New("rls: a server needs a Service and a Gate")
	}
	if config.Descriptors == nil {
		config.Descriptors = func() *rlsconfig.Config { return nil }
	}
	if config.OnError == nil {
		config.OnError = func(context.Context, error) {}
	}
	return &Server{config: config}, nil
}

// Register has a gRPC server answer with s.
func (s *Server) Register(server grpc.ServiceRegistrar) {
	rlsv3.RegisterRateLimitServiceServer(server, s)
}

// ShouldRateLimit decides a request as one hit: its descriptors all count, or none. What is wrong with the
// request is InvalidArgument; a store that fails is decided by the rules' on_error, before the caller's
// deadline.
func (s *Server) ShouldRateLimit(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	response, err := s.decide(ctx, in)
	if err != nil {
		s.config.OnError(ctx, err)
		return nil, status.Error(codeOf(err), err.Error())
	}
	return response, nil
}

func (s *Server) decide(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	admission, err := s.config.Gate.Admit(service.ClassDecide, tokenOf(ctx))
	defer admission.Release()
	if err != nil {
		return nil, err
	}
	q, err := s.read(in)
	if err != nil {
		return nil, err
	}
	ctx, end := beforeDeadline(ctx)
	defer end()
	switch err := q.decide(ctx, s.config.Service); {
	case errors.Is(err, errRefund):
		s.config.OnError(ctx, err)
	case err != nil:
		return nil, err
	}
	return q.response(), nil
}

// beforeDeadline returns a context that ends so long before the caller's deadline that an answer still comes
// in time.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	left := time.Until(deadline)
	if !bounded || left > time.Minute { // no decision takes as long
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(left/8, 20*time.Millisecond)))
}

// invalid is a fault of a request.
type invalid string

func (e invalid) Error() string { return string(e) }

// codeOf returns the gRPC code of an error.
func codeOf(err error) codes.Code {
	_, faulty := errors.AsType[invalid](err)
	switch {
	case faulty, errors.Is(err, events.ErrInvalid), errors.Is(err, engine.ErrOutOfRange):
		return codes.InvalidArgument
	case errors.Is(err, service.ErrUnauthorized):
		return codes.Unauthenticated
	case errors.Is(err, service.ErrForbidden):
		return codes.PermissionDenied
	case errors.Is(err, service.ErrOverload):
		return codes.ResourceExhausted
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return codes.Unavailable
}

// tokenOf returns the token of a call, of its metadata.
func tokenOf(ctx context.Context) service.Token {
	return service.TokenOf(metadata.ValueFromIncomingContext(ctx, "counterd-token"), metadata.ValueFromIncomingContext(ctx, "authorization"))
}
