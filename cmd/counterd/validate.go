package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/memcache"
)

const validateUsage = `counterd validate checks a rules file and prints what the counters of each event
cost: the levels that every event is added to, the most buckets that a count of
the longest window reads, and the most memory that one counter takes in Memcached.
A counter in a log (algorithm: sliding-log) has the level log: it is one item.
It compares what a counter takes in buckets, which are the default, and in a log,
if its limits are full and events come at equal distances: bytes of Memcached, and
operations of a hit far from its limits.
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
	rules, err := rulesfile.Read(flags.Arg(0))
	if err != nil {
		return err
	}
	if err := printCosts(stdout, rules); err != nil {
		return err
	}
	if err := printEngines(stdout, rules); err != nil {
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
			if per.inBuckets() {
				cost := hierarchy.FootprintOf(events.Counter{Retention: remembered, Precision: per.precision}, hierarchy.DefaultGrace)
				fmt.Fprintf(table, "%s\t%s\t%s\t%s to %s\t%d\t%d\n", event.Name, per.name,
					events.FormatDuration(remembered), cost.Finest, cost.Coarsest, cost.Reads, cost.Bytes)
			}
			bytes := memcache.ChunkBytesOfData(journal.MaxSize) // any log grows as large by hits that are denied, and by increments
			if per.inLog() {
				kept := events.FormatDuration(remembered)
				if per.isTokens() {
					kept = "-"
				}
				fmt.Fprintf(table, "%s\t%s\t%s\tlog\t1\t%d\n", event.Name, per.name, kept, bytes)
			}
			if lease := per.lease(); lease > 0 {
				fmt.Fprintf(table, "%s\t%s\t%s\tleases\t1\t%d\n", event.Name, per.name, events.FormatDuration(lease), bytes)
			}
		}
	}
	return table.Flush()
}

// printEngines prints what the counters of each event with limits take in buckets and in a log.
func printEngines(w io.Writer, rules *events.Rules) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nEVENT\tPER\tEVENTS\tBUCKETS: BYTES\tOPERATIONS\tLOG: BYTES\tOPERATIONS\tRECOMMENDED")
	reads := bucketReads{}
	any := false
	for _, event := range rules.All() {
		for _, per := range combinations(event) {
			per.rules = slices.DeleteFunc(per.rules, func(rule *events.Rule) bool { return rule.Leases() })
			if len(per.rules) == 0 {
				continue
			}
			any = true
			counter := events.Counter{Retention: event.Remembered(), Precision: per.precision}
			log := journal.FootprintOf(event, per.rules[0].Per, events.DefaultGrace)
			buckets := hierarchy.SpreadBytes(counter, log.Hits, events.DefaultGrace)
			if per.isTokens() { // in a log only
				fmt.Fprintf(table, "%s\t%s\t%d\t-\t-\t%d\t2\t%s\n", event.Name, per.name, log.Hits, memcache.ChunkBytesOfData(log.Bytes), per.rules[0].Limits[0].Algorithm)
				continue
			}
			bytes, operations := "too large", "-"
			if log.Fits {
				bytes, operations = fmt.Sprint(memcache.ChunkBytesOfData(log.Bytes)), "2"
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%.0f\t%s\t%s\t%s\n", event.Name, per.name, log.Hits, buckets, reads.of(counter, per),
				bytes, operations, per.recommended(log.Fits && memcache.ChunkBytesOfData(log.Bytes) < buckets))
		}
	}
	if !any {
		return nil
	}
	return table.Flush()
}

// bucketReads has what was computed, which is slow, and the same for most rules.
type bucketReads map[string]float64

// of returns how many operations a hit makes that is far from its limits.
func (b bucketReads) of(counter events.Counter, per combination) float64 {
	var limits []events.Limit
	var windows []string
	for _, rule := range per.rules {
		for _, limit := range rule.Limits {
			limits = append(limits, limit)
			windows = append(windows, limit.Algorithm, limit.WindowName(), limit.Calendar.String())
		}
	}
	key := fmt.Sprint(counter.Retention, counter.Precision, windows)
	if operations, known := b[key]; known {
		return operations
	}
	cost := hierarchy.FootprintOf(counter, events.DefaultGrace)
	operations := float64(cost.Coarsest - cost.Finest + 1)
	far := hierarchy.FarReadsOf(counter, limits, events.DefaultGrace)
	for level := range far.Open {
		operations += far.Open[level] + far.Closed[level]
	}
	b[key] = operations
	return operations
}

// combination is the kinds that a counter of an event is per.
type combination struct {
	name      string
	precision events.Precision
	rules     []*events.Rule // per those kinds; none: the event has no limits
}

// isTokens reports whether all limits are token buckets, which remember no events.
func (c combination) isTokens() bool {
	return len(c.rules) > 0 && !slices.ContainsFunc(c.rules, func(rule *events.Rule) bool { return rule.Limits[0].Burst == 0 })
}

// inLog reports whether limits have a counter in a log.
func (c combination) inLog() bool { return slices.ContainsFunc(c.rules, isInLog) }

// inBuckets reports whether there is a counter in buckets: of other limits, or without limits.
func (c combination) inBuckets() bool {
	return len(c.rules) == 0 || slices.ContainsFunc(c.rules, func(rule *events.Rule) bool { return !rule.InLog() })
}

func isInLog(rule *events.Rule) bool { return rule.InLog() && !rule.Leases() }

// lease returns how long a lease is; 0: there are none.
func (c combination) lease() (length time.Duration) {
	for _, rule := range c.rules {
		if rule.Leases() {
			length = rule.Limits[0].Window
		}
	}
	return length
}

// recommended returns the algorithms for the limits, those of logs or of buckets. What only buckets do is not
// changed, and nor is a counter of all hits: a flood of them, which no limit bounds, does not fit a log.
func (c combination) recommended(log bool) string {
	in := map[bool]map[bool]string{ // logs, fixed windows
		false: {false: events.DefaultAlgorithm, true: events.FixedWindow},
		true:  {false: events.SlidingLog, true: events.FixedLog},
	}
	for _, rule := range c.rules {
		tiles := rule.Limits[0].Windows().Algorithm.Tiles
		log = log && rule.Throttle.Kind != events.Elastic && (tiles || rule.Precision == events.Second) && rule.Count != events.CountAll
	}
	var names []string
	for _, rule := range c.rules {
		if name := in[log][rule.Limits[0].Windows().Algorithm.Tiles]; rule.Limits[0].Burst == 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// combinations returns the combinations that the event's rules name, once each; without rules,
// one for any feature.
func combinations(event *events.Event) []combination {
	var all []combination
	places := map[string]int{}
	for i := range event.Rules {
		rule := &event.Rules[i]
		name := strings.Join(rule.Per, "+")
		if name == "" {
			name = "(all)"
		}
		place, known := places[name]
		if !known {
			place = len(all)
			places[name] = place
			all = append(all, combination{name: name})
		}
		c := &all[place]
		c.precision, c.rules = max(c.precision, rule.Precision), append(c.rules, rule)
	}
	if len(all) == 0 {
		all = append(all, combination{name: "(each feature)"})
	}
	return all
}
