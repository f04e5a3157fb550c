package page

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/counterd/counterd/events"
)

// overridesShown is how many overrides of a rule are shown at the most.
const overridesShown = 50

// ruleEvent is an event of the rules in force.
type ruleEvent struct {
	ID, Name, Remembered string
	WhatIf               bool // other rules can be tried
	Rows                 []ruleRow
	Overrides            []override
}

// ruleRow is a limit, with the rule that it is of.
type ruleRow struct {
	Name, Rate, Per, Algorithm, Throttle, Count, OnError, Place string
	Shadow                                                      bool
	Notes                                                       []string
}

// override is the limits of a value instead of those of its rule.
type override struct{ Per, Value, Limits, Link string }

// rules answers with the rules in force.
func (p *pages) rules(w http.ResponseWriter, r *http.Request) {
	view := struct {
		*frame
		Source     string
		Generation string
		Temporary  []overrideView
		Events     []ruleEvent
		Warnings   []string
	}{frame: p.newFrame("Rules in force", "rules")}
	name, generation := p.Source()
	view.Source = cmp.Or(shown(name), "the program, not a file")
	if generation > 0 {
		view.Generation = grouped(generation)
	}
	rules := p.Service.Rules()
	for _, fault := range rules.Warnings {
		view.Warnings = append(view.Warnings, fault.Error())
	}
	view.Temporary = p.overrideViews(p.Service.Overrides())
	for _, event := range rules.All() {
		view.Events = append(view.Events, p.ruleEventOf(event))
	}
	p.write(w, "rules", view.frame, view)
}

func (p *pages) ruleEventOf(event *events.Event) ruleEvent {
	e := ruleEvent{
		ID: idOf(event.Name), Name: event.Name, Remembered: length(event.Remembered()),
		WhatIf: len(event.Rules) > 0 && !events.IsDomain(event.Name), // a domain is not made of rules as a file has them
	}
	for i := range event.Rules {
		rule := &event.Rules[i]
		for _, limit := range rule.Limits {
			e.Rows = append(e.Rows, ruleRow{
				Name: shown(limit.Name), Rate: rate(limit),
				Per:       cmp.Or(shown(strings.Join(rule.Per, " and ")), "the event as a whole"),
				Algorithm: cmp.Or(limit.Algorithm, events.DefaultAlgorithm), Throttle: rule.Throttle.String(), Count: rule.Count.String(),
				OnError: rule.OnError.String(), Place: cmp.Or(rule.Place, "the program"), Shadow: rule.Shadow, Notes: notes(rule),
			})
		}
		values := slices.Sorted(maps.Keys(rule.Overrides))
		for _, value := range values[:min(len(values), overridesShown)] {
			var rates []string
			for _, limit := range rule.Overrides[value] {
				rates = append(rates, rate(limit))
			}
			e.Overrides = append(e.Overrides, override{
				Per: strings.Join(rule.Per, " and "), Value: brief(shown(value)), Limits: cmp.Or(strings.Join(rates, ", "), "none"),
				Link: p.linkTo(event.Name, events.Features{rule.Per[0]: value}),
			})
		}
	}
	return e
}

// idOf returns the ID of an event's section. The name of a domain may be any text.
func idOf(event string) string {
	return "event-" + strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_.-/", r) {
			return r
		}
		return '-'
	}, event)
}

// rate writes what a limit admits.
func rate(limit events.Limit) string {
	text := grouped(limit.N) + " per " + length(limit.Window)
	switch {
	case limit.Calendar != nil:
		return fmt.Sprintf("%s per %s of %s", grouped(limit.N), limit.Unit(), limit.Calendar)
	case limit.Algorithm == events.Concurrency:
		return fmt.Sprintf("%s at a time, leases of %s", grouped(limit.N), length(limit.Window))
	case limit.Algorithm == events.LeakyBucket:
		return fmt.Sprintf("%s, queue of %s", text, grouped(limit.Burst-1))
	case limit.Burst > 0:
		return fmt.Sprintf("%s, burst of %s", text, grouped(limit.Burst))
	}
	return text
}

// notes writes what else a rule says.
func notes(rule *events.Rule) (list []string) {
	if n := len(rule.Overrides); n > overridesShown {
		list = append(list, fmt.Sprintf("%s overrides, of which %d are shown", grouped(int64(n)), overridesShown))
	}
	for _, of := range []struct {
		name string
		list events.List
	}{{"allow", rule.Allow}, {"deny", rule.Deny}} {
		if n := len(of.list.Strings()); n > 0 {
			list = append(list, fmt.Sprintf("%s list of %s", of.name, grouped(int64(n))))
		}
	}
	if rule.Precision != events.Second {
		list = append(list, "precision: "+rule.Precision.String())
	}
	return list
}
