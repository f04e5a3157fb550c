// Package server is the server of the command: a limiter whose files are followed, which is served on its addresses with
// TLS, access control, metrics and traces, and ends in good order.
package server

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/server/follow"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/telemetry/metrics"
)

// Access is access control: it lets callers in as the files in force say. It is safe for concurrent
// use.
type Access struct {
	tokens       *tokensFile   // nil: no token is wanted
	certificates *certificates // nil: there is no TLS
	refusals     service.Refusals
	draining     atomic.Bool // the process is about to end
}

// OpenAccess reads the files of access control, and follows them until Close.
func OpenAccess(s Settings) (a *Access, err error) {
	a = &Access{}
	if err := settings.CheckKey("tls-key", s.TLSKey); err != nil {
		return nil, err
	}
	if s.hasTokens() {
		if err := settings.CheckSecret("tokens", s.Tokens); err != nil {
			return nil, err
		}
		if a.tokens, err = openTokens(s.Tokens, s.Log); err != nil {
			return nil, err
		}
	}
	if s.TLSCert != "" {
		if a.certificates, err = openCertificates(s); err != nil {
			a.Close()
			return nil, err
		}
	}
	return a, nil
}

// Close ends the following of the files. What is in force stays.
func (a *Access) Close() {
	if a.tokens != nil {
		a.tokens.Close()
	}
	if a.certificates != nil {
		a.certificates.Close()
	}
}

// Ask has the files read again. It does not wait.
func (a *Access) Ask() {
	if a.tokens != nil {
		a.tokens.Ask()
	}
	if a.certificates != nil {
		a.certificates.Ask()
	}
}

// Gate returns a gate that admits callers by the tokens in force, and so many requests at a time.
func (a *Access) Gate(most int) *service.Gate {
	config := service.GateConfig{Refusals: &a.refusals, MaxRequests: most}
	if a.tokens != nil {
		config.Tokens = a.tokens.inForce.Load
	}
	return service.NewGate(config)
}

// Health returns the health of a process with those servers, which are nil for the embedded store, and
// that clock.
func (a *Access) Health(servers func() []service.ServerState, clock func() string) service.Health {
	return service.Health{Servers: servers, Clock: clock, Drain: a.draining.Load}
}

// warn logs where secrets lie or go open, and which addresses are open to all callers.
func warn(s Settings) {
	if s.hasTokens() {
		settings.WarnOfMode(s.Log, s.Tokens)
	}
	settings.WarnOfMode(s.Log, s.TLSKey)
	warnOfPeers(s)
	for _, address := range []string{s.Listen, s.RLS, s.Admin} {
		switch {
		case address == "" || settings.OnLoopback(address):
		case s.hasTokens() && s.TLSCert == "":
			s.Log.Warn("tokens go unencrypted: TLS is not set", "address", address)
		case s.Tokens == OpenToAll && (s.TLSClientCA == "" || address == s.Admin):
			s.Log.Warn("this address is open to all callers: no tokens are set", "address", address)
		}
	}
}

// warnOfPeers logs which peers get the tokens of callers unencrypted.
func warnOfPeers(s Settings) {
	for _, peer := range s.Peers {
		if strings.HasPrefix(peer, "dns:") && s.hasTokens() && s.TLSCert == "" {
			s.Log.Warn("tokens go unencrypted to peers: TLS is not set", "peers", peer)
		}
		if host, plain := strings.CutPrefix(peer, "http://"); plain && s.hasTokens() && !settings.OnLoopback(strings.TrimSuffix(host, "/")) {
			s.Log.Warn("tokens go unencrypted to a peer: its URL is not of https", "peer", peer)
		}
	}
}

// tokenFailures returns how many versions of the file of tokens were refused.
func (a *Access) tokenFailures() int64 {
	if a.tokens == nil {
		return 0
	}
	return a.tokens.Failures()
}

// tlsFailures returns how many versions of the certificate's files were refused.
func (a *Access) tlsFailures() int64 {
	if a.certificates == nil {
		return 0
	}
	return a.certificates.Failures()
}

// expiry returns when the certificate in force expires, and its lifetime; zero without one.
func (a *Access) expiry() (expires time.Time, lifetime time.Duration) {
	if a.certificates == nil {
		return time.Unix(0, 0), 0
	}
	inForce := a.certificates.inForce.Load()
	return inForce.expires, inForce.lifetime
}

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

// WatchFiles adds the followed files to the metrics: those of access control, and these.
func (a *Access) WatchFiles(m *metrics.Metrics, files map[string]Refused) {
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

// tokensFile holds the tokens in force.
type tokensFile struct {
	*follow.Files
	inForce atomic.Pointer[service.Tokens]
}

func openTokens(path string, log *slog.Logger) (t *tokensFile, err error) {
	t = &tokensFile{}
	t.Files, err = follow.Open("tokens", []string{path}, func(files []follow.File) ([]any, error) {
		tokens, err := service.ParseTokens(files[0].Data)
		if err != nil {
			return nil, err
		}
		t.inForce.Store(tokens)
		return []any{"tokens", tokens.Len()}, nil
	}, log)
	if err != nil {
		return nil, &settings.Fault{Setting: "tokens", Cause: err}
	}
	return t, nil
}
