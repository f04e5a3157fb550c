package server

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/page"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/authorities"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/rls"
	"github.com/counterd/counterd/internal/server/follow"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/telemetry/metrics"
	"github.com/counterd/counterd/internal/telemetry/tracing"
)

// Server serves a limiter over HTTP and Envoy's rate limit protocol. Close ends it.
type Server struct {
	settings Settings
	metrics  *metrics.Metrics
	peers    *peers.Fleet
	domains  *follow.RLSConfig // nil: there is none
	spans    spans
	access   *Access
	rules    *follow.Rules
	parts    *assembly.Parts
	relaying sync.WaitGroup
	closing  chan struct{}
}

// New returns a Server that enforces the rules. If they come from a file, it reloads them when the file changes. It does
// not fail if Memcached servers do not answer.
func New(rules *events.Rules, file follow.RulesFile, s Settings) (*Server, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &Server{settings: s, metrics: metrics.New(), closing: make(chan struct{})}
	if err := p.open(rules, file); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// open opens the parts, each on those opened before it.
func (p *Server) open(rules *events.Rules, file follow.RulesFile) (err error) {
	s := p.settings
	config := assembly.Config{Settings: s.Settings, Unsealed: s.unsealed(), Hooks: []assembly.Hooks{p.metrics.Hooks()}}
	if err := config.CheckRules(rules); err != nil {
		return err
	}
	p.rules = follow.NewRules(rules, file, config.CheckRules, s.Log)
	config.Rules = p.rules.RulesInForce
	if s.RLSConfig != "" {
		if p.domains, err = follow.OpenRLSConfig(s.RLSConfig, s.Log); err != nil {
			return &settings.Fault{Setting: "rls-config", Cause: err}
		}
		config.Domains = p.domains.Rules
	}
	if p.spans, err = openSpans(s); err != nil {
		return err
	}
	if tracer := p.spans.tracer; tracer != nil {
		config.StartSpan, config.OnCoalesced = tracing.Start(tracer), tracing.Together
		config.Hooks = append(config.Hooks, assembly.Hooks{OnRoundTrip: tracing.Trips(tracer)})
	}
	if p.access, err = OpenAccess(s); err != nil {
		return err
	}
	if p.peers, err = openPeers(s, p.access); err != nil {
		return err
	}
	if p.parts, err = assembly.Open(config); err != nil {
		return err
	}
	p.watch()
	p.relayAsks()
	return nil
}

// openPeers returns the fleet of the peers in the settings.
func openPeers(s Settings, access *Access) (*peers.Fleet, error) {
	config := peers.Config{URLs: s.Peers}
	if s.PeersCA != "" {
		var err error
		if config.Authorities, err = authorities.Read(s.PeersCA); err != nil {
			return nil, &settings.Fault{Setting: "peers-ca", Cause: err}
		}
	}
	if access.certificates != nil {
		config.Own = access.certificates.own
	}
	return peers.New(config), nil
}

// watch registers the parts with the metrics.
func (p *Server) watch() {
	p.metrics.WatchParts(p.parts)
	p.metrics.Watch(metrics.Process{ReloadFailures: p.rules.Failures})
	p.access.Watch(p.metrics)
	files := map[string]Refused{}
	if p.rules.Follows() {
		files["rules"] = p.rules
	}
	if p.domains != nil {
		files["rls-config"] = p.domains
	}
	p.access.WatchFiles(p.metrics, files)
	p.spans.watch(p.metrics)
	if dropped := p.settings.LinesDropped; dropped != nil {
		p.metrics.AddCounter("counterd_log_lines_dropped_total", "Lines of the log that were dropped: its reader was too slow, or has died.",
			func() float64 { return float64(dropped()) })
	}
}

// relayAsks reads all followed files and server lists again for each value of settings.Asks.
func (p *Server) relayAsks() {
	p.relaying.Go(func() {
		for {
			select {
			case <-p.closing:
				return
			case _, open := <-p.settings.Asks:
				if !open {
					return
				}
				p.rules.Ask()
				p.domains.Ask()
				p.parts.Backend.Ask()
				p.access.Ask()
			}
		}
	})
}

// health returns the health of the process.
func (p *Server) health() service.Health {
	health := p.parts.Health()
	health.Drain = p.access.draining.Load
	return health
}

// Serve serves the HTTP interface on the settings' addresses, and Envoy's rate limit service, until the context ends.
// Then it finishes the requests in flight. It must be called at most once.
func (p *Server) Serve(ctx context.Context) error {
	most := Connections(p.settings, len(p.parts.Backend.Health()))
	listeners, err := Listen(p.settings, p.access, most)
	if err != nil {
		return err
	}
	p.metrics.Watch(metrics.Process{Connections: listeners})
	config := p.apiConfig()
	if p.settings.RLS != "" {
		service, err := rls.New(p.rlsConfig(most))
		if err != nil {
			return errors.Join(err, listeners.close())
		}
		listeners.HandleRLS(service)
		config.RLS = service
	}
	listeners.Handle(config, most)
	return listeners.Serve(ctx, len(p.rules.Rules().Events))
}

// apiConfig returns the config of the HTTP interface, without a gate.
func (p *Server) apiConfig() api.ServerConfig {
	config := api.ServerConfig{
		Service:   p.parts.Service,
		Health:    p.health(),
		Peers:     p.peers,
		Metrics:   p.metrics.Handler(),
		Page:      p.page(),
		OnRequest: p.metrics.OnRequest,
		Log:       p.settings.Log,
		AccessLog: p.settings.AccessLog,
	}
	if p.spans.tracer != nil {
		config.StartSpan, config.TraceID = tracing.StartRequest(p.spans.tracer), tracing.TraceID
	}
	return config
}

// page returns the page for the person on call.
func (p *Server) page() http.Handler {
	return page.NewHandler(page.ServerConfig{
		Service: p.parts.Service,
		Top: func(r *http.Request, q top.Query) wire.Top {
			return p.peers.Top(r.Context(), api.TokenOf(r), p.parts.Service.Top(p.peers.Asked(q)), q)
		},
		Denials: p.parts.Top.Denials,
		Health:  p.health(),
		Source:  func() (string, int64) { return p.rules.File(), p.rules.Generation() },
		Clock:   p.settings.Clock,
		Log:     p.settings.Log,
	})
}

// rlsConfig returns the config of Envoy's rate limit service, which answers at most that many calls at once.
func (p *Server) rlsConfig(most int) rls.Config {
	onCall, onFault := p.metrics.WatchCalls()
	return rls.Config{
		Service:     p.parts.Service,
		Gate:        p.access.Gate(most),
		Descriptors: p.domains.Config,
		Health:      p.health(),
		OnCall:      onCall,
		OnFault:     onFault,
		Log:         p.settings.Log,
		AccessLog:   p.settings.AccessLog,
		Tracer:      p.spans.tracer,
	}
}

// Close waits for the operations of the store that are under way, and joins all goroutines. It must be called once, and
// not while Serve runs.
func (p *Server) Close() (err error) {
	close(p.closing)
	p.relaying.Wait()
	if p.access != nil {
		p.access.Close()
	}
	if p.parts != nil {
		err = p.parts.Close()
	}
	p.peers.Close()
	p.spans.close(p.settings.Log)
	p.domains.Close()
	if p.rules != nil {
		p.rules.Close()
	}
	return err
}
