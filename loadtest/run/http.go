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
	"github.com/counterd/counterd/loadtest/traffic"
)

// HTTPConfig says which servers to call. Only URLs is needed.
type HTTPConfig struct {
	URLs    []string // called in turn
	Admin   []string // of /metrics of each of them; none: the URLs
	Token   func() (string, error)
	TLS     *tls.Config   // nil: the system's authorities, and no certificate
	Timeout time.Duration // of a call; 0: client.DefaultTimeout
	Conns   int           // idle connections, all together; 0: DefaultInFlight
}

// HTTP are servers of counterd.
type HTTP struct {
	config    HTTPConfig
	clients   []*client.Client
	transport http.RoundTripper
	here      bool // they are other processes of this machine
}

// NewHTTP returns those servers. It does not call them.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	if len(config.URLs) == 0 {
		return nil, errors.New("run: a URL is needed")
	}
	if admins, servers := len(distinct(config.Admin)), len(distinct(config.URLs)); admins > 0 && admins < servers {
		return nil, fmt.Errorf("run: /metrics of %d servers is at as many URLs, not at %d", servers, admins)
	}
	for _, admin := range config.Admin {
		if at, err := url.Parse(admin); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
			return nil, errors.New("run: the URL of /metrics is written like http://127.0.0.1:9090")
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns = cmp.Or(config.Conns, DefaultInFlight)
	transport.MaxIdleConnsPerHost = transport.MaxIdleConns
	transport.TLSClientConfig = config.TLS.Clone()
	h, err := newHTTP(config, transport)
	if err == nil {
		h.here = !slices.ContainsFunc(config.URLs, func(at string) bool { return !local(at) })
	}
	return h, err
}

// local reports whether the host of a URL is this machine.
func local(at string) bool {
	to, err := url.Parse(at)
	if err != nil {
		return false
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(to.Hostname(), "0"))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

func newHTTP(config HTTPConfig, transport http.RoundTripper) (*HTTP, error) {
	h := &HTTP{config: config, transport: transport}
	for _, to := range config.URLs {
		c, err := client.New(client.Config{
			URL: to, Token: config.Token, Timeout: config.Timeout, Transport: transport, MaxWaiting: -1, NoCoalescing: true,
		})
		if err != nil {
			return nil, err
		}
		h.clients = append(h.clients, c)
	}
	return h, nil
}

// Names returns the URLs.
func (h *HTTP) Names() []string { return h.config.URLs }

// Close closes the idle connections.
func (h *HTTP) Close() error {
	h.transport.(*http.Transport).CloseIdleConnections()
	return nil
}

// forbidden reports whether a known token does not allow the call.
func forbidden(err error) bool {
	refused, answered := errors.AsType[*client.Error](err)
	return answered && refused.Status == http.StatusForbidden
}

// Probe makes a check or a count, which add nothing, instead of the call. A token may allow
// hits alone.
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
		if err != nil && !forbidden(err) {
			return fmt.Errorf("%s: %w", h.config.URLs[i], err)
		}
	}
	return nil
}

// Do calls one server after the other.
func (h *HTTP) Do(ctx context.Context, n int64, call traffic.Call) (answer Answer) {
	c := h.clients[n%int64(len(h.clients))]
	var err error
	switch call.Kind {
	case traffic.Hit:
		var d wire.Decision
		d, err = c.Hit(ctx, call.Event, call.Features, call.Cost)
		answer.Results = []wire.Result{{Decision: &d}}
		if err == nil && !d.Allowed {
			answer.Status = "429"
		}
	case traffic.Check:
		_, err = c.Check(ctx, call.Event, call.Features, call.Cost)
	case traffic.Increment:
		_, err = c.Increment(ctx, call.Event, call.Features, call.Cost, time.Time{})
	case traffic.Count:
		_, err = c.Count(ctx, call.Event, call.Features, call.Window, time.Time{})
	case traffic.Batch:
		answer.Results, err = c.Batch(ctx, call.Hits)
	}
	answer.Status, answer.Failed = cmp.Or(answer.Status, statusOf(err)), err != nil
	if call.Kind == traffic.Hit && err != nil {
		answer.Results = nil
		if answer.Status == "503" {
			answer.Results = []wire.Result{{Status: http.StatusServiceUnavailable}}
		}
	}
	return answer
}

// statusOf returns the code of an answer, or what went wrong. A denial of a hit has no error.
func statusOf(err error) string {
	if err == nil {
		return "200"
	}
	if refused, answered := errors.AsType[*client.Error](err); answered {
		return strconv.Itoa(refused.Status)
	}
	if late, isNet := errors.AsType[net.Error](err); isNet && late.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	for _, known := range []struct {
		err    error
		status string
	}{
		{syscall.ECONNREFUSED, "connection refused"},
		{syscall.EMFILE, "too many open files"}, {syscall.ENFILE, "too many open files"},
		{syscall.EADDRNOTAVAIL, "no free port"},
		{syscall.ECONNRESET, lost}, {syscall.EPIPE, lost}, {io.EOF, lost}, {io.ErrUnexpectedEOF, lost},
		{client.ErrUnexpected, "unexpected answer"},
	} {
		if errors.Is(err, known.err) {
			return known.status
		}
	}
	return "no answer"
}

const lost = "connection lost"

// distinct returns each URL once.
func distinct(urls []string) []string { return slices.Compact(slices.Sorted(slices.Values(urls))) }
