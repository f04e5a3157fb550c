package api

import (
	stdlog "log"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/sparse"
)

// Bounds of a request, so that none can hold the server up or fill its memory.
const (
	maxBody           = 1 << 20
	maxHeader         = 64 << 10 // 16 features of 1,024 bytes, percent-encoded
	maxFields         = 128      // values of header fields: each takes some 100 bytes beside its text
	maxStreams        = 100      // requests at a time of a connection, over HTTP/2
	maxUnread         = 64 << 10 // of a connection's bodies that nobody has read yet, over HTTP/2
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 60 * time.Second // a reset of a counter with every second of a day takes a few
	idleTimeout       = 2 * time.Minute
)

// Config is what the handler works with. Rules, Counters and Limiter are needed,
// the two on one store.
type Config struct {
	Rules    func() *events.Rules // the rules in force
	Counters *hierarchy.Counters
	Limiter  *hierarchy.Limiter
	// Servers returns how the store's servers are, as far as is known: it asks nobody.
	// nil: the store has none, and is always there.
	Servers func() []ServerState
	// Metrics answers /metrics; nil: there is no such route.
	Metrics http.Handler
	// Profiles answers what is below /debug/pprof/; nil: there is no such route.
	Profiles http.Handler
	// Tokens returns the tokens in force, of which each route but /, healthz and readyz
	// wants one that is good for its class; nil: none is wanted.
	Tokens func() *Tokens
	// LoopbackOnly has only programs of this machine served, and no web page in a browser
	// there: requests are refused that are for another host than an IP address, localhost or
	// a name without a dot, and those that a page of another origin makes.
	LoopbackOnly bool
	Refusals     *Refusals // counts requests without a valid token; it may be nil
	// Draining returns whether the process is about to end, and nobody should come any
	// more who asks readyz; nil: it never is.
	Draining func() bool
	// Discreet: readyz, for which no token is wanted, names no servers.
	Redacted bool
	// MaxRequests bounds the requests at a time of those who are let in: over HTTP/2 one
	// connection brings many. 0: there is no bound.
	MaxRequests int
	// Served is told of each request when it has been answered: the template of its route
	// and its method, either Other where a client has made it up, the status, and how long
	// it took. It is from the request's goroutine, so from many at the same time, and must
	// not panic. nil: nobody is.
	OnRequest func(route, method string, status int, took time.Duration)
	Log       *slog.Logger // nil: slog.Default
	// AccessLog has each request logged, with its route, event, status and verdict.
	AccessLog bool
	// Tracer makes a span of each request and of each decision, in the trace that the
	// request's traceparent names; nil: nobody does.
	Tracer trace.Tracer
}

// handler answers the requests of the contract.
type handler struct {
	Config
	outage   rate.Sometimes // that hits are refused is logged once a second, not once a request
	failures sparse.Lines   // so is why, for each cause
	refused  sparse.Lines   // and that requests have no token, for each reason
	room     room
	origins  http.CrossOriginProtection
	requests atomic.Int64 // that were let in and are being answered
}

// NewHandler returns the HTTP interface.
func NewHandler(config Config) http.Handler { return routes(newHandler(config).clientRoutes()) }

// NewAdminHandler returns the part of the HTTP interface that is for operators alone:
// healthz, readyz, and the metrics and profiles where the config has them. Rules, Counters
// and Limiter are not needed.
func NewAdminHandler(config Config) http.Handler { return routes(newHandler(config).adminRoutes()) }

func newHandler(config Config) *handler {
	if config.Log == nil {
		config.Log = slog.Default()
	}
	return &handler{Config: config, outage: rate.Sometimes{Interval: time.Second}}
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
		ConnState:         noteState,
		ConnContext:       withConnection,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: maxUnread, MaxReceiveBufferPerStream: maxUnread},
		ErrorLog:          stdlog.New(&serverLog{log: log}, "", 0),
	}
}
