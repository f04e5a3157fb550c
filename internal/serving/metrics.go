package serving

import "github.com/counterd/counterd/internal/metrics"

// Watch adds the refused requests, and the files of access control, to the metrics.
func (a *Access) Watch(m *metrics.Metrics) {
	m.AddCounters("counterd_unauthorized_total", "Requests whose token did not admit them, by the class of their route; forbidden: the token is for other classes.",
		[]string{"class", "reason"}, func(yield func([]string, float64) bool) {
			for _, of := range a.refusals.All() {
				if !yield([]string{of.Class.String(), of.Reason.String()}, float64(of.N)) {
					return
				}
			}
		})
	m.AddCounter("counterd_tokens_reload_failures_total", "Edits of the tokens file that were faulty; the tokens in force stayed.",
		func() float64 { return float64(a.tokenFailures()) })
	m.AddCounter("counterd_tls_reload_failures_total", "Edits of the certificate's files that were faulty; the certificate in force stayed.",
		func() float64 { return float64(a.tlsFailures()) })
	m.AddGauge("counterd_tls_certificate_expiry_timestamp_seconds", "Unix second in which the certificate in force expires; 0: there is none.", func() float64 {
		expires, _ := a.expiry()
		return float64(expires.Unix())
	})
	m.AddGauge("counterd_tls_certificate_lifetime_seconds", "Lifetime of the certificate in force, from its beginning to its end; 0: there is none.", func() float64 {
		_, lifetime := a.expiry()
		return lifetime.Seconds()
	})
}

// Refused is a followed file that may hold a version that was refused.
type Refused interface{ Refused() bool }

// WatchFiles adds the followed files to the metrics; rules is nil where none is followed.
func (a *Access) WatchFiles(m *metrics.Metrics, rules Refused) {
	files := map[string]Refused{}
	if rules != nil {
		files["rules"] = rules
	}
	if a.tokens != nil {
		files["tokens"] = a.tokens
	}
	if a.certificates != nil {
		files["tls"] = a.certificates
	}
	m.AddGauges("counterd_file_reload_failing", "Whether a watched file is faulty or cannot be read, and its former content is in force.",
		[]string{"file"}, func(yield func([]string, float64) bool) {
			for name, file := range files {
				if !yield([]string{name}, metrics.Truth(file.Refused())) {
					return
				}
			}
		})
}
