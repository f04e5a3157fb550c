// Command opentelemetry makes a span of each decision, and one of each round trip to Memcached.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/examples/internal/play"
	"github.com/counterd/counterd/memcache"
)

const rules = `events: {login: {limits: [{per: ip, rate: 2/m}]}}`

// traced returns hooks that make spans.
func traced(tracer trace.Tracer) counterd.Hooks {
	return counterd.Hooks{
		StartSpan: func(ctx context.Context, name string) (context.Context, func(bool, ...slog.Attr)) {
			ctx, span := tracer.Start(ctx, name)
			return ctx, func(failed bool, attributes ...slog.Attr) {
				for _, a := range attributes {
					span.SetAttributes(attribute.String(a.Key, a.Value.String()))
				}
				if failed {
					span.SetStatus(codes.Error, "")
				}
				span.End()
			}
		},
		OnRoundTrip: func(ctx context.Context, trip memcache.RoundTrip) {
			_, span := tracer.Start(ctx, "memcached "+trip.Kind.String(), trace.WithTimestamp(trip.Began))
			span.End(trace.WithTimestamp(trip.Began.Add(trip.Took)))
		},
	}
}

// printer prints spans, in place of a collector.
type printer struct{ sdktrace.SpanExporter }

func (printer) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, span := range spans {
		fmt.Println("span", span.Name())
		for _, a := range span.Attributes() {
			fmt.Printf("  %s=%s\n", a.Key, a.Value.AsString())
		}
	}
	return nil
}

func (printer) Shutdown(context.Context) error { return nil }

// withRequestSpan begins the span of a request, as otelhttp does.
func withRequestSpan(tracer trace.Tracer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Start(r.Context(), r.Method+" "+r.URL.Path)
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func main() {
	play.Main(func(s *play.Stage) {
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(printer{}))
		tracer := provider.Tracer("example")
		limiter := s.Limiter(rules, counterd.WithHooks(traced(tracer)))
		login := limiter.Middleware("login")(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
		s.Get(s.Serve(withRequestSpan(tracer, login))+"/login", "ada")
	})
}
