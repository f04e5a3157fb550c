package rls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/service"
)

type (
	limit            = rlsv3.RateLimitResponse_RateLimit
	unit             = rlsv3.RateLimitResponse_RateLimit_Unit
	descriptorStatus = rlsv3.RateLimitResponse_DescriptorStatus
)

// query is a request as it is decided.
type query struct {
	domain      string
	event       *events.Event // that names the hit; nil: no limit applies
	descriptors []descriptor
	parts       []part // what the descriptors count on, each once
	decision    events.Decision
	configured  *structpb.Struct // the metadata of limits in the configuration; nil: there is none
}

// descriptor is one of a request's.
type descriptor struct {
	cost      int64 // 0: it only looks
	refund    bool
	unlimited bool
	fault     error  // why limits of it cannot be decided, or nil
	vetoes    bool   // one of those denies by its on_error
	current   *limit // the limit as configured; nil: it is one of the rules
	parts     []int  // of the query; none: no limit applies

	// Memory, for the one part that most have, and of the answer.
	one    [1]int
	status descriptorStatus
	limit  limit
	reset  durationpb.Duration
}

// part is what a descriptor counts on, and what its limits said.
type part struct {
	limiter.Part
	shares bool  // a part before has the same counter, by another rule or another of its lists: it has the cost for both
	refund int64 // so much is given back
	states []events.LimitState
}

const tooManyDescriptors = "there are too many descriptors: a request has at most 1000"

// read finds what a request counts on.
func (s *Server) read(in *rlsv3.RateLimitRequest) (*query, error) {
	switch n := len(in.GetDescriptors()); {
	case in.GetDomain() == "":
		return nil, invalid("the domain is missing: it is a domain of the configuration, or an event of the rules")
	case n == 0:
		return nil, invalid("the descriptors are missing: a request has at least one")
	case n > limiter.MaxHits:
		return nil, invalid(tooManyDescriptors)
	}
	q := &query{domain: in.Domain, descriptors: make([]descriptor, len(in.Descriptors)), parts: make([]part, 0, len(in.Descriptors))}
	apply := func(int, *ratelimitv3.RateLimitDescriptor) {}
	config := s.config.Descriptors()
	if q.event = config.Event(in.Domain); q.event != nil {
		found := find(config, in)
		if event := s.config.Service.Rules().Events[q.event.Name]; event != nil {
			q.event = event // with temporary overrides
		}
		apply = func(i int, _ *ratelimitv3.RateLimitDescriptor) { q.byConfig(i, found[i], config) }
	} else if event, err := s.config.Service.Event(in.Domain); err == nil {
		q.event = event.Event
		apply = q.byRules
	}
	for i, d := range in.Descriptors {
		q.costs(i, in.HitsAddend, d)
		apply(i, d)
	}
	return q, nil
}

// costs reads how much a descriptor costs, or gives back: at most what Envoy sends.
func (q *query) costs(i int, ofAll uint32, d *ratelimitv3.RateLimitDescriptor) {
	cost := cmp.Or(uint64(ofAll), 1)
	if d.GetHitsAddend() != nil {
		cost = d.HitsAddend.Value
	}
	q.descriptors[i].cost, q.descriptors[i].refund = int64(min(cost, limiter.MaxPartCost)), d.GetIsNegativeHits() && cost > 0
}

// configured is what a configuration says of a descriptor.
type configured struct {
	limit   *rlsconfig.Limit // nil: there is none, or another one replaces it
	entries []rlsconfig.Entry
	fault   error // of the limit that the descriptor has for itself: the configured one holds then
}

// find returns what the configuration says of all descriptors.
func find(config *rlsconfig.Config, in *rlsv3.RateLimitRequest) []configured {
	all := make([]configured, len(in.Descriptors))
	ofAll := make([]rlsconfig.Entry, 0, len(in.Descriptors)) // most have one
	var replaced []string
	for i, d := range in.Descriptors {
		from := len(ofAll)
		for _, e := range d.GetEntries() {
			ofAll = append(ofAll, rlsconfig.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		entries := ofAll[from:len(ofAll):len(ofAll)]
		all[i].entries = entries
		limit, counted := config.Find(in.Domain, entries)
		if d.GetLimit() != nil {
			if all[i].limit, all[i].fault = override(d.Limit, limit); all[i].fault == nil {
				continue
			}
		}
		if limit != nil {
			all[i].limit, all[i].entries = limit, counted
			replaced = append(replaced, limit.Replaces...)
		}
	}
	for i := range all {
		if limit := all[i].limit; limit != nil && !limit.Unlimited && limit.Name != "" && slices.Contains(replaced, limit.Name) {
			all[i].limit = nil
		}
	}
	return all
}

// byConfig has a descriptor count by its own limit, or by that of the configuration.
func (q *query) byConfig(i int, c configured, config *rlsconfig.Config) {
	of := &q.descriptors[i]
	of.fault = c.fault
	if c.limit == nil {
		return
	}
	if c.limit.Metadata != nil {
		q.merge(c.limit.Metadata)
	}
	if of.unlimited = c.limit.Unlimited; of.unlimited {
		return
	}
	rule := c.limit.RuleIn(q.event, config)
	counter, id := c.limit.CounterOf(q.domain, rule.Limits[0].Window, c.entries)
	applied := events.Applied{Rule: rule, Counter: counter, ID: id}
	applied.Listing, applied.Overridden = rule.ExceptionOf(counter.Feature)
	n := uint32(min(rule.LimitsOf(counter.Feature)[0].N, math.MaxUint32)) // of a temporary override
	of.current = of.limitOf(c.limit.Name, n, unit(c.limit.Unit), c.limit.Multiplier)
	q.add(i, applied)
}

// override returns the limit that a descriptor has for itself, instead of the configured one, which may be nil.
func override(own *ratelimitv3.RateLimitDescriptor_RateLimitOverride, of *rlsconfig.Limit) (*rlsconfig.Limit, error) {
	l := &rlsconfig.Limit{
		N: own.GetRequestsPerUnit(), Unit: rlsconfig.Unit(own.GetUnit()), Multiplier: max(own.GetUnitMultiplier().GetValue(), 1),
	}
	switch {
	case own.GetUnit() < 1 || int32(own.GetUnit()) > int32(rlsconfig.Year):
		return nil, errUnit
	case int64(l.Multiplier) > l.Unit.MaxMultiplier():
		return nil, errWindow
	}
	l.Rule = &events.Rule{Limits: []events.Limit{{Name: "override", N: int64(l.N), Window: l.Window()}}}
	if of != nil {
		l.Rule.Count = of.Count
	}
	return l, nil
}

// byRules has a descriptor count by the rules of the event, its entries being features. What another
// descriptor counts already is not counted twice: the higher cost counts. What cannot be decided is decided by on_error.
func (q *query) byRules(i int, d *ratelimitv3.RateLimitDescriptor) {
	features := events.Features{}
	var fault error
	if d.GetLimit() != nil {
		fault = errOwnLimit
	}
	for _, e := range d.GetEntries() {
		kind := e.GetKey()
		if !slices.ContainsFunc(q.event.Rules, func(rule events.Rule) bool { return slices.Contains(rule.Per, kind) }) {
			continue
		}
		value := events.Countable(kind, e.GetValue())
		if before, twice := features[kind]; twice && before != value {
			fault = errTwice
		}
		features[kind] = value
	}
	applied, _ := q.event.Apply(nil, features) // its error is that none applies
	for _, a := range applied {
		switch {
		case fault != nil:
			q.fail(i, a, fault)
		case a.Rule.Leases():
			q.fail(i, a, errLeases)
		case q.descriptors[i].refund && slices.ContainsFunc(applied, func(a events.Applied) bool { return a.Rule.InLog() }):
			q.fail(i, a, errRefundsLog)
		case len(q.parts) == limiter.MaxHits:
			q.fail(i, a, errTooManyCounters)
		default:
			q.add(i, a)
		}
	}
}

// Faults of descriptors.
const (
	errUnit            = invalid("the unit of its limit must be SECOND, MINUTE, HOUR, DAY or MONTH: the configured limit applies")
	errWindow          = invalid("the window of its limit is longer than 30d: the configured limit applies")
	errOwnLimit        = invalid("it has a limit of its own, and the limits of an event are those of the rules: leave it out")
	errTwice           = invalid("it has an entry's key twice, with different values, and an event has each feature once")
	errLeases          = invalid("its event has limits with concurrent, and a proxy cannot release leases")
	errRefundsLog      = invalid("is_negative_hits: its event has limits in a log, which gives nothing back")
	errTooManyCounters = invalid("with it the request counts on more than 1000 counters: ask in several requests")
)

// firstFault returns which descriptor is the first with a fault, or -1.
func (q *query) firstFault() int {
	for i := range q.descriptors {
		if q.descriptors[i].fault != nil {
			return i
		}
	}
	return -1
}

// fail has on_error decide a limit of a descriptor that cannot be decided.
func (q *query) fail(i int, a events.Applied, fault error) {
	of := &q.descriptors[i]
	of.fault = fault
	if a.Rule.OnError != events.OnErrorAllow && a.Listing != events.Allowed && !a.Rule.Shadow && !of.refund {
		of.vetoes = true
	}
}

// add has a descriptor count on a counter, by a rule.
func (q *query) add(i int, a events.Applied) {
	of := &q.descriptors[i]
	p := part{Part: limiter.Part{Applied: a, Cost: max(of.cost, 1), Looks: of.cost == 0 || of.refund}}
	if of.refund {
		p.Cost, p.refund, p.Listing = 1, of.cost, events.Allowed // it denies nothing
	}
	at, holder, others := -1, -1, q.parts
	if of.current != nil { // a configuration's count each for itself
		others = nil
	}
	for n := range others {
		other := &others[n]
		if other.ID != a.ID || (other.refund > 0) != of.refund {
			continue
		}
		if holder < 0 && other.Rule.InLog() == a.Rule.InLog() {
			holder = n
		}
		if other.Rule == p.Rule && other.Listing == p.Listing {
			at = n
			break
		}
	}
	if holder >= 0 {
		of := &q.parts[holder]
		of.Cost, of.refund, of.Looks = max(of.Cost, p.Cost), max(of.refund, p.refund), of.Looks && p.Looks
		p.Cost, p.shares = 0, true
	}
	switch {
	case at < 0:
		at, q.parts = len(q.parts), append(q.parts, p)
	case at != holder:
		q.parts[at].Looks = q.parts[at].Looks && p.Looks
	}
	if of.parts == nil {
		of.parts = of.one[:0]
	}
	of.parts = append(of.parts, at)
}

// decide decides the query: all of its parts at once, and then it gives back, if nothing denies and the store has
// answered.
func (q *query) decide(ctx context.Context, s *service.Service) error {
	q.decision.Allowed = true
	vetoed := false
	for i := range q.descriptors {
		vetoed = vetoed || q.descriptors[i].vetoes
	}
	for n := range q.parts {
		if p := &q.parts[n]; vetoed && p.Rule.Count != events.CountAll {
			p.Looks = true
		}
	}
	if err := q.ask(ctx, s, func(p *part) bool { return p.refund == 0 }); err != nil {
		return err
	}
	if vetoed && q.decision.Allowed {
		q.decision.Allowed, q.decision.Unavailable = false, true
	}
	if !slices.ContainsFunc(q.parts, func(p part) bool { return p.refund > 0 }) {
		return nil
	}
	if q.failed() {
		return errRefund
	}
	decided := q.decision
	defer func() { q.decision = decided }()
	var fault error
	for n := range q.parts {
		if p := &q.parts[n]; p.refund > 0 && !p.shares && decided.Allowed && fault == nil {
			_, fault = s.Refund(ctx, p.Counter, p.refund)
		}
	}
	if fault == nil {
		fault = q.ask(ctx, s, func(p *part) bool { return p.refund > 0 })
	}
	if fault != nil {
		return fmt.Errorf("%w: %w", errRefund, fault)
	}
	return nil
}

// failed reports whether the store did not answer for a limit.
func (q *query) failed() bool {
	return slices.ContainsFunc(q.decision.Limits, func(state events.LimitState) bool { return state.Failed })
}

// errRefund is the error of a refund that the store did not take, wholly or in part. The request is decided.
var errRefund = errors.New("rls: what a request gives back stays counted, at least a part of it")

// ask has some of the parts decided at once: as a hit, if one of them counts.
func (q *query) ask(ctx context.Context, s *service.Service, which func(*part) bool) error {
	asked, of := make([]limiter.Part, 0, len(q.parts)), make([]int, 0, len(q.parts))
	call := limiter.CallCheck
	for n := range q.parts {
		if p := &q.parts[n]; which(p) {
			asked, of = append(asked, p.Part), append(of, n)
			if !p.Looks {
				call = limiter.CallHit
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	result := s.Decide(ctx, limiter.Hit{Event: q.event, Parts: asked}, call)
	if result.Err != nil {
		return result.Err
	}
	q.decision = result.Decision
	for from, to := 0, 0; from < len(result.Parts); from = to {
		part := result.Parts[from]
		for to = from; to < len(result.Parts) && result.Parts[to] == part; to++ {
		}
		q.parts[of[part]].states = q.decision.Limits[from:to]
	}
	return nil
}
