package api

import (
	"fmt"
	"net/http"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

// hit adds and decides.
func (h *handler) hit(w http.ResponseWriter, r *http.Request, rules *events.Rules, event *events.Event) error {
	var in wire.Hit
	if err := decodeBody(r, &in); err != nil {
		return err
	}
	d, err := h.Limiter.Hit(r.Context(), hierarchy.Hit{Event: event, Features: in.Features, Cost: costOf(in.Cost)})
	if err != nil {
		return err
	}
	h.answerDecision(w, r, rules, event, d, http.StatusTooManyRequests)
	return nil
}

// check says what a hit would be answered, and adds nothing. A no is an answer,
// not a denial.
func (h *handler) check(w http.ResponseWriter, r *http.Request, _ *events.Rules, event *events.Event) error {
	q, err := newQuery(r, "feature", "cost")
	if err != nil {
		return err
	}
	features, cost := q.features(), q.cost()
	if err := q.err(); err != nil {
		return err
	}
	d, err := h.Limiter.Check(r.Context(), hierarchy.Hit{Event: event, Features: features, Cost: cost})
	switch {
	case err != nil:
		return err
	case d.Unavailable:
		h.answerUnavailable(w, r, event, d)
	default:
		h.answer(w, http.StatusOK, wire.TypeJSON, decisionOf(event, d))
	}
	return nil
}

// batch decides several hits. What is wrong with the body fails it whole; what is
// wrong with a hit that can be read is that hit's result.
func (h *handler) batch(r *http.Request) (any, error) {
	var in wire.Batch
	if err := decodeBody(r, &in); err != nil {
		return nil, err
	}
	if n := len(in.Hits); n == 0 || n > hierarchy.MaxHits {
		return nil, &requestError{[]wire.Fault{{
			Detail:  fmt.Sprintf("a batch is of 1 to %d hits, not of %d", hierarchy.MaxHits, n),
			Pointer: "/hits",
		}}}
	}
	rules := h.Rules()
	out := wire.Results{Results: make([]wire.Result, len(in.Hits))}
	hits := make([]hierarchy.Hit, 0, len(in.Hits))
	places := make([]int, 0, len(in.Hits)) // of the hits, in the batch
	for i, hit := range in.Hits {
		event, err := rules.Event(hit.Event)
		if err != nil {
			out.Results[i] = faultyResult(i, err)
			continue
		}
		hits = append(hits, hierarchy.Hit{Event: event, Features: hit.Features, Cost: costOf(hit.Cost)})
		places = append(places, i)
	}
	results, err := h.Limiter.Hits(r.Context(), hits)
	if err != nil {
		return nil, err
	}
	for n, result := range results {
		i := places[n]
		if result.Err != nil {
			out.Results[i] = faultyResult(i, result.Err)
			continue
		}
		decision := decisionOf(hits[n].Event, result.Decision)
		out.Results[i] = wire.Result{Status: statusOf(result.Decision), Decision: &decision}
	}
	return out, nil
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
