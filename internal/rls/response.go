package rls

import (
	"maps"
	"math"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/service"
)

// response returns the answer to a decided query, with the headers that the rules choose.
func (q *query) response(rules *events.Rules) *rlsv3.RateLimitResponse {
	response := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK, Statuses: make([]*descriptorStatus, len(q.descriptors))}
	for i := range q.descriptors {
		response.Statuses[i] = q.statusOf(&q.descriptors[i])
	}
	if !q.decision.Allowed {
		response.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	response.DynamicMetadata = q.metadata()
	var space [6]httpdecision.Field // all there are
	decided := q.decision
	decided.Limits = q.limits()
	for _, field := range httpdecision.Append(space[:0], rules, &decided) {
		response.ResponseHeadersToAdd = append(response.ResponseHeadersToAdd, &corev3.HeaderValue{Key: field.Name, Value: field.Value})
	}
	if wait := httpdecision.WaitOf(&q.decision); wait != "" {
		response.RequestHeadersToAdd = []*corev3.HeaderValue{{Key: httpdecision.Wait, Value: wait}}
	}
	return response
}

// limits returns the limits of all descriptors, also if they only look or give back.
func (q *query) limits() []events.LimitState {
	n := 0
	for i := range q.parts {
		n += len(q.parts[i].states)
	}
	if n == len(q.decision.Limits) {
		return q.decision.Limits
	}
	all := make([]events.LimitState, 0, n)
	for i := range q.parts {
		all = append(all, q.parts[i].states...)
	}
	return all
}

// statusOf returns the status of a descriptor, by the limit that says most: one that denies it, for the
// longest, or the one of which the least remains.
func (q *query) statusOf(of *descriptor) *descriptorStatus {
	answer := &of.status
	answer.Code = rlsv3.RateLimitResponse_OK
	if of.unlimited {
		answer.LimitRemaining = math.MaxUint32
	}
	if of.vetoes {
		answer.Code = rlsv3.RateLimitResponse_OVER_LIMIT
		return answer
	}
	var said *events.LimitState
	var over bool // said is
	for _, n := range of.parts {
		p := &q.parts[n]
		for i := range p.states {
			state := &p.states[i]
			if isOver := p.isOver(state); said == nil || isOver && !over || isOver == over && saysMore(state, said, over) {
				said, over = state, isOver
			}
		}
	}
	switch {
	case said == nil:
		return answer
	case service.Unanswered(said): // how much remains is not known
		if said.Vetoes() {
			answer.Code = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		return answer
	}
	if answer.CurrentLimit = of.current; answer.CurrentLimit == nil {
		unit, multiplier := unitOf(said.Window)
		answer.CurrentLimit = of.limitOf(said.Name, uint32(min(said.Limit, math.MaxUint32)), unit, multiplier)
	}
	if !of.refund && over {
		answer.Code = rlsv3.RateLimitResponse_OVER_LIMIT
	} else {
		answer.LimitRemaining = uint32(min(said.Remaining, math.MaxUint32))
	}
	if said.Reset > 0 && said.Reset != events.Never {
		of.reset.Seconds = engine.CeilSeconds(said.Reset)
		answer.DurationUntilReset = &of.reset
	}
	return answer
}

// isOver reports whether a limit has no room for the descriptor. A quota may be over, and the request admitted by
// another one.
func (p *part) isOver(state *events.LimitState) bool {
	return !state.Shadow && (!state.Allowed || state.Over && p.Rule.Throttle.Kind == events.Quota)
}

// saysMore reports whether a limit says more of a descriptor than another one; over: both are over.
func saysMore(state, than *events.LimitState, over bool) bool {
	if over {
		return state.Reset > than.Reset
	}
	return state.Remaining < than.Remaining
}

// metadata returns, for the filters that follow and the access log, the names of the limits that deny and of those
// that are incomplete, and what the configuration has as metadata of the limits; nil: there is nothing of it.
func (q *query) metadata() *structpb.Struct {
	var denying, incomplete []*structpb.Value
	for n := range q.parts {
		for i := range q.parts[n].states {
			state := &q.parts[n].states[i]
			if service.Denies(state) {
				denying = append(denying, structpb.NewStringValue(state.Name))
			}
			if state.Incomplete {
				incomplete = append(incomplete, structpb.NewStringValue(state.Name))
			}
		}
	}
	fields := make(map[string]*structpb.Value)
	if len(denying) > 0 {
		fields["limits"] = listOf(denying)
	}
	if len(incomplete) > 0 {
		fields["incomplete"] = listOf(incomplete)
	}
	if q.configured != nil {
		fields["metadata"] = structpb.NewStructValue(q.configured)
	}
	if len(fields) == 0 {
		return nil
	}
	fields["domain"] = structpb.NewStringValue(q.domain)
	return &structpb.Struct{Fields: fields}
}

func listOf(values []*structpb.Value) *structpb.Value {
	return structpb.NewListValue(&structpb.ListValue{Values: values})
}

// merge adds the metadata of a limit. Of fields with the same name the later one is kept.
func (q *query) merge(metadata *structpb.Struct) {
	if q.configured == nil {
		q.configured = &structpb.Struct{Fields: make(map[string]*structpb.Value)}
	}
	maps.Copy(q.configured.Fields, metadata.GetFields())
}

// limitOf returns a limit as answers have it.
func (d *descriptor) limitOf(name string, n uint32, of unit, multiplier uint32) *limit {
	l := &d.limit
	l.Name, l.RequestsPerUnit, l.Unit = name, n, of
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
