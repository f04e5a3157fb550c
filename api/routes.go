package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"github.com/counterd/counterd/events"
)

// routes maps the contract's methods and paths to endpoints. It is the only file
// that knows the router.
func (h *handler) routes() http.Handler {
	router := mux.NewRouter().SkipClean(true) // a redirect would lose the body
	get := func(path string, do action) {
		router.Handle(path, h.serve(bodiless(do))).Methods(http.MethodGet, http.MethodHead)
	}
	post := func(path string, do action) {
		router.Handle(path, h.serve(do)).Methods(http.MethodPost)
	}
	// The router tries one route after the other: what is asked most comes first.
	post("/v1/events/{event}/hit", h.onEvent(h.hit))
	post("/v1/batch", h.batch)
	get("/v1/events", h.reply(h.events))
	get("/v1/events/{event}", h.onEvent(h.replyOn(h.event)))
	get("/v1/events/{event}/count", h.onEvent(h.replyOn(h.count)))
	get("/v1/events/{event}/history", h.onEvent(h.replyOn(h.history)))
	get("/v1/events/{event}/check", h.onEvent(h.check))
	post("/v1/events/{event}/increment", h.onEvent(h.replyOn(h.increment)))
	router.Handle("/v1/events/{event}/counters", h.serve(bodiless(h.onEvent(h.replyOn(h.reset))))).Methods(http.MethodDelete)
	router.Handle("/v1/authorize/{event}", h.serve(h.onEvent(h.authorize)))
	get("/healthz", h.reply(h.alive))
	get("/readyz", h.reply(h.ready))

	if h.Metrics != nil {
		router.Handle("/metrics", h.serve(handOn(h.Metrics))).Methods(http.MethodGet, http.MethodHead)
	}

	router.NotFoundHandler = h.serve(func(http.ResponseWriter, *http.Request) error { return errNoRoute })
	router.MethodNotAllowedHandler = h.serve(func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Allow", strings.Join(allowed(router, r), ", "))
		return errMethod
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
