// Package otlp sends spans to a collector, by OTLP over HTTP. It is the only one that knows
// the SDK of OpenTelemetry.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// tracesPath is where below an endpoint traces go.
const tracesPath = "v1/traces"

// Endpoint returns the URL to which spans are sent: below the endpoint that is named, else
// where the environment says (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or below
// OTEL_EXPORTER_OTLP_ENDPOINT), but for OTEL_SDK_DISABLED; "": nowhere.
func Endpoint(named string) (string, error) {
	if named != "" {
		return below("", named)
	}
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return "", nil
	}
	if exact := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); exact != "" {
		u, err := parseEndpoint("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: ", exact)
		if err != nil {
			return "", err
		}
		return u.String(), nil
	}
	if general := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); general != "" {
		return below("OTEL_EXPORTER_OTLP_ENDPOINT: ", general)
	}
	return "", nil
}

// below returns the URL for traces below the endpoint.
func below(prefix, endpoint string) (string, error) {
	u, err := parseEndpoint(prefix, endpoint)
	if err != nil {
		return "", err
	}
	return u.JoinPath(tracesPath).String(), nil
}

// parseEndpoint reads the URL of a collector. The error does not repeat it, since it may
// hold a password.
func parseEndpoint(prefix, endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New(prefix + "it is not a URL like http://127.0.0.1:4318")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New(prefix + "the URL has no user, query or fragment: secrets are sent as OTEL_EXPORTER_OTLP_HEADERS")
	}
	return u, nil
}

// Config says where spans go. Only Endpoint is needed.
type Config struct {
	Endpoint string // of Endpoint
	Version  string // of this program
	// Report gets the failures to send spans, and the faults of the environment. nil: no call.
	Report func(error)
}

// Exporter sends spans to a collector, many at a time, and beside the requests that they
// are of: one that is slow or away costs spans, never a request. What waits to be sent is
// bounded; what is beyond the bound is dropped, and counted.
//
// Its environment is that of OpenTelemetry: OTEL_EXPORTER_OTLP_HEADERS and _CERTIFICATE,
// OTEL_TRACES_SAMPLER, OTEL_BSP_MAX_QUEUE_SIZE and so on.
type Exporter struct {
	provider *sdktrace.TracerProvider
	sender   *sender
	tally    *tally
}

// serviceName is what the spans are of, where OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES do not say.
const serviceName = "counterd"

// Open returns an exporter. Whether the collector is there is not asked.
func Open(ctx context.Context, config Config) (*Exporter, error) {
	if err := checkSizes(); err != nil {
		return nil, err
	}
	report := config.Report
	if report == nil {
		report = func(error) {}
	}
	// The SDK knows no other way to tell what goes wrong behind it. It would else write to
	// standard error by itself.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { report(bounded(err)) }))
	otel.SetLogger(logr.New(redacted{report}))
	of, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName(serviceName), semconv.ServiceVersion(config.Version)),
		resource.WithTelemetrySDK(),
		resource.WithFromEnv(), // of what is said twice the last counts
	)
	if err != nil {
		report(bounded(err)) // a part of it is missing, no more
	}
	spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(config.Endpoint), otlptracehttp.WithProxy(proxyOf))
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	sender, tally := newSender(spans), &tally{}
	batches := queue{sdktrace.NewBatchSpanProcessor(counted{sender, tally}), tally, maxWaiting()}
	return &Exporter{
		provider: sdktrace.NewTracerProvider(sdktrace.WithResource(of), sdktrace.WithSpanProcessor(batches)),
		sender:   sender,
		tally:    tally,
	}, nil
}

var errRedirect = errors.New("the collector redirects: name the URL that it redirects to")

// proxyOf returns the proxy of the environment. For a redirected request it returns an error, so that no other server
// gets the spans, and the key in the headers. The exporter has no other hook that keeps its certificates.
func proxyOf(request *http.Request) (*url.URL, error) {
	if request.Response != nil {
		return nil, errRedirect
	}
	return http.ProxyFromEnvironment(request)
}

// Spans returns what became of spans so far.
func (e *Exporter) Spans() Spans { return e.tally.spans() }

// Tracer returns what makes spans.
func (e *Exporter) Tracer(name string) trace.Tracer { return e.provider.Tracer(name) }

// Close sends what is left, for as long as the context lets it, and ends the sending.
func (e *Exporter) Close(ctx context.Context) error {
	// The provider would go when the context ends and leave behind what is under way.
	defer context.AfterFunc(ctx, e.sender.stop)()
	if err := e.provider.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("otlp: spans may be lost: %w", err)
	}
	return nil
}

// sender is a SpanExporter whose sending can be ended.
type sender struct {
	sdktrace.SpanExporter
	life context.Context
	stop context.CancelFunc
}

func newSender(spans sdktrace.SpanExporter) *sender {
	s := &sender{SpanExporter: spans}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// ExportSpans sends spans.
func (s *sender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	return s.SpanExporter.ExportSpans(ctx, spans)
}

// maxText bounds the text of an error: a collector may answer with a page.
const maxText = 300

// bounded returns the error, without the rest of a long text.
func bounded(err error) error {
	if text := err.Error(); len(text) > maxText {
		return fmt.Errorf("%s (it goes on)", strings.ToValidUTF8(text[:maxText], ""))
	}
	return err
}
