package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/counterd/counterd/loadtest/bench"
)

const benchUsage = `loadtest bench measures counterd against what a plain program would do instead.

Usage: loadtest bench [flags]

It prints a table of rates, ratios and costs, %s with the defaults. What
is compared takes turns: in each round every row runs for a short slice, and the
ratio of two rows is that of their slices of one round. Shown is the median of the
rounds, and in brackets the least and the greatest. Each slice has a run-in of an
eighth of its length that is not measured.

It starts Memcached (two threads, TCP), counterd and a server that does nothing as
processes of its own, on free ports of loopback, and ends them. An error, an
unexpected answer, a hit that was decided without the store, or a counter that does
not hold what was added to it ends the run, with exit status 1.

The plain program (A1, A2) adds with gomemcache to the buckets of the second, the
minute and the hour, and makes those that are not there, and reads the 142 buckets of
the last day in one GetMulti; its keys are named as counterd names them. It decides
nothing. The plain server (do-nothing) is gorilla/mux and encoding/json: it decodes
the same body, sets the same headers and encodes the same answer, and counts nothing.

The rows in this process hit 10,000 counters at random, unless they say otherwise, and
have a timeout of a second. A slice begins, as every second does, with buckets of the
second that nobody has made yet: the shorter it is, the more of its hits make one.

Over HTTP the client is a loop of this process that writes prepared bytes to one
connection and reads the answer, and looks into it, with as little of HTTP/1.1 as that
takes: no net/http, for what the client takes the server does not get. What it costs
stands in the column "CPU client". In the open model requests arrive evenly, at half
of the rate that counterd reached with 64 connections, and the time of an answer begins
when its request was due. Those rows have three times as many slices, since one stall
of the machine makes the p99 of a slice.

Calls of the system and CPU times of processes are known on Linux only; elsewhere
there are dashes.

Flags:

%s
Rows:

%s
Examples:

  loadtest bench
  loadtest bench -rows 'A3|B2'            those, and what they are compared with
  loadtest bench -rounds 20 -duration 2s -rows '^B' -json

Interrupted, it prints the rows that have had a round by then.

Exit status: 0 measured, whether or not a target is met; 1 it could not be; 2 wrong
usage; 130 interrupted.
`

// doNothing is the command, of no use to anybody else, that loadtest bench runs to
// have a server to compare with.
const doNothing = "do-nothing"

// benchFlags are the arguments of loadtest bench.
type benchFlags struct {
	config bench.Config
	rows   string
	json   bool
}

func (f *benchFlags) set() *flag.FlagSet {
	set := newFlags("bench")
	set.IntVar(&f.config.Rounds, "rounds", bench.DefaultRounds, "`number` of slices of each row")
	set.DurationVar(&f.config.Duration, "duration", bench.DefaultDuration, "`length` of a slice")
	set.StringVar(&f.rows, "rows", "", "measure the rows that match this `regexp`, and those that they are compared with (default all)")
	set.StringVar(&f.config.Memcached, "memcached-binary", "memcached", "the `program` memcached")
	set.StringVar(&f.config.Counterd, "counterd", "", "the `program` counterd (default the one beside this program)")
	set.BoolVar(&f.json, "json", false, "print the figures as JSON")
	return set
}

func (f *benchFlags) parse(set *flag.FlagSet, args []string) error {
	if err := parseFlags(set, args); err != nil {
		return err
	}
	if err := noArguments(set); err != nil {
		return err
	}
	if f.rows != "" {
		var err error
		if f.config.Rows, err = regexp.Compile(f.rows); err != nil {
			return fmt.Errorf("-rows: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.config.Nothing = []string{self, doNothing}
	if f.config.Counterd == "" {
		if f.config.Counterd, err = besideThis("counterd"); err != nil {
			return err
		}
	}
	return programsThere(f.config.Check())
}

func runBench(ctx context.Context, args []string, std streams) int {
	var flags benchFlags
	set := flags.set()
	if err := flags.parse(set, args); err != nil {
		return std.refused(set, func() string { return benchHelp(set) }, err)
	}
	std.complain("this takes about %s", flags.config.Estimate().Round(time.Second))
	bar := newBar(std.err)
	flags.config.Progress = bar
	report, err := bench.Run(ctx, flags.config)
	bar.finish()
	if err == nil {
		err = writeResult(std.out, report, flags.json)
	}
	if err != nil {
		return std.failed(ctx, err)
	}
	return std.ended(ctx, true)
}

func benchHelp(set *flag.FlagSet) string {
	var rows strings.Builder
	for _, row := range bench.Rows() {
		fmt.Fprintf(&rows, "  %-4s %s\n", row.ID, row.Name)
	}
	length := bench.Config{Rounds: bench.DefaultRounds, Duration: bench.DefaultDuration}.Estimate()
	return fmt.Sprintf(benchUsage, "in about "+length.Round(10*time.Second).String(), defaultsOf(set), rows.String())
}

// runNothing serves what does nothing, on the address given.
func runNothing(ctx context.Context, args []string, std streams) int {
	if len(args) != 1 {
		std.complain("%s takes the address to serve on", doNothing)
		return exitUsage
	}
	if err := bench.ServeNothing(ctx, args[0]); err != nil {
		std.complain("%v", err)
		return exitFailed
	}
	return exitOK
}
