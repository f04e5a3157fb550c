package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Access is what a process knows of who may call it.
type Access struct {
	Refused             func(each func(class, reason string, n int64)) // requests, for want of a token
	TokenReloadFailures func() int64
	TLSReloadFailures   func() int64
	Expiry              func() time.Time // of the certificate in force; nil: there is none
}

// WatchAccess has it be among the metrics.
func (m *Metrics) WatchAccess(a Access) {
	m.AddCounter("counterd_tokens_reload_failures_total", "Edits of the tokens file that could not be taken; the tokens in force stayed.",
		func() float64 { return float64(a.TokenReloadFailures()) })
	m.AddCounter("counterd_tls_reload_failures_total", "Edits of the certificate's files that could not be taken; the certificate in force stayed.",
		func() float64 { return float64(a.TLSReloadFailures()) })
	if a.Expiry != nil {
		m.AddGauge("counterd_tls_certificate_expiry_seconds", "Unix second in which the certificate in force expires.",
			func() float64 { return float64(a.Expiry().Unix()) })
	}
	m.Add(&refusals{a.Refused, prometheus.NewDesc("counterd_unauthorized_total",
		"Requests refused for want of a token, by the class of their route; forbidden: the token is for others.", []string{"class", "reason"}, nil)})
}

// refusals are those who were refused.
type refusals struct {
	of   func(each func(class, reason string, n int64))
	desc *prometheus.Desc
}

// Describe and Collect are what a prometheus.Collector has.
func (r *refusals) Describe(to chan<- *prometheus.Desc) { to <- r.desc }

// Collect reads the counts.
func (r *refusals) Collect(to chan<- prometheus.Metric) {
	r.of(func(class, reason string, n int64) {
		to <- prometheus.MustNewConstMetric(r.desc, prometheus.CounterValue, float64(n), class, reason)
	})
}
