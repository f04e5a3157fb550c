// Package page is the page for the person on call: which features are denied, why, and since when. It is HTML that the
// server writes, with plots as SVG; there is no script, and nothing is loaded from elsewhere. Forms of the feature page
// change its counters; all else only reads.
//
// A page reads a bounded part of the store: the windows of a decision, a day of minutes, and at most 60 intervals of a
// history. Names of events and values of features come from strangers: they are text, wherever they are shown.
package page

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/service"
)

// Service is what the page asks. A *service.Service is one.
type Service interface {
	Rules() *events.Rules
	Event(name string) (service.Event, error)
	EventOrDomain(name string) (service.Event, error)
	Explain(ctx context.Context, event service.Event, features events.Features, cost int64) (events.Decision, []limiter.Explained, error)
	History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error)
	DeniedHistory(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error)
	Reset(ctx context.Context, counter events.Counter) error
	Overrides() []events.Override
	OverridesOf(event service.Event, features events.Features) []events.Override
	SetOverride(ctx context.Context, o events.Override) (events.Override, error)
	RemoveOverride(ctx context.Context, event, kind, value string) (bool, error)
}

// Limiter is a limiter whose counters the page shows: a *counterd.Limiter.
type Limiter interface{ Parts() *assembly.Parts }

// Config sets up the page. The zero Config can be used.
type Config struct {
	Log *slog.Logger // If nil, that of the limiter is used.
}

// New returns the handler of all that is below /ui/. It is for operators: the program keeps others out. The handler
// refuses the forms of foreign pages.
func New(l Limiter, config Config) http.Handler {
	parts := l.Parts()
	var alone *peers.Fleet
	return http.NewCrossOriginProtection().Handler(NewHandler(ServerConfig{
		Service: parts.Service,
		Top: func(r *http.Request, q top.Query) wire.Top {
			return alone.Top(r.Context(), "", parts.Service.Top(alone.Asked(q)), q)
		},
		Denials: parts.Top.Denials,
		Health:  parts.Health(),
		Source:  func() (string, int64) { return "", parts.Rules.Generation() },
		Clock:   parts.Settings.Clock,
		Log:     cmp.Or(config.Log, parts.Settings.Log),
	}))
}

// ServerConfig sets up the page of package server. Service, Top and Denials are needed.
type ServerConfig struct {
	Service Service
	// Top returns the features with the most hits, for a request: those of other processes are asked with its token.
	Top     func(*http.Request, top.Query) wire.Top
	Denials func(now time.Time) []top.Denials // of this process
	Health  service.Health                    // what readyz says
	// Source names where the rules in force come from, such as a file, and returns their generation; nil: they are
	// the program's.
	Source func() (name string, generation int64)
	Host   string           // on which the process runs; empty: as the system names it
	Clock  func() time.Time // nil: time.Now
	Log    *slog.Logger     // nil: slog.Default
}

//go:embed page.css icon.svg
var static embed.FS

//go:embed page.html
var source string

var templates = template.Must(template.New("page").Funcs(template.FuncMap{"times": func() any { return overrideTimes }}).Parse(source))

// policy lets a page load its style and its icon from here, and send its forms here.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// pages answers requests.
type pages struct {
	ServerConfig
	trying chan struct{} // what-ifs under way
}

// NewHandler returns the handler of all that is below /ui/. Each page answers GET, and a form POST. The caller of the handler
// refuses the forms of foreign pages.
func NewHandler(config ServerConfig) http.Handler {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if config.Host == "" {
		config.Host, _ = os.Hostname() // without a name the page shows none
	}
	if config.Source == nil {
		config.Source = func() (string, int64) { return "", 0 }
	}
	p := &pages{config, make(chan struct{}, tryingAtOnce)}
	routes := http.NewServeMux()
	routes.HandleFunc("/ui/{$}", p.overview)
	routes.HandleFunc("/ui/feature", p.feature)
	routes.HandleFunc("POST /ui/reset", p.reset)
	routes.HandleFunc("POST /ui/override", p.override)
	routes.HandleFunc("/ui/limits", p.limits)
	routes.HandleFunc("/ui/rules", p.rules)
	routes.HandleFunc("/ui/whatif", p.whatIf)
	routes.HandleFunc("/ui/", p.missing)
	files := http.StripPrefix("/ui/", http.FileServerFS(static))
	routes.Handle("/ui/page.css", files)
	routes.Handle("/ui/icon.svg", files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := w.Header().Set
		set("Content-Security-Policy", policy)
		set("X-Content-Type-Options", "nosniff")
		set("Referrer-Policy", "same-origin") // with no-referrer the page's own forms have the Origin null
		set("Cache-Control", "no-store")
		routes.ServeHTTP(w, r)
	})
}

// frame is what all pages have.
type frame struct {
	Title   string
	Here    string // the page's path among those of the navigation
	Refresh int    // seconds after which it is asked for again; 0: it is not
	Now     string
	Host    string
	Health  health
	Faults  []string // why a part of it is not shown
	status  int
}

// health is the state of the process in words.
type health struct {
	Good, Text string // Good: ok, warn or bad
	Servers    []server
	Clock      string
}

type server struct{ Good, Name, State string }

func (p *pages) newFrame(title, here string) *frame {
	return &frame{
		Title: title, Here: here, Now: clockTime(p.Clock().Truncate(time.Second)), Host: shown(p.Host), Health: p.health(),
		status: http.StatusOK,
	}
}

// health returns what readyz says.
func (p *pages) health() (h health) {
	h.Good, h.Text = "ok", "Ready"
	if _, err := p.Health.Ready(); errors.Is(err, service.ErrDraining) {
		h.Good, h.Text = "warn", "About to end"
	} else if err != nil {
		h.Good, h.Text = "bad", "No server of the store answers"
	}
	worse := func() {
		if h.Good == "ok" {
			h.Good, h.Text = "warn", "Ready, with faults"
		}
	}
	if p.Health.Servers != nil {
		for _, state := range p.Health.Servers() {
			one := server{"ok", shown(state.Name), state.String()}
			if one.State != "reachable" {
				one.Good = "warn"
				worse()
			}
			if !state.Reachable {
				one.Good = "bad"
			}
			h.Servers = append(h.Servers, one)
		}
	}
	if p.Health.Clock != nil {
		if h.Clock = p.Health.Clock(); h.Clock != "" {
			worse()
		}
	}
	return h
}

// fail has the page say why a part of it is missing. The first reason gives the status.
func (p *pages) fail(f *frame, err error) {
	status, words := p.faultOf(err)
	if f.status == http.StatusOK {
		f.status = status
	}
	f.Faults = append(f.Faults, words)
}

// faultOf returns the status of an error, and what it says of it. No text of the store is shown.
func (p *pages) faultOf(err error) (status int, words string) {
	ranged, isRange := errors.AsType[*engine.RangeError](err)
	bad, isOverride := errors.AsType[*events.OverrideError](err)
	switch {
	case errors.Is(err, service.ErrUnknownDomain):
		return http.StatusNotFound, "The configuration in force has no domain of this name."
	case errors.Is(err, events.ErrUnknownEvent):
		return http.StatusNotFound, "The rules in force have no event of this name."
	case isRange:
		return http.StatusBadRequest, sentence(string(ranged.Argument) + ": " + ranged.Reason)
	case isOverride:
		return http.StatusBadRequest, sentence(bad.Reason)
	case errors.Is(err, overrides.ErrTooMany):
		return http.StatusConflict, "There are as many overrides as there may be: end some, which the rules list."
	case errors.Is(err, events.ErrInvalid), errors.Is(err, engine.ErrOutOfRange):
		return http.StatusBadRequest, sentence(err.Error())
	case errors.Is(err, service.ErrOverload):
		return http.StatusServiceUnavailable, "The server has too much to do: ask again in some seconds."
	case errors.Is(err, service.ErrNotReset):
		return http.StatusServiceUnavailable, "The store did not answer, or not in time: the counter may be reset in part. Reset it again."
	case errors.Is(err, engine.ErrBadCounter):
		return http.StatusServiceUnavailable, "An item of the counter on its Memcached server holds no count: another client of the server wrote it."
	case errors.Is(err, engine.ErrStore), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, "The store did not answer, or not in time."
	}
	p.Log.Error("a page lacks a part", "error", err)
	return http.StatusServiceUnavailable, "This could not be found out: the log says why."
}

// write writes a page. The status is that of its frame.
func (p *pages) write(w http.ResponseWriter, name string, f *frame, view any) {
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, view); err != nil {
		p.Log.Error("a page cannot be written", "page", name, "error", err)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	if err := httpdecision.HoldAnswer(w, out.Len()); err != nil {
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if f.Refresh > 0 { // as the reader has asked for
		w.Header().Set("Refresh", strconv.Itoa(f.Refresh))
	}
	w.WriteHeader(cmp.Or(f.status, http.StatusOK))
	_, _ = out.WriteTo(w) // only a client that has left misses it
}

// missing answers what no page has.
func (p *pages) missing(w http.ResponseWriter, r *http.Request) {
	p.refuse(w, r, http.StatusNotFound, "There is no such page.")
}

// refuse answers a request of which nothing is done.
func (p *pages) refuse(w http.ResponseWriter, r *http.Request, status int, fault string) {
	f := p.newFrame(http.StatusText(status), "")
	f.status = status
	f.Faults = []string{fault}
	p.write(w, "missing", f, struct {
		*frame
		Form form
	}{f, p.newForm(r.URL.Query())})
}
