package api

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

// hit adds and decides.
func (e *endpoints) hit(x *exchange, event service.Event) error {
	var in wire.Hit
	if err := decodeBody(x.request, &in); err != nil {
		return err
	}
	reserve, err := durationOf(in.Reserve, "/reserve")
	if err != nil {
		return err
	}
	d, err := e.service.Reserve(x.request.Context(), event, in.Features, costOf(in.Cost), reserve)
	if err != nil {
		return err
	}
	x.verdict = service.OutcomeOf(&d).String()
	setRateLimitHeaders(x.Header(), event.Rules, &d)
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
	rules, hits, faults := e.service.Rules(), make([]limiter.Hit, len(in)), map[int]error{}
	for i, hit := range in {
		hits[i] = limiter.Hit{Event: rules.Events[hit.Event], Features: hit.Features, Cost: costOf(hit.Cost)}
		var err error
		if hits[i].Reserved, err = durationOf(hit.Reserve, "/reserve"); err == nil {
			err = e.service.CheckReserve(hits[i].Reserved)
		}
		if err != nil && hits[i].Event != nil { // an unknown event is the first fault of a hit alone, too
			hits[i].Event = nil // it is not to be counted
			faults[i] = err
		}
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
	for i, fault := range faults {
		results[i].Err = fault
	}
	response := newResponse()
	defer response.free()
	e.answer(x, http.StatusOK, wire.TypeJSON, response.resultsOf(e.service, hits, results))
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

// settle settles a reservation, or renews its leases.
func (e *endpoints) settle(x *exchange) error {
	var in wire.Settle
	if err := decodeBody(x.request, &in); err != nil {
		return err
	}
	if (in.Cost == nil) == (in.Renew == nil) {
		return &requestError{[]wire.Fault{{Detail: "one of cost and renew is wanted", Pointer: "/cost"}}}
	}
	if in.Cost != nil {
		if err := e.service.Settle(x.request.Context(), in.Reservation, *in.Cost); err != nil {
			return err
		}
		e.reply(x, wire.Settled{Settled: true, Cost: in.Cost})
		return nil
	}
	by, err := durationOf(in.Renew, "/renew")
	if err != nil {
		return err
	}
	renewed, err := e.service.Renew(x.request.Context(), in.Reservation, by)
	if err != nil {
		return err
	}
	e.reply(x, wire.Settled{Reservation: renewed})
	return nil
}

// durationOf reads a duration of the body; nil: none is given.
func durationOf(given *string, pointer string) (time.Duration, error) {
	if given == nil {
		return 0, nil
	}
	d, err := events.ParseDuration(*given)
	if err != nil {
		return 0, &requestError{[]wire.Fault{{Detail: "a duration is wanted, as in 30s or 15m, of whole seconds", Pointer: pointer}}}
	}
	return d, nil
}

// costOf returns what a hit costs that gives that cost or none.
func costOf(given *int64) int64 {
	if given == nil {
		return 1
	}
	return *given
}

// quotaExceeded is the title of a denial, that of its type.
const quotaExceeded = "Request cannot be satisfied as assigned quota has been exceeded"

// answerDecision writes a decision: a denial with denyStatus, as a problem document, and that of a
// store which does not answer as one of its own. A denyStatus of 200 is an answer like any other.
func (p *responder) answerDecision(w http.ResponseWriter, r *http.Request, event service.Event, d limiter.Decision, denyStatus int) {
	response := newResponse()
	defer response.free()
	switch outcome := service.OutcomeOf(&d); {
	case outcome == service.Unavailable:
		p.answerUnavailable(w, r, event, response.decisionOf(event.Name, d))
	case outcome == service.Denied && denyStatus != http.StatusOK:
		p.answer(w, denyStatus, wire.TypeProblem, response.denialOf(event.Name, d, denyStatus))
	default:
		decision := response.decisionOf(event.Name, d)
		decision.Reservation = event.ReservationOf(&d)
		p.answer(w, http.StatusOK, wire.TypeJSON, decision)
	}
}

// answerUnavailable writes the decision of a store that does not answer.
func (p *responder) answerUnavailable(w http.ResponseWriter, r *http.Request, event service.Event, decision *wire.Decision) {
	requestID(w, r)
	p.lines.Do("outage", func(suppressed int64) {
		p.logOf(w, r).Warn("hits are refused: the store does not answer, or not in time", "event", event.Name, "suppressed", suppressed)
	})
	problem := problemOf(engine.ErrStore, r.Method)
	p.answer(w, problem.Status, wire.TypeProblem, &wire.Denial{Problem: problem, Decision: *decision})
}

// outcomeStatuses are what a hit alone is answered with.
var outcomeStatuses = [...]int{
	service.Allowed: http.StatusOK, service.Denied: http.StatusTooManyRequests, service.Unavailable: http.StatusServiceUnavailable,
}

// response is where a decision is put as the contract has it, until it is written.
// The next one is put there again: on every hit, what it takes would otherwise be
// most of what an answer leaves to the garbage collector.
type response struct {
	denial  wire.Denial // a decision that is no denial is in it, too
	seconds []int64     // what the waits of the decision point to
	windows []window    // of its limits: the next one mostly has the same
	inexact bool        // what Exact points to: false
}

var responses = sync.Pool{New: func() any { return new(response) }}

func newResponse() *response { return responses.Get().(*response) }

// free gives the response to the next one. What it returned is not used from then on.
func (b *response) free() { responses.Put(b) }

// denialOf returns the problem document of a denied hit, until the next call.
func (b *response) denialOf(event string, d limiter.Decision, status int) *wire.Denial {
	b.decisionOf(event, d)
	b.denial.Type = wire.TypeQuotaExceeded
	b.denial.Title = quotaExceeded
	b.denial.Status = status
	violators := b.denial.ViolatedPolicies[:0]
	for i := range d.Limits {
		if service.Denies(&d.Limits[i]) {
			violators = append(violators, d.Limits[i].Name)
		}
	}
	b.denial.ViolatedPolicies = violators
	b.denial.Detail = "Denied by " + strings.Join(violators, ", ") + ": " + fits(d.RetryAfter)
	return &b.denial
}

// fits says when a hit fits that has to wait.
func fits(w engine.Wait) string {
	n, unit := w.Seconds(), "second"
	switch {
	case w == engine.Never:
		return "it will never fit."
	case belowSecond(w) > 0:
		n, unit = belowSecond(w), "millisecond"
	}
	if n != 1 {
		unit += "s"
	}
	return "it fits in " + strconv.FormatInt(n, 10) + " " + unit + ", if nothing else comes."
}

// belowSecond returns a wait in milliseconds, rounded up, if that is less than a second; else 0.
func belowSecond(w engine.Wait) int64 {
	ms := w.Milliseconds()
	if w <= 0 || ms >= 1000 {
		return 0
	}
	return ms
}

// retryAfterMS returns the wait of a decision in milliseconds if that is less than a second, or a queue is
// full; else 0.
func retryAfterMS(d limiter.Decision) int64 {
	queues := func(s limiter.LimitState) bool { return s.Algorithm == events.LeakyBucket && service.Denies(&s) }
	if d.RetryAfter != engine.Never && slices.ContainsFunc(d.Limits, queues) {
		return d.RetryAfter.Milliseconds()
	}
	return belowSecond(d.RetryAfter)
}

// decisionOf returns the decision as the contract has it, until the next call.
func (b *response) decisionOf(event string, d limiter.Decision) *wire.Decision {
	b.seconds = b.seconds[:0]
	out := &b.denial.Decision
	*out = wire.Decision{
		Allowed:    d.Allowed,
		Event:      event,
		At:         wire.Moment{Time: d.At},
		RetryAfter: b.secondsOf(d.RetryAfter), RetryAfterMS: retryAfterMS(d), Wait: float64(d.Wait.Milliseconds()) / 1000,
		Limits: slices.Grow(out.Limits[:0], len(d.Limits))[:len(d.Limits)],
	}
	for i := range d.Limits {
		s := &d.Limits[i]
		limit := &out.Limits[i]
		*limit = wire.LimitState{
			Name:       s.Name,
			Limit:      s.N,
			Window:     cmp.Or(s.WindowName, b.windowOf(i, s.Window)),
			Algorithm:  s.Algorithm,
			Count:      s.Count,
			Remaining:  s.Remaining,
			Reset:      b.secondsOf(s.Reset),
			Allowed:    s.Allowed,
			Shadow:     s.Shadow,
			Over:       s.Over,
			Incomplete: s.Incomplete,
			Unreserved: s.Unreserved,
		}
		// Most limits are on the feature of the one before.
		if i > 0 && s.Feature == d.Limits[i-1].Feature {
			limit.Feature = out.Limits[i-1].Feature
		} else {
			limit.Feature = s.Feature.String()
		}
		if !s.Exact {
			limit.Exact = &b.inexact
		}
		if s.Failed {
			limit.OnError = s.OnError.String()
		}
	}
	return out
}

// window is one of a limit, and how it is written.
type window struct {
	length time.Duration
	text   string
}

// windowOf returns how the window of the i-th limit is written.
func (b *response) windowOf(i int, length time.Duration) string {
	if i == len(b.windows) {
		b.windows = append(b.windows, window{})
	}
	if known := &b.windows[i]; known.length != length || known.text == "" {
		*known = window{length, events.FormatDuration(length)}
	}
	return b.windows[i].text
}

// secondsOf returns nil for Never.
func (b *response) secondsOf(w engine.Wait) *int64 {
	if w == engine.Never {
		return nil
	}
	b.seconds = append(b.seconds, w.Seconds())
	return &b.seconds[len(b.seconds)-1]
}

// resultsOf returns the results of several hits, each until the next.
func (b *response) resultsOf(s *service.Service, hits []limiter.Hit, results []limiter.Result) wire.ResultSeq {
	return func(yield func(wire.Result) bool) {
		for i := range results {
			if !yield(b.resultOf(s, i, hits[i].Event, &results[i])) {
				return
			}
		}
	}
}

// resultOf returns the result of the i-th hit, until the next call.
func (b *response) resultOf(s *service.Service, i int, event *events.Event, result *limiter.Result) wire.Result {
	if result.Err != nil {
		return faultyResult(i, result.Err)
	}
	decision := b.decisionOf(event.Name, result.Decision)
	decision.Reservation = s.ReservationOf(&result.Decision)
	return wire.Result{Status: outcomeStatuses[service.OutcomeOf(&result.Decision)], Decision: decision}
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
