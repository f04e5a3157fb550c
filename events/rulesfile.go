package events

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v3"
)

// MaxRulesFile is the most bytes that a rules file may have.
const MaxRulesFile = 1 << 20

// ReadRules reads the rules file at path. Faults of its content are Faults, as
// ParseRules returns them; a file that cannot be read is another error.
func ReadRules(path string) (*Rules, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("events: reading the rules: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("events: reading the rules: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxRulesFile+1))
	if err != nil {
		return nil, fmt.Errorf("events: reading the rules: %w", err)
	}
	rules, err := ParseRules(data)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", path, err)
	}
	rules.Modified(info.ModTime())
	return rules, nil
}

// ParseRules reads the rules in a rules file: one YAML document of at most
// MaxRulesFile bytes. The error, if any, is Faults, with all faults there are.
func ParseRules(data []byte) (*Rules, error) {
	root, fault := decodeDocument(data)
	if fault != nil {
		return nil, Faults{*fault}
	}
	r := fileReader{&reader{faulty: make(map[*yaml.Node]bool), warned: make(map[*yaml.Node]bool)}}
	rules := r.rules(place{node: root})
	if len(r.faults) > 0 {
		r.faults.sort()
		return nil, r.faults
	}
	r.warnings.sort()
	rules.Warnings = r.warnings
	rules.setRevision(xxhash.Sum64(data) >> (64 - hashBits))
	return rules, nil
}

// fileReader reads the structure of a rules file: events, and what holds for all of them.
type fileReader struct{ *reader }

func (r fileReader) rules(at place) *Rules {
	fields := r.fields(at, "events", "trusted_proxies", "headers")
	rules := &Rules{Events: make(map[string]*Event)}
	if proxies := fields["trusted_proxies"]; proxies.given() {
		rules.TrustedProxies = r.networks(proxies)
	}
	if headers := fields["headers"]; headers.given() {
		rules.Headers = r.headers(headers)
	}
	named := fields["events"]
	if !named.given() {
		if r.readable(at) {
			r.fault(at, "events is missing: it names the events that are counted")
		}
		return rules
	}
	entries := r.entries(named, ValidName)
	if len(entries) == 0 && r.sound(named) {
		r.fault(named, "no event is named: at least one is wanted")
	}
	withoutProxies := r.sound(fields["trusted_proxies"]) && len(rules.TrustedProxies.sorted) == 0
	for _, entry := range entries {
		if !ValidName(entry.key) {
			r.fault(entry.name, "an event's name is 1 to %d of a-z, 0-9, _, . and -, and begins with a letter", MaxEventName)
		}
		rules.Events[entry.key] = r.event(entry, withoutProxies)
	}
	return rules
}

func (r fileReader) networks(at place) Networks {
	var networks []netip.Prefix
	for _, item := range r.items(at) {
		text, ok := r.text(item)
		if !ok {
			continue
		}
		network, reason := listedNetwork(text)
		if reason != "" {
			r.fault(item, "%s", reason)
			continue
		}
		networks = append(networks, network)
	}
	return NewNetworks(networks...)
}

func (r fileReader) headers(at place) []Header {
	items := r.items(at)
	if len(items) == 0 && r.sound(at) {
		r.fault(at, "no header is named: write none to send none")
	}
	var headers []Header
	for _, item := range items {
		header := choice[Header](r.reader, item, headerNames[:])
		switch {
		case !r.sound(item):
			continue
		case slices.Contains(headers, header):
			r.fault(item, "%s is there twice: leave one out", header)
		case len(items) > 1 && header == HeaderNone:
			r.fault(item, "none stands alone: leave it out, or the others")
		}
		headers = append(headers, header)
	}
	return headers
}

// event reads one event. An empty one has no limits. Without trusted proxies no
// forwarded address can be believed.
func (r fileReader) event(named entry, withoutProxies bool) *Event {
	event := &Event{Name: named.key}
	if node := named.at.node; node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		r.plain(named.at)
		return event
	}
	fields := r.fields(named.at, "retention", "limits", "from", "methods")
	retention := fields["retention"]
	if retention.given() {
		event.Retention = r.retention(retention)
	}
	if from := fields["from"]; from.given() {
		event.From = r.from(from, withoutProxies)
	}
	if methods := fields["methods"]; methods.given() {
		event.Methods = r.methods(methods)
	}
	var rules []*ruleFields
	if limits := fields["limits"]; limits.given() {
		rules = r.limits(limits)
	}
	comparison := comparison(r)
	comparison.compare(rules)
	comparison.covers(event, retention, rules)
	for _, rule := range rules {
		event.Rules = append(event.Rules, rule.Rule)
	}
	comparison.checkLogs(event, rules)
	return event
}

func (r fileReader) retention(at place) time.Duration {
	text, ok := r.text(at)
	if !ok {
		return 0
	}
	life, err := parseLife(text, "a retention", MaxRetention)
	if err != nil {
		r.fault(at, "%s", reason(err))
	}
	return life
}

func (r fileReader) from(at place, withoutProxies bool) map[string]Source {
	from := make(map[string]Source)
	for _, entry := range r.entries(at, validKind) {
		if !validKind(entry.key) {
			r.fault(entry.name, "%s", kindFault)
			continue
		}
		text, ok := r.text(entry.at)
		if !ok {
			continue
		}
		source, reason := parseSource(entry.key, text)
		switch {
		case reason != "":
			r.fault(entry.at, "%s", reason)
		case source.Place == FromForwarded && withoutProxies:
			r.fault(entry.at, "forwarded addresses are believed from trusted_proxies only, and there are none: name yours, or write peer")
		}
		from[entry.key] = source
	}
	return from
}

const kindFault = "a kind is 1 to 32 of a-z, 0-9, _ and -, and begins with a letter"

func (r fileReader) limits(at place) []*ruleFields {
	if !r.plain(at) {
		return nil
	}
	if at.node.Kind != yaml.SequenceNode {
		r.fault(at, "a list of limits is wanted here, each beginning with - per:, this is %s", describe(at.node))
		return nil
	}
	var rules []*ruleFields
	for i := range at.node.Content {
		rules = append(rules, ruleReader(r).rule(at.item(i)))
	}
	return rules
}
