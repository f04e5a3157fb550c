package main

import (
	"sync/atomic"

	"github.com/counterd/counterd/internal/metrics"
)

// watchDoor has who was refused, and how the files that say who may call are, be among
// the metrics.
func watchDoor(m *metrics.Metrics, d *door) {
	m.AddCounters("counterd_unauthorized_total", "Requests whose token did not admit them, by the class of their route; forbidden: the token is for other classes.",
		[]string{"class", "reason"}, func(yield func([]string, float64) bool) {
			for _, of := range d.refusals.All() {
				if !yield([]string{of.Class.String(), of.Reason.String()}, float64(of.N)) {
					return
				}
			}
		})
	m.AddCounter("counterd_tokens_reload_failures_total", "Edits of the tokens file that were faulty; the tokens in force stayed.",
		func() float64 { return float64(d.tokenReloadFailures()) })
	m.AddCounter("counterd_tls_reload_failures_total", "Edits of the certificate's files that were faulty; the certificate in force stayed.",
		func() float64 { return float64(d.tlsReloadFailures()) })
	m.AddGauge("counterd_tls_certificate_expiry_timestamp_seconds", "Unix second in which the certificate in force expires; 0: there is none.", func() float64 {
		expires, _, ok := d.certificateExpiry()
		if !ok {
			return 0
		}
		return float64(expires.Unix())
	})
	m.AddGauge("counterd_tls_certificate_lifetime_seconds", "Lifetime of the certificate in force, from its beginning to its end; 0: there is none.", func() float64 {
		_, lifetime, _ := d.certificateExpiry()
		return lifetime.Seconds()
	})
}

// watchFiles has the files that are followed be among the metrics.
func watchFiles(m *metrics.Metrics, rules *rulesFile, d *door) {
	refused := map[string]*atomic.Bool{}
	if rules.follows() {
		refused["rules"] = &rules.reloads.refused
	}
	if d.tokens != nil {
		refused["tokens"] = &d.tokens.refused
	}
	if d.certificates != nil {
		refused["tls"] = &d.certificates.refused
	}
	m.AddGauges("counterd_file_reload_failing", "Whether a watched file is faulty or cannot be read, and its former content is in force.",
		[]string{"file"}, func(yield func([]string, float64) bool) {
			for file, state := range refused {
				if !yield([]string{file}, metrics.Truth(state.Load())) {
					return
				}
			}
		})
}
