package api

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

const (
	authorizeRoute = "/v1/authorize/{event}"
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
	h *handler
}

// add adds a route. Each has a class: those whose token may do it. No methods: it takes any.
func (t table) add(of class, methods []string, path string, do action) {
	route := t.Handle(path, t.h.serve(of, do))
	if len(methods) > 0 {
		route.Methods(methods...)
	}
}

// clientRoutes maps the contract's methods and paths to endpoints.
func (h *handler) clientRoutes() table {
	t := h.newTable()
	// The router tries one route after the other: what is asked most comes first.
	t.add(toDecide, posts, "/v1/events/{event}/hit", h.onEvent(h.hit))
	t.add(toDecide, posts, "/v1/batch", h.batch)
	t.add(toSeeRules, gets, "/v1/events", bodiless(h.reply(h.events)))
	t.add(toSeeRules, gets, "/v1/events/{event}", bodiless(h.onEvent(h.replyOn(h.event))))
	t.add(toRead, gets, "/v1/events/{event}/count", bodiless(h.onEvent(h.replyOn(h.count))))
	t.add(toRead, gets, "/v1/events/{event}/history", bodiless(h.onEvent(h.replyOn(h.history))))
	t.add(toDecide, gets, "/v1/events/{event}/check", bodiless(h.onEvent(h.check)))
	t.add(toIncrement, posts, "/v1/events/{event}/increment", h.onEvent(h.replyOn(h.increment)))
	t.add(toReset, deletes, "/v1/events/{event}/counters", bodiless(h.onEvent(h.replyOn(h.reset))))
	t.add(toDecide, nil, authorizeRoute, h.onEvent(h.authorize))
	h.addOperators(t)
	return t
}

// adminRoutes are those for operators alone.
func (h *handler) adminRoutes() table {
	t := h.newTable()
	h.addOperators(t)
	return t
}

// addOperators adds what operators and their probes ask for.
func (h *handler) addOperators(t table) {
	t.add(forAnyone, gets, "/", unread(h.reply(func(r *http.Request) (any, error) { return t.index(r) })))
	t.add(forAnyone, gets, "/healthz", unread(h.reply(h.alive)))
	t.add(forAnyone, gets, "/readyz", unread(h.reply(h.ready)))
	if h.Metrics != nil {
		t.add(toOperate, gets, "/metrics", handOn(h.Metrics))
	}
	if h.Profiles != nil {
		t.add(toOperate, slices.Concat(gets, posts), "/debug/pprof/{profile:.*}", handOn(h.Profiles))
	}
}

// index lists the routes.
func (t table) index(r *http.Request) (*wire.Index, error) {
	if _, err := newQuery(r); err != nil {
		return nil, err
	}
	index := &wire.Index{Service: "counterd", Documentation: documentation}
	return index, t.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		methods, err := route.GetMethods()
		if err != nil { // it takes any
			methods = []string{"*"}
		}
		index.Routes = append(index.Routes, wire.Route{Path: path, Methods: methods})
		return nil
	})
}

// newTable returns a table without routes, and what it says to those who ask for others.
func (h *handler) newTable() table {
	router := mux.NewRouter().SkipClean(true) // a redirect would lose the body
	router.NotFoundHandler = h.serve(forAnyone, func(http.ResponseWriter, *http.Request) error { return errNoRoute })
	router.MethodNotAllowedHandler = h.serve(forAnyone, func(w http.ResponseWriter, r *http.Request) error {
		methods := allowed(router, r)
		w.Header().Set("Allow", strings.Join(methods, ", "))
		return &methodError{methods}
	})
	return table{router, h}
}

// routes returns what answers by the table.
func routes(t table) http.Handler {
	router := t.Router
	tooMany := t.h.serve(forAnyone, func(http.ResponseWriter, *http.Request) error { return errFields })
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
	return func(w http.ResponseWriter, r *http.Request) error {
		to.ServeHTTP(w, r)
		return nil
	}
}

// Other is the route of requests that no route takes, and the method of those whose
// method nobody knows.
const Other = "other"

// routeOf returns the template of the request's route, or Other.
func routeOf(r *http.Request) string {
	if route := mux.CurrentRoute(r); route != nil {
		if path, err := route.GetPathTemplate(); err == nil {
			return path
		}
	}
	return Other
}

// methodOf returns the request's method, or Other where it is not a usual one.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return Other
}

// eventAction is an action on an event, one of those rules.
type eventAction func(http.ResponseWriter, *http.Request, *events.Rules, *events.Event) error

// onEvent makes an action of one on the event in the path. It takes the rules in
// force once, for all that is done: a reload in between changes nothing of it.
func (h *handler) onEvent(do eventAction) action {
	return func(w http.ResponseWriter, r *http.Request) error {
		rules := h.Rules()
		event, err := rules.Event(mux.Vars(r)["event"])
		if err != nil {
			return err
		}
		seenOf(r).about(event)
		return do(w, r, rules, event)
	}
}

// replyOn makes an action of an endpoint on an event.
func (h *handler) replyOn(e func(*http.Request, *events.Event) (any, error)) eventAction {
	return func(w http.ResponseWriter, r *http.Request, _ *events.Rules, event *events.Event) error {
		return h.reply(func(r *http.Request) (any, error) { return e(r, event) })(w, r)
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
