package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/page"
	"github.com/counterd/counterd/loadtest/share"
	"github.com/counterd/counterd/loadtest/whatif"
)

// offlineUsage is the part of the help of loadtest replay that is about what it does
// without a server.
const offlineUsage = `With -rules it asks no server: it has the engine itself decide each line by the rules of
the file, at the log's own times, in memory, and says what they would have done. Lines are
decided in the order of time, those of one moment in the order of the log. Of each limit
it says how many hits it would have admitted, denied, and denied alone, when no other
enforced limit would have; how many it would have admitted above N, where its throttle or
an allow list lets it; how many features there were, and how many of them were ever
denied; the most denied ones, and the longest denial: the longest time from the first to
the last of hits of one feature that were all denied.

With -suggest it finds the largest count of each feature in any second, minute, hour and
day, how these are distributed, and the smallest limits that together would have denied
at most -deny percent of the features at any time. It prints them as a rules file, or
writes them with -write, and says as with -rules what they would have done. For a log of
failures, as of logins, or of an attack the column attack has limits that deny the few
features that made most of it.

Counters take up to -memory, the log about 16 bytes a line and some 300 for each of who
is in it. Exit status of both: 0 it was said; 1 it cannot be; 2 wrong usage; 130 interrupted.
`

// costKind is the kind by which the cost of a line goes through a log's features.
const costKind = "cost-of-the-hit"

// offlineFlags are those of a replay without a server.
type offlineFlags struct {
	rules       string
	suggest     bool
	deny        share.Share
	write       string
	html        string
	cost        string
	top, memory int
	ipv6Prefix  int
}

func (f *offlineFlags) add(set *flag.FlagSet) {
	set.StringVar(&f.rules, "rules", "", "say what the rules of this `file` would have done, without a server")
	set.BoolVar(&f.suggest, "suggest", false, "suggest limits, without a server")
	set.TextVar(&f.deny, "deny", whatif.DefaultDeny, "with -suggest: the `percentage` of features that may be denied")
	set.StringVar(&f.write, "write", "", "with -suggest: write the rules to this `file`; - or none: print them")
	set.StringVar(&f.html, "html", "", "with -rules or -suggest: write the report to this `file`, with plots")
	set.StringVar(&f.cost, "cost", "", "with -rules or -suggest: the `field` that holds what a hit costs; a line without it\n"+
		"costs 1 (default n with -format sshd: a repeated message costs as often as it came)")
	set.IntVar(&f.top, "top", whatif.DefaultTop, "with -rules or -suggest: `number` of the most denied features to name")
	set.IntVar(&f.memory, "memory", int(whatif.DefaultMaxBytes>>20), "with -rules or -suggest: `MiB` that counters may take")
	set.IntVar(&f.ipv6Prefix, "ipv6-prefix", 0, fmt.Sprintf("with -suggest: the `bits` by which IPv6 addresses are counted (default %d)", events.DefaultIPv6Prefix))
}

// on reports whether no server is wanted.
func (f *offlineFlags) on() bool { return f.rules != "" || f.suggest }

// parse looks at the flags, and has the log's be read with the costs.
func (f *offlineFlags) parse(set *flag.FlagSet, log *logFlags) error {
	if err := f.suit(set); err != nil {
		return err
	}
	switch {
	case f.top < 0:
		return errors.New("-top is at least 0")
	case f.memory < 1:
		return errors.New("-memory is at least 1")
	case strings.ContainsAny(f.cost, ",="):
		return errors.New("-cost is the name of one field")
	case f.ipv6Prefix < 0 || f.ipv6Prefix > 128:
		return errors.New("-ipv6-prefix is 1 to 128, or 0")
	}
	if f.on() && f.cost == "" && log.format == formatSSHD {
		f.cost = accesslog.RepeatedField
	}
	if f.cost != "" {
		log.features += "," + costKind + "=" + f.cost
	}
	return nil
}

// suit finds flags that are given and have no meaning together.
func (f *offlineFlags) suit(set *flag.FlagSet) error {
	if f.rules != "" && f.suggest {
		return errors.New("-rules says what rules would have done and -suggest finds some: one of them at a time")
	}
	var strangers []string
	set.Visit(func(flag *flag.Flag) {
		for _, kin := range []struct {
			names  string
			wanted bool
			reason string
		}{
			{"deny write ipv6-prefix", f.suggest, "is for -suggest"},
			{"html cost top memory", f.on(), "is for -rules and -suggest"},
			{"url windows moments c timeout reset " + strings.Join(credentialFlags(), " "), !f.on(), "is for a replay through a server, without -rules and -suggest"},
		} {
			if !kin.wanted && slices.Contains(strings.Fields(kin.names), flag.Name) {
				strangers = append(strangers, fmt.Sprintf("-%s %s", flag.Name, kin.reason))
			}
		}
	})
	if len(strangers) > 0 {
		return errors.New(strings.Join(strangers, "; "))
	}
	return nil
}

// costs returns the kind that holds the costs, if one does.
func (f *offlineFlags) costs() string {
	if f.cost == "" {
		return ""
	}
	return costKind
}

// event reads the rules, and returns the event that is meant: of that name if it was
// given, else the only one.
func (f *offlineFlags) event(name string, given bool) (*events.Event, error) {
	rules, err := events.ReadRules(f.rules)
	if err != nil {
		return nil, fmt.Errorf("-rules: %w", err)
	}
	all := rules.All()
	if !given && len(all) == 1 {
		return all[0], nil
	}
	event, err := rules.Event(name)
	if err != nil {
		var names []string
		for _, e := range all {
			names = append(names, e.Name)
		}
		return nil, fmt.Errorf("-event names one of the rules: %s", strings.Join(names, ", "))
	}
	return event, nil
}

// lacking is an error where the rules are per a kind that no field is named for.
func lacking(event *events.Event, mapping accesslog.Mapping) error {
	var kinds, fields []string
	for _, kind := range event.Kinds() {
		if !slices.ContainsFunc(mapping, func(k accesslog.Kind) bool { return k.Kind == kind }) {
			kinds = append(kinds, kind)
			fields = append(fields, kind+"=FIELD")
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	return fmt.Errorf("%s is limited per %s, and -features names no field for that: add %s",
		event.Name, strings.Join(kinds, " and "), strings.Join(fields, ","))
}

// runOffline does what is asked for without a server.
func (f *replayFlags) runOffline(ctx context.Context, set *flag.FlagSet, std streams) int {
	var event *events.Event
	var err error
	if f.offline.rules != "" {
		event, err = f.offline.event(f.event, given(set, "event"))
	}
	if event != nil {
		err = lacking(event, f.log.source.mapping)
	}
	if err = cmp.Or(err, f.log.source.check(std)); err != nil {
		return std.refused(set, func() string { return replayHelp(set) }, err)
	}
	if event != nil {
		return f.runWhatIf(ctx, event, std)
	}
	return f.runSuggest(ctx, std)
}

// runWhatIf says what rules would have done.
func (f *replayFlags) runWhatIf(ctx context.Context, event *events.Event, std streams) int {
	log, err := f.log.source.read(ctx, std)
	if err != nil {
		return std.failed(ctx, err)
	}
	bar := newBar(std.err)
	report, err := whatif.Run(ctx, whatif.Config{
		Event: event, Log: log, CostKind: f.offline.costs(), Top: f.offline.named(), MaxBytes: int64(f.offline.memory) << 20, Progress: bar,
	})
	bar.finish()
	if err != nil {
		return std.failed(ctx, offlineAdvice(err))
	}
	if err := writeResult(std.out, report, f.json); err != nil {
		return std.failed(ctx, err)
	}
	return f.offline.finish(ctx, report.Page, nil, std)
}

// runSuggest suggests limits.
func (f *replayFlags) runSuggest(ctx context.Context, std streams) int {
	log, err := f.log.source.read(ctx, std)
	if err != nil {
		return std.failed(ctx, err)
	}
	var kinds []string
	for _, k := range f.log.source.mapping {
		if k.Kind != costKind {
			kinds = append(kinds, k.Kind)
		}
	}
	bar := newBar(std.err)
	report, err := whatif.Suggest(ctx, whatif.SuggestConfig{
		Config: whatif.Config{Log: log, CostKind: f.offline.costs(), Top: f.offline.named(), MaxBytes: int64(f.offline.memory) << 20, Progress: bar},
		Name:   f.log.source.name(), Kinds: kinds, EventName: f.event, IPv6Prefix: f.offline.ipv6Prefix, Deny: f.offline.deny,
	})
	bar.finish()
	if err != nil {
		return std.failed(ctx, offlineAdvice(err))
	}
	if err := writeResult(std.out, report, f.json); err != nil {
		return std.failed(ctx, err)
	}
	printed := f.offline.write == "" || f.offline.write == "-"
	if printed && !f.json {
		if _, err := fmt.Fprintf(std.out, "\n%s", report.Rules); err != nil {
			return std.failed(ctx, err)
		}
	}
	var rules []byte
	if !printed {
		rules = []byte(report.Rules)
	}
	return f.offline.finish(ctx, report.Page, rules, std)
}

// named returns how many features a report names, as it takes it.
func (f *offlineFlags) named() int {
	if f.top == 0 {
		return -1
	}
	return f.top
}

// finish writes the files that were asked for, and returns the exit status.
func (f *offlineFlags) finish(ctx context.Context, made func() page.Page, rules []byte, std streams) int {
	if rules != nil {
		if err := writeFile(f.write, func(out io.Writer) error { _, err := out.Write(rules); return err }); err != nil {
			return std.failed(ctx, fmt.Errorf("-write: %w", err))
		}
	}
	if f.html != "" {
		if err := writeFile(f.html, made().Write); err != nil {
			return std.failed(ctx, fmt.Errorf("-html: %w", err))
		}
	}
	return exitOK
}

// writeFile writes a file, and none where it cannot write all of it.
func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := cmp.Or(write(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// offlineAdvice says what helps.
func offlineAdvice(err error) error {
	switch {
	case errors.Is(err, whatif.ErrMemory):
		return fmt.Errorf("%w; -memory allows more", err)
	case errors.Is(err, whatif.ErrNoFeatures):
		return fmt.Errorf("%w; -features names the fields", err)
	case errors.Is(err, whatif.ErrTime):
		return fmt.Errorf("%w; -time-layout says how the log writes its times", err)
	}
	return err
}

// name returns what the log is called in a report: its files without their folders.
func (s logSource) name() string {
	var names []string
	for _, file := range s.files {
		if file == "-" {
			file = "standard input"
		}
		names = append(names, filepath.Base(file))
	}
	return strings.Join(names, ", ")
}
