package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/rlsclient"
	load "github.com/counterd/counterd/loadtest/run"
	"github.com/counterd/counterd/loadtest/share"
	"github.com/counterd/counterd/loadtest/traffic"
)

const runAbout = `The open model: requests arrive when they are due, whatever becomes of earlier ones, and each
latency counts from there; "late" is this program's own share. It calls each -url in turn, or,
with -embedded, a limiter in this process, or, with -rls, servers of Envoy's RateLimitService,
of a hit or a check in one descriptor. What it counts stays counted. A -profile is

  ramp:100-2000           from one rate a second to another, over the -duration
  step:100x10s,500x20s    rates, each for a while
  burst:100+2000/10s      a rate, and in the middle of every 10s 2,000 at once

Failures are requests without an answer, or with one that the contract does not have, 503s,
and requests that found no place in flight; denials are answers. With -find-max it doubles
the rate until the p99 exceeds -p99, the rate is not reached, or more than 1% of the requests
fail, and then bisects to within 5%. Trips, reads, CPU time and memory are those in the
target's /metrics, of all its clients.
`

const runExamples = `  loadtest run -url http://a:8080 -url http://b:8080 -rate 5000 -zipf 1.1 -population 100000
  loadtest run -profile burst:200+2000/10s -duration 1m -mix hit=80,check=10,increment=5,count=5
  loadtest run -embedded 127.0.0.1:11211 -rules rules.yaml -event login_failed -kind email -rate 2000
  loadtest run -rate 500 -duration 1m -max-failures 0.1% -max-p99 20ms       for a pipeline
  loadtest run -rls 127.0.0.1:8081 -event edge -kind remote_address -mix hit=90,check=10
  loadtest run -url https://counterd.internal:8443 -ca ca.pem -cert me.pem -key me.key -token-file token
  loadtest run -find-max -p99 5ms -trial 10s
`

// runFlags are the arguments of loadtest run.
type runFlags struct {
	to              load.HTTPConfig
	credentials     credentials
	embedded, rules string
	rls             string
	traffic         trafficFlags
	rate            float64
	config          load.Config
	findMax         bool
	search          load.Search
	bounds          load.Bounds
	target          load.Target // without -embedded
}

func (f *runFlags) flags(set *flag.FlagSet) {
	to, calls, config := &f.to, &f.traffic.calls, &f.config
	set.Var((*texts)(&to.URLs), "url", "a server's `URL`; several are called in turn (default http://127.0.0.1:8080)")
	set.Var((*texts)(&to.Admin), "admin", "`URL` of /metrics if it is not the server's; one for each server")
	set.StringVar(&f.rls, "rls", "", "ask servers of Envoy's RateLimitService at `host:port,...` in turn; -event is the domain")
	f.credentials.add(set)
	set.DurationVar(&to.Timeout, "timeout", client.DefaultTimeout, "longest `time` of a call, and of the wait for a place in flight at the end")
	set.StringVar(&f.embedded, "embedded", "", "no network: `memory`, or Memcached servers as host:port,...")
	set.StringVar(&f.rules, "rules", "", "rules `file`, with -embedded (default that of counterd without one)")
	set.StringVar(&calls.Event, "event", "url_shorten", "the `event`")
	f.traffic.add(set, "hit, check, increment, count, batch")
	set.IntVar(&calls.BatchSize, "batch", traffic.DefaultBatch, "`number` of hits of a batch")
	set.DurationVar(&calls.Window, "window", traffic.DefaultWindow, "`length` of the window of counts")
	set.Float64Var(&f.rate, "rate", load.DefaultStart, "arrivals a second, a `number`; with -find-max of the first trial")
	set.StringVar(&config.Arrivals, "profile", "", "how requests arrive, a `profile`, instead of -rate")
	set.DurationVar(&config.Duration, "duration", load.DefaultDuration, "`length` of the run (default of steps their own)")
	set.DurationVar(&config.WarmUp, "warm-up", 0, "`length` of a load ahead of it, as in its beginning, unmeasured")
	set.IntVar(&config.InFlight, "max-in-flight", load.DefaultInFlight, "`number` of calls that may wait for an answer")
	set.BoolVar(&f.findMax, "find-max", false, "look for the highest rate that keeps -p99")
	set.DurationVar(&f.search.P99, "p99", 0, "with -find-max, the longest p99, a `time`")
	set.DurationVar(&f.search.Trial, "trial", load.DefaultTrial, "with -find-max, the `length` of a trial")
	set.Func("max-failures", "`percentage` of the requests that may fail, as 0.1%; more make the exit status 1 (default all but one may)", func(s string) error {
		part, err := share.Parse(s)
		f.bounds.Failures = &part
		return err
	})
	set.DurationVar(&f.bounds.P99, "max-p99", 0, "longest p99, a `time`; a longer one makes the exit status 1; 0: any")
}

func (f *runFlags) check(set *flag.FlagSet) (err error) {
	if err := refused(set,
		refusal{f.embedded != "", "url admin rls " + credentialFlags, "excludes -embedded"},
		refusal{f.rls != "", "url", "excludes -rls"},
		refusal{f.config.Arrivals != "", "rate", "excludes -profile"},
		refusal{f.findMax, "profile duration max-failures max-p99", "excludes -find-max"},
		refusal{f.embedded == "", "rules", "goes with -embedded"},
		refusal{!f.findMax, "p99 trial", "goes with -find-max"},
		refusal{f.bounds.P99 < 0, "max-p99", "is above 0, or 0 for none"},
	); err != nil {
		return err
	}
	if err := f.traffic.parse(); err != nil {
		return err
	}
	f.config.Source = f.traffic.source
	if err := f.checkArrivals(given(set, "duration")); err != nil || f.embedded != "" {
		return err
	}
	f.to.Token, f.to.Conns = f.credentials.token(), f.config.InFlight
	if f.rls != "" {
		return f.checkRLS()
	}
	if len(f.to.URLs) == 0 {
		f.to.URLs = []string{"http://127.0.0.1:8080"}
	}
	if err := f.credentials.parse(slices.Concat(f.to.URLs, f.to.Admin)...); err != nil {
		return err
	}
	f.to.TLS = f.credentials.tls
	if f.target, err = load.NewHTTP(f.to); err != nil {
		return fmt.Errorf("-url or -admin: %w", err)
	}
	return nil
}

// checkRLS reads the flags of servers of Envoy's RateLimitService.
func (f *runFlags) checkRLS() error {
	if err := errors.Join(f.traffic.overRLS(), f.credentials.parseRLS()); err != nil {
		return err
	}
	var metrics *load.HTTP
	if f.to.TLS = f.credentials.tls; len(f.to.Admin) > 0 {
		f.to.URLs = f.to.Admin
		var err error
		if metrics, err = load.NewHTTP(f.to); err != nil {
			return fmt.Errorf("-admin: %w", err)
		}
	}
	config := rlsclient.Config{TLS: f.to.TLS, Token: f.to.Token, Timeout: f.to.Timeout}
	to, err := load.NewRLS(strings.Split(f.rls, ","), f.traffic.kinds(), config, metrics)
	if err != nil {
		return fmt.Errorf("-rls: %w", err)
	}
	f.target = to
	return nil
}

// checkArrivals reads the flags of the arrivals.
func (f *runFlags) checkArrivals(lengthGiven bool) (err error) {
	c := &f.config
	name := "profile"
	if c.Arrivals == "" {
		name, c.Arrivals = "rate", strconv.FormatFloat(f.rate, 'f', -1, 64)
	}
	if c.Profile, err = arrival.Parse(c.Arrivals, c.Duration); err != nil {
		return fmt.Errorf("-%s: %w", name, err)
	}
	if steps, are := c.Profile.(arrival.Steps); are && !lengthGiven {
		c.Duration = max(steps.Length(), load.MinDuration)
	}
	c.Drain, c.Traffic = f.to.Timeout, f.traffic.says(f.traffic.calls.Event)
	if f.findMax {
		f.search.Start = f.rate
		return cmp.Or(c.Check(), f.search.Check())
	}
	if arrival.Count(c.Profile, c.Duration) == 0 {
		return errors.New("-duration is over before a request arrives")
	}
	return c.Check()
}

// takes describes the length of the run.
func (f *runFlags) takes() string {
	if f.findMax {
		return fmt.Sprintf("about 20 to 40 trials of %s, 100 at the most", f.search.Trial)
	}
	return (f.config.WarmUp + f.config.Duration).String()
}

// newEmbedded returns a counterd in this process.
func (f *runFlags) newEmbedded(ctx context.Context) (load.Target, error) {
	rules := counterd.RulesOf(events.Example())
	if f.rules != "" {
		var err error
		if rules, err = counterd.ReadRules(f.rules); err != nil {
			return nil, fmt.Errorf("-rules: %w", err)
		}
	}
	pending := max(f.config.InFlight, load.DefaultInFlight)
	options := []counterd.Option{
		counterd.WithContext(ctx), counterd.WithLog(slog.New(slog.DiscardHandler)), counterd.WithMaxPending(pending),
	}
	name := "the memory of this process"
	if f.embedded != "memory" {
		name = "memcached " + f.embedded + " from this process"
		options = append(options, counterd.WithMemcached(strings.Split(f.embedded, ",")...))
	}
	limiter, err := counterd.New(rules, options...)
	if err != nil {
		return nil, err
	}
	return load.NewEmbedded(limiter, name, time.Minute, pending)
}

// run loads the target and prints the report.
func (f *runFlags) run(ctx context.Context, s *session) (right bool, err error) {
	to := f.target
	if f.embedded != "" {
		if to, err = f.newEmbedded(ctx); err != nil {
			return false, fmt.Errorf("-embedded: %w", err)
		}
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	f.config.Ready = func() { s.complain("this takes %s; -seed %d", f.takes(), f.traffic.seed) }
	f.config.Target, f.config.Progress, f.config.Pause, f.config.Machine = to, s.bar, process.Sleep, process.Machine
	if f.findMax {
		knee, err := load.FindMax(ctx, f.config, f.search)
		if err != nil {
			return false, f.credentials.advised(err)
		}
		return knee.Found() || knee.Interrupted, s.print(knee)
	}
	report, err := load.Run(ctx, f.config)
	if err != nil {
		return false, f.credentials.advised(err)
	}
	broken := f.bounds.Broken(report)
	for _, bound := range broken {
		s.complain("%s", bound)
	}
	return len(broken) == 0, s.print(report)
}
