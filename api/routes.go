package api

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

const (
	authorizeRoute = "/v1/authorize/{event}"
	overrideRoute  = "/v1/events/{event}/override"
	domainRoute    = "/v1/events/rls/{domain:.+}"
	pagePath       = httpdecision.PagePath
	pageRoute      = pagePath + "{page:(?:/.*)?}"
	documentation  = "https://github.com/counterd/counterd/blob/main/docs/http.md"
)

// The methods of the routes.
var (
	gets    = []string{http.MethodGet, http.MethodHead}
	posts   = []string{http.MethodPost}
	deletes = []string{http.MethodDelete}
)

// table is the routes of a handler, on the router: this is the only file that knows it.
type table struct {
	*mux.Router
	h       *handler
	classes []service.Class // of the routes that are added; none: all
}

// add adds a route for requests of a class. Without methods it takes any.
func (t table) add(class service.Class, methods []string, path string, do action) {
	if len(t.classes) > 0 && !slices.Contains(t.classes, class) {
		return
	}
	added := t.Handle(path, &route{t.h, class, do})
	if len(methods) > 0 {
		added.Methods(slices.Clone(methods)...) // it writes to them
	}
}

// clientRoutes maps the contract's methods and paths to endpoints.
func (h *handler) clientRoutes() table {
	t := h.newTable()
	t.addClients()
	if h.RLS != nil {
		t.add(service.ClassDecide, posts, "/json", handOn(h.RLS))
		t.add(service.ClassPublic, gets, "/healthcheck", unread(h.healthcheck))
	}
	t.addOperators()
	return t
}

// addClients adds what clients ask for.
func (t table) addClients() {
	e := &endpoints{t.h.Service, t.h.Peers, t.h.Responder}
	// The router tries one route after the other: what is asked most comes first.
	t.add(service.ClassDecide, posts, "/v1/events/{event}/hit", e.onEvent(e.hit))
	t.add(service.ClassDecide, posts, "/v1/batch", e.batch)
	t.add(service.ClassDecide, posts, "/v1/settle", e.settle)
	t.add(service.ClassRules, gets, "/v1/events", bodiless(e.events))
	t.add(service.ClassRules, gets, "/v1/events/{event}", bodiless(e.onEvent(e.event)))
	t.add(service.ClassRead, gets, "/v1/events/{event}/count", bodiless(e.onEvent(e.count)))
	t.add(service.ClassRead, gets, "/v1/events/{event}/history", bodiless(e.onEvent(e.history)))
	t.add(service.ClassDecide, gets, "/v1/events/{event}/check", bodiless(e.onEvent(e.check)))
	t.add(service.ClassSee, gets, "/v1/events/{event}/explain", bodiless(e.onEvent(e.explain)))
	t.add(service.ClassSee, gets, "/v1/top", bodiless(e.top))
	t.add(service.ClassIncrement, posts, "/v1/events/{event}/increment", e.onEvent(e.increment))
	t.add(service.ClassReset, deletes, "/v1/events/{event}/counters", bodiless(e.onEvent(e.reset)))
	t.add(service.ClassSee, gets, "/v1/overrides", bodiless(e.overrides))
	t.add(service.ClassOverride, posts, overrideRoute, e.onEvent(e.setOverride))
	t.add(service.ClassOverride, deletes, overrideRoute, bodiless(e.removeOverride))
	t.add(service.ClassDecide, nil, authorizeRoute, e.onEvent(e.authorize))
	// Of domains of Envoy's configuration, whose hits are descriptors. A domain may have slashes in its name.
	t.add(service.ClassSee, gets, domainRoute+"/explain", bodiless(e.onDomain(e.explain)))
	t.add(service.ClassReset, deletes, domainRoute+"/counters", bodiless(e.onDomain(e.reset)))
	t.add(service.ClassOverride, posts, domainRoute+"/override", e.onDomain(e.setOverride))
	t.add(service.ClassOverride, deletes, domainRoute+"/override", bodiless(e.removeOverride))
	t.add(service.ClassRules, gets, domainRoute, bodiless(e.onDomain(e.event)))
}

// adminRoutes are those for operators alone.
func (h *handler) adminRoutes() table {
	t := h.newTable()
	t.addOperators()
	return t
}

// addOperators adds what operators and their probes ask for.
func (t table) addOperators() {
	h := t.h
	t.add(service.ClassPublic, gets, "/", unread(t.index))
	t.add(service.ClassPublic, gets, "/openapi.json", unread(h.openAPI))
	t.add(service.ClassPublic, gets, "/healthz", unread(h.alive))
	t.add(service.ClassPublic, gets, "/readyz", unread(h.ready))
	if h.Metrics != nil {
		t.add(service.ClassOperate, gets, "/metrics", handOnAFew(h.Metrics))
	}
	if h.Profiles != nil {
		t.add(service.ClassOperate, slices.Concat(gets, posts), "/debug/pprof/{profile:.*}", handOnAFew(h.Profiles))
	}
	if h.Page != nil {
		t.add(service.ClassSee, gets, pageRoute, handOn(h.Page))
		t.add(service.ClassReset, posts, pagePath+"/reset", handOn(h.Page))
		t.add(service.ClassOverride, posts, pagePath+"/override", handOn(h.Page))
	}
}

// index lists the routes: to a browser as a page, which leads to /ui/.
func (t table) index(x *exchange) error {
	index := wire.Index{Service: "counterd", Documentation: documentation}
	err := t.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		methods, err := route.GetMethods()
		if err != nil { // it takes any
			methods = []string{"*"}
		}
		index.Routes = append(index.Routes, wire.Route{Path: listed(path), Methods: methods})
		return nil
	})
	if err != nil {
		return err
	}
	x.Header().Set("Vary", "Accept")
	if takesHTML(x.request) {
		t.h.replyHTML(x, http.StatusOK, "index", browserView{Title: "counterd", Page: t.h.Page != nil, Index: index})
	} else {
		t.h.Reply(x, index)
	}
	return nil
}

// listed returns the path of a template for a reader: without a variable that has a pattern,
// which may be empty and matches all that is below.
func listed(template string) string {
	template = strings.Replace(template, "{domain:.+}", "{domain}", 1)
	if pattern := strings.IndexByte(template, ':'); pattern >= 0 {
		return template[:strings.LastIndexByte(template[:pattern], '{')]
	}
	return template
}

// alive says that the process answers.
func (h *handler) alive(x *exchange) error {
	h.Reply(x, wire.Health{Status: "alive"})
	return nil
}

// ready says whether the process should be asked, and the states of the store's servers.
func (h *handler) ready(x *exchange) error {
	servers, err := h.Health.Ready()
	if errors.Is(err, service.ErrUnready) && !h.Redacted {
		return errUnready(servers)
	}
	if err != nil {
		return err
	}
	health := wire.Health{Status: "ready"}
	if h.Health.Servers != nil && !h.Redacted {
		health.Store = map[string]string{}
		for _, server := range servers {
			health.Store[server.Name] = server.String()
		}
	}
	if h.Health.Clock != nil && !h.Redacted {
		health.Clock = h.Health.Clock()
	}
	h.Reply(x, health)
	return nil
}

// maxUnready is the most servers that the error of readyz names.
const maxUnready = 32

// errUnready returns ErrUnready with the states of the servers, none of which answers.
func errUnready(servers []service.ServerState) error {
	states := make([]string, 0, maxUnready)
	for _, server := range servers[:min(len(servers), maxUnready)] {
		states = append(states, server.Name+" is "+server.String())
	}
	if len(servers) > maxUnready {
		states = append(states, "…")
	}
	return &httpdecision.StatusError{
		Text: service.ErrUnready.Error(), Status: http.StatusServiceUnavailable,
		Detail: "No server of the store answers: " + strings.Join(states, "; ") + ".",
	}
}

// healthcheck is ready, in the words of envoyproxy/ratelimit.
func (h *handler) healthcheck(x *exchange) error {
	if _, err := h.Health.Ready(); err != nil {
		return err
	}
	httpdecision.SetFields(x.Header(), httpdecision.Field{Name: "Content-Type", Value: "text/plain"}, httpdecision.Field{Name: "Cache-Control", Value: "no-store"})
	_, _ = io.WriteString(x, "OK") // only a client that has left misses it
	return nil
}

// newTable returns a table without routes, which answers requests for any other.
func (h *handler) newTable(classes ...service.Class) table {
	router := mux.NewRouter().SkipClean(true) // a redirect would lose the body
	router.NotFoundHandler = h.refuse(errNoRoute)
	router.MethodNotAllowedHandler = &route{h, service.ClassPublic, func(x *exchange) error {
		methods := strings.Join(allowed(router, x.request), ", ")
		x.Header().Set("Allow", methods)
		return errMethod(methods)
	}}
	return table{router, h, classes}
}

// refuse returns a route on which every request gets an error.
func (h *handler) refuse(err error) *route {
	return &route{h, service.ClassPublic, func(*exchange) error { return err }}
}

// handler returns what answers by the table.
func (t table) handler() http.Handler {
	router, tooMany := t.Router, t.h.refuse(errFields)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer forget(w, r)
		if tooManyFields(r) {
			tooMany.ServeHTTP(w, r)
			return
		}
		// The router would take an encoded slash for one between parts of the path;
		// no part has one. A path without a raw form has nothing encoded that matters.
		if r.URL.RawPath != "" && strings.Contains(strings.ToUpper(r.URL.EscapedPath()), "%2F") {
			router.NotFoundHandler.ServeHTTP(w, r)
			return
		}
		router.ServeHTTP(w, r)
	})
}

// handOn makes an action of a handler.
func handOn(to http.Handler) action {
	return func(x *exchange) error {
		to.ServeHTTP(x, x.request)
		return nil
	}
}

// maxHandedOn is the most requests that handOnAFew answers at a time.
const maxHandedOn = 5

// handOnAFew is handOn for answers of unknown size, which are in memory until their clients have read them: few are
// answered at a time, and one more gets ErrOverload.
func handOnAFew(to http.Handler) action {
	answering := engine.NewPending(maxHandedOn)
	return func(x *exchange) error {
		if !answering.Enter(1) {
			return service.ErrOverload
		}
		defer answering.Leave(1)
		return handOn(to)(x)
	}
}

// Other is the route of requests that no route takes, and the method of requests with an
// unusual one.
const Other = httpdecision.Other

// routeOf returns the template of the request's route as the index lists it, or Other.
func routeOf(r *http.Request) string {
	if route := mux.CurrentRoute(r); route != nil {
		if path, err := route.GetPathTemplate(); err == nil {
			return listed(path)
		}
	}
	return Other
}

// eventName returns the event, or the domain, that the path names.
func eventName(x *exchange) string {
	vars := mux.Vars(x.request)
	if domain, ok := vars["domain"]; ok {
		return events.DomainPrefix + domain
	}
	return vars["event"]
}

// onDomain is onEvent for a domain of Envoy's configuration.
func (e *endpoints) onDomain(do func(*exchange, service.Event) error) action {
	return e.on(e.service.EventOrDomain, do)
}

// onEvent makes an action of one on the event in the path. The event is looked up once,
// before the body is read: a reload meanwhile changes nothing.
func (e *endpoints) onEvent(do func(*exchange, service.Event) error) action {
	return e.on(e.service.Event, do)
}

func (e *endpoints) on(find func(name string) (service.Event, error), do func(*exchange, service.Event) error) action {
	return func(x *exchange) error {
		event, err := find(eventName(x))
		if err != nil {
			return err
		}
		x.event = event.Name
		return do(x, event)
	}
}

// allowed returns the methods that the request's path takes.
func allowed(router *mux.Router, r *http.Request) []string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		var match mux.RouteMatch
		if router.Match(other, &match) && !errors.Is(match.MatchErr, mux.ErrMethodMismatch) {
			methods = append(methods, method)
		}
	}
	return methods
}
