package api

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/service"
)

// denyStatus is the parameter by which a proxy says what a denial is answered with.
const denyStatus = "deny_status"

// authorize decides for a reverse proxy whether it may let a request through: a
// hit of cost 1, its features taken from the proxy's request as the rules say. An
// admission has nothing to say but its headers. Requests of a method that the event
// does not have are admitted, and not counted. Events with leases are refused: no
// proxy says when a request has ended.
func (e *endpoints) authorize(x *exchange, event service.Event) error {
	status, err := authorizeQuery(x.request)
	if err != nil {
		return err
	}
	if isHit(event, x.request) {
		if event.HasLeases() {
			e.Lines.Do("leases "+event.Name, func(suppressed int64) {
				e.Log.Warn("authorize refuses an event with concurrency limits: a proxy cannot release leases", "event", event.Name, "suppressed", suppressed)
			})
			return httpdecision.RequestError{{Detail: fmt.Sprintf(
				"%s has limits with concurrent, and a proxy cannot release leases: hit the event in the service, which settles, or name another one here", event.Name)}}
		}
		result := httpdecision.HitOf(e.service, x.request, event, nil, 1, 0)
		if result.Err != nil {
			return result.Err
		}
		d := result.Decision
		x.verdict = service.OutcomeOf(&d).String()
		httpdecision.SetHeaders(x.Header(), event.Rules, &d)
		if !d.Allowed {
			e.AnswerDecision(x, x.request, event, d, status)
			return nil
		}
		httpdecision.SetFields(x.Header(), httpdecision.Field{Name: httpdecision.Wait, Value: httpdecision.WaitOf(&d)})
	}
	x.Header().Set("Cache-Control", "no-store") // a 204 may be kept where nothing is said
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// The headers by which proxies say the method of their client's request.
const (
	forwardedMethod = "X-Forwarded-Method" // Traefik and Caddy
	originalMethod  = "X-Original-Method"  // nginx, as docs/proxies.md sets it up
)

// isHit reports whether the request that a proxy asks about has a method of the event. A
// proxy sets one of the headers, and its client may have sent the other: both count. A
// method other than GET and HEAD, by which most proxies ask, is the client's own. Where
// there is neither, nothing says what the client does, and the request is a hit.
func isHit(event service.Event, r *http.Request) bool {
	if len(event.Methods) == 0 {
		return true
	}
	methods := slices.Concat(r.Header[forwardedMethod], r.Header[originalMethod])
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		methods = append(methods, r.Method)
	}
	return len(methods) == 0 || slices.ContainsFunc(methods, event.HasMethod)
}

// authorizeQuery returns the status for a denial.
func authorizeQuery(r *http.Request) (denied int, err error) {
	q, err := newQuery(r, denyStatus)
	if err != nil {
		return 0, err
	}
	return q.denyStatus(), q.err()
}

// denyStatus returns the status for a denial: 429, or one that a proxy takes for
// a no.
func (q *query) denyStatus() int {
	if !q.values.Has(denyStatus) {
		return http.StatusTooManyRequests
	}
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests} {
		if q.values.Get(denyStatus) == strconv.Itoa(status) {
			return status
		}
	}
	q.fault(denyStatus, "it is 401, 403 or 429")
	return 0
}
