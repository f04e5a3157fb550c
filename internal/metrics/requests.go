package metrics

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests counts the requests over HTTP. Routes are templates and methods the usual
// ones, or other, and statuses are the server's choice: so the series are bounded.
type requests struct {
	served *prometheus.CounterVec
	took   *prometheus.HistogramVec

	known atomic.Pointer[map[request]requestCounters] // not changed, but replaced
	mu    sync.Mutex                                  // held while known is replaced
}

type request struct {
	route, method string
	status        int
}

type requestCounters struct {
	served prometheus.Counter
	took   prometheus.Observer
}

func newRequests() *requests {
	r := &requests{
		served: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "counterd_http_requests_total",
			Help: "Requests that were answered, by the template of their route; other: no route or not its method, or an unusual method.",
		}, []string{"route", "method", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "counterd_http_request_duration_seconds", Buckets: buckets[:],
			Help: "Duration of requests, from the end of their header until their answer was written.",
		}, []string{"route"}),
	}
	r.known.Store(&map[request]requestCounters{})
	return r
}

// OnRequest counts a request, for an api.Config.
func (m *Metrics) OnRequest(route, method string, status int, took time.Duration) {
	of := m.requests.of(request{route, method, status})
	of.served.Inc()
	of.took.Observe(took.Seconds())
}

func (r *requests) of(q request) requestCounters {
	if of, known := (*r.known.Load())[q]; known {
		return of
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	after := maps.Clone(*r.known.Load())
	of := requestCounters{r.served.WithLabelValues(q.route, q.method, strconv.Itoa(q.status)), r.took.WithLabelValues(q.route)}
	after[q] = of
	r.known.Store(&after)
	return of
}

// Describe and Collect are what a prometheus.Collector has.
func (r *requests) Describe(to chan<- *prometheus.Desc) {
	r.served.Describe(to)
	r.took.Describe(to)
}

func (r *requests) Collect(to chan<- prometheus.Metric) {
	r.served.Collect(to)
	r.took.Collect(to)
}
