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
	d, err := h.hitOn(r, hierarchy.Hit{Event: event, Features: in.Features, Cost: costOf(in.Cost)})
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
	d, err := h.decide(r, hierarchy.Hit{Event: event, Features: features, Cost: cost}, hierarchy.CallCheck, h.Limiter.Check)
	switch {
	case err != nil:
		return err
	case d.Unavailable:
		h.answerUnavailable(w, r, event, d)
	default:
		h.answerDecided(w, event, d)
	}
	return nil
}

// batch decides several hits. What is wrong with the body fails it whole; what is
// wrong with a hit that can be read is that hit's result.
func (h *handler) batch(w http.ResponseWriter, r *http.Request) error {
	var in wire.Batch
	if err := decodeBody(r, &in); err != nil {
		return err
	}
	if len(in.Hits) == 0 {
		return &requestError{[]wire.Fault{{
			Detail:  fmt.Sprintf("a batch is of 1 to %d hits, not of 0", wire.MaxHits),
			Pointer: "/hits",
		}}}
	}
	if err := holdAnswer(r, len(in.Hits)*resultBytes); err != nil {
		return err
	}
	rules := h.Rules()
	hits := make([]hierarchy.Hit, 0, len(in.Hits)) // those on events that there are
	for _, hit := range in.Hits {
		if event, err := rules.Event(hit.Event); err == nil {
			hits = append(hits, hierarchy.Hit{Event: event, Features: hit.Features, Cost: costOf(hit.Cost)})
		}
	}
	decided, err := h.decideAll(r.Context(), hits)
	if err != nil {
		return err
	}
	draft := newDraft()
	defer draft.free()
	h.answer(w, http.StatusOK, wire.TypeJSON, wire.ResultSeq(func(yield func(wire.Result) bool) {
		rest := decided
		for i, hit := range in.Hits {
			var result hierarchy.Result
			event, err := rules.Event(hit.Event)
			if err == nil {
				result, rest = rest[0], rest[1:]
				err = result.Err
			}
			if err != nil {
				if !yield(faultyResult(i, err)) {
					return
				}
				continue
			}
			if !yield(wire.Result{Status: statusOf(result.Decision), Decision: draft.decisionOf(event, result.Decision)}) {
				return
			}
		}
	}))
	return nil
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
