package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/loadtest/process"
	load "github.com/counterd/counterd/loadtest/run"
)

const runUsage = `loadtest run puts load on counterd, and says what became of it.

Usage: loadtest run [flags]

Requests arrive when they are due, whatever happens to those before: an open model. The
latency of each counts from the moment at which it was due, so the wait for a target that
stalls is in it, and so is the wait for one of the places in flight. "late" is this
program's own share of it.

It calls each -url in turn, or, with -embedded, decides in this process itself, on its
memory or straight on Memcached servers, without HTTP. Before any load it asks whether a
call like those to come can be made. What it counts stays counted.

How many requests come is said by -rate, or by -profile:

  ramp:100-2000           from one rate a second to another, over the -duration
  step:100x10s,500x20s    rates, each for a while
  burst:100+2000/10s      a rate, and in the middle of every 10s 2,000 at once
  burst:100+2000@5000/10s the same, these at 5,000 a second

It measures, and leaves the judging to you, unless -max-failures or -max-p99 say what has to
be kept. Denials are answers; failures are what was not answered, or not as the contract has
it, 503s, and what was not sent for want of a place in flight.

With -find-max it doubles the rate until the p99 exceeds the bound -p99, the rate is not
reached, or more than 1%% of the requests fail, and then bisects to within 5%%. One trial
that fails proves nothing: it is repeated until those that fail lead by three, or those that
pass lead. Both bounds are tried again at the end. After 100 trials it gives up.

Trips and reads of its stores are what the target tells at /metrics, less what it had told
before; whoever else uses it is in them. CPU time and memory are those of the process that
listens there, on this machine and on Linux only. With -embedded they are of this process,
the making of the load included.

Memory is bounded for any length.

Flags:

%s
Examples:

  loadtest run -rate 1000 -duration 30s
  loadtest run -url http://a:8080 -url http://b:8080 -rate 5000 -zipf 1.1 -crowd 100000 -html run.html
  loadtest run -profile burst:200+2000/10s -duration 1m -mix hit=80,check=10,increment=5,count=5
  loadtest run -embedded 127.0.0.1:11211 -rules rules.yaml -event login_failed -kind email -rate 2000
  loadtest run -rate 500 -duration 1m -max-failures 0.1%% -max-p99 20ms       for a pipeline
  loadtest run -url https://counterd.internal:8443 -ca ca.pem -cert me.pem -key me.key -token-file token
  loadtest run -find-max -p99 5ms -trial 10s

Exit status: 0 measured, and -max-failures and -max-p99 kept; with -find-max, found; 1 not
so, no request succeeded, or the target cannot be reached; 2 wrong usage; 130 interrupted,
and kept until then.
`

func runRun(ctx context.Context, args []string, std streams) int {
	flags := newRunFlags()
	set := flags.set()
	if err := flags.parse(set, args); err != nil {
		return std.refused(set, func() string { return fmt.Sprintf(runUsage, defaultsOf(set)) }, err)
	}
	target, err := flags.target(ctx)
	if errors.Is(err, errRunUsage) {
		return std.refused(set, nil, err)
	}
	if err != nil {
		return std.failed(ctx, err)
	}
	status := flags.run(ctx, target, std)
	if err := target.Close(); err != nil {
		std.complain("%v", err)
		return exitFailed
	}
	return status
}

// runResult is a report of a run, or of a search.
type runResult interface {
	result
	WriteHTML(io.Writer) error
}

// run loads the target and writes what was measured.
func (f *runFlags) run(ctx context.Context, target load.Target, std streams) int {
	source, err := f.source(ctx, target)
	if err != nil {
		return std.failed(ctx, f.credentials.advised(err))
	}
	if err := f.checkHTML(); err != nil {
		return std.failed(ctx, err)
	}
	std.complain("this takes %s; -seed %d", f.takes(), f.seed)
	bar := newBar(std.err)
	config := load.Config{
		Target: target, Source: source, Profile: f.profile, Duration: f.duration, WarmUp: f.warmUp, InFlight: f.inFlight,
		Drain: f.timeout, Traffic: f.says(), Progress: bar, Pause: process.Sleep, Machine: process.Machine,
	}
	if bar.out == nil {
		config.Progress = nil
	}
	found, good, broken, err := f.measure(ctx, config)
	bar.finish()
	if err == nil {
		err = writeResult(std.out, found, f.json)
	}
	if err == nil && f.html != "" {
		err = f.writeHTML(found)
	}
	if err != nil {
		return std.failed(ctx, f.credentials.advised(err))
	}
	for _, bound := range broken {
		std.complain("%s", bound)
	}
	return std.ended(ctx, good && len(broken) == 0)
}

// measure runs, or searches, and reports whether something was found, and which bounds were
// not kept.
func (f *runFlags) measure(ctx context.Context, config load.Config) (found runResult, good bool, broken []string, err error) {
	if f.findMax {
		knee, err := load.FindMax(ctx, config, load.Search{P99: f.p99, Trial: f.trial, Start: f.rate})
		if err != nil {
			return nil, false, nil, err
		}
		return knee, knee.Found() || knee.Interrupted, nil, nil
	}
	report, err := load.Run(ctx, config)
	if err != nil {
		return nil, false, nil, err
	}
	return report, true, f.bounds.Broken(report), nil
}

// checkHTML makes sure ahead of the run that the page can be written. One that is there stays
// until there is another.
func (f *runFlags) checkHTML() error {
	if f.html == "" {
		return nil
	}
	file, err := os.OpenFile(f.html, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("-html: %w", err)
	}
	return file.Close()
}

func (f *runFlags) writeHTML(found runResult) error {
	file, err := os.Create(f.html)
	if err != nil {
		return fmt.Errorf("-html: %w", err)
	}
	return errors.Join(found.WriteHTML(file), file.Close())
}

// set returns the flags.
func (f *runFlags) set() *flag.FlagSet {
	set := newFlags("run")
	set.Var(&f.urls, "url", "a server's `URL`; several are called in turn (default "+defaultURL+")")
	set.Var(&f.admin, "admin", "`URL` at which /metrics is, where that is not the server's; one for each server")
	set.Var(&f.pids, "pid", "`number` of the server's process, where it is not to be found by its port; one for each server")
	f.credentials.add(set)
	set.DurationVar(&f.timeout, "timeout", client.DefaultTimeout, "longest `time` for one call over HTTP, and for those that wait for a place in flight at the end")
	set.StringVar(&f.embedded, "embedded", "", "no HTTP: `memory`, or Memcached servers as host:port,...")
	set.StringVar(&f.rules, "rules", "", "rules `file`, with -embedded (default that of counterd without one)")
	set.StringVar(&f.event, "event", "url_shorten", "the `event`")
	set.StringVar(&f.kind, "kind", "ip", "the `kind` of feature, or several, as ip,user")
	set.IntVar(&f.crowd, "crowd", defaultCrowd, "`number` of different features of each kind")
	set.Float64Var(&f.zipf, "zipf", 0, "features by Zipf's law with this `s` above 1 (default each as often as any other)")
	set.StringVar(&f.featuresFile, "features-file", "", "`file` with one feature a line to draw from, instead of -crowd and -zipf")
	set.StringVar(&f.mixText, "mix", "hit", "`weights` of calls: hit, check, increment, count, batch, as in hit=80,check=20")
	set.StringVar(&f.costsText, "costs", "1", "`weights` of costs, as in 1=90,5=10")
	set.IntVar(&f.batch, "batch", 100, "`number` of hits of a batch")
	set.DurationVar(&f.window, "window", 0, "the window that is counted, a `length` (default what the event is remembered for)")
	set.Float64Var(&f.rate, "rate", load.DefaultStart, "arrivals a second, a `number`; with -find-max of the first trial")
	set.StringVar(&f.profileText, "profile", "", "how requests arrive, a `profile`, instead of -rate")
	set.DurationVar(&f.duration, "duration", load.DefaultDuration, "how `long`; of steps, by default as long as they are")
	set.DurationVar(&f.warmUp, "warm-up", 0, "how `long` to load it first, at the rate of the beginning, unmeasured")
	set.IntVar(&f.inFlight, "max-in-flight", load.DefaultInFlight, "`number` of calls that may wait for an answer")
	set.BoolVar(&f.findMax, "find-max", false, "look for the highest rate that keeps -p99")
	set.DurationVar(&f.p99, "p99", 0, "with -find-max, the longest p99, a `time`")
	set.DurationVar(&f.trial, "trial", load.DefaultTrial, "with -find-max, how `long` each rate is tried")
	set.StringVar(&f.maxFailures, "max-failures", "", "`percentage` of the requests that may fail, as 0.1%; more make the exit status 1 (default all but one may)")
	set.DurationVar(&f.bounds.P99, "max-p99", 0, "longest p99, a `time`; a longer one makes the exit status 1; 0: any")
	set.Uint64Var(&f.seed, "seed", 0, "`number` that the calls depend on (default a random one)")
	set.BoolVar(&f.json, "json", false, "print the result as JSON")
	set.StringVar(&f.html, "html", "", "write a page with plots to this `file`, too")
	return set
}
