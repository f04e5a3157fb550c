package api

import (
	"github.com/counterd/counterd/internal/httpdecision"

	"fmt"
	"net/http"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
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
	hit := limiter.Hit{Event: event.Event, Features: in.Features, Reserved: reserve}
	if err := x.HoldAnswer(resultBytes(&hit)); err != nil {
		return err
	}
	d, err := e.service.Reserve(x.request.Context(), event, in.Features, costOf(in.Cost), reserve)
	if err != nil {
		return err
	}
	x.verdict = service.OutcomeOf(&d).String()
	httpdecision.SetHeaders(x.Header(), event.Rules, &d)
	e.AnswerDecision(x, x.request, event, d, http.StatusTooManyRequests)
	return nil
}

// check says what a hit would be answered, and adds nothing. A no is an answer,
// not a denial.
func (e *endpoints) check(x *exchange, event service.Event) error {
	features, cost, err := checkQuery(x.request, event.Name)
	if err != nil {
		return err
	}
	d, err := e.service.Check(x.request.Context(), event, features, cost)
	if err != nil {
		return err
	}
	x.verdict = service.OutcomeOf(&d).String()
	e.AnswerDecision(x, x.request, event, d, http.StatusOK)
	return nil
}

// batch decides several hits. What is wrong with the body fails it whole; what is
// wrong with a hit that can be read is that hit's result.
func (e *endpoints) batch(x *exchange) error {
	in, err := batchOf(x.request)
	if err != nil {
		return err
	}
	rules, hits, faults := e.service.Rules(), make([]limiter.Hit, len(in)), map[int]error{}
	bytes := int64(0)
	for i, hit := range in {
		hits[i] = limiter.Hit{Event: rules.Events[hit.Event], Features: hit.Features, Cost: costOf(hit.Cost)}
		if events.IsDomain(hit.Event) { // whose hits are descriptors
			hits[i].Event = nil
		}
		var err error
		if hits[i].Reserved, err = durationOf(hit.Reserve, "/reserve"); err == nil {
			err = e.service.CheckReserve(hits[i].Reserved)
		}
		if err != nil && hits[i].Event != nil { // an unknown event is the first fault of a hit alone, too
			hits[i].Event = nil // it is not to be counted
			faults[i] = err
		}
		bytes += resultBytes(&hits[i])
	}
	if err := x.HoldAnswer(bytes); err != nil {
		return err
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
	response := httpdecision.NewResponse()
	defer response.Free()
	e.Answer(x, http.StatusOK, wire.TypeJSON, response.ResultsOf(e.service, hits, results))
	return nil
}

// resultBytes returns about how many bytes the result of a hit takes in an answer, rather too many.
func resultBytes(hit *limiter.Hit) int64 {
	if hit.Event == nil {
		return 256
	}
	bytes := 256 + len(hit.Event.Name) + 64*len(hit.Features) // a kind may be faulty
	for i := range hit.Event.Rules {
		rule := &hit.Event.Rules[i]
		if !rule.Applies(hit.Features) {
			continue
		}
		feature := 0
		for _, kind := range rule.Per {
			feature += len(kind) + len("+:") + escapedBytes(hit.Features[kind])
		}
		for _, limit := range rule.Limits {
			bytes += 256 + 2*len(limit.Name) + feature
		}
		if hit.Reserved > 0 || rule.Leases() {
			bytes += 2 * (64 + feature)
		}
	}
	return int64(bytes)
}

// escapedBytes returns how many bytes a string takes in JSON.
func escapedBytes(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			n++
		case c < ' ':
			n += len(`\u0000`) - 1
		}
	}
	return n
}

// errNoEvent is the error of a hit of a batch that names no event.
var errNoEvent = httpdecision.RequestError{{Detail: "the event is missing", Pointer: "/event"}}

// batchOf returns the hits of a request's body.
func batchOf(r *http.Request) ([]wire.BatchHit, error) {
	var in wire.Batch
	if err := decodeBody(r, &in); err != nil {
		return nil, err
	}
	if len(in.Hits) == 0 {
		return nil, httpdecision.RequestError{{
			Detail:  fmt.Sprintf("a batch is of 1 to %d hits, not of 0", wire.MaxHits),
			Pointer: "/hits",
		}}
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
		return httpdecision.RequestError{{Detail: "one of cost and renew is wanted", Pointer: "/cost"}}
	}
	if in.Cost != nil {
		if err := e.service.Settle(x.request.Context(), in.Reservation, *in.Cost); err != nil {
			return err
		}
		e.Reply(x, wire.Settled{Settled: true, Cost: in.Cost})
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
	e.Reply(x, wire.Settled{Reservation: renewed})
	return nil
}

// durationOf reads a duration of the body; nil: none is given.
func durationOf(given *string, pointer string) (time.Duration, error) {
	if given == nil {
		return 0, nil
	}
	d, err := events.ParseDuration(*given)
	if err != nil {
		return 0, httpdecision.RequestError{{Detail: "a duration is wanted, as in 30s or 15m, of whole seconds", Pointer: pointer}}
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
