package run

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/traffic"
)

// HTTPConfig says which servers are called. Only URLs is needed.
type HTTPConfig struct {
	URLs    []string // called in turn
	Admin   []string // where /metrics of each of them is; none: at the URLs
	PIDs    []int    // their processes; none: those that listen there, if that is on this machine
	Token   func() (string, error)
	TLS     *tls.Config   // what https is spoken with; nil: the system's authorities, and no certificate
	Timeout time.Duration // longest time for one call; 0: client.DefaultTimeout
	Conns   int           // idle connections kept, all together; 0: DefaultInFlight
}

// HTTP are servers of counterd.
type HTTP struct {
	config    HTTPConfig
	clients   []*client.Client
	transport statusKeeper
}

// NewHTTP returns those servers. It does not call them.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	if len(config.URLs) == 0 {
		return nil, errors.New("run: a URL is needed")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns = cmp.Or(config.Conns, DefaultInFlight)
	transport.MaxIdleConnsPerHost = transport.MaxIdleConns
	transport.TLSClientConfig = config.TLS.Clone()
	h := &HTTP{config: config, transport: statusKeeper{transport}}
	for _, to := range config.URLs {
		c, err := client.New(client.Config{URL: to, Token: config.Token, Timeout: config.Timeout, Transport: h.transport})
		if err != nil {
			return nil, err
		}
		h.clients = append(h.clients, c)
	}
	if admins, servers := len(distinct(config.Admin)), len(distinct(config.URLs)); admins > 0 && admins < servers {
		return nil, fmt.Errorf("run: /metrics of %d servers is at as many URLs, not at %d", servers, admins)
	}
	for _, admin := range config.Admin {
		if at, err := url.Parse(admin); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
			return nil, errors.New("run: the URL of /metrics is written like http://127.0.0.1:9090")
		}
	}
	return h, nil
}

// Names returns the URLs.
func (h *HTTP) Names() []string { return h.config.URLs }

// Close closes the idle connections.
func (h *HTTP) Close() error {
	h.transport.CloseIdleConnections()
	return nil
}

// Remembered returns for how long the servers remember the counters of an event, the
// shortest of them; 0 where they do not tell.
func (h *HTTP) Remembered(ctx context.Context, event string) (time.Duration, error) {
	var shortest time.Duration
	for i, c := range h.clients {
		found, err := c.Event(ctx, event)
		if forbidden(err) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("%w: %s: %w", ErrUnreachable, h.config.URLs[i], err)
		}
		long, err := events.ParseDuration(found.Retention)
		if err != nil {
			return 0, fmt.Errorf("%w: %s: the retention of %s: %w", ErrUnreachable, h.config.URLs[i], event, err)
		}
		if shortest == 0 || long < shortest {
			shortest = long
		}
	}
	return shortest, nil
}

// forbidden reports whether a token is known, and is not good for this.
func forbidden(err error) bool {
	refused, answered := errors.AsType[*client.Error](err)
	return answered && refused.Status == http.StatusForbidden
}

// Probe makes a check or a count of each server instead of the call: that adds nothing.
func (h *HTTP) Probe(ctx context.Context, call traffic.Call) error {
	for i, c := range h.clients {
		var err error
		switch call.Kind {
		case traffic.Batch:
			_, err = c.Check(ctx, call.Event, call.Hits[0].Features, *call.Hits[0].Cost)
		case traffic.Hit, traffic.Check:
			_, err = c.Check(ctx, call.Event, call.Features, call.Cost)
		default:
			_, err = c.Count(ctx, call.Event, call.Features, max(call.Window, time.Second), time.Time{})
		}
		// A token may be good for hits alone.
		if err != nil && !forbidden(err) {
			return fmt.Errorf("%s: %w", h.config.URLs[i], err)
		}
	}
	return nil
}

// Do calls one server after the other.
func (h *HTTP) Do(ctx context.Context, n int64, call traffic.Call) Answer {
	c := h.clients[n%int64(len(h.clients))]
	var code int
	ctx = context.WithValue(ctx, codeKey{}, &code)
	var answer Answer
	var err error
	switch call.Kind {
	case traffic.Hit:
		var d wire.Decision
		if d, err = c.Hit(ctx, call.Event, call.Features, call.Cost); err == nil {
			answer.Decided = []Decided{decidedOf(&d)}
		}
	case traffic.Check:
		_, err = c.Check(ctx, call.Event, call.Features, call.Cost)
	case traffic.Increment:
		_, err = c.Increment(ctx, call.Event, call.Features, call.Cost, time.Time{})
	case traffic.Count:
		_, err = c.Count(ctx, call.Event, call.Features, call.Window, time.Time{})
	case traffic.Batch:
		var results []wire.Result
		results, err = c.Batch(ctx, call.Hits)
		answer.Decided = decidedOfBatch(results)
	}
	if call.Kind == traffic.Hit && code == http.StatusServiceUnavailable {
		answer.Decided = []Decided{{Verdict: Unavailable}}
	}
	answer.Status, answer.Failed = statusOf(code, err), err != nil
	return answer
}

func decidedOfBatch(results []wire.Result) []Decided {
	decided := make([]Decided, len(results))
	for i, r := range results {
		switch {
		case r.Decision == nil:
			decided[i].Verdict = Fault
		case r.Status == http.StatusServiceUnavailable:
			decided[i] = Decided{Verdict: Unavailable}
		default:
			decided[i] = decidedOf(r.Decision)
		}
	}
	return decided
}

// decidedOf returns what was decided. Of limits for which the store could not be asked
// nothing is said.
func decidedOf(d *wire.Decision) Decided {
	out := Decided{Verdict: Denied, Limits: make([]Said, 0, len(d.Limits))}
	if d.Allowed {
		out.Verdict = Admitted
	}
	for i := range d.Limits {
		limit := &d.Limits[i]
		if limit.OnError != "" {
			out.OnError = true
			continue
		}
		out.Limits = append(out.Limits, Said{limit.Name, verdictOf(limit.Allowed, limit.Shadow)})
	}
	return out
}

func verdictOf(allowed, shadow bool) Verdict {
	switch {
	case allowed:
		return Admitted
	case shadow:
		return ShadowDenied
	}
	return Denied
}

// Statuses of calls that were not answered, or not as the contract has it.
const (
	statusTimeout    = "timeout"
	statusRefused    = "connection refused"
	statusLost       = "connection lost"
	statusFiles      = "too many open files"
	statusPorts      = "no free port"
	statusUnexpected = "unexpected answer"
	statusNone       = "no answer"
)

// statusOf returns the code of an answer, or what went wrong.
func statusOf(code int, err error) string {
	_, answered := errors.AsType[*client.Error](err)
	switch late, isNet := errors.AsType[net.Error](err); {
	case err == nil, answered:
		return strconv.Itoa(code)
	case isNet && late.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return statusTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return statusRefused
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return statusFiles
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return statusPorts
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return statusLost
	case errors.Is(err, client.ErrUnexpected):
		return statusUnexpected
	}
	return statusNone
}

// codeKey is the place in a context of the code of its answer, a *int.
type codeKey struct{}

// statusKeeper notes the code of each answer in the place that the request's context has
// for it: the client tells only those of errors.
type statusKeeper struct{ *http.Transport }

// RoundTrip makes the exchange.
func (s statusKeeper) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.Transport.RoundTrip(r)
	if code, wanted := r.Context().Value(codeKey{}).(*int); wanted && err == nil {
		*code = answer.StatusCode
	}
	return answer, err
}

// distinct returns each of them once.
func distinct[T comparable](list []T) []T {
	var once []T
	for _, one := range list {
		if !slices.Contains(once, one) {
			once = append(once, one)
		}
	}
	return once
}
