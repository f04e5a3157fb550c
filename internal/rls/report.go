package rls

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/sparse"
)

// call is a ShouldRateLimit as it is reported: nothing of it is the client's choice.
type call struct {
	server *Server
	began  time.Time
	domain string // empty: it is not known
	code   string // of the response, or of the error; empty: it panicked
	client string // the name of its token; empty: it has none
	access bool   // it is logged
	span   trace.Span
}

// newCall returns a call that begins, of a domain that may be unknown.
func (s *Server) newCall(domain string) *call {
	c := &call{server: s, began: time.Now()}
	if s.config.Descriptors().Event(domain) != nil {
		c.domain = domain
	} else if _, err := s.config.Service.Event(domain); err == nil {
		c.domain = domain
	}
	return c
}

// note counts a fault of the call, and logs it once a second for each domain and error.
func (c *call) note(ctx context.Context, fault string, err error, args ...any) {
	domain := cmp.Or(c.domain, Other)
	c.server.config.OnFault(domain, fault)
	message := "a call is faulty"
	if fault == FaultOfDescriptor {
		message = "a descriptor of a call is faulty"
	}
	c.server.lines.Do(domain+": "+err.Error(), func(suppressed int64) {
		c.server.logOf(ctx).Warn(message, append([]any{"domain", domain, "error", err, "suppressed", suppressed}, args...)...)
	})
}

// failed notes, logs and returns the error of the call.
func (c *call) failed(ctx context.Context, err error) error {
	err = c.server.failed(ctx, err)
	c.code = status.Code(err).String()
	return err
}

// trace begins the span of the call, in the trace of its caller. A span has names of the configuration, and
// no descriptor, address or token.
func (c *call) trace(ctx context.Context) context.Context {
	if c.server.config.Tracer == nil {
		return ctx
	}
	header, _ := metadata.FromIncomingContext(ctx)
	ctx = propagation.TraceContext{}.Extract(ctx, carrier(header))
	ctx, c.span = c.server.config.Tracer.Start(ctx, "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("rpc.system", "grpc")))
	return ctx
}

// carrier has the trace of a call in its metadata.
type carrier metadata.MD

func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func (carrier) Set(string, string) {}

func (c carrier) Keys() []string { return []string{"traceparent", "tracestate"} }

// report reports the call to the trace, the access log and the metrics.
func (c *call) report(ctx context.Context) {
	s, took := c.server, time.Since(c.began)
	domain, code := cmp.Or(c.domain, Other), cmp.Or(c.code, codes.Internal.String())
	if c.span != nil {
		c.span.SetAttributes(attribute.String("counterd.domain", domain), attribute.String("counterd.code", code))
		if code == codes.Internal.String() || code == codes.Unavailable.String() {
			c.span.SetStatus(otelcodes.Error, "")
		}
		c.span.End()
	}
	if c.access {
		attrs := []slog.Attr{slog.String("method", "ShouldRateLimit"), slog.String("domain", domain), slog.String("code", code)}
		if c.client != "" {
			attrs = append(attrs, slog.String("client", c.client))
		}
		s.logOf(ctx).LogAttrs(ctx, slog.LevelInfo, "request", append(attrs, slog.Duration("duration", took))...)
	}
	s.config.OnCall(domain, code, took)
}

// logOf returns the log for a line about a call.
func (s *Server) logOf(ctx context.Context) *slog.Logger {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		return s.config.Log.With("trace_id", span.TraceID().String())
	}
	return s.config.Log
}

// failed logs an error that an operator should know of, and returns it as gRPC has it.
func (s *Server) failed(ctx context.Context, err error) error {
	s.logError(ctx, err)
	return status.Error(codeOf(err), err.Error())
}

// logError logs an error once a second for each cause. What is wrong with a request is its client's to know.
func (s *Server) logError(ctx context.Context, err error) {
	refusal, refused := errors.AsType[*service.Refusal](err)
	switch {
	case refused:
		s.lines.Do(refusal.Reason.String(), func(suppressed int64) {
			s.logOf(ctx).Warn("a call was refused", "reason", refusal.Reason.String(), "class", refusal.Class.String(), "client", refusal.Client, "suppressed", suppressed)
		})
	case errors.Is(err, errRefund), codeOf(err) == codes.Unavailable && ctx.Err() == nil:
		s.lines.Do(sparse.CauseOf(err), func(suppressed int64) {
			s.logOf(ctx).Warn("store failed", "error", err, "suppressed", suppressed)
		})
	}
}
