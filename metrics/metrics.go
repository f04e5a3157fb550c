// Package metrics registers the metrics of a limiter in a program's own Prometheus registry. docs/metrics.md lists them.
package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/telemetry/metrics"
)

// Limiter is a limiter whose metrics are registered: a *counterd.Limiter.
type Limiter interface{ Parts() *assembly.Parts }

// Register registers metrics for the decisions, rules and store of a limiter. Decisions and round trips are counted from
// now on. After an error some metrics may be registered. A second limiter of a program needs labels of its own: see prometheus.WrapRegistererWith.
func Register(registry prometheus.Registerer, l Limiter) error {
	var r registration
	m := metrics.On(r.to(registry))
	m.WatchParts(l.Parts())
	l.Parts().Observe(m.Hooks())
	return errors.Join(r.errs...)
}

// Requests registers the metrics of the HTTP interface. Set api.Config.OnRequest to the returned function, which counts
// each request.
func Requests(registry prometheus.Registerer) (onRequest func(route, method string, status int, took time.Duration), err error) {
	var r registration
	onRequest = metrics.OnRequests(r.to(registry))
	return onRequest, errors.Join(r.errs...)
}

// registration collects the errors of registering.
type registration struct{ errs []error }

func (r *registration) to(registry prometheus.Registerer) func(...prometheus.Collector) {
	return func(collectors ...prometheus.Collector) {
		for _, c := range collectors {
			r.errs = append(r.errs, registry.Register(c))
		}
	}
}
