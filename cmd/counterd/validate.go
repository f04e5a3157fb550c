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

const validateUsage = `counterd validate checks a rules file and says what the counters of each event
cost: the levels that every event is added to, the most buckets that a count of
the longest window reads, and the most memory that one counter takes in Memcached.

Usage:
  counterd validate FILE
`

// validate checks a rules file.
func validate(_ context.Context, args []string, stdout, _ io.Writer) error {
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
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "EVENT\tPER\tRETENTION\tLEVELS\tMOST READS\tMOST BYTES A COUNTER")
	for _, event := range rules.All() {
		for _, per := range combinations(event) {
			cost := hierarchy.CostOf(events.Counter{Retention: event.Remembered(), Precision: per.precision}, hierarchy.DefaultGrace)
			fmt.Fprintf(table, "%s\t%s\t%s\t%s to %s\t%d\t%d\n", event.Name, per.name,
				events.FormatDuration(event.Remembered()), cost.Finest, cost.Coarsest, cost.Reads, cost.Bytes)
		}
	}
	return table.Flush()
}

// combination is what one counter of an event is counted by.
type combination struct {
	name      string
	precision events.Precision
}

// combinations returns those that the event's rules name, once each; without
// rules, any feature.
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

// oneLine writes joined errors in one line.
func oneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
