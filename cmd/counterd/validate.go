package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

const validateUsage = `counterd validate checks a rules file and prints what the counters of each event
cost: the levels that every event is added to, the most buckets that a count of
the longest window reads, and the most memory that one counter takes in Memcached.
It warns of probable mistakes, such as a limit that never decides.

Usage:
  counterd validate FILE
`

// validate checks a rules file.
func validate(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("counterd validate", stdout, validateUsage, "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return usageError("validate takes one rules file")
	}
	rules, err := events.ReadRules(flags.Arg(0))
	if err != nil {
		return err
	}
	if err := printCosts(stdout, rules); err != nil {
		return err
	}
	for _, event := range rules.All() {
		if len(event.Methods) > 0 {
			fmt.Fprintf(stdout, "%s: authorize and the middleware count %s only\n", event.Name, strings.Join(event.Methods, ", "))
		}
	}
	for _, warning := range rules.Warnings {
		fmt.Fprintf(stderr, "counterd: warning: %s: %v\n", flags.Arg(0), warning)
	}
	return nil
}

// printCosts prints what the counters of each event cost.
func printCosts(w io.Writer, rules *events.Rules) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "EVENT\tPER\tRETENTION\tLEVELS\tMOST READS\tMOST BYTES A COUNTER")
	for _, event := range rules.All() {
		remembered := event.Remembered() // it looks at all limits
		for _, per := range combinations(event) {
			cost := hierarchy.FootprintOf(events.Counter{Retention: remembered, Precision: per.precision}, hierarchy.DefaultGrace)
			fmt.Fprintf(table, "%s\t%s\t%s\t%s to %s\t%d\t%d\n", event.Name, per.name,
				events.FormatDuration(remembered), cost.Finest, cost.Coarsest, cost.Reads, cost.Bytes)
		}
	}
	return table.Flush()
}

// combination is the kinds that a counter of an event is per.
type combination struct {
	name      string
	precision events.Precision
}

// combinations returns the combinations that the event's rules name, once each; without rules,
// one for any feature.
func combinations(event *events.Event) []combination {
	var all []combination
	seen := map[string]bool{}
	for _, rule := range event.Rules {
		name := strings.Join(rule.Per, "+")
		if name == "" {
			name = "(all)"
		}
		if !seen[name] {
			seen[name] = true
			all = append(all, combination{name, rule.Precision})
		}
	}
	if len(all) == 0 {
		all = append(all, combination{name: "(each feature)"})
	}
	return all
}
