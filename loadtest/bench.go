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

const benchUsage = `loadtest bench measures counterd against a plain program.

Usage: loadtest bench [flags]

It prints rates, ratios and costs, %s with the defaults: the median of the
rounds, the least and the greatest. In each round every row runs for a short slice; a ratio is
that of two slices of one round. It starts Memcached, counterd and a do-nothing server as
processes of its own. Each row verifies its work: an error, an unexpected answer, a hit
decided without the store, or a wrong counter ends the run. docs/performance.md explains the
rows and the columns. CPU times and calls of processes are known on Linux only.

Flags:

%s
Rows:

%s
Examples:

  loadtest bench
  loadtest bench -rows 'A3|B2'            those, and the rows that they are compared with
  loadtest bench -rounds 20 -duration 2s -rows '^B' -json

Exit status: 0 measured, whether or not targets are met; 1 not measured; 2 wrong usage;
130 interrupted: it prints the rows of the finished rounds.
`

// doNothing is the command that serves bench.ServeNothing for loadtest bench.
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
	f.config.DoNothing = []string{self, doNothing}
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
	return std.result(ctx, report, flags.json, err, err == nil)
}

func benchHelp(set *flag.FlagSet) string {
	var rows strings.Builder
	for _, row := range bench.Rows() {
		fmt.Fprintf(&rows, "  %-4s %s\n", row.ID, row.Name)
	}
	length := bench.Config{Rounds: bench.DefaultRounds, Duration: bench.DefaultDuration}.Estimate()
	return fmt.Sprintf(benchUsage, "in about "+length.Round(10*time.Second).String(), defaultsOf(set), rows.String())
}

// runNothing serves the do-nothing handler on an address.
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
