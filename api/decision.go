package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

// quotaExceeded is the title of a denial, that of its type.
const quotaExceeded = "Request cannot be satisfied as assigned quota has been exceeded"

// answerDecision writes the answer to a hit: its decision, where it is denied as
// a problem document with denyStatus, and the headers that the rules send.
func (h *handler) answerDecision(w http.ResponseWriter, r *http.Request, rules *events.Rules, event *events.Event, d hierarchy.Decision, denyStatus int) {
	setRateLimitHeaders(w.Header(), rules, event, d)
	switch {
	case d.Allowed:
		h.answer(w, http.StatusOK, wire.TypeJSON, decisionOf(event, d))
	case d.Unavailable:
		h.answerUnavailable(w, r, event, d)
	default:
		body := denial(event, d)
		body.Status = denyStatus
		h.answer(w, denyStatus, wire.TypeProblem, body)
	}
}

// answerUnavailable writes the answer to a hit that is refused because the store
// could not be asked.
func (h *handler) answerUnavailable(w http.ResponseWriter, r *http.Request, event *events.Event, d hierarchy.Decision) {
	problem := problemOf(hierarchy.ErrStore, r.Method)
	refusing := false
	h.outage.Do(func() { refusing = true })
	if refusing {
		h.Log.Warn("hits are refused: the store does not answer, or not in time", "event", event.Name)
	}
	h.answer(w, problem.Status, wire.TypeProblem, wire.Denial{Problem: problem, Decision: decisionOf(event, d)})
}

// statusOf returns the status that a hit with that decision is answered with.
func statusOf(d hierarchy.Decision) int {
	switch {
	case d.Allowed:
		return http.StatusOK
	case d.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// denial returns the problem document of a denied hit.
func denial(event *events.Event, d hierarchy.Decision) wire.Denial {
	body := wire.Denial{
		Problem: wire.Problem{
			Type:   wire.TypeQuotaExceeded,
			Title:  quotaExceeded,
			Status: statusOf(d),
		},
		Decision: decisionOf(event, d),
	}
	for _, s := range d.Limits {
		if violated(s) {
			body.ViolatedPolicies = append(body.ViolatedPolicies, s.Name)
		}
	}
	body.Detail = fmt.Sprintf("Denied by %s: ", strings.Join(body.ViolatedPolicies, ", "))
	switch d.RetryAfter {
	case hierarchy.Never:
		body.Detail += "it will never fit."
	case 1:
		body.Detail += "it fits in 1 second, if nothing else comes."
	default:
		body.Detail += fmt.Sprintf("it fits in %d seconds, if nothing else comes.", d.RetryAfter)
	}
	return body
}

// decisionOf returns the decision as the contract has it.
func decisionOf(event *events.Event, d hierarchy.Decision) wire.Decision {
	out := wire.Decision{
		Allowed:    d.Allowed,
		Event:      event.Name,
		At:         wire.Moment{Time: d.At},
		RetryAfter: secondsOf(d.RetryAfter),
		Limits:     make([]wire.LimitState, len(d.Limits)),
	}
	for i, s := range d.Limits {
		out.Limits[i] = limitStateOf(s)
	}
	return out
}

func limitStateOf(s hierarchy.LimitState) wire.LimitState {
	out := wire.LimitState{
		Name:       s.Name,
		Feature:    s.Feature.String(),
		Limit:      s.N,
		Window:     events.FormatDuration(s.Window),
		Count:      s.Count,
		Remaining:  remaining(s),
		Reset:      secondsOf(s.Reset),
		Allowed:    s.Allowed,
		Shadow:     s.Shadow,
		Over:       s.Over,
		Incomplete: s.Incomplete,
	}
	if !s.Exact {
		out.Exact = new(bool)
	}
	if s.Failed {
		out.OnError = s.OnError.String()
	}
	return out
}

// secondsOf returns nil for Never.
func secondsOf(w hierarchy.Wait) *int64 {
	if w == hierarchy.Never {
		return nil
	}
	seconds := int64(w)
	return &seconds
}

// unasked reports whether nothing is known of what the limit's window holds. Where
// it is known, but not exactly, it is not 0.
func unasked(s hierarchy.LimitState) bool { return !s.Exact && s.Count == 0 }

// unknown reports whether nobody could say how the limit stands: the store could
// not be asked, nor this process's own counters in its place.
func unknown(s hierarchy.LimitState) bool { return s.Failed && unasked(s) }

// remaining returns what the limit has left. Of what nobody has asked for, be it
// for a deny list, nothing is promised.
func remaining(s hierarchy.LimitState) int64 {
	if unasked(s) {
		return 0
	}
	return s.Remaining
}

// violated reports whether the limit denies the hit: what never fits is denied even
// where the store cannot be asked.
func violated(s hierarchy.LimitState) bool {
	return !s.Allowed && !s.Shadow && (!unknown(s) || s.Reset == hierarchy.Never)
}
