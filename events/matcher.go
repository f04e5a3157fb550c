package events

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// DomainPrefix begins the names of events that are domains of Envoy's configuration. No event of a rules file has
// a slash in its name.
const DomainPrefix = "rls/"

// Matcher chooses the rules of an event's hits, in place of the kinds that the rules are per: an event with one is a
// domain of Envoy's configuration.
type Matcher interface {
	// Match appends the rules of e that apply to a hit with the features, each with its counter.
	Match(e *Event, list []Applied, features Features) []Applied
}

// match is Apply for an event with a Matcher.
func (e *Event) match(list []Applied, features Features) ([]Applied, error) {
	before := len(list)
	if list = e.Matcher.Match(e, list, features); len(list) == before {
		return list, &FeatureError{Index: -1, Reason: e.wanted()}
	}
	return list, nil
}

// matched returns the counter of exactly those features, for an event with a Matcher.
func (e *Event) matched(features Features) (Counter, error) {
	for _, a := range e.Matcher.Match(e, nil, features) {
		if len(a.Rule.Per) == len(features) {
			a.Counter.of = e
			return a.Counter, nil
		}
	}
	return Counter{}, &FeatureError{Index: -1, Reason: e.wanted()}
}

// EventName returns the name of the event that returned the counter: for a domain it is not that in the counter.
func (c Counter) EventName() string {
	if c.of != nil {
		return c.of.Name
	}
	return c.Event
}

// ParseFeaturesOf is ParseFeatures for an event of that name: the kinds of a domain are any texts without a colon, as
// the keys of descriptors are.
func ParseFeaturesOf(event string, list []string) (Features, error) {
	if IsDomain(event) {
		return parseFeatures(list, entryFault)
	}
	return ParseFeatures(list)
}

// IsDomain reports whether an event of that name is a domain of Envoy's configuration.
func IsDomain(event string) bool {
	return strings.HasPrefix(event, DomainPrefix) && event != DomainPrefix
}

// entryFault says what is wrong with an entry of a descriptor, or nothing.
func entryFault(key, value string) string {
	switch {
	case key == "":
		return "the key is empty"
	case len(key) > MaxValue || len(value) > MaxValue:
		return fmt.Sprintf("a key and a value have at most %d bytes", MaxValue)
	case !utf8.ValidString(key) || !utf8.ValidString(value):
		return "it is not valid UTF-8"
	}
	return ""
}

// ExceptionOf returns what a temporary override says of a counter of the rule, and whether one does. Denied outranks
// Allowed.
func (r *Rule) ExceptionOf(of Feature) (listing Listing, overridden bool) {
	if len(r.exceptions) == 0 {
		return Unlisted, false
	}
	for kind, value := range of.All() {
		if one, known := r.exceptions[feature{kind, value}]; known && slices.Contains(r.Per, kind) {
			listing, overridden = max(listing, one.listing), true
		}
	}
	return listing, overridden
}
