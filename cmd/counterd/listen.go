package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/connections"
)

const (
	// drainTimeout is how long requests in flight may take after the signal to stop.
	drainTimeout = 15 * time.Second
	// adminDrain is how long those of operators may, then. A profile may be cut short.
	adminDrain = time.Second
	// adminConnections bounds their connections.
	adminConnections = 64
	// adminRequests bounds their requests at a time: the other connections are left to
	// probes.
	adminRequests = adminConnections - 8
)

// place is an address that is served.
type place struct {
	server   *http.Server
	listener *connections.Listener
}

// openPlace listens on the address, for so many connections; with TLS where secure is not
// nil.
func openPlace(address string, most int, secure *tls.Config, log *slog.Logger) (*place, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &place{server: api.NewServer(nil, log), listener: connections.NewListener(listener, most)}
	p.listener.TLS = secure != nil
	p.server.TLSConfig = secure
	return p, nil
}

// serve answers until the server is shut down. It bounds connections before their
// handshake, which each makes by itself, in the time for headers.
func (p *place) serve() error {
	if p.listener.TLS {
		return p.server.ServeTLS(p.listener, "", "")
	}
	return p.server.Serve(p.listener)
}

// drain lets the requests in flight finish, for so long.
func (p *place) drain(longest time.Duration) error {
	// Who asks on a kept connection until the end is told to ask elsewhere.
	p.server.SetKeepAlivesEnabled(false)
	drain, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := p.server.Shutdown(drain); err != nil {
		_ = p.server.Close() // of connections that are in its way
		return fmt.Errorf("requests were still in flight after %s: %w", longest, err)
	}
	return nil
}

// places are the addresses of a process.
type places struct {
	clients *place
	admin   *place // nil: there is none
}

// openPlaces listens on the addresses that the flags say.
func openPlaces(s settings, most int, d *door, log *slog.Logger) (p places, err error) {
	var clients, admin *tls.Config
	if d.certificates != nil {
		clients, admin = d.certificates.clients(), d.certificates.admin()
	}
	if p.clients, err = openPlace(s.listen, most, clients, log); err != nil {
		return p, fmt.Errorf("-listen: %w", err)
	}
	if s.access.admin == "" {
		return p, nil
	}
	if p.admin, err = openPlace(s.access.admin, adminConnections, admin, log); err != nil {
		return p, errors.Join(fmt.Errorf("-admin: %w", err), p.clients.listener.Close())
	}
	return p, nil
}

// handle has the places answer: what is for operators only on their own, where they
// have one. Requests there take no place of the clients', of which at most so many are
// answered at a time.
func (p places) handle(config api.Config, d *door, most int) {
	config.Gate = d.gate(most)
	if p.admin != nil {
		operators := config
		operators.Profiles = profiles()
		operators.Gate = d.gate(adminRequests)
		p.admin.server.Handler = api.NewAdminHandler(operators)
		config.Metrics, config.Redacted = nil, true
	}
	p.clients.server.Handler = api.NewHandler(config)
}

// all returns the places there are, in the order in which they end.
func (p places) all() []*place {
	if p.admin == nil {
		return []*place{p.clients}
	}
	return []*place{p.clients, p.admin}
}

// serveUntil serves until the context ends, says at readyz for the delay that it will
// stop, and then lets the requests in flight finish. Operators see the end.
func (p places) serveUntil(ctx context.Context, delay time.Duration, draining *atomic.Bool, log *slog.Logger) error {
	ended := make(chan error, len(p.all()))
	for _, one := range p.all() {
		go func() { ended <- one.serve() }()
	}
	if err := until(ctx, ended); err != nil {
		return errors.Join(err, p.close())
	}
	draining.Store(true)
	if delay > 0 {
		log.Info("stopping soon: readyz says so, and requests are served on", "for", delay)
		wait, cancel := context.WithTimeout(context.Background(), delay)
		defer cancel()
		if err := until(wait, ended); err != nil {
			return errors.Join(err, p.close())
		}
	}
	log.Info("stopping: requests in flight are finished", "longest", drainTimeout)
	err := p.clients.drain(drainTimeout)
	if p.admin != nil {
		_ = p.admin.drain(adminDrain) // nothing depends on the rest of a profile
	}
	for range p.all() {
		<-ended
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// until waits for the end of the context, or returns why one of the servers has ended
// before.
func until(ctx context.Context, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// close ends what is served at once.
func (p places) close() (err error) {
	for _, one := range p.all() {
		err = errors.Join(err, one.server.Close())
	}
	return err
}

// profiles returns what answers below /debug/pprof/. One that takes longer than an answer
// may puts off the end of its own by itself.
func profiles() http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("/debug/pprof/", pprof.Index)
	routes.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	routes.HandleFunc("/debug/pprof/profile", pprof.Profile)
	routes.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	routes.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return routes
}
