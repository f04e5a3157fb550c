package api

import (
	"cmp"
	"context"

	"github.com/go-json-experiment/json"

	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/telemetry"

	stdlog "log"
	"log/slog"
	"net/http"
	"time"

	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/service"
)

// Bounds of a request, so that none can hold the server up or fill its memory.
const (
	maxBody           = 1 << 20
	maxHeader         = 64 << 10 // 16 features of 1,024 bytes, percent-encoded
	maxFields         = 128      // values of header fields: each takes some 100 bytes beside its text
	maxStreams        = 100      // requests at a time of a connection, over HTTP/2
	maxUnread         = 64 << 10 // of a connection's bodies that are not read yet, over HTTP/2
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 60 * time.Second // a reset of a counter with every second of a day takes a few
	idleTimeout       = 2 * time.Minute
	// bucketBytes and topBytes are about what a bucket of a history and a feature of a top take in an answer.
	bucketBytes = 64
	topBytes    = 512
)

// Limiter is a limiter that handlers serve: a *counterd.Limiter.
type Limiter interface{ Parts() *assembly.Parts }

// Config sets up a handler. The zero Config can be used.
type Config struct {
	// OnRequest is called for each request when it has been answered: with the template of
	// its route and its method, either Other where a client has made it up, the status, and
	// how long it took. The calls come from the requests' goroutines, many at a time, and
	// must not panic. If nil, it is not called. See also package metrics.
	OnRequest func(route, method string, status int, took time.Duration)
	Log       *slog.Logger // If nil, the log of the limiter is used.
	// AccessLog makes the handler log each request, with its route, event, status and verdict.
	AccessLog bool
	// MaxRequests bounds the requests that are answered at a time, and the memory for them. If zero, 10,000 are.
	MaxRequests int
}

// forServer returns the config of a handler of the limiter.
func (c Config) forServer(l Limiter) ServerConfig {
	parts := l.Parts()
	return ServerConfig{
		Service: parts.Service, Gate: service.NewGate(service.GateConfig{MaxRequests: cmp.Or(c.MaxRequests, connections.DefaultMax)}), Health: parts.Health(),
		OnRequest: c.OnRequest, Log: cmp.Or(c.Log, parts.Settings.Log), AccessLog: c.AccessLog,
	}
}

// NewHandler returns the routes that decide and count: hit, batch, settle, check, authorize, increment, count, history
// and the events, as docs/http.md describes them. Every caller that reaches it is let in, so the program decides which do.
func NewHandler(l Limiter, config Config) http.Handler {
	h := newHandler(config.forServer(l))
	t := h.newTable(service.ClassDecide, service.ClassRules, service.ClassRead, service.ClassIncrement)
	t.addClients()
	return t.handler()
}

// NewOperatorHandler returns the routes that reset, override and show: counters, override, overrides, explain, top,
// healthz and readyz. They are for operators: the program keeps others out.
func NewOperatorHandler(l Limiter, config Config) http.Handler {
	h := newHandler(config.forServer(l))
	t := h.newTable(service.ClassSee, service.ClassReset, service.ClassOverride, service.ClassPublic)
	t.addClients()
	t.addOperators()
	return t.handler()
}

// ServerConfig sets up a handler of package server. Only Service is needed, and by NewAdminHandler not even that.
type ServerConfig struct {
	Service *service.Service // decides and counts
	Gate    *service.Gate    // admits requests; nil: all of them
	Health  service.Health   // what readyz says
	Peers   *peers.Fleet     // what top is of; nil: this process alone
	// Metrics answers /metrics; nil: there is no such route.
	Metrics http.Handler
	// Profiles answers what is below /debug/pprof/; nil: there is no such route.
	Profiles http.Handler
	// Page answers what is below /ui/, for browsers: there a token may be the password of HTTP's Basic scheme;
	// nil: there are no such routes.
	Page http.Handler
	// RLS answers /json, Envoy's rate limit service in JSON, and there is /healthcheck, as envoyproxy/ratelimit
	// has them; nil: there are no such routes.
	RLS http.Handler
	// LoopbackOnly has only programs of this machine served, and no web page in a browser
	// there: requests are refused that are for another host than an IP address, localhost or
	// a name without a dot, and requests that a page of another origin makes.
	LoopbackOnly bool
	// Redacted: readyz, which needs no token, names no servers.
	Redacted  bool
	OnRequest func(route, method string, status int, took time.Duration) // see Config
	Log       *slog.Logger                                               // see Config
	AccessLog bool                                                       // see Config
	// StartSpan begins the span of each request. If nil, requests have no spans.
	StartSpan telemetry.StartRequest
	// TraceID returns the ID of a context's trace for the log. If nil, the log has none.
	TraceID func(context.Context) string
}

// handler answers the requests of the contract.
type handler struct {
	ServerConfig
	*httpdecision.Responder
	origins http.CrossOriginProtection
}

// NewServerHandler returns the whole HTTP interface.
func NewServerHandler(config ServerConfig) http.Handler {
	return newHandler(config).clientRoutes().handler()
}

// NewAdminHandler returns the part of the HTTP interface that is for operators alone:
// healthz, readyz, and the metrics, the profiles and the page where the config has them.
func NewAdminHandler(config ServerConfig) http.Handler {
	return newHandler(config).adminRoutes().handler()
}

func newHandler(config ServerConfig) *handler {
	if config.Gate == nil {
		config.Gate = service.NewGate(service.GateConfig{})
	}
	if config.Health.Drain == nil {
		config.Health.Drain = func() bool { return false }
	}
	responder := httpdecision.NewResponder(config.Log)
	responder.TraceID = config.TraceID
	responder.Marshal = func(body any) ([]byte, error) { return json.Marshal(body) }
	return &handler{ServerConfig: config, Responder: responder}
}

// endpoints are what clients ask for.
type endpoints struct {
	service *service.Service
	peers   *peers.Fleet
	*httpdecision.Responder
}

// NewServer returns a server of the handler that bounds headers and waits for
// slow clients. What goes wrong with its connections is logged once a second. The
// caller listens, and shuts it down.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		ConnState:         connections.OnState,
		ConnContext:       connections.Context,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: maxUnread, MaxReceiveBufferPerStream: maxUnread},
		ErrorLog:          stdlog.New(&serverLog{log: log}, "", 0),
	}
}
