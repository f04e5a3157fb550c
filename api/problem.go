package api

import (
	"errors"
	"net/http"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

var (
	errNoRoute   = errors.New("api: no such route")
	errMethod    = errors.New("api: method not allowed")
	errMediaType = errors.New("api: unsupported media type")
	errMalformed = errors.New("api: malformed request")
	errUnready   = errors.New("api: no server of the store answers")
)

// requestError is a request with faults, each with its place.
type requestError struct {
	faults []wire.Fault
}

func (e *requestError) Error() string { return errMalformed.Error() }

func (e *requestError) Unwrap() error { return errMalformed }

// statuses maps every error that an endpoint may return to its status and, where
// its faults do not speak for themselves, to what the problem says. The first
// row that an error is counts.
var statuses = []struct {
	err    error
	status int
	detail string
}{
	{errNoRoute, http.StatusNotFound, "There is no such route."},
	{errMethod, http.StatusMethodNotAllowed, "The route does not take this method; see the Allow header."},
	{errMediaType, http.StatusUnsupportedMediaType, "The body is JSON, unencoded: Content-Type: application/json."},
	{errMalformed, http.StatusBadRequest, ""},
	{events.ErrInvalid, http.StatusBadRequest, ""},
	{hierarchy.ErrOutOfRange, http.StatusBadRequest, ""},
	{events.ErrUnknownEvent, http.StatusNotFound, "No event of this name is known; GET /v1/events lists those that are."},
	{errUnready, http.StatusServiceUnavailable, "No server of the store answers."},
	{hierarchy.ErrStore, http.StatusServiceUnavailable, "The store could not be asked in time."},
}

// answerError writes the problem document of an error.
func (h *handler) answerError(w http.ResponseWriter, r *http.Request, err error) {
	problem := problemOf(err, r.Method)
	switch {
	case r.Context().Err() != nil: // the client has left: nobody's fault
	case problem.Status == http.StatusInternalServerError:
		h.Log.Error("request failed", "method", r.Method, "error", err)
	case problem.Status == http.StatusServiceUnavailable:
		h.outage.Do(func() { h.Log.Warn("store failed", "method", r.Method, "error", err) })
	}
	h.answer(w, problem.Status, wire.TypeProblem, problem)
}

func problemOf(err error, method string) wire.Problem {
	problem := wire.Problem{Type: "about:blank", Status: http.StatusInternalServerError}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		problem.Status = http.StatusRequestEntityTooLarge
		problem.Detail = "The body is larger than 1 MiB."
	} else {
		for _, row := range statuses {
			if errors.Is(err, row.err) {
				problem.Status, problem.Detail = row.status, row.detail
				break
			}
		}
	}
	problem.Title = http.StatusText(problem.Status)
	if problem.Status == http.StatusBadRequest {
		problem.Errors = faultsOf(err, method)
		problem.Detail = "The request has faults: see errors."
		if len(problem.Errors) == 1 {
			problem.Detail = problem.Errors[0].Detail
		}
	}
	return problem
}

// faultsOf lists the single faults in an error, each with its place: in the body
// for POST, else in the query.
func faultsOf(err error, method string) []wire.Fault {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var faults []wire.Fault
		for _, one := range joined.Unwrap() {
			faults = append(faults, faultsOf(one, method)...)
		}
		return faults
	}
	if e, ok := errors.AsType[*requestError](err); ok {
		return e.faults
	}
	fault := wire.Fault{Detail: err.Error()}
	place := ""
	if e, ok := errors.AsType[*hierarchy.RangeError](err); ok {
		place, fault.Detail = string(e.Argument), e.Reason
	}
	e, isFeature := errors.AsType[*events.FeatureError](err)
	if isFeature {
		place, fault.Detail = "feature", e.Reason
	}
	switch {
	case method != http.MethodPost:
		fault.Parameter = place
	case isFeature:
		fault.Pointer = "/features"
		if e.Kind != "" {
			fault.Pointer = "/features/" + e.Kind
		}
	case place != "":
		fault.Pointer = "/" + place
	}
	return []wire.Fault{fault}
}
