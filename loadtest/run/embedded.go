package run

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/loadtest/traffic"
	"github.com/counterd/counterd/metrics"
)

// Embedded is the HTTP interface of a limiter in this process, without a network in front of it.
type Embedded struct {
	*HTTP
	limiter *counterd.Limiter
	name    string
}

// handlerTransport calls a handler.
type handlerTransport struct{ http.Handler }

func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, received := httptest.NewRecorder(), *r
	if received.Body == nil { // as a server's request never is
		received.Body = http.NoBody
	}
	h.ServeHTTP(answer, &received)
	return answer.Result(), nil
}

// NewEmbedded returns the limiter as a target of that name, and closes it with it. Each call may
// take that long, and most of them be under way at a time.
func NewEmbedded(limiter *counterd.Limiter, name string, timeout time.Duration, most int) (*Embedded, error) {
	registry := prometheus.NewRegistry()
	err := errors.Join(
		metrics.Register(registry, limiter),
		registry.Register(collectors.NewGoCollector()), registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
	if err != nil {
		return nil, err
	}
	routes := http.NewServeMux()
	routes.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	routes.Handle("/", api.NewHandler(limiter, api.Config{Log: slog.New(slog.DiscardHandler), MaxRequests: most}))
	h, err := newHTTP(HTTPConfig{URLs: []string{"http://embedded.invalid"}, Timeout: timeout}, handlerTransport{routes})
	return &Embedded{h, limiter, name}, err
}

// Names returns the name.
func (e *Embedded) Names() []string { return []string{e.name} }

// Close closes the limiter.
func (e *Embedded) Close() error { return e.limiter.Close() }

// Probe finds whether the store answers, too, which a check may be decided without.
func (e *Embedded) Probe(ctx context.Context, call traffic.Call) error {
	if err := e.HTTP.Probe(ctx, call); err != nil {
		return err
	}
	features := call.Features
	if call.Kind == traffic.Batch {
		features = call.Hits[0].Features
	}
	_, err := e.limiter.Count(ctx, call.Event, counterd.Features(features), time.Second)
	return err
}
