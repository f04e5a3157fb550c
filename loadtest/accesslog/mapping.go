package accesslog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/httpdecision"
)

// Mapping says which fields of a line are features, and of which kind. No kind is there
// twice.
type Mapping []Kind

// Kind is a kind of features, and the field that holds them.
type Kind struct{ Kind, Field string }

// DefaultMapping is that of the common and the combined format: a line begins
// with an address.
func DefaultMapping() Mapping { return Mapping{{events.KindIP, "host"}} }

// ParseMapping reads a mapping written kind=field,kind=field; a kind by itself is that of
// the field of the same name.
func ParseMapping(text string) (Mapping, error) {
	var mapping Mapping
	for part := range strings.SplitSeq(text, ",") {
		kind, field, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found {
			field = kind
		}
		// An address is a value that every kind takes.
		err := events.Features{kind: "192.0.2.1"}.Validate()
		switch {
		case err != nil:
			return nil, fmt.Errorf("accesslog: %q is not kind=field: %w", part, err)
		case field == "":
			return nil, fmt.Errorf("accesslog: the kind %s has no field", kind)
		case slices.ContainsFunc(mapping, func(k Kind) bool { return k.Kind == kind }):
			return nil, fmt.Errorf("accesslog: the kind %s is given twice", kind)
		case len(mapping) == events.MaxFeatureKinds:
			return nil, fmt.Errorf("accesslog: at most %d kinds are taken", events.MaxFeatureKinds)
		}
		mapping = append(mapping, Kind{kind, field})
	}
	return mapping, nil
}

func (m Mapping) String() string {
	var parts []string
	for _, k := range m {
		parts = append(parts, k.Kind+"="+k.Field)
	}
	return strings.Join(parts, ",")
}

// Fields returns the fields that a format must have.
func (m Mapping) Fields() []string {
	var fields []string
	for _, k := range m {
		fields = append(fields, k.Field)
	}
	return fields
}

// Features returns the features of the values of these fields: one that is empty or "-" is no
// feature, and there may be none. An address may be in brackets, have a port or a zone. An error is
// of a value that its kind does not take, as an address that is a name; it wraps ErrMalformed.
func (m Mapping) Features(values []string) (events.Features, error) {
	features := make(events.Features, len(m))
	for i, k := range m {
		if values[i] != "" && values[i] != "-" {
			features[k.Kind] = values[i]
		}
	}
	if _, err := events.ParseNetwork(features[events.KindIP]); err != nil {
		if addr, ok := httpdecision.ParseHop(features[events.KindIP]); ok {
			features[events.KindIP] = addr.String()
		}
	}
	if err := features.Validate(); err != nil {
		return nil, malformed(err.Error())
	}
	if strings.Contains(features[events.KindIP], "/") {
		return nil, malformed("it is a network, not an address")
	}
	return features, nil
}
