package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/plan"
)

const planUsage = `loadtest plan says what rules and the traffic that is expected need.

Usage: loadtest plan -rules FILE -features-a-day N -events-a-day N [flags]
       loadtest plan -rules FILE [flags] FILE...

It prints, per event, per counter and in all, the items that Memcached holds at the peak, by
level, with how long they live; their memory; adds, reads and trips, bytes on the wire and
CPU time of a second, on the average and at the peak; how many Memcached servers that takes,
one of which may be lost, and the -m to start them with. And what all that rests on.

From numbers: -features-a-day are how many addresses, users and so on do the event each day,
and -events-a-day how often they do it, all together. A number may be of one kind, as in
-features-a-day 1000000,user=300000, of kinds together (ip+user=1500000), and of one event
(login/ip=20000 of features, login/=50000 of events).

From a log, FILE, or - for standard input, features, events, the peak and how events spread
are measured: buckets are counted, not estimated. The log is of one event and held in memory,
16 bytes a line and each feature once. Its busiest minute is the peak.

With -check it fills Memcached servers of its own with the traffic of a day, by the engine and
as fast as that goes, on a clock of its own, and prints planned and measured side by side.
Of more than -check-features and -check-hits a part is played: fewer features, that do as much
each. The CPU time of a hit is measured with a quarter of it first, and that is the plan's;
-calibrate does that alone, ahead of a plan.

%s
Flags:

%s
Examples:

  loadtest plan -rules rules.yaml -features-a-day 1000000 -events-a-day 20000000
  loadtest plan -rules rules.yaml -features-a-day 1e6 -events-a-day 2e7 -session-events 10 -session-length 5m
  loadtest plan -rules rules.yaml -event url_shorten access.log.gz
  loadtest plan -rules rules.yaml -features-a-day 1e6 -events-a-day 2e6 -check

Exit status: 0 planned; 1 it could not be, or a figure of -check is more than 15%% off, CPU
times aside; 2 wrong usage; 130 interrupted, and nothing is said.
`

// planFlags are the arguments of loadtest plan.
type planFlags struct {
	config           plan.Config
	rules            string
	features, events string
	memory, session  string
	headroom         float64
	log              logFlags
	calibrate, check bool
	checking         plan.CheckConfig
	json             bool
}

func (f *planFlags) set() *flag.FlagSet {
	set := newFlags("plan")
	set.StringVar(&f.rules, "rules", "", "the rules `file`")
	set.StringVar(&f.config.Event, "event", "", "plan for this `event` only (default all that the rules name)")
	set.StringVar(&f.features, "features-a-day", "", "`number` of features that do an event each day, of each kind")
	set.StringVar(&f.events, "events-a-day", "", "`number` of events each day, of all features together")
	set.Float64Var(&f.config.Peak, "peak", plan.DefaultPeak, "how many `times` the average comes in the busiest time")
	set.Float64Var(&f.config.Sessions.Events, "session-events", 0, "a feature's events come in sessions of this `number`")
	set.StringVar(&f.session, "session-length", "", "`time` over which a session's events are spread, as 5m")
	set.IntVar(&f.config.Replicas, "replicas", plan.DefaultReplicas, "`number` of copies of each counter, as counterd's -replicas")
	set.IntVar(&f.config.Processes, "processes", plan.DefaultProcesses, "`number` of processes of counterd")
	set.DurationVar(&f.config.Grace, "grace", 0, "counterd's `-grace` (default 2s)")
	set.StringVar(&f.memory, "server-memory", "4GiB", "`memory` that one Memcached may take as a whole")
	set.Float64Var(&f.config.Server.Cores, "server-cores", plan.DefaultCores, "`number` of cores, and threads, of one Memcached")
	set.Float64Var(&f.config.Server.Busy, "busy", plan.DefaultBusy, "`part` of its cores' time that may be taken at the peak")
	set.Float64Var(&f.headroom, "headroom", plan.DefaultHeadroom, "`part` of the items' memory that is kept free beside it")
	set.DurationVar(&f.config.Costs.MemcachedHit, "memcached-cpu-per-hit", 0, "Memcached's CPU `time` of a hit, all copies together (default from docs/performance.md)")
	set.DurationVar(&f.config.Costs.CounterdHit, "counterd-cpu-per-hit", 0, "counterd's CPU `time` of a hit (default from docs/performance.md)")
	set.BoolVar(&f.calibrate, "calibrate", false, "measure the CPU times of a hit on this machine first")
	set.BoolVar(&f.check, "check", false, "hold the plan against a Memcached that is filled with the traffic")
	set.IntVar(&f.checking.Features, "check-features", plan.DefaultCheckFeatures, "the most features to play, as a `number`")
	set.IntVar(&f.checking.Hits, "check-hits", plan.DefaultCheckHits, "the most hits to play, as a `number`")
	set.Uint64Var(&f.checking.Seed, "seed", 1, "`number` that the moments of the hits that are played depend on")
	set.StringVar(&f.checking.Memcached, "memcached-binary", "memcached", "the `program` memcached, for -check and -calibrate")
	f.log.add(set)
	set.BoolVar(&f.json, "json", false, "print the plan as JSON")
	return set
}

func (f *planFlags) parse(set *flag.FlagSet, args []string) error {
	if err := parseFlags(set, args); err != nil {
		return err
	}
	if f.isLog(set) {
		if err := f.log.parse(set); err != nil {
			return err
		}
	}
	var faults []error
	keep := func(name string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("-%s: %w", name, err))
		}
	}
	var err error
	if f.features != "" {
		f.config.Features, err = plan.ParseAmounts(f.features)
		keep("features-a-day", err)
	}
	if f.events != "" {
		f.config.Events, err = plan.ParseAmounts(f.events)
		keep("events-a-day", err)
	}
	if f.session != "" {
		f.config.Sessions.Length, err = events.ParseDuration(f.session)
		keep("session-length", err)
	}
	f.config.Server.Memory, err = parseBytes(f.memory)
	keep("server-memory", err)
	f.config.Server.Headroom = f.headroom
	if f.headroom == 0 {
		f.config.Server.Headroom = -1 // none
	}
	if f.headroom < 0 {
		faults = append(faults, errors.New("-headroom is at least 0"))
	}
	if f.isLog(set) {
		faults = append(faults, f.checkLog(set))
	}
	if f.check && f.calibrate {
		faults = append(faults, errors.New("-check calibrates by itself, without -calibrate"))
	}
	if f.checking.Features < 1 || f.checking.Hits < 1 {
		faults = append(faults, errors.New("-check-features and -check-hits are at least 1"))
	}
	if f.rules == "" {
		faults = append(faults, errors.New("-rules is wanted: the rules file to plan for"))
	}
	return errors.Join(faults...)
}

// isLog reports whether there is a log to plan from.
func (f *planFlags) isLog(set *flag.FlagSet) bool { return set.NArg() > 0 }

// checkLog finds flags that say what a log says.
func (f *planFlags) checkLog(set *flag.FlagSet) error {
	var faults []error
	set.Visit(func(given *flag.Flag) {
		switch given.Name {
		case "features-a-day", "events-a-day", "peak", "session-events", "session-length", "check", "calibrate":
			faults = append(faults, fmt.Errorf("-%s is of no use with a log", given.Name))
		}
	})
	return errors.Join(faults...)
}

// parseBytes reads an amount of memory: 4GiB, 512MiB, or bytes.
func parseBytes(text string) (int64, error) {
	number, factor := text, int64(1)
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, found := strings.CutSuffix(text, unit); found {
			number, factor = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > 1<<50/factor {
		return 0, fmt.Errorf("%q is not memory as in 4GiB, 512MiB or 268435456", text)
	}
	return n * factor, nil
}

func runPlan(ctx context.Context, args []string, std streams) int {
	var flags planFlags
	set := flags.set()
	help := func() string { return fmt.Sprintf(planUsage, logFormats, defaultsOf(set)) }
	err := flags.parse(set, args)
	if err == nil {
		flags.config.Rules, err = events.ReadRules(flags.rules)
	}
	if err == nil && flags.isLog(set) {
		flags.config.Log = func(func(time.Time, events.Features) bool) {} // for Check
	}
	if err == nil {
		err = flags.config.Check()
	}
	if err == nil && (flags.check || flags.calibrate) {
		flags.checking.Plan = flags.config
		err = flags.checking.Check()
	}
	if err != nil {
		return std.refused(set, help, err)
	}
	bar := newBar(std.err)
	defer bar.finish()
	flags.checking.Progress, flags.checking.Done = bar.Start, bar.Add
	switch {
	case flags.check:
		return checkPlan(ctx, flags, std, bar)
	case flags.isLog(set):
		log, err := flags.log.source.read(ctx, std)
		if err != nil {
			return std.failed(ctx, err)
		}
		flags.config.Log = log.All()
	case flags.calibrate:
		if flags.config.Costs, err = plan.Calibrate(ctx, flags.checking); err != nil {
			return std.failed(ctx, err)
		}
		bar.finish()
	}
	report, err := plan.Run(ctx, flags.config)
	if err == nil {
		err = writeResult(std.out, report, flags.json)
	}
	if err != nil {
		return std.failed(ctx, err)
	}
	return exitOK
}

// checkPlan holds the plan against servers.
func checkPlan(ctx context.Context, flags planFlags, std streams, bar *bar) int {
	checked, err := plan.RunCheck(ctx, flags.checking)
	bar.finish()
	if err == nil {
		err = writeResult(std.out, checked, flags.json)
	}
	switch {
	case err != nil:
		return std.failed(ctx, err)
	case len(checked.Off()) > 0:
		return exitFailed
	}
	return exitOK
}
