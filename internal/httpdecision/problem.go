package httpdecision

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/service"
)

var errMalformed = errors.New("api: malformed request")

// RequestError is the faults of a request, each with its place.
type RequestError []wire.Fault

func (e RequestError) Error() string { return errMalformed.Error() }

func (e RequestError) Unwrap() error { return errMalformed }

// StatusError is an error with its own status and the detail of its problem.
type StatusError struct {
	Text   string
	Status int
	Detail string
}

func (e *StatusError) Error() string { return e.Text }

// statuses maps every error that an endpoint may return to its status and, where
// its faults do not speak for themselves, to what the problem says. The first
// row that an error is counts.
var statuses = []struct {
	err    error
	status int
	detail string
}{
	{service.ErrUnauthorized, http.StatusUnauthorized, "A token is wanted that is known here: Authorization: Bearer, or Counterd-Token."},
	{service.ErrForbidden, http.StatusForbidden, "The token is not good for this route."},
	{service.ErrUnknownDomain, http.StatusNotFound, "No domain of this name is known: its name is all between rls/ and the end of the path, or " +
		"/explain, /counters or /override there. GET /v1/events lists the domains."},
	{events.ErrUnknownEvent, http.StatusNotFound, "No event of this name is known; GET /v1/events lists those that are."},
	{errMalformed, http.StatusBadRequest, ""},
	{events.ErrInvalid, http.StatusBadRequest, ""},
	{engine.ErrOutOfRange, http.StatusBadRequest, ""},
	{overrides.ErrContended, http.StatusServiceUnavailable, "Other processes change the overrides all the time: ask again."},
	{overrides.ErrTooMany, http.StatusConflict, fmt.Sprintf("There are as many overrides as there may be, %d, or of as many bytes: remove some.", overrides.Max)},
	{engine.ErrSettled, http.StatusConflict, "The reservation was settled with another cost."},
	{engine.ErrEnded, http.StatusGone, "The reservation, or the lease, has ended."},
	{engine.ErrAhead, http.StatusServiceUnavailable,
		"A process whose clock is ahead has stamped the reservation. Send it again after the time in Retry-After."},
	{service.ErrDraining, http.StatusServiceUnavailable, "The process is about to end: ask another one."},
	{service.ErrClosed, http.StatusServiceUnavailable, "The process is about to end: ask another one."},
	{service.ErrUnready, http.StatusServiceUnavailable, "No server of the store answers."},
	{service.ErrNotReset, http.StatusServiceUnavailable, "The store did not answer, or not in time: the counter may be forgotten in part. Repeat the reset; where that does not help, raise counterd's -timeout, the longest wait for the store."},
	{wire.ErrTooManyWait, http.StatusServiceUnavailable, "Too many requests wait for their turns. This one was not served, and does not count."},
	{service.ErrOverload, http.StatusServiceUnavailable, "The server has too much to do. Nothing was done for this request."},
	{engine.ErrBadCounter, http.StatusServiceUnavailable, "An item of the counter on its Memcached server holds no count: another client of the server wrote it. Reset the counter, or wait until the item expires."},
	{journal.ErrTooLarge, http.StatusServiceUnavailable, "A log of the counter is full: not all was counted. Ask again in some seconds; where that happens often, take algorithm: sliding-window."},
	{engine.ErrStore, http.StatusServiceUnavailable, wire.StoreFailed},
	{context.Canceled, http.StatusServiceUnavailable, "The request was given up before anything was done."},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, "The request's time was over before anything was done."},
}

// ProblemOf returns the problem document of an error.
func ProblemOf(err error, method string) wire.Problem {
	problem := wire.Problem{
		Type: "about:blank", Status: http.StatusInternalServerError,
		Detail: "The fault is the server's, not the request's; its log says more.",
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		problem.Status = http.StatusRequestEntityTooLarge
		problem.Detail = "The body is larger than 1 MiB."
	} else if e, ok := errors.AsType[*StatusError](err); ok {
		problem.Status, problem.Detail = e.Status, e.Detail
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
		problem.Errors = bounded(faultsOf(err, method))
		problem.Detail = detailOf(problem.Errors)
	}
	return problem
}

// detailOf says what is wrong where it is one thing, and where.
func detailOf(faults []wire.Fault) string {
	if len(faults) != 1 {
		return "The request has faults: see errors."
	}
	if place := faults[0].Parameter + faults[0].Pointer; place != "" {
		return place + ": " + faults[0].Detail
	}
	return faults[0].Detail
}

// maxFaults bounds the faults that an answer lists.
const maxFaults = 32

// bounded returns the faults, and instead of those beyond the bound how many they
// are.
func bounded(faults []wire.Fault) []wire.Fault {
	if more := len(faults) - maxFaults; more > 0 {
		return append(faults[:maxFaults:maxFaults], wire.Fault{Detail: fmt.Sprintf("and %d more", more)})
	}
	return faults
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
	if e, ok := errors.AsType[RequestError](err); ok {
		return slices.Clone([]wire.Fault(e)) // places are added to them
	}
	fault := wire.Fault{Detail: err.Error()}
	place := ""
	if e, ok := errors.AsType[*engine.RangeError](err); ok {
		place, fault.Detail = string(e.Argument), e.Reason
	}
	if e, ok := errors.AsType[*events.OverrideError](err); ok {
		fault.Detail = e.Reason
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
