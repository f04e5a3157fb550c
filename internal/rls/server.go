package rls

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/sparse"
)

// Config sets up a Server. Service and Gate are needed.
type Config struct {
	Service *service.Service
	Gate    *service.Gate
	// Descriptors returns the configuration of envoyproxy/ratelimit in force; nil, or if it returns nil: there is
	// none, and each domain is an event of the rules.
	Descriptors func() *rlsconfig.Config
	Health      service.Health // what health checks say
	// OnCall is called for each ShouldRateLimit when it is decided: with its domain, or Other if it is neither in
	// the configuration nor an event, with OK, OVER_LIMIT or the name of a gRPC code, and with its duration. The
	// calls come from many goroutines, and must not panic. nil: no call.
	OnCall func(domain, code string, took time.Duration)
	// OnFault is called, in the same way, for each call with a fault: FaultOfCall, FaultOfDescriptor or FaultOfDomain.
	OnFault   func(domain, fault string)
	Log       *slog.Logger // nil: slog.Default
	AccessLog bool         // each ShouldRateLimit is logged, without features and addresses
	// Tracer makes a span of each ShouldRateLimit, in the trace of its caller; nil: there are no spans.
	Tracer trace.Tracer
}

// Faults of calls, for Config.OnFault.
const (
	FaultOfCall       = "call"       // it is refused, as InvalidArgument
	FaultOfDescriptor = "descriptor" // on_error, or another limit, decides some of it
	FaultOfDomain     = "domain"     // there is no such domain: the call passes
)

// Other is the domain, for Config.OnCall, that a client has made up.
const Other = "other"

// Server answers ShouldRateLimit. It is safe for concurrent use.
type Server struct {
	rlsv3.UnimplementedRateLimitServiceServer
	config  Config
	lines   sparse.Lines // of the log, by their causes
	looked  sync.Map     // limits that calls have looked at, by domain and name
	unknown minutely     // the lines about unknown domains
}

// maxName bounds how much of a domain that a client has made up is logged.
const maxName = 64

// minutely lets a line be logged once a minute: calls of an unknown domain are seldom a fault of the moment.
type minutely struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int64
}

func (m *minutely) do(write func(suppressed int64)) {
	m.mu.Lock()
	if now := time.Now(); m.last.IsZero() || now.Sub(m.last) >= time.Minute {
		suppressed := m.suppressed
		m.last, m.suppressed = now, 0
		m.mu.Unlock()
		write(suppressed)
		return
	}
	m.suppressed++
	m.mu.Unlock()
}

// New returns a Server. Its error reports what the config lacks.
func New(config Config) (*Server, error) {
	if config.Service == nil || config.Gate == nil {
		return nil, errors.New("rls: a server needs a Service and a Gate")
	}
	if config.Descriptors == nil {
		config.Descriptors = func() *rlsconfig.Config { return nil }
	}
	if config.OnCall == nil {
		config.OnCall = func(string, string, time.Duration) {}
	}
	if config.OnFault == nil {
		config.OnFault = func(string, string) {}
	}
	if config.Log == nil {
		config.Log = slog.Default()
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
	c := s.newCall(in.GetDomain())
	c.access = s.config.AccessLog
	ctx = c.trace(ctx)
	defer c.report(ctx)
	admission, err := s.config.Gate.Admit(service.ClassDecide, tokenOf(ctx))
	defer admission.Release()
	c.client = admission.Client
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return s.decide(ctx, in, c)
}

// decide decides a request that is admitted.
func (s *Server) decide(ctx context.Context, in *rlsv3.RateLimitRequest, c *call) (*rlsv3.RateLimitResponse, error) {
	q, err := s.read(in)
	if err != nil {
		c.note(ctx, FaultOfCall, err)
		return nil, c.failed(ctx, err)
	}
	if q.event == nil {
		s.unknown.do(func(suppressed int64) {
			s.logOf(ctx).Warn("a call names an unknown domain: it passes", "name", in.Domain[:min(len(in.Domain), maxName)], "suppressed", suppressed)
		})
		s.config.OnFault(Other, FaultOfDomain)
	}
	if i := q.firstFault(); i >= 0 {
		c.note(ctx, FaultOfDescriptor, q.descriptors[i].fault, "descriptor", i)
	}
	ctx, end := beforeDeadline(ctx)
	defer end()
	switch err := q.decide(ctx, s.config.Service); {
	case errors.Is(err, errRefund):
		s.logError(ctx, err)
	case err != nil:
		return nil, c.failed(ctx, err)
	}
	response := q.response(s.config.Service.Rules())
	s.noteReports(ctx, in, q)
	c.code = response.OverallCode.String()
	return response, nil
}

// noteReports logs use that was reported, and is not counted: a call with a cost of its own on a limit that other calls
// have looked at.
func (s *Server) noteReports(ctx context.Context, in *rlsv3.RateLimitRequest, q *query) {
	for i, d := range in.Descriptors {
		if d.GetHitsAddend() == nil {
			continue
		}
		for _, n := range q.descriptors[i].parts {
			rule := q.parts[n].Rule
			name := rule.Limits[0].Name
			_, looked := s.looked.Load(q.domain + "/" + name)
			switch {
			case d.HitsAddend.Value == 0 && !looked:
				s.looked.Store(q.domain+"/"+name, true)
			case d.HitsAddend.Value > 0 && looked && !q.decision.Allowed && !q.descriptors[i].refund && rule.Count != events.CountAll:
				s.lines.Do("report "+q.domain+"/"+name, func(suppressed int64) {
					s.logOf(ctx).Warn("use that was reported is not counted: set count: all for the limit",
						"domain", q.domain, "limit", name, "suppressed", suppressed)
				})
			}
		}
	}
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
