package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/rls"
	"github.com/counterd/counterd/internal/settings"
)

const (
	// drainTimeout bounds the requests in flight of clients at the end.
	drainTimeout = 15 * time.Second
	// adminDrain bounds those of operators. A profile may be cut short.
	adminDrain = time.Second
	// adminConnections bounds the connections of operators.
	adminConnections = 256
	// adminRequests bounds their requests at a time. The other connections are for probes.
	adminRequests = 56

	ownFiles       = 64 + adminConnections // files of the process besides connections of clients
	filesPerServer = 68                    // connections to a Memcached server
)

// Connections returns the bound of clients' connections on each address: as set, and as the system
// has files for beside those of so many Memcached servers.
func Connections(s Settings, servers int) int {
	files := maxFiles()
	most := files - ownFiles - filesPerServer*servers
	if s.RLS != "" {
		most /= 2 // each of the two addresses takes as many
	}
	if s.MaxConnections <= most {
		return s.MaxConnections
	}
	most = max(most, 1)
	s.Log.Warn("fewer connections are accepted than set: the process may not open as many files", "connections", most, "files", files)
	return most
}

// server serves one address.
type server interface {
	serve() error
	drain(longest time.Duration) error
	Close() error // ends the serving at once
}

// listener serves one address over HTTP.
type listener struct {
	*connections.Listener
	server *http.Server
}

// rlsListener serves Envoy's rate limit service on one address.
type rlsListener struct {
	*connections.Listener
	secure *tls.Config  // nil: without TLS
	server *grpc.Server // set by HandleRLS
}

func (l *rlsListener) serve() error { return l.server.Serve(l.Listener) }

// drain lets the calls in flight finish, for so long.
func (l *rlsListener) drain(longest time.Duration) error {
	cut := time.AfterFunc(longest, l.server.Stop)
	l.server.GracefulStop()
	if !cut.Stop() {
		return fmt.Errorf("calls were still in flight after %s", longest)
	}
	return nil
}

// Close ends the serving at once.
func (l *rlsListener) Close() error {
	if l.server != nil {
		l.server.Stop()
	}
	return closed(l.Listener)
}

// closed closes a listener, which may be closed already.
func closed(l net.Listener) error {
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// bind listens on the address with bounded connections.
func bind(address string, most int, secure *tls.Config) (*connections.Listener, error) {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	l := connections.NewListener(inner, most)
	l.TLS = secure != nil
	return l, nil
}

// listen listens on the address for HTTP, with TLS unless secure is nil.
func listen(s Settings, address string, most int, secure *tls.Config) (*listener, error) {
	bound, err := bind(address, most, secure)
	if err != nil {
		return nil, err
	}
	l := &listener{server: api.NewServer(nil, s.Log), Listener: bound}
	if s.IdleTimeout != 0 {
		l.server.IdleTimeout = s.IdleTimeout
	}
	l.server.TLSConfig = secure
	return l, nil
}

// serve answers until the server is shut down. It bounds connections before their handshakes,
// each of which has the time for headers.
func (l *listener) serve() error {
	if l.TLS {
		return l.server.ServeTLS(l.Listener, "", "")
	}
	return l.server.Serve(l.Listener)
}

// Close ends the serving at once.
func (l *listener) Close() error { return errors.Join(l.server.Close(), closed(l.Listener)) }

// drain lets the requests in flight finish, for so long.
func (l *listener) drain(longest time.Duration) error {
	drain, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := l.server.Shutdown(drain); err != nil {
		_ = l.server.Close() // of the connections that are left
		return fmt.Errorf("requests were still in flight after %s: %w", longest, err)
	}
	return nil
}

// Listeners are the open addresses of a process.
type Listeners struct {
	settings Settings
	access   *Access
	clients  *listener
	rls      *rlsListener // nil: there is none
	admin    *listener    // nil: operators use that of the clients
}

// Listen listens on the addresses of the settings, for at most so many clients.
func Listen(s Settings, access *Access, most int) (l *Listeners, err error) {
	warn(s)
	l = &Listeners{settings: s, access: access}
	var clients, admin *tls.Config
	if access.certificates != nil {
		clients, admin = access.certificates.clients(), access.certificates.admin()
	}
	if l.clients, err = listen(s, s.Listen, most, clients); err != nil {
		return nil, &settings.Fault{Setting: "listen", Cause: err}
	}
	if s.RLS != "" {
		bound, err := bind(s.RLS, most, clients)
		if err != nil {
			return nil, errors.Join(&settings.Fault{Setting: "rls", Cause: err}, l.clients.Close())
		}
		l.rls = &rlsListener{Listener: bound, secure: clients}
	}
	if s.Admin == "" {
		return l, nil
	}
	if l.admin, err = listen(s, s.Admin, adminConnections, admin); err != nil {
		return nil, errors.Join(&settings.Fault{Setting: "admin", Cause: err}, l.close())
	}
	return l, nil
}

// Open returns how many connections clients have.
func (l *Listeners) Open() int {
	n := l.clients.Open()
	if l.rls != nil {
		n += l.rls.Open()
	}
	return n
}

// Refused returns how many connections of clients were refused.
func (l *Listeners) Refused() int64 {
	n := l.clients.Refused()
	if l.rls != nil {
		n += l.rls.Refused()
	}
	return n
}

// Handle has the listeners answer: with an address for operators, their routes only there; without one, the page
// only where none but programs of this machine reach it. Of
// clients' requests at most so many are answered at a time; those of operators take no place of
// them.
func (l *Listeners) Handle(config api.ServerConfig, most int) {
	config.LoopbackOnly = l.settings.LoopbackOnly()
	config.Gate = l.access.Gate(most)
	if l.admin != nil {
		operators := config
		operators.Profiles = profiles()
		operators.Gate = l.access.Gate(adminRequests)
		if s := l.settings; s.OpenMetrics && s.Tokens == OpenToAll && !settings.OnLoopback(s.Admin) {
			operators.Profiles, operators.Page = nil, nil
		}
		l.admin.server.Handler = api.NewAdminHandler(operators)
		config.Metrics, config.Page, config.Redacted = nil, nil, true
	} else if !settings.OnLoopback(l.settings.Listen) {
		config.Page = nil
	}
	l.clients.server.Handler = api.NewServerHandler(config)
}

// HandleRLS has the listener of Envoy's rate limit service, if the settings have one, answer.
func (l *Listeners) HandleRLS(service *rls.Server) { l.rls.server = service.NewGRPC(l.rls.secure) }

// forClients returns the servers for clients.
func (l *Listeners) forClients() []server {
	if l.rls == nil {
		return []server{l.clients}
	}
	return []server{l.clients, l.rls}
}

// all returns the servers.
func (l *Listeners) all() []server {
	if l.admin == nil {
		return l.forClients()
	}
	return append(l.forClients(), l.admin)
}

// Serve serves until the context ends, answers readyz with the coming end for the drain delay,
// and then lets the requests in flight finish. The address of operators ends last.
func (l *Listeners) Serve(ctx context.Context, events int) error {
	log := l.settings.Log
	if l.admin != nil {
		log.Info("serving operators", "address", l.admin.Addr().String())
	}
	if l.rls != nil {
		log.Info("serving Envoy's rate limit service", "address", l.rls.Addr().String())
	}
	log.Info("serving", "address", l.clients.Addr().String(), "events", events)
	return l.serveUntil(ctx, l.settings.DrainDelay, &l.access.draining, log)
}

func (l *Listeners) serveUntil(ctx context.Context, delay time.Duration, draining *atomic.Bool, log *slog.Logger) error {
	ended := make(chan error, len(l.all()))
	for _, one := range l.all() {
		go func() { ended <- one.serve() }()
	}
	if err := until(ctx, ended); err != nil {
		return errors.Join(err, l.close())
	}
	draining.Store(true)
	if delay > 0 {
		log.Info("stopping soon: readyz says so, and requests are served on", "for", delay)
		wait, cancel := context.WithTimeout(context.Background(), delay)
		defer cancel()
		if err := until(wait, ended); err != nil {
			return errors.Join(err, l.close())
		}
	}
	log.Info("stopping: requests in flight are finished", "longest", drainTimeout)
	err := l.drain()
	if l.admin != nil {
		_ = l.admin.drain(adminDrain) // nothing depends on the rest of a profile
	}
	for range l.all() {
		<-ended
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// drain lets the requests of clients in flight finish, on all addresses at once.
func (l *Listeners) drain() error {
	clients := l.forClients()
	errs := make([]error, len(clients))
	var draining sync.WaitGroup
	for i, one := range clients {
		draining.Go(func() { errs[i] = one.drain(drainTimeout) })
	}
	draining.Wait()
	return errors.Join(errs...)
}

// until waits for the end of the context, or returns why one of the servers ended before.
func until(ctx context.Context, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// close ends the serving at once.
func (l *Listeners) close() (err error) {
	for _, one := range l.all() {
		err = errors.Join(err, one.Close())
	}
	return err
}

// profiles returns the handler below /debug/pprof/. A profile that takes longer than an answer
// may extends its own deadline.
func profiles() http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("/debug/pprof/", pprof.Index)
	routes.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	routes.HandleFunc("/debug/pprof/profile", pprof.Profile)
	routes.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	routes.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return routes
}
