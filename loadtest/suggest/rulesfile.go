package suggest

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/counterd/counterd/events"
)

// rulesFile returns the rules of some kinds as a rules file, without comments.
func rulesFile(event string, ipv6Prefix int, kinds []Kind) string {
	var b strings.Builder
	fmt.Fprintf(&b, "events:\n  %s:\n    limits:\n", event)
	for _, k := range kinds {
		fmt.Fprintf(&b, "      - per: %s\n        rate: [%s]\n", k.Kind, strings.Join(k.rates(), ", "))
		if k.Kind == events.KindIP && ipv6Prefix != 0 {
			fmt.Fprintf(&b, "        ipv6_prefix: %d\n", ipv6Prefix)
		}
	}
	return b.String()
}

// flow returns the rules on one line, for where the blanks of a line's beginning get lost.
func (r *Report) flow() string {
	var limits []string
	for _, k := range r.Kinds {
		limit := fmt.Sprintf("per: %s, rate: [%s]", k.Kind, strings.Join(k.rates(), ", "))
		if k.Kind == events.KindIP && r.ipv6Prefix != 0 {
			limit += fmt.Sprintf(", ipv6_prefix: %d", r.ipv6Prefix)
		}
		limits = append(limits, "{"+limit+"}")
	}
	return fmt.Sprintf("{events: {%s: {limits: [%s]}}}", r.Event, strings.Join(limits, ", "))
}

// rates returns those of the rules file.
func (k *Kind) rates() (rates []string) {
	for _, w := range k.Windows {
		if w.Rate != "" {
			rates = append(rates, w.Rate)
		}
	}
	return rates
}

// commented puts in front of a rules file where it comes from.
func (r *Report) commented(rules string) string {
	var b strings.Builder
	comment := func(format string, args ...any) {
		fmt.Fprintf(&b, "# "+format+"\n", args...)
	}
	comment("Suggested by loadtest replay -suggest -deny %s, from %s:", r.Deny, oneLine(r.Log))
	comment("%d lines from %s to %s.", r.Lines, moment(r.From), moment(r.To))
	attacked := false
	for _, k := range r.Kinds {
		comment("%s: these limits would have denied %s.", k.Kind, k.caught(k.Denied, k.DeniedTraffic))
		for _, w := range k.Windows {
			if w.LeftOut != "" {
				comment("  left out: %s", w.leftOut())
			}
		}
		if k.Attack.Denied > 0 {
			attacked = true
			comment("  if the log is of failures or of an attack take rate: [%s], which would", strings.Join(k.Attack.Rates, ", "))
			comment("  have denied %s", k.caught(k.Attack.Denied, k.Attack.DeniedTraffic))
		}
	}
	if attacked && len(r.Kinds) > 1 {
		comment("Against an attack give each rule count: all, too: else hits that another rule denies do not")
		comment("count, and fewer features are denied than said here.")
	}
	comment("Of %d hits %d would have been denied (%s).", r.WhatIf.All.Hits, r.WhatIf.All.Denied, percent(int(r.WhatIf.All.Denied), int(r.WhatIf.All.Hits)))
	return b.String() + rules
}

// oneLine returns the name so that it ends no line of a comment.
func oneLine(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

func percent(n, of int) string {
	if of == 0 {
		return "0.00%"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(n)/float64(of))
}
