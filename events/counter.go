package events

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Precision is the finest step in which a counter is kept.
type Precision uint8

// The precisions of a counter. Second, the zero value, is exact to the second;
// the others round the edges of a window outward to whole minutes or hours, and
// need a sixtieth of the memory each.
const (
	Second Precision = iota
	Minute
	Hour
)

var precisionNames = [...]string{"second", "minute", "hour"}

// String returns second, minute or hour.
func (p Precision) String() string { return precisionNames[p] }

// Length returns the length of the step.
func (p Precision) Length() time.Duration {
	return [...]time.Duration{time.Second, time.Minute, time.Hour}[p]
}

// Counter names one counter, and says how it is kept.
type Counter struct {
	Event     string
	Feature   Feature       // the zero Feature: the event as a whole
	Retention time.Duration // how long its events are remembered, whole seconds; 0 means DefaultRetention
	Precision Precision

	// of is the event by whose rules it is counted; nil: it is one of an Applied, which are equal
	// if they name the same counter, kept in the same way.
	of *Event
}

// Limits yields the limits of a counter that an Event returned, each with its rule, in their order.
func (c Counter) Limits() iter.Seq2[*Rule, Limit] {
	return func(yield func(*Rule, Limit) bool) {
		if c.of == nil {
			return
		}
		kinds := c.Feature.Kinds()
		for i := range c.of.Rules {
			rule := &c.of.Rules[i]
			if !slices.Equal(rule.Per, kinds) {
				continue
			}
			for _, limit := range rule.LimitsOf(c.Feature) {
				if !yield(rule, limit) {
					return
				}
			}
		}
	}
}

// Remembered returns how long the counter's events are remembered: its retention, or the default.
func (c Counter) Remembered() time.Duration { return cmp.Or(c.Retention, DefaultRetention) }

// ID returns the identity of the counter: its event and feature, each kind and
// value behind its length, so that no two counters share one. How a counter is
// kept is not part of it. It holds arbitrary bytes.
func (c Counter) ID() string {
	var space [idSpace]byte
	return string(append(appendString(space[:0], c.Event), c.Feature.id...))
}

// CounterOf returns a counter and its ID: of an event that no rules need to have, and of the feature of those kinds with
// their values, in that order. Unlike those of rules they are any text, and may repeat. The event and the feature
// are parts of the ID, so that all take one allocation.
func CounterOf(event []byte, retention time.Duration, pairs ...[2]string) (Counter, string) {
	var space [idSpace]byte
	bytes := append(binary.AppendUvarint(space[:0], uint64(len(event))), event...)
	feature := len(bytes)
	for _, pair := range pairs {
		bytes = appendString(appendString(bytes, pair[0]), pair[1])
	}
	id := string(bytes)
	return Counter{Event: id[feature-len(event) : feature], Feature: Feature{id[feature:]}, Retention: retention}, id
}

// Counter returns the one counter of those features together; of the whole
// event where there are none and a rule counts it. Errors wrap ErrInvalid.
func (e *Event) Counter(features Features) (Counter, error) {
	if e.Matcher != nil {
		return e.matched(features)
	}
	address, fine := features.check()
	if !fine {
		return Counter{}, features.Validate()
	}
	kinds := slices.Sorted(maps.Keys(features))
	if len(kinds) == 0 && e.rule(nil) == nil {
		return Counter{}, e.wantsFeature()
	}
	counter, _, err := e.counter(kinds, features, address)
	counter.of = e
	return counter, err
}

// Counters returns the counters to which an event with those features is added:
// one for each feature, and one for each combination that a rule names and the
// features hold. Errors wrap ErrInvalid.
func (e *Event) Counters(features Features) ([]Counter, error) {
	features, address, err := features.counted()
	if err != nil {
		return nil, err
	}
	var combinations [][]string
	for _, kind := range slices.Sorted(maps.Keys(features)) {
		combinations = append(combinations, []string{kind})
	}
	for _, rule := range e.Rules {
		if len(rule.Per) != 1 && features.hold(rule.Per) &&
			!slices.ContainsFunc(combinations, func(kinds []string) bool { return slices.Equal(kinds, rule.Per) }) {
			combinations = append(combinations, rule.Per)
		}
	}
	if len(combinations) == 0 {
		return nil, e.wantsFeature()
	}
	counters := make([]Counter, 0, len(combinations))
	var faults []error
	for _, kinds := range combinations {
		counter, _, err := e.counter(kinds, features, address)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		counter.of = e
		counters = append(counters, counter)
	}
	return counters, errors.Join(faults...)
}

// counter returns the counter of those kinds, which features hold, with its ID. The
// feature is a part of the ID, so that the two take one allocation.
func (e *Event) counter(kinds []string, features Features, address netip.Prefix) (counter Counter, id string, err error) {
	counter = Counter{Event: e.Name, Retention: e.Remembered()}
	ipv6Prefix, nat64 := DefaultIPv6Prefix, e.nat64()
	if rule := e.rule(kinds); rule != nil {
		if rule.isBucket() {
			counter.Retention = rule.refill()
		}
		counter.Precision = rule.Precision
		ipv6Prefix = rule.CountedPrefix()
	}
	var space [idSpace]byte
	bytes := appendString(space[:0], e.Name)
	feature := len(bytes)
	bytes, err = appendFeature(bytes, kinds, features, address, ipv6Prefix, nat64)
	if err != nil {
		return counter, "", err
	}
	id = string(bytes)
	counter.Feature.id = id[feature:]
	return counter, id, nil
}

// rule returns the first rule per those kinds that is kept in buckets, or the first with windows, or the
// first of all: a log has no part in the precision, and a token bucket remembers no events. Otherwise rules with the same kinds agree in all that shapes their
// counter.
func (e *Event) rule(kinds []string) *Rule {
	var first *Rule
	for i := range e.Rules {
		rule := &e.Rules[i]
		switch {
		case !slices.Equal(rule.Per, kinds):
		case !rule.InLog():
			return rule
		case first == nil || first.isBucket() && !rule.isBucket():
			first = rule
		}
	}
	return first
}

// nat64 returns the prefixes of NAT64 that the rules name. All rules of an event have the same.
func (e *Event) nat64() []netip.Prefix {
	if len(e.Rules) == 0 {
		return nil
	}
	return e.Rules[0].NAT64
}

// isBucket reports whether the rule's limits are token buckets.
func (r *Rule) isBucket() bool { return len(r.Limits) > 0 && r.Limits[0].Burst > 0 }

// refill returns for how long the rule's token buckets count what they admitted.
func (r *Rule) refill() (longest time.Duration) {
	for _, limit := range r.Limits {
		longest = max(longest, limit.Span(r.Throttle.Ceiling(limit.Burst)))
	}
	return longest
}

func (e *Event) wantsFeature() error {
	return &FeatureError{Index: -1, Reason: fmt.Sprintf("%s is counted by feature: at least one is wanted", e.Name)}
}

// Feature is what an event is counted by: one kind with its value, several
// kinds with theirs, or, as the zero Feature, the whole event. It is canonical:
// two features are the same one exactly if they are equal by ==, so a Feature
// can be the key of a map.
type Feature struct {
	// id holds each kind and value behind its length, in the order of kinds.
	id string
}

// idSpace is enough for the identity of most counters.
const idSpace = 192

// appendFeature appends the identity of the feature of those kinds, which features
// must hold. The address among them has been parsed already. IPv6 addresses are taken by
// their network of ipv6Prefix bits.
func appendFeature(id []byte, kinds []string, features Features, address netip.Prefix, ipv6Prefix int, nat64 []netip.Prefix) ([]byte, error) {
	for _, kind := range kinds {
		id = appendString(id, kind)
		if value := features[kind]; kind != KindIP || isHashed(value) {
			id = appendString(id, value)
			continue
		}
		network, reason := countedNetwork(address, ipv6Prefix, nat64)
		if reason != "" {
			return id, &FeatureError{Kind: kind, Index: -1, Reason: reason}
		}
		var text [longestNetwork]byte
		canonical := appendNetwork(text[:0], network)
		id = binary.AppendUvarint(id, uint64(len(canonical)))
		id = append(id, canonical...)
	}
	return id, nil
}

// All yields each kind with its value, in the order of kinds.
func (f Feature) All() iter.Seq2[string, string] {
	return func(yield func(kind, value string) bool) {
		rest := f.id
		for rest != "" {
			var kind, value string
			kind, rest = cutString(rest)
			value, rest = cutString(rest)
			if !yield(kind, value) {
				return
			}
		}
	}
}

// Kinds returns the kinds of the feature, sorted; none for the whole event.
func (f Feature) Kinds() []string {
	var kinds []string
	for kind := range f.All() {
		kinds = append(kinds, kind)
	}
	return kinds
}

// String returns the feature for people to read: kind:value, joined by a plus
// sign where several kinds stand together. It is not meant to be parsed.
func (f Feature) String() string {
	var b strings.Builder
	for kind, value := range f.All() {
		if b.Len() > 0 {
			b.WriteByte('+')
		}
		b.WriteString(kind)
		b.WriteByte(':')
		b.WriteString(value)
	}
	return b.String()
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// cutString undoes appendString.
func cutString(s string) (first, rest string) {
	var n, shift int
	for i := range len(s) {
		n |= int(s[i]&0x7f) << shift
		if s[i] < 0x80 {
			return s[i+1 : i+1+n], s[i+1+n:]
		}
		shift += 7
	}
	return "", ""
}
