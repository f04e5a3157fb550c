package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"

	"github.com/counterd/counterd/loadtest/soak"
)

const soakUsage = `loadtest soak lets counterd run for long while its servers die.

Usage: loadtest soak [flags]

It starts three Memcached servers and two processes of counterd that keep two copies of
each counter, on free ports of loopback, and ends them. Callers hit and count all the
time, each when its call before was answered, while servers are killed (kill -9) at
random, one at a time, and come back empty. All that callers are told is held against
an oracle.

It fails if an acknowledged count is lost, if more is counted than may be, if a window
held more than its limit, if calls took longer than the timeout and a second, if a
process has more goroutines afterwards than before, or if its live heap has grown by
more than a quarter and 8 MiB from the first third of the time to the last.

One slow call proves nothing: where there was one, callers call for up to half a minute
more, up to twice, and it fails if that happened in two of these rounds. Where other
programs took much of the machine's CPU time, it says so.

What was killed last is waited for, and everything is counted, when the callers have
ended: that takes half a minute, or a minute or two after much load.

Flags:

%s
Examples:

  loadtest soak -duration 1m
  loadtest soak -duration 8h -callers 128 -json

Interrupted, callers call no more, what was killed is not waited for, and all is counted.
Goroutines are not compared then, and memory only where there were %s of it.

Exit status: 0 all is right; 1 something is not; 2 wrong usage; 130 interrupted, and all
was right until then.
`

// soakFlags are the arguments of loadtest soak.
type soakFlags struct {
	config soak.Config
	json   bool
}

func (f *soakFlags) set() *flag.FlagSet {
	set := newFlags("soak")
	set.DurationVar(&f.config.Duration, "duration", soak.DefaultDuration, "how `long` callers call")
	set.IntVar(&f.config.Callers, "callers", soak.DefaultCallers, "`number` of callers")
	set.Uint64Var(&f.config.Seed, "seed", 0, "`number` that the moments depend on at which servers die (default a random one)")
	set.StringVar(&f.config.Memcached, "memcached-binary", "memcached", "the `program` memcached")
	set.StringVar(&f.config.Counterd, "counterd", "", "the `program` counterd (default the one beside this program)")
	set.BoolVar(&f.json, "json", false, "print the result as JSON")
	return set
}

func (f *soakFlags) parse(set *flag.FlagSet, args []string) error {
	if err := parseFlags(set, args); err != nil {
		return err
	}
	if err := noArguments(set); err != nil {
		return err
	}
	// The library takes 0 for the default, which nobody means who writes it.
	switch {
	case given(set, "duration") && f.config.Duration < soak.MinDuration:
		return fmt.Errorf("-duration is at least %s", soak.MinDuration)
	case f.config.Callers < 1:
		return errors.New("-callers is at least 1")
	}
	if f.config.Seed == 0 {
		f.config.Seed = rand.Uint64()
	}
	if f.config.Counterd == "" {
		var err error
		if f.config.Counterd, err = besideThis("counterd"); err != nil {
			return err
		}
	}
	return programsThere(f.config.Check())
}

func runSoak(ctx context.Context, args []string, std streams) int {
	var flags soakFlags
	set := flags.set()
	if err := flags.parse(set, args); err != nil {
		return std.refused(set, func() string { return fmt.Sprintf(soakUsage, defaultsOf(set), soak.MinDuration) }, err)
	}
	std.complain("callers call for %s, and then wait for what was killed; -seed %d", flags.config.Duration, flags.config.Seed)
	flags.config.Progress = std.err
	report, err := soak.Run(ctx, flags.config)
	if err == nil {
		err = writeResult(std.out, report, flags.json)
	}
	if err != nil {
		return std.failed(ctx, err)
	}
	return std.ended(ctx, len(report.Faults) == 0)
}
