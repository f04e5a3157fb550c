package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
		h.answerDecided(w, event, d)
	case d.Unavailable:
		h.answerUnavailable(w, r, event, d)
	default:
		draft := newDraft()
		defer draft.free()
		h.answer(w, denyStatus, wire.TypeProblem, draft.denialOf(event, d, denyStatus))
	}
}

// answerDecided writes a decision for what it is: an answer, be it yes or no.
func (h *handler) answerDecided(w http.ResponseWriter, event *events.Event, d hierarchy.Decision) {
	draft := newDraft()
	defer draft.free()
	h.answer(w, http.StatusOK, wire.TypeJSON, draft.decisionOf(event, d))
}

// answerUnavailable writes the answer to a hit that is refused because the store
// could not be asked.
func (h *handler) answerUnavailable(w http.ResponseWriter, r *http.Request, event *events.Event, d hierarchy.Decision) {
	problem := problemOf(hierarchy.ErrStore, r.Method)
	requestID(w, r)
	refusing := false
	h.outage.Do(func() { refusing = true })
	if refusing {
		h.logOf(w, r).Warn("hits are refused: the store does not answer, or not in time", "event", event.Name)
	}
	draft := newDraft()
	defer draft.free()
	h.answer(w, problem.Status, wire.TypeProblem, &wire.Denial{Problem: problem, Decision: *draft.decisionOf(event, d)})
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

// draft is where a decision is put as the contract has it, until it is written.
// The next one is put there again: on every hit, what it takes would otherwise be
// most of what an answer leaves to the garbage collector.
type draft struct {
	denial  wire.Denial // a decision that is no denial stands in it, too
	seconds []int64     // what the waits of the decision point to
	windows []window    // of its limits: the next one mostly has the same
	inexact bool        // what Exact points to: false
}

var drafts = sync.Pool{New: func() any { return new(draft) }}

func newDraft() *draft { return drafts.Get().(*draft) }

// free gives the draft to the next one. What it returned is not used from then on.
func (f *draft) free() { drafts.Put(f) }

// denialOf returns the problem document of a denied hit, until the next call.
func (f *draft) denialOf(event *events.Event, d hierarchy.Decision, status int) *wire.Denial {
	f.decisionOf(event, d)
	f.denial.Type = wire.TypeQuotaExceeded
	f.denial.Title = quotaExceeded
	f.denial.Status = status
	violators := f.denial.ViolatedPolicies[:0]
	for i := range d.Limits {
		if violated(&d.Limits[i]) {
			violators = append(violators, d.Limits[i].Name)
		}
	}
	f.denial.ViolatedPolicies = violators
	wait := "it will never fit."
	switch d.RetryAfter {
	case hierarchy.Never:
	case 1:
		wait = "it fits in 1 second, if nothing else comes."
	default:
		wait = "it fits in " + strconv.FormatInt(int64(d.RetryAfter), 10) + " seconds, if nothing else comes."
	}
	f.denial.Detail = "Denied by " + strings.Join(violators, ", ") + ": " + wait
	return &f.denial
}

// decisionOf returns the decision as the contract has it, until the next call.
func (f *draft) decisionOf(event *events.Event, d hierarchy.Decision) *wire.Decision {
	f.seconds = f.seconds[:0]
	out := &f.denial.Decision
	*out = wire.Decision{
		Allowed:    d.Allowed,
		Event:      event.Name,
		At:         wire.Moment{Time: d.At},
		RetryAfter: f.secondsOf(d.RetryAfter),
		Limits:     slices.Grow(out.Limits[:0], len(d.Limits))[:len(d.Limits)],
	}
	for i := range d.Limits {
		s := &d.Limits[i]
		limit := &out.Limits[i]
		*limit = wire.LimitState{
			Name:       s.Name,
			Limit:      s.N,
			Window:     f.windowOf(i, s.Window),
			Count:      s.Count,
			Remaining:  remaining(s),
			Reset:      f.secondsOf(s.Reset),
			Allowed:    s.Allowed,
			Shadow:     s.Shadow,
			Over:       s.Over,
			Incomplete: s.Incomplete,
		}
		// Most limits are on the feature of the one before.
		if i > 0 && s.Feature == d.Limits[i-1].Feature {
			limit.Feature = out.Limits[i-1].Feature
		} else {
			limit.Feature = s.Feature.String()
		}
		if !s.Exact {
			limit.Exact = &f.inexact
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
func (f *draft) windowOf(i int, length time.Duration) string {
	if i == len(f.windows) {
		f.windows = append(f.windows, window{})
	}
	if known := &f.windows[i]; known.length != length || known.text == "" {
		*known = window{length, events.FormatDuration(length)}
	}
	return f.windows[i].text
}

// secondsOf returns nil for Never.
func (f *draft) secondsOf(w hierarchy.Wait) *int64 {
	if w == hierarchy.Never {
		return nil
	}
	f.seconds = append(f.seconds, int64(w))
	return &f.seconds[len(f.seconds)-1]
}

// unasked reports whether nothing is known of what the limit's window holds. Where
// it is known, but not exactly, it is not 0.
func unasked(s *hierarchy.LimitState) bool { return !s.Exact && s.Count == 0 }

// unknown reports whether nobody could say how the limit stands: the store could
// not be asked, nor this process's own counters in its place.
func unknown(s *hierarchy.LimitState) bool { return s.Failed && unasked(s) }

// remaining returns what the limit has left. Of what nobody has asked for, be it
// for a deny list, nothing is promised.
func remaining(s *hierarchy.LimitState) int64 {
	if unasked(s) {
		return 0
	}
	return s.Remaining
}

// violated reports whether the limit denies the hit: what never fits is denied even
// where the store cannot be asked.
func violated(s *hierarchy.LimitState) bool {
	return !s.Allowed && !s.Shadow && (!unknown(s) || s.Reset == hierarchy.Never)
}
