package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/counterd/counterd/loadtest/bench"
)

func benchAbout() string {
	length := bench.Config{Rounds: bench.DefaultRounds, Duration: bench.DefaultDuration}.Estimate().Round(10 * time.Second)
	return fmt.Sprintf(`It prints rates, ratios and costs, in about %s with the defaults: the median of the
rounds, the least and the greatest. In each round every row runs for a short slice; a ratio is
that of two slices of one round. It starts Memcached, counterd and a do-nothing server as
processes of its own. Each row verifies its work: an error, an unexpected answer, a hit
decided without the store, or a wrong counter ends the run. docs/performance.md explains the
rows and the columns. CPU times are known on Linux only.

With -base it compares this build with another build instead, which runs the matching rows by
turns with this one, in 20 rounds by default. The exit status is 1 if a row is slower: if the
95%% interval of its ratio to the base ends below 0.97.

Rows:

%s`, length, bench.Rows())
}

const benchExamples = `  loadtest bench
  loadtest bench -rows 'A3|B2'            those, and the rows that they are compared with
  loadtest bench -rounds 20 -duration 2s -rows '^B' -json
  loadtest bench -base old/loadtest -rows '^(A3|B2) '
`

// doNothing is the command that serves bench.ServeNothing for loadtest bench.
const doNothing = "do-nothing"

// benchFlags are the arguments of loadtest bench.
type benchFlags struct {
	config bench.Config
	rows   string
	this   bench.Build // set if base is
	base   bench.Build
}

func (f *benchFlags) flags(set *flag.FlagSet) {
	set.IntVar(&f.config.Rounds, "rounds", bench.DefaultRounds, "`number` of slices of each row")
	set.DurationVar(&f.config.Duration, "duration", bench.DefaultDuration, "`length` of a slice")
	set.StringVar(&f.rows, "rows", "", "measure the rows that match this `regexp`, and those that they are compared with (default all)")
	set.StringVar(&f.config.Peer, "peer", "", "another rate limit service's `address` for gRPC, for rows that measure it beside counterd (default none)")
	set.StringVar(&f.base.Loadtest, "base", "", "compare this build with another build's loadtest `program`, which has its counterd beside it (default none)")
	set.StringVar(&f.config.Counterd, "counterd", "", "the `program` counterd (default the one beside this program)")
}

func (f *benchFlags) check(set *flag.FlagSet) (err error) {
	if err := refused(set); err != nil {
		return err
	}
	if f.rows != "" {
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
	if f.base.Loadtest == "" {
		return programsThere(f.config.Check())
	}
	return f.checkBase(self, given(set, "rounds"))
}

// checkBase checks the config for both builds.
func (f *benchFlags) checkBase(self string, roundsGiven bool) error {
	if !roundsGiven {
		f.config.Rounds = bench.CompareRounds
	}
	if f.config.Rounds < 2 {
		return errors.New("-base needs -rounds of 2 or more: one round has no interval")
	}
	if err := programsThere(f.config.Check()); err != nil {
		return err
	}
	path, err := filepath.Abs(f.base.Loadtest)
	if err == nil {
		_, err = exec.LookPath(path)
	}
	if err != nil {
		return fmt.Errorf("-base: %w", err)
	}
	f.this = bench.Build{Loadtest: self, Counterd: f.config.Counterd}
	f.base = bench.Build{Loadtest: path, Counterd: filepath.Join(filepath.Dir(path), "counterd")}
	baseConfig := f.config
	baseConfig.Counterd = f.base.Counterd
	if err := baseConfig.Check(); err != nil {
		return fmt.Errorf("-base: %w: it must be beside the base", err)
	}
	return nil
}

func (f *benchFlags) run(ctx context.Context, s *session) (bool, error) {
	f.config.Progress = s.bar
	if f.base.Loadtest != "" {
		s.complain("this takes about %s", f.config.EstimateCompare().Round(time.Second))
		comparison, err := bench.Compare(ctx, f.config, f.this, f.base)
		if err != nil {
			return false, err
		}
		return !comparison.Slower(), s.print(comparison)
	}
	s.complain("this takes about %s", f.config.Estimate().Round(time.Second))
	report, err := bench.Run(ctx, f.config)
	if err != nil {
		return false, err
	}
	return true, s.print(report)
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
