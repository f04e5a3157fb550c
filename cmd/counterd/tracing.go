package main

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/internal/otlp"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/memcache"
	spanning "github.com/counterd/counterd/tracing"
)

// flushTimeout is how long the last spans may take, when all requests are answered.
const flushTimeout = 5 * time.Second

// tracing is who is told of each request: what the flags say, and what comes of it.
type tracing struct {
	endpoint  string
	accessLog bool
	spans     *spans // nil: nothing is traced
}

func (t *tracing) addFlags(flags flagSet) {
	flags.StringVar(&t.endpoint, "otlp-endpoint", "", "`URL` of an OpenTelemetry collector, as in http://127.0.0.1:4318, that is sent a trace of each request; none: what OTEL_EXPORTER_OTLP_ENDPOINT says")
	flags.BoolVar(&t.accessLog, "access-log", false, "log each request, without features, paths and addresses")
}

// check finds what is no URL, and keeps that for traces.
func (t *tracing) check() error {
	endpoint, err := otlp.Endpoint(t.endpoint)
	if err != nil {
		if t.endpoint != "" {
			return usageError("-otlp-endpoint: " + err.Error())
		}
		return usageError(err.Error())
	}
	t.endpoint = endpoint
	return nil
}

// spans sends spans to a collector, or is nil.
type spans struct {
	*otlp.Exporter
	log *slog.Logger
}

// openSpans returns what sends spans, or nil where no collector is named. What fails is
// logged at most once a second for each cause.
func openSpans(ctx context.Context, t tracing, log *slog.Logger) (*spans, error) {
	if t.endpoint == "" {
		return nil, nil
	}
	var failures sparse.Lines
	version := ""
	if build, ok := debug.ReadBuildInfo(); ok {
		version = build.Main.Version
	}
	exporter, err := otlp.Open(ctx, otlp.Config{Endpoint: t.endpoint, Version: version, Report: func(err error) {
		failures.Do(sparse.CauseOf(err), func(suppressed int64) {
			log.Warn("spans could not be sent", "error", oneLine(err), "suppressed", suppressed)
		})
	}})
	if err != nil {
		return nil, err
	}
	return &spans{exporter, log}, nil
}

// tracer returns what makes spans; nil: nothing does.
func (s *spans) tracer() trace.Tracer {
	if s == nil {
		return nil
	}
	return s.Tracer("github.com/counterd/counterd")
}

// tripped returns what is told of each trip; nil: nobody is.
func (s *spans) tripped() func(context.Context, memcache.RoundTrip) {
	if s == nil {
		return nil
	}
	return spanning.Trips(s.tracer())
}

// together returns what is told of hits that share trips; nil: nobody is.
func (s *spans) together() func(hit, trips context.Context, hits int) {
	if s == nil {
		return nil
	}
	return spanning.Together
}

// close sends the last spans.
func (s *spans) close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		s.log.Warn("the last spans may be lost", "error", oneLine(err))
	}
}
