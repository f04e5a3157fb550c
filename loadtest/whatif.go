package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/insight/dryrun"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/page"
	"github.com/counterd/counterd/loadtest/share"
	"github.com/counterd/counterd/loadtest/whatif"
)

// costKind is the kind by which the cost of a line goes through a log's features.
const costKind = "cost-of-the-hit"

// offlineFlags say what a replay does, and hold the flags of one without a server.
type offlineFlags struct {
	rules       string
	suggest     bool
	increment   bool // through a server
	failures    bool
	deny        share.Share
	write       string
	html        string
	cost        string
	top, memory int
}

func (f *offlineFlags) add(set *flag.FlagSet) {
	set.StringVar(&f.rules, "rules", "", "say what the rules of this `file` would have done, without a server")
	set.BoolVar(&f.suggest, "suggest", false, "suggest limits, without a server (default without -rules and -increment)")
	set.BoolVar(&f.increment, "increment", false, "increment the event at the server\nfor each line, and compare every count")
	set.TextVar(&f.deny, "deny", whatif.DefaultDeny, "with -suggest: the `percentage` of features that may be denied")
	set.BoolVar(&f.failures, "failures", false, "with -suggest: the log is of failures, as of logins: suggest limits\n"+
		"that catch who made most of them (default with -format sshd)")
	set.StringVar(&f.write, "write", "", "with -suggest: write the rules to this `file`; - or none: print them")
	set.StringVar(&f.html, "html", "", "with -rules or -suggest: write the report to this `file`, with plots")
	set.StringVar(&f.cost, "cost", "", "with -rules or -suggest: the `field` that holds what a hit costs; a line without it\n"+
		"costs 1 (default n with -format sshd: a repeated message costs as often as it came)")
	set.IntVar(&f.top, "top", whatif.DefaultTop, "with -rules or -suggest: `number` of the most denied features to name")
	set.IntVar(&f.memory, "memory", int(whatif.DefaultMaxBytes>>20), "with -rules or -suggest: `MiB` that counters may take")
}

// check finds flags that are wrong, or have no meaning together, and has the log be read with
// the costs.
func (f *offlineFlags) check(set *flag.FlagSet, log *logFlags) error {
	f.suggest = f.suggest || f.rules == "" && !f.increment
	if err := refused(set,
		refusal{!f.suggest, "deny write failures", "is for -suggest"},
		refusal{f.increment, "html cost top memory", "is for -rules and -suggest"},
		refusal{!f.increment, "url windows c timeout reset " + credentialFlags, "is for -increment, as a server is"},
		refusal{f.increment && (f.suggest || f.rules != ""), "increment", "excludes -rules and -suggest"},
		refusal{f.suggest, "rules", "says what rules would have done and -suggest finds some: one of them at a time"},
		refusal{f.top < 0, "top", "is at least 0"},
		refusal{strings.ContainsAny(f.cost, ",="), "cost", "is the name of one field"},
	); err != nil {
		return err
	}
	if log.config.Format == "sshd" && !f.increment {
		f.cost = cmp.Or(f.cost, accesslog.RepeatedField)
		f.failures = f.failures || !given(set, "failures")
	}
	if f.cost != "" {
		log.features += "," + costKind + "=" + f.cost
	}
	if f.top == 0 {
		f.top = -1 // as a report takes it
	}
	return nil
}

// event reads the rules, and returns the event that is meant: of that name if it was
// given, else the only one. The rules are per kinds that fields are named for.
func (f *offlineFlags) event(name string, given bool, mapping accesslog.Mapping) (*events.Event, error) {
	rules, err := rulesfile.Read(f.rules)
	if err != nil {
		return nil, fmt.Errorf("-rules: %w", err)
	}
	var names, kinds, fields []string
	for _, e := range rules.All() {
		names = append(names, e.Name)
	}
	if !given && len(names) == 1 {
		name = names[0]
	}
	event, err := rules.Event(name)
	if err != nil {
		return nil, fmt.Errorf("-event names one of the rules: %s", strings.Join(names, ", "))
	}
	for _, kind := range event.Kinds() {
		if !slices.ContainsFunc(mapping, func(k accesslog.Kind) bool { return k.Kind == kind }) {
			kinds = append(kinds, kind)
			fields = append(fields, kind+"=FIELD")
		}
	}
	if len(kinds) > 0 {
		return nil, fmt.Errorf("%s is limited per %s, and -features names no field for that: add %s",
			event.Name, strings.Join(kinds, " and "), strings.Join(fields, ","))
	}
	return event, nil
}

// pageResult is a result with a page.
type pageResult interface {
	result
	Page() page.Page
}

// withoutServer says what rules would have done, or suggests limits.
func (f *replayFlags) withoutServer(ctx context.Context, log *accesslog.Log, s *session) error {
	config := whatif.Config{Event: f.rules, Log: log, Top: f.offline.top, MaxBytes: int64(f.offline.memory) << 20, Progress: s.bar}
	if f.offline.cost != "" {
		config.CostKind = costKind
	}
	if f.rules != nil {
		report, err := whatif.Run(ctx, config)
		if err != nil {
			return offlineAdvice(err)
		}
		return s.printAndWrite(report, f.offline.html)
	}
	var kinds []string
	for _, k := range f.log.mapping {
		if k.Kind != costKind {
			kinds = append(kinds, k.Kind)
		}
	}
	report, err := whatif.Suggest(ctx, whatif.SuggestConfig{
		Config: config, Name: f.log.name(), Kinds: kinds, EventName: f.event, Deny: f.offline.deny,
		Failures: f.offline.failures,
	})
	if err != nil {
		return offlineAdvice(err)
	}
	if err := s.printAndWrite(report, f.offline.html); err != nil {
		return err
	}
	switch {
	case f.offline.write != "" && f.offline.write != "-":
		if err := os.WriteFile(f.offline.write, []byte(report.Rules), 0o666); err != nil {
			return fmt.Errorf("-write: %w", err)
		}
	case !s.json:
		if _, err := fmt.Fprintf(s.out, "\n%s", report.Rules); err != nil {
			return err
		}
	}
	return nil
}

// printAndWrite prints a result, and writes its page to a file if it has a name.
func (s *session) printAndWrite(r pageResult, name string) error {
	if err := s.print(r); err != nil || name == "" {
		return err
	}
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("-html: %w", err)
	}
	return errors.Join(r.Page().Write(file), file.Close())
}

// offlineAdvice says what helps.
func offlineAdvice(err error) error {
	switch {
	case errors.Is(err, dryrun.ErrMemory):
		return fmt.Errorf("%w; -memory allows more", err)
	case errors.Is(err, whatif.ErrNoFeatures):
		return fmt.Errorf("%w; -features names the fields", err)
	case errors.Is(err, whatif.ErrTime):
		return fmt.Errorf("%w; -time-layout says how the log writes its times", err)
	}
	return err
}

// name returns what the log is called in a report: its files without their folders.
func (f *logFlags) name() string {
	var names []string
	for _, file := range f.files {
		if file == "-" {
			file = "standard input"
		}
		names = append(names, filepath.Base(file))
	}
	return strings.Join(names, ", ")
}
