package httpdecision

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

// quotaExceeded is the title of a denial, that of its type.
const quotaExceeded = "Request cannot be satisfied as assigned quota has been exceeded"

// AnswerDecision writes a decision: a denial with denyStatus, as a problem document, and that of a
// store which does not answer as one of its own. A denyStatus of 200 is an answer like any other.
func (p *Responder) AnswerDecision(w http.ResponseWriter, r *http.Request, event service.Event, d events.Decision, denyStatus int) {
	Response := NewResponse()
	defer Response.Free()
	switch outcome := service.OutcomeOf(&d); {
	case outcome == service.Unavailable:
		p.answerUnavailable(w, r, event, Response.DecisionOf(event.Name, d))
	case outcome == service.Denied && denyStatus != http.StatusOK:
		p.Answer(w, denyStatus, wire.TypeProblem, Response.denialOf(event.Name, d, denyStatus))
	default:
		p.Answer(w, http.StatusOK, wire.TypeJSON, Response.DecisionOf(event.Name, d))
	}
}

// answerUnavailable writes the decision of a store that does not answer.
func (p *Responder) answerUnavailable(w http.ResponseWriter, r *http.Request, event service.Event, decision *wire.Decision) {
	RequestID(w, r)
	p.Lines.Do("outage", func(suppressed int64) {
		p.LogOf(w, r).Warn("hits are refused: the store does not answer, or not in time", "event", event.Name, "suppressed", suppressed)
	})
	problem := ProblemOf(engine.ErrStore, r.Method)
	p.Answer(w, problem.Status, wire.TypeProblem, &wire.Denial{Problem: problem, Decision: *decision})
}

// outcomeStatuses are what a hit alone is answered with.
var outcomeStatuses = [...]int{
	service.Allowed: http.StatusOK, service.Denied: http.StatusTooManyRequests, service.Unavailable: http.StatusServiceUnavailable,
}

// Response is where a decision is put as the contract has it, until it is written.
// The next one is put there again: on every hit, what it takes would otherwise be
// most of what an answer leaves to the garbage collector.
type Response struct {
	denial  wire.Denial // a decision that is no denial is in it, too
	seconds []int64     // what the waits of the decision point to
	windows []window    // of its limits: the next one mostly has the same
	inexact bool        // what Exact points to: false
}

var responses = sync.Pool{New: func() any { return new(Response) }}

func NewResponse() *Response { return responses.Get().(*Response) }

// Free gives the response to the next one. What it returned is not used from then on.
func (b *Response) Free() { responses.Put(b) }

// denialOf returns the problem document of a denied hit, until the next call.
func (b *Response) denialOf(event string, d events.Decision, status int) *wire.Denial {
	b.DecisionOf(event, d)
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
	if d.MayFitAfter > 0 {
		b.denial.Detail += " It may fit in " + count(engine.CeilSeconds(d.MayFitAfter), "second") + ", as reservations or leases are given back."
	}
	return &b.denial
}

// fits says when a hit fits that has to wait.
func fits(w time.Duration) string {
	n, unit := engine.CeilSeconds(w), "second"
	switch {
	case w == events.Never:
		return "it will never fit."
	case belowSecond(w) > 0:
		n, unit = belowSecond(w), "millisecond"
	}
	return "it fits in " + count(n, unit) + ", if nothing else comes."
}

// count returns the number with its unit.
func count(n int64, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return strconv.FormatInt(n, 10) + " " + unit
}

// belowSecond returns a wait in milliseconds, rounded up, if that is less than a second; else 0.
func belowSecond(w time.Duration) int64 {
	if w > 999*time.Millisecond {
		return 0
	}
	return ceilMilliseconds(w)
}

// ceilMilliseconds returns the wait, which is not events.Never, in whole milliseconds, rounded up.
func ceilMilliseconds(w time.Duration) int64 { return (w + time.Millisecond - 1).Milliseconds() }

// retryAfterMS returns the wait of a decision in milliseconds if that is less than a second, or a queue is
// full; else 0.
func retryAfterMS(d events.Decision) int64 {
	queues := func(s events.LimitState) bool { return s.Algorithm == events.LeakyBucket && service.Denies(&s) }
	if d.RetryAfter != events.Never && slices.ContainsFunc(d.Limits, queues) {
		return ceilMilliseconds(d.RetryAfter)
	}
	return belowSecond(d.RetryAfter)
}

// DecisionOf returns the decision as the contract has it, until the next call.
func (b *Response) DecisionOf(event string, d events.Decision) *wire.Decision {
	b.seconds = b.seconds[:0]
	out := &b.denial.Decision
	*out = wire.Decision{
		Allowed:    d.Allowed,
		Event:      event,
		At:         wire.Moment{Time: d.At},
		RetryAfter: b.secondsOf(d.RetryAfter), RetryAfterMS: retryAfterMS(d), Wait: float64(d.Wait.Milliseconds()) / 1000,
		MayFitAfter: engine.CeilSeconds(d.MayFitAfter),
		Reservation: d.Reservation,
		Limits:      slices.Grow(out.Limits[:0], len(d.Limits))[:len(d.Limits)],
	}
	for i := range d.Limits {
		s := &d.Limits[i]
		limit := &out.Limits[i]
		*limit = wire.LimitState{
			Name:       s.Name,
			Limit:      s.Limit,
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
func (b *Response) windowOf(i int, length time.Duration) string {
	if i == len(b.windows) {
		b.windows = append(b.windows, window{})
	}
	if known := &b.windows[i]; known.length != length || known.text == "" {
		*known = window{length, events.FormatDuration(length)}
	}
	return b.windows[i].text
}

// secondsOf returns nil for Never.
func (b *Response) secondsOf(w time.Duration) *int64 {
	if w == events.Never {
		return nil
	}
	b.seconds = append(b.seconds, engine.CeilSeconds(w))
	return &b.seconds[len(b.seconds)-1]
}

// ResultsOf returns the results of several hits, each until the next.
func (b *Response) ResultsOf(s *service.Service, hits []limiter.Hit, results []limiter.Result) wire.ResultSeq {
	return func(yield func(wire.Result) bool) {
		for i := range results {
			if !yield(b.resultOf(s, i, hits[i].Event, &results[i])) {
				return
			}
		}
	}
}

// resultOf returns the result of the i-th hit, until the next call.
func (b *Response) resultOf(s *service.Service, i int, event *events.Event, result *limiter.Result) wire.Result {
	if result.Err != nil {
		return faultyResult(i, result.Err)
	}
	decision := b.DecisionOf(event.Name, result.Decision)
	decision.Reservation = s.ReservationOf(result.Reserved)
	return wire.Result{Status: outcomeStatuses[service.OutcomeOf(&result.Decision)], Decision: decision}
}

// faultyResult is the result of the i-th hit of a batch, which is at fault.
func faultyResult(i int, err error) wire.Result {
	problem := ProblemOf(err, http.MethodPost)
	for n := range problem.Errors {
		problem.Errors[n].Pointer = fmt.Sprintf("/hits/%d%s", i, problem.Errors[n].Pointer)
	}
	if len(problem.Errors) > 0 {
		problem.Detail = detailOf(problem.Errors)
	}
	return wire.Result{Status: problem.Status, Problem: &problem}
}
