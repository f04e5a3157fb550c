package api

import (
	"fmt"
	"net/http"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/service"
)

// hit adds and decides.
func (e *endpoints) hit(x *exchange, event service.Event) error {
	var in wire.Hit
	if err := decodeBody(x.request, &in); err != nil {
		return err
	}
	d, err := e.service.Hit(x.request.Context(), event, in.Features, costOf(in.Cost))
	if err != nil {
		return err
	}
	x.verdict = service.OutcomeOf(&d).String()
	setRateLimitHeaders(x.Header(), event.Rules, d)
	e.answerDecision(x, x.request, event, d, http.StatusTooManyRequests)
	return nil
}

// check says what a hit would be answered, and adds nothing. A no is an answer,
// not a denial.
func (e *endpoints) check(x *exchange, event service.Event) error {
	features, cost, err := checkQuery(x.request)
	if err != nil {
		return err
	}
	d, err := e.service.Check(x.request.Context(), event, features, cost)
	if err != nil {
		return err
	}
	x.verdict = service.OutcomeOf(&d).String()
	e.answerDecision(x, x.request, event, d, http.StatusOK)
	return nil
}

// batch decides several hits. What is wrong with the body fails it whole; what is
// wrong with a hit that can be read is that hit's result.
func (e *endpoints) batch(x *exchange) error {
	in, err := batchOf(x.request)
	if err != nil {
		return err
	}
	if err := x.admission.Hold(int64(len(in) * resultBytes)); err != nil {
		return err
	}
	rules, hits := e.service.Rules(), make([]limiter.Hit, len(in))
	for i, hit := range in {
		hits[i] = limiter.Hit{Event: rules.Events[hit.Event], Features: hit.Features, Cost: costOf(hit.Cost)}
	}
	results, err := e.service.Hits(x.request.Context(), hits)
	if err != nil {
		return err
	}
	for i, hit := range in {
		if hit.Event == "" {
			results[i].Err = errNoEvent
		}
	}
	response := newResponse()
	defer response.free()
	e.answer(x, http.StatusOK, wire.TypeJSON, response.resultsOf(hits, results))
	return nil
}

// errNoEvent is the error of a hit of a batch that names no event.
var errNoEvent = &requestError{[]wire.Fault{{Detail: "the event is missing", Pointer: "/event"}}}

// batchOf returns the hits of a request's body.
func batchOf(r *http.Request) ([]wire.BatchHit, error) {
	var in wire.Batch
	if err := decodeBody(r, &in); err != nil {
		return nil, err
	}
	if len(in.Hits) == 0 {
		return nil, &requestError{[]wire.Fault{{
			Detail:  fmt.Sprintf("a batch is of 1 to %d hits, not of 0", wire.MaxHits),
			Pointer: "/hits",
		}}}
	}
	return in.Hits, nil
}

// resultsOf returns the results of several hits, each until the next.
func (b *response) resultsOf(hits []limiter.Hit, results []limiter.Result) wire.ResultSeq {
	return func(yield func(wire.Result) bool) {
		for i := range results {
			if !yield(b.resultOf(i, hits[i].Event, &results[i])) {
				return
			}
		}
	}
}

// resultOf returns the result of the i-th hit, until the next call.
func (b *response) resultOf(i int, event *events.Event, result *limiter.Result) wire.Result {
	if result.Err != nil {
		return faultyResult(i, result.Err)
	}
	return wire.Result{Status: outcomeStatuses[service.OutcomeOf(&result.Decision)], Decision: b.decisionOf(event.Name, result.Decision)}
}

// faultyResult is the result of the i-th hit of a batch, which is at fault.
func faultyResult(i int, err error) wire.Result {
	problem := problemOf(err, http.MethodPost)
	for n := range problem.Errors {
		problem.Errors[n].Pointer = fmt.Sprintf("/hits/%d%s", i, problem.Errors[n].Pointer)
	}
	if len(problem.Errors) > 0 {
		problem.Detail = detailOf(problem.Errors)
	}
	return wire.Result{Status: problem.Status, Problem: &problem}
}

// costOf returns what a hit costs that gives that cost or none.
func costOf(given *int64) int64 {
	if given == nil {
		return 1
	}
	return *given
}
