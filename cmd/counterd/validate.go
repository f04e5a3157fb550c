package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog/footprint"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/memcache"
)

const validateUsage = `counterd validate checks a rules file and prints what a full counter takes in
Memcached: one that has as many events as its limits admit, on time or late. The
last column is the algorithm that takes less, if another one does.
It warns of probable mistakes, such as a limit that never decides, or a counter
that takes more than 1 MB. The last line is ok if the file is valid.

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
	large, err := printMemory(stdout, rules)
	if err != nil {
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
	for _, warning := range large {
		fmt.Fprintf(stderr, "counterd: warning: %s: %s\n", flags.Arg(0), warning)
	}
	fmt.Fprintln(stdout, "ok")
	return nil
}

// printMemory prints what a full counter of each combination takes. It returns warnings of those that take much.
func printMemory(w io.Writer, rules *events.Rules) (warnings []string, err error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "EVENT\tPER\tFULL AT\tALGORITHM\tMEMORY\tRECOMMENDED")
	for _, event := range rules.All() {
		for _, per := range combinations(event) {
			m := per.memory(event)
			recommended := "-"
			if names := per.recommended(m.log < m.buckets); m.hits > 0 && names != "" && names != per.algorithms() {
				recommended = fmt.Sprintf("%s, %d B", names, min(m.log, m.buckets))
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d B\t%s\n",
				event.Name, per.name, per.fullAt(event, m.hits), per.algorithms(), m.bytes, recommended)
			if m.bytes > maxMemory && len(per.rules) > 0 {
				warnings = append(warnings, fmt.Sprintf("%s: a full counter takes %s of Memcached; %s",
					per.rules[0].Place, formatBytes(m.bytes), per.fix(event, m.bytes)))
			}
		}
	}
	return warnings, table.Flush()
}

// maxMemory is the most bytes of a full counter without a warning.
const maxMemory = 1_000_000

func formatBytes(bytes int64) string {
	if bytes < 1e6 {
		return fmt.Sprintf("%.3g kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%.3g MB", float64(bytes)/1e6)
}

// memory is what a full counter takes.
type memory struct {
	hits  int64 // the most while it is kept
	bytes int64 // as its rules are
	// buckets and log are what all its limits take there, but for leases. A log that may be too large takes MaxInt64.
	buckets, log int64
}

// memory returns what a full counter of the event takes.
func (c combination) memory(event *events.Event) (m memory) {
	m.log = math.MaxInt64
	limited := len(c.rules) > 0
	c.rules = slices.DeleteFunc(slices.Clone(c.rules), func(rule *events.Rule) bool {
		if rule.Leases() {
			limit := journal.LimitFrom(rule.Limits[0], rule.Limits[0].N)
			m.bytes = memcache.ChunkBytesOfData(footprint.LeasesSize(limit, 2*events.DefaultGrace.Milliseconds()))
		}
		return rule.Leases()
	})
	if limited && len(c.rules) == 0 {
		return m
	}
	m.hits = math.MaxInt64
	log := footprint.Log{}
	if limited {
		log = footprint.OfCounter(event, c.rules[0].Per, events.DefaultGrace)
		m.hits = log.Hits
	}
	counter := events.Counter{Retention: event.Remembered(), Precision: c.precision}
	m.buckets = hierarchy.SpreadBytes(counter, m.hits, events.DefaultGrace)
	if c.inLog() {
		m.bytes += memcache.ChunkBytesOfData(log.Bytes)
	}
	if c.inBuckets() {
		m.bytes += m.buckets
	}
	if log.Fits {
		m.log = memcache.ChunkBytesOfData(log.Bytes)
	}
	return m
}

// fullAt returns how many events fill the counter.
func (c combination) fullAt(event *events.Event, hits int64) string {
	if len(c.rules) == 0 {
		return "-"
	}
	if c.isTokens() || c.rules[0].Leases() {
		return fmt.Sprintf("%d at once", c.rules[0].Limits[0].Most())
	}
	orMore := ""
	if hits == math.MaxInt32 { // the largest number of hits in a footprint
		orMore = " or more"
	}
	return fmt.Sprintf("%d%s in %s", hits, orMore, events.FormatDuration(event.Remembered()))
}

// algorithms returns the names of the algorithms, each once.
func (c combination) algorithms() string {
	var names []string
	for _, rule := range c.rules {
		if name := cmp.Or(rule.Limits[0].Algorithm, events.DefaultAlgorithm); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return cmp.Or(strings.Join(names, ","), events.DefaultAlgorithm)
}

// fix returns the first change that makes a full counter of so many bytes small, or else the one that makes it
// smallest.
func (c combination) fix(event *events.Event, bytes int64) string {
	best := "take shorter windows, or a shorter retention"
	try := func(text string, changed ...*events.Event) {
		sum := int64(0)
		for _, event := range changed {
			for _, per := range combinations(event) {
				if per.name == c.name {
					sum += per.memory(event).bytes
				}
			}
		}
		if bytes > maxMemory && sum < bytes {
			best, bytes = fmt.Sprintf("%s it takes %s", text, formatBytes(sum)), sum
		}
	}
	precision := func(p events.Precision) func(*events.Rule) { return func(rule *events.Rule) { rule.Precision = p } }
	for p := c.precision + 1; p <= c.coarsest(); p++ {
		try("with precision: "+p.String(), c.change(event, precision(p)))
	}
	names := c.recommended(c.memory(event).log < math.MaxInt64)
	if names == events.SlidingLog {
		try("with algorithm: "+names, c.change(event, func(rule *events.Rule) {
			for i := range rule.Limits {
				rule.Limits[i].Algorithm = names
			}
		}))
	}
	shorter := *event
	shorter.Retention = 0
	try("without retention", &shorter)
	longest := shorter.Remembered()
	short := c.only(&shorter, func(l events.Limit) bool { return l.LongestWindow() < longest })
	long := c.only(&shorter, func(l events.Limit) bool { return l.LongestWindow() == longest })
	for _, per := range combinations(long) {
		long = per.change(long, precision(per.coarsest()))
	}
	if len(short.Rules) > 0 {
		const own = "with an event of their own for the limits of %s, in the coarsest precision,"
		try(fmt.Sprintf(own, events.FormatDuration(longest)), short, long)
	}
	return best
}

// change returns the event with a change to each rule of the combination that is kept in buckets.
func (c combination) change(event *events.Event, change func(*events.Rule)) *events.Event {
	changed := *event
	changed.Rules = slices.Clone(event.Rules)
	for i := range changed.Rules {
		if rule := &changed.Rules[i]; !rule.InLog() && strings.Join(rule.Per, "+") == strings.Join(c.rules[0].Per, "+") {
			rule.Limits = slices.Clone(rule.Limits)
			change(rule)
		}
	}
	return &changed
}

// only returns the event with the rules of the combination, and those of their limits that keep names.
func (c combination) only(event *events.Event, keep func(events.Limit) bool) *events.Event {
	only := *event
	only.Rules = nil
	for _, rule := range c.rules {
		copied := *rule
		copied.Limits = nil
		for _, limit := range rule.Limits {
			if keep(limit) {
				copied.Limits = append(copied.Limits, limit)
			}
		}
		if len(copied.Limits) > 0 {
			only.Rules = append(only.Rules, copied)
		}
	}
	return &only
}

// coarsest returns the coarsest precision that the limits in buckets may have.
func (c combination) coarsest() events.Precision {
	coarsest := events.Hour
	for _, rule := range c.rules {
		for _, limit := range rule.Limits {
			w := limit.Windows()
			for coarsest > events.Second && !rule.InLog() && (limit.Window < coarsest.Length() ||
				w.Algorithm.Fault != nil && w.Algorithm.Fault(w.Length, int64(coarsest.Length()/time.Second), w.Zone) != "") {
				coarsest--
			}
		}
	}
	return coarsest
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

// recommended returns the algorithms for the limits, those of logs or of buckets. What only buckets do is not
// changed, and nor is a counter of all hits: a flood of them, which no limit bounds, does not fit a log.
func (c combination) recommended(log bool) string {
	isFixed := func(rule *events.Rule) bool { return rule.Limits[0].Windows().Algorithm.Tiles }
	for _, rule := range c.rules {
		log = log && !isFixed(rule) && rule.Throttle.Kind != events.Elastic && rule.Precision == events.Second && rule.Count != events.CountAll
	}
	var names []string
	for _, rule := range c.rules {
		name := events.DefaultAlgorithm
		switch {
		case isFixed(rule):
			name = events.FixedWindow
		case log:
			name = events.SlidingLog
		}
		if rule.Limits[0].Burst == 0 && !slices.Contains(names, name) {
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
