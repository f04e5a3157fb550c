package server

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/internal/telemetry/metrics"
	"github.com/counterd/counterd/internal/telemetry/otlp"
)

// exportTimeout bounds the sending of the last spans.
const exportTimeout = 5 * time.Second

// spans makes spans, and sends them to a collector. Zero spans make none.
type spans struct {
	tracer   trace.Tracer
	exporter *otlp.Exporter
}

// openSpans returns what the settings say. Failures to send are logged at most once a second
// for each cause.
func openSpans(s Settings) (spans, error) {
	if s.TracesURL == "" {
		return spans{}, nil
	}
	var failures sparse.Lines
	version := ""
	if build, ok := debug.ReadBuildInfo(); ok {
		version = build.Main.Version
	}
	exporter, err := otlp.Open(s.Start, otlp.Config{Endpoint: s.TracesURL, Version: version, Report: func(err error) {
		failures.Do(sparse.CauseOf(err), func(suppressed int64) {
			s.Log.Warn("spans could not be sent", "error", oneLine(err), "suppressed", suppressed)
		})
	}})
	if err != nil {
		return spans{}, err
	}
	return spans{exporter.Tracer("github.com/counterd/counterd"), exporter}, nil
}

// watch adds the outcomes of spans to the metrics.
func (s spans) watch(m *metrics.Metrics) {
	if s.exporter == nil {
		return
	}
	m.AddCounters("counterd_trace_spans_total", "Spans for the collector, by outcome; spans that wait are not counted yet.",
		[]string{"outcome"}, func(yield func([]string, float64) bool) {
			outcomes := s.exporter.Spans()
			_ = yield([]string{"sent"}, float64(outcomes.Sent)) &&
				yield([]string{"queue_full"}, float64(outcomes.QueueFull)) &&
				yield([]string{"export_failed"}, float64(outcomes.ExportFailed))
		})
}

// close sends the last spans.
func (s spans) close(log *slog.Logger) {
	if s.exporter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
	defer cancel()
	if err := s.exporter.Close(ctx); err != nil {
		log.Warn("the last spans may be lost", "error", oneLine(err))
	}
}

// oneLine returns the text of joined errors in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
