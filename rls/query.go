package rls

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/rls/rlsconfig"
	"github.com/counterd/counterd/service"
)

type (
	limit            = rlsv3.RateLimitResponse_RateLimit
	unit             = rlsv3.RateLimitResponse_RateLimit_Unit
	descriptorStatus = rlsv3.RateLimitResponse_DescriptorStatus
)

// query is a request as it is decided.
type query struct {
	event       *events.Event // that names the hit; nil: no limit applies
	descriptors []descriptor
	parts       []part // what the descriptors count on, each once
	decision    limiter.Decision
}

// descriptor is one of a request's.
type descriptor struct {
	cost      int64 // 0: it only looks
	refund    bool
	unlimited bool
	current   *limit // the limit as configured; nil: it is one of the rules
	parts     []int  // of the query; none: no limit applies
}

// part is what a descriptor counts on, and what its limits said.
type part struct {
	limiter.Part
	looks  bool  // nothing is counted
	refund int64 // so much is given back
	states []limiter.LimitState
}

// read finds what a request counts on.
func (s *Server) read(in *rlsv3.RateLimitRequest) (*query, error) {
	switch n := len(in.GetDescriptors()); {
	case in.GetDomain() == "":
		return nil, invalid("the domain is missing: it is a domain of the configuration, or an event of the rules")
	case n == 0:
		return nil, invalid("the descriptors are missing: a request has at least one")
	case n > limiter.MaxHits:
		return nil, invalid(fmt.Sprintf("there are %d descriptors: a request has at most %d", n, limiter.MaxHits))
	}
	q := &query{descriptors: make([]descriptor, len(in.Descriptors))}
	apply := func(int, *ratelimitv3.RateLimitDescriptor) error { return nil }
	if config := s.config.Descriptors(); config != nil && config.HasDomain(in.Domain) {
		found := find(config, in)
		q.event = &events.Event{Name: in.Domain}
		apply = func(i int, d *ratelimitv3.RateLimitDescriptor) error { return q.byConfig(i, d, found[i]) }
	} else if event, err := s.config.Service.Event(in.Domain); err == nil {
		q.event = event.Event
		apply = q.byRules
	}
	for i, d := range in.Descriptors {
		err := q.costs(i, in.HitsAddend, d)
		if err == nil {
			err = apply(i, d)
		}
		if err != nil {
			return nil, fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	return q, nil
}

// costs reads how much a descriptor costs, or gives back.
func (q *query) costs(i int, ofAll uint32, d *ratelimitv3.RateLimitDescriptor) error {
	cost := cmp.Or(uint64(ofAll), 1)
	if d.GetHitsAddend() != nil {
		cost = d.HitsAddend.Value
	}
	if cost > limiter.MaxCost {
		return invalid(fmt.Sprintf("hits_addend is %d: it is at most %d", cost, limiter.MaxCost))
	}
	q.descriptors[i].cost, q.descriptors[i].refund = int64(cost), d.GetIsNegativeHits() && cost > 0
	return nil
}

// configured is what a configuration says of a descriptor.
type configured struct {
	limit   *rlsconfig.Limit // nil: there is none, or another one replaces it
	entries []rlsconfig.Entry
}

// find returns what the configuration says of all descriptors.
func find(config *rlsconfig.Config, in *rlsv3.RateLimitRequest) []configured {
	all := make([]configured, len(in.Descriptors))
	var replaced []string
	for i, d := range in.Descriptors {
		entries := make([]rlsconfig.Entry, len(d.GetEntries()))
		for j, e := range d.GetEntries() {
			entries[j] = rlsconfig.Entry{Key: e.GetKey(), Value: e.GetValue()}
		}
		all[i].entries = entries
		if d.GetLimit() != nil {
			continue
		}
		if limit, counted := config.Find(in.Domain, entries); limit != nil {
			all[i] = configured{limit, counted}
			replaced = append(replaced, limit.Replaces...)
		}
	}
	for i := range all {
		if limit := all[i].limit; limit != nil && limit.Name != "" && slices.Contains(replaced, limit.Name) {
			all[i].limit = nil
		}
	}
	return all
}

// byConfig has a descriptor count by its own limit, or by that of the configuration.
func (q *query) byConfig(i int, d *ratelimitv3.RateLimitDescriptor, c configured) error {
	if d.GetLimit() != nil {
		var err error
		if c.limit, err = override(d.Limit); err != nil {
			return err
		}
	}
	if c.limit == nil {
		return nil
	}
	of, rule := &q.descriptors[i], c.limit.Rule
	if of.unlimited = c.limit.Unlimited; of.unlimited {
		return nil
	}
	of.current = currentOf(c.limit.Name, c.limit.N, unit(c.limit.Unit), c.limit.Multiplier)
	counter := counterOf(q.event.Name, rule.Limits[0].Window, c.entries)
	q.add(i, events.Applied{Rule: rule, Counter: counter, ID: counter.ID()})
	return nil
}

// override returns the limit that a descriptor has for itself.
func override(own *ratelimitv3.RateLimitDescriptor_RateLimitOverride) (*rlsconfig.Limit, error) {
	l := &rlsconfig.Limit{
		N: own.GetRequestsPerUnit(), Unit: rlsconfig.Unit(own.GetUnit()), Multiplier: max(own.GetUnitMultiplier().GetValue(), 1),
	}
	switch {
	case own.GetUnit() < 1 || int32(own.GetUnit()) > int32(rlsconfig.Year):
		return nil, invalid(fmt.Sprintf("the unit of its limit is %s: it is SECOND, MINUTE, HOUR, DAY or MONTH", own.GetUnit()))
	case int64(l.Multiplier) > l.Unit.MaxMultiplier():
		return nil, invalid("the window of its limit is longer than " + events.FormatDuration(events.MaxWindow))
	}
	l.Rule = &events.Rule{Limits: []events.Limit{{Name: "override", N: int64(l.N), Window: l.Window()}}}
	return l, nil
}

// maxEntries is the most bytes of entries by which a counter is named as they are.
const maxEntries = 1 << 10

// counterOf returns the counter of a descriptor's entries. Windows of another length have counters of
// their own, as the entries of another domain have. No event of the rules has such a name.
func counterOf(domain string, window time.Duration, entries []rlsconfig.Entry) events.Counter {
	pairs, bytes := make([][2]string, len(entries)), 0
	for i, e := range entries {
		pairs[i] = [2]string{e.Key, e.Value}
		bytes += len(e.Key) + len(e.Value)
	}
	feature := events.FeatureOf(pairs...)
	if bytes > maxEntries {
		sum := sha256.Sum256([]byte(events.Counter{Feature: feature}.ID()))
		feature = events.FeatureOf([2]string{"/sha256", string(sum[:])})
	}
	event := "rls/" + strconv.FormatInt(int64(window/time.Second), 10) + "/" + domain
	return events.Counter{Event: event, Feature: feature, Retention: window}
}

// byRules has a descriptor count by the rules of the event, its entries being features. What another
// descriptor counts already is not counted twice: the higher cost counts.
func (q *query) byRules(i int, d *ratelimitv3.RateLimitDescriptor) error {
	if d.GetLimit() != nil {
		return invalid("it has a limit of its own, and the limits of an event are those of the rules: leave it out")
	}
	features := events.Features{}
	for _, e := range d.GetEntries() {
		if _, twice := features[e.GetKey()]; twice {
			return invalid("an entry's key is there twice, and an event has each feature once")
		}
		features[e.GetKey()] = e.GetValue()
	}
	if !slices.ContainsFunc(q.event.Rules, func(rule events.Rule) bool { return rule.Applies(features) }) {
		return nil
	}
	if q.event.HasLeases() {
		return invalid("its event has limits with concurrent, and a proxy cannot release leases")
	}
	applied, err := q.event.Apply(nil, features)
	if err != nil {
		return err
	}
	for _, a := range applied {
		if q.descriptors[i].refund && a.Rule.InLog() {
			return invalid("is_negative_hits: its event has limits in a log, which gives nothing back")
		}
		q.add(i, a)
	}
	return nil
}

// add has a descriptor count on a counter, by a rule.
func (q *query) add(i int, a events.Applied) {
	of := &q.descriptors[i]
	p := part{Part: limiter.Part{Applied: a, Cost: max(of.cost, 1)}, looks: of.cost == 0 || of.refund}
	if of.refund {
		p.Cost, p.refund = 1, of.cost
	}
	at := -1
	if of.current == nil {
		at = slices.IndexFunc(q.parts, func(other part) bool {
			return other.Rule == a.Rule && other.ID == a.ID && (other.refund > 0) == of.refund
		})
	}
	if at < 0 {
		at, q.parts = len(q.parts), append(q.parts, p)
	} else {
		other := &q.parts[at]
		other.Cost, other.refund, other.looks = max(other.Cost, p.Cost), max(other.refund, p.refund), other.looks && p.looks
	}
	of.parts = append(of.parts, at)
}

// decide decides the query. Parts that only look are decided first, together with the others: if one denies, nothing
// is counted, or given back. What is given back denies nothing. If the store fails, its timeout is over, and nothing
// else is asked of it.
func (q *query) decide(ctx context.Context, s *service.Service) error {
	q.decision.Allowed = true
	if slices.ContainsFunc(q.parts, func(p part) bool { return p.looks && p.refund == 0 }) {
		if err := q.ask(ctx, s.CheckParts, func(p *part) bool { return p.refund == 0 }); err != nil || !q.decision.Allowed {
			return err
		}
	}
	if !q.failed() {
		if err := q.ask(ctx, s.HitParts, func(p *part) bool { return !p.looks }); err != nil {
			return err
		}
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
		if p := &q.parts[n]; p.refund > 0 && decided.Allowed && fault == nil {
			_, fault = s.Refund(ctx, p.Counter, p.refund)
		}
	}
	if fault == nil {
		fault = q.ask(ctx, s.CheckParts, func(p *part) bool { return p.refund > 0 })
	}
	if fault != nil {
		return fmt.Errorf("%w: %w", errRefund, fault)
	}
	return nil
}

// failed reports whether the store did not answer for a limit.
func (q *query) failed() bool {
	return slices.ContainsFunc(q.decision.Limits, func(state limiter.LimitState) bool { return state.Failed })
}

// errRefund is the error of a refund that the store did not take, wholly or in part. The request is decided.
var errRefund = errors.New("rls: what a request gives back stays counted, at least a part of it")

// asker decides a hit of several parts, or checks it.
type asker = func(context.Context, *events.Event, []limiter.Part) (limiter.Decision, error)

// ask has some of the parts decided.
func (q *query) ask(ctx context.Context, ask asker, which func(*part) bool) error {
	var asked []limiter.Part
	var of []int
	for n := range q.parts {
		if p := &q.parts[n]; which(p) {
			asked, of = append(asked, p.Part), append(of, n)
			p.states = nil
		}
	}
	if len(asked) == 0 {
		return nil
	}
	d, err := ask(ctx, q.event, asked)
	if err != nil {
		return err
	}
	q.decision = d
	for _, state := range d.Limits {
		p := &q.parts[of[state.Part]]
		p.states = append(p.states, state)
	}
	return nil
}
