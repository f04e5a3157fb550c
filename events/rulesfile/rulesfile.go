// Package rulesfile reads rules from a rules file, one YAML document. It finds all
// faults at once, each with its line and a hint, and warns of what is valid and
// hardly meant.
package rulesfile

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/yamlfile"
)

// MaxSize is the most bytes that a rules file may have.
const MaxSize = yamlfile.MaxSize

var format = yamlfile.Format{
	TooLarge:  "the file has more than %d bytes",
	Tag:       "%",
	Directive: "directives are not taken: leave the line with % out",
	Empty:     "it begins with events:",
	Second:    "rules are one document",
	Other:     map[string]string{"descriptors": "this is a configuration of envoyproxy/ratelimit: name the file by -rls-config"},
}

// Read reads the rules file at path. Faults of its content are events.Faults, as
// Parse returns them; a file that cannot be read is another error.
func Read(path string) (*events.Rules, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("events: reading the rules: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("events: reading the rules: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("events: reading the rules: %w", err)
	}
	rules, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", path, err)
	}
	rules.Modified(info.ModTime())
	return rules, nil
}

// Parse reads the text of a rules file: one YAML document of at most
// MaxSize bytes. The error, if any, is events.Faults, with all faults there are.
func Parse(data []byte) (*events.Rules, error) {
	root, fault := yamlfile.Decode(data, format)
	if fault != nil {
		return nil, events.Faults{*fault}
	}
	r := fileReader{&reader{faulty: make(map[*yaml.Node]bool), warned: make(map[*yaml.Node]bool)}}
	rules := r.rules(place{node: root})
	r.faults.Sort()
	r.warnings.Sort()
	if len(r.faults) > 0 {
		return nil, r.faults
	}
	rules.Warnings = r.warnings
	rules.HashText(data)
	return rules, nil
}

// fileReader reads the structure of a rules file: events, and what holds for all of them.
type fileReader struct{ *reader }

func (r fileReader) rules(at place) *events.Rules {
	fields := r.fields(at, "events", "trusted_proxies", "nat64", "headers")
	rules := &events.Rules{Events: make(map[string]*events.Event)}
	if proxies := fields["trusted_proxies"]; proxies.given() {
		rules.TrustedProxies = r.networks(proxies)
	}
	if prefixes := fields["nat64"]; prefixes.given() {
		r.nat64 = r.nat64Prefixes(prefixes)
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
	entries := r.entries(named, events.ValidName)
	if len(entries) == 0 && r.sound(named) {
		r.fault(named, "no event is named: at least one is wanted")
	}
	withoutProxies := r.sound(fields["trusted_proxies"]) && len(rules.TrustedProxies.Prefixes()) == 0
	for _, entry := range entries {
		if !events.ValidName(entry.key) {
			r.fault(entry.name, "an event's name is 1 to %d of a-z, 0-9, _, . and -, and begins with a letter", events.MaxEventName)
		}
		rules.Events[entry.key] = r.event(entry, withoutProxies)
	}
	return rules
}

func (r fileReader) headers(at place) []events.Header {
	items := r.items(at)
	if len(items) == 0 && r.sound(at) {
		r.fault(at, "no header is named: write none to send none")
	}
	var headers []events.Header
	for _, item := range items {
		header := choice[events.Header](r.reader, item, headerNames)
		switch {
		case !r.sound(item):
			continue
		case slices.Contains(headers, header):
			r.fault(item, "%s is there twice: leave one out", header)
		case len(items) > 1 && header == events.HeaderNone:
			r.fault(item, "none stands alone: leave it out, or the others")
		}
		headers = append(headers, header)
	}
	return headers
}

// event reads one event. An empty one has no limits. Without trusted proxies no
// forwarded address can be believed.
func (r fileReader) event(named entry, withoutProxies bool) *events.Event {
	event := &events.Event{Name: named.key}
	if node := named.at.node; node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		r.plain(named.at)
		return event
	}
	fields := r.fields(named.at, "retention", "limits", "from", "methods")
	retention := fields["retention"]
	if retention.given() {
		event.Retention = r.retention(retention)
	}
	var sources []entry
	if from := fields["from"]; from.given() {
		sources = r.entries(from, events.ValidKind)
		event.From = r.from(sources, withoutProxies)
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
	comparison.warnOfIdleFields(event, fields, sources)
	return event
}

func (r fileReader) retention(at place) time.Duration {
	text, ok := r.text(at)
	if !ok {
		return 0
	}
	life, err := events.ParseDuration(text)
	switch {
	case err != nil:
		r.fault(at, "a retention: %s", reason(err))
	case life > events.MaxRetention:
		r.fault(at, "a retention is at most 32d")
	}
	return life
}

// reason returns what an error of package events says behind "events: invalid x: ".
func reason(err error) string {
	_, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), events.ErrInvalid.Error()), ": ")
	return text
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
