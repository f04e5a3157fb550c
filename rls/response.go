package rls

import (
	"math"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/rls/rlsconfig"
	"github.com/counterd/counterd/service"
)

// response returns the answer to a decided query.
func (q *query) response() *rlsv3.RateLimitResponse {
	response := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK, Statuses: make([]*descriptorStatus, len(q.descriptors))}
	for i := range q.descriptors {
		response.Statuses[i] = q.statusOf(&q.descriptors[i])
	}
	if !q.decision.Allowed {
		response.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
		response.DynamicMetadata = q.metadata()
	}
	return response
}

// statusOf returns the status of a descriptor, by the limit that says most: one that denies it, for the
// longest, or the one of which the least remains.
func (q *query) statusOf(of *descriptor) *descriptorStatus {
	answer := &descriptorStatus{Code: rlsv3.RateLimitResponse_OK}
	if of.unlimited {
		answer.LimitRemaining = math.MaxUint32
	}
	var said *limiter.LimitState
	for _, n := range of.parts {
		for i := range q.parts[n].states {
			if state := &q.parts[n].states[i]; said == nil || saysMore(state, said) {
				said = state
			}
		}
	}
	switch {
	case said == nil:
		return answer
	case service.Unanswered(said): // how much remains is not known
		if !said.Allowed && !said.Shadow {
			answer.Code = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		return answer
	}
	if answer.CurrentLimit = of.current; answer.CurrentLimit == nil {
		unit, multiplier := unitOf(said.Window)
		answer.CurrentLimit = currentOf(said.Name, uint32(min(said.N, math.MaxUint32)), unit, multiplier)
	}
	if !of.refund && isOver(said) {
		answer.Code = rlsv3.RateLimitResponse_OVER_LIMIT
	} else {
		answer.LimitRemaining = uint32(min(said.Remaining, math.MaxUint32))
	}
	if said.Reset != engine.Never {
		answer.DurationUntilReset = durationpb.New(time.Duration(said.Reset.Seconds()) * time.Second)
	}
	return answer
}

// isOver reports whether the limit has no room for the descriptor. A quota may be over, and the request
// admitted by another one.
func isOver(state *limiter.LimitState) bool { return !state.Allowed && !state.Shadow || state.Over }

// saysMore reports whether a limit says more of a descriptor than another one.
func saysMore(state, than *limiter.LimitState) bool {
	switch over := isOver(state); {
	case over != isOver(than):
		return over
	case over:
		return than.Reset != engine.Never && (state.Reset == engine.Never || state.Reset > than.Reset)
	}
	return state.Remaining < than.Remaining
}

// metadata names the limits that deny, for the filters that follow and the access log.
func (q *query) metadata() *structpb.Struct {
	var names []*structpb.Value
	for n := range q.parts {
		for i := range q.parts[n].states {
			if state := &q.parts[n].states[i]; service.Denies(state) {
				names = append(names, structpb.NewStringValue(state.Name))
			}
		}
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		"domain": structpb.NewStringValue(q.event.Name),
		"limits": structpb.NewListValue(&structpb.ListValue{Values: names}),
	}}
}

// currentOf returns a limit as answers have it.
func currentOf(name string, n uint32, of unit, multiplier uint32) *limit {
	l := &limit{Name: name, RequestsPerUnit: n, Unit: of}
	if multiplier > 1 {
		l.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
	return l
}

// unitOf returns the longest unit of which the window is a multiple.
func unitOf(window time.Duration) (unit, uint32) {
	of := rlsconfig.Day
	for window%of.Length() != 0 {
		of--
	}
	return unit(of), uint32(window / of.Length())
}
