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
	get := func(path string, e endpoint) {
		router.Handle(path, h.serve(e)).Methods(http.MethodGet, http.MethodHead)
	}
	get("/v1/events", h.events)
	get("/v1/events/{event}", h.onEvent(h.event))
	get("/v1/events/{event}/count", h.onEvent(h.count))
	get("/v1/events/{event}/history", h.onEvent(h.history))
	router.Handle("/v1/events/{event}/increment", h.serve(h.onEvent(h.increment))).Methods(http.MethodPost)
	router.Handle("/v1/events/{event}/counters", h.serve(h.onEvent(h.reset))).Methods(http.MethodDelete)
	get("/healthz", h.alive)
	get("/readyz", h.ready)

	router.NotFoundHandler = h.serve(func(*http.Request) (any, error) { return nil, errNoRoute })
	router.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Join(allowed(router, r), ", "))
		h.answerError(w, r, errMethod)
	})
	return router
}

// onEvent makes an endpoint of one that works on the event in the path.
func (h *handler) onEvent(e func(*http.Request, *events.Event) (any, error)) endpoint {
	return func(r *http.Request) (any, error) {
		event, err := h.Rules().Event(mux.Vars(r)["event"])
		if err != nil {
			return nil, err
		}
		return e(r, event)
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
