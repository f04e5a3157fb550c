package api

import (
	stdlog "log"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/sparse"
)

// Bounds of a request, so that none can hold the server up or fill its memory.
const (
	maxBody           = 1 << 20
	maxHeader         = 64 << 10 // 16 features of 1,024 bytes, percent-encoded
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
	Log     *slog.Logger // nil: slog.Default
}

// handler answers the requests of the contract.
type handler struct {
	Config
	outage   rate.Sometimes // that hits are refused is logged once a second, not once a request
	failures sparse.Lines   // so is why, for each cause
	room     room
}

// NewHandler returns the HTTP interface.
func NewHandler(config Config) http.Handler {
	if config.Log == nil {
		config.Log = slog.Default()
	}
	h := &handler{Config: config, outage: rate.Sometimes{Interval: time.Second}}
	return h.routes()
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
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          stdlog.New(&serverLog{log: log}, "", 0),
	}
}
