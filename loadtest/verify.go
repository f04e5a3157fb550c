package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/verify"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

const verifyUsage = `loadtest verify holds counterd to what it promises.

Usage: loadtest verify [flags]

Many clients hit several targets, and check, batch, increment (now and late), count and
reset in between, while what they are told is kept in an exact log. Then it is held
against the log, and against the rules that the targets say they have:

  windows      by the second in which each decision says it was stamped, no window of
               any limit held more than it admits
  denials      no hit that fitted was denied: a user with one caller gets exactly N
  counts       of any window, now and of past moments, at every level, equal the log
               within what was under way or of unknown outcome, also after late increments
               and resets
  retry_after  a hit after it is admitted, a hit before it is denied; for
               features that many call for it lies between what the log leaves open
  headers      say what the body says, and the status too
  bodies       agree with themselves and with the rules
  stamps       lie within the call

Rules of every kind are held: by the minute, for the whole event, count: all, elastic.
What they do not let be held is printed as not held, with the reason.

What is not promised (docs/failure.md) is not held against the targets, but counted
and printed as excused. A violation is printed with the events of its window. Where no
hit was decided at all nothing was verified, and that is said.

Without -url it starts what it needs, on free ports of loopback, and ends it: Memcached
servers and processes of counterd with rules of its own, or with those of -rules; with
-chaos it kills (kill -9) the servers and starts them again, empty, one at a time.

-soak 10m is a long run with 32 clients, two processes, three servers that it kills, and two
copies of each counter, unless flags say otherwise. When the log is full it is judged, and
a new one begins. Beside all answers it holds

  processes    no call takes longer than the timeout and a second; goroutines end with
               the load; the live heap of the last third of the time is at most a quarter
               and 8 MiB above that of the first

One slow call is repeated before it counts: clients call for up to half a minute more, up
to twice, and it is wrong if most of these loads have one. Where other programs took much
of the machine's CPU time the report has a note.
With -url it adds to the event's counters, of features that it makes up, and resets some
of these: their names are of this run alone. That of the whole event may be others', too.
The clocks of the targets and of this machine must agree within -skew.

The log is held in memory, about %d bytes an event and %d more for each limit, of
%d events at the most; then the run ends early, and says so, unless it is a soak.

Flags:

%s
Examples:

  loadtest verify
  loadtest verify -store embedded -duration 10s
  loadtest verify -servers 3 -replicas 2 -chaos -duration 2m
  loadtest verify -soak 8h -clients 128 -json
  loadtest verify -protocol classic -processes 3
  loadtest verify -url http://10.0.0.1:8080 -url http://10.0.0.2:8080 -event url_shorten -rate 500
  loadtest verify -url https://counterd.internal:8443 -ca ca.pem -cert me.pem -key me.key -event url_shorten

Interrupted, clients call no more, and what they were told until then is judged.

Exit status: 0 all is right; 1 something is not; 2 wrong usage; 130 interrupted, and all
was right until then.
`

// verifyFlags are the arguments of loadtest verify.
type verifyFlags struct {
	config      verify.Config
	urls        texts
	credentials credentials
	rules       string
	soak        time.Duration
	json        bool
}

func (f *verifyFlags) set() *flag.FlagSet {
	set, c := newFlags("verify"), &f.config
	set.Var(&f.urls, "url", "a target's `URL`, once for each; none: they are started here")
	f.credentials.add(set)
	set.StringVar(&c.Event, "event", "", "the `event` to call for (default verify, of the rules made up here)")
	set.DurationVar(&c.Duration, "duration", verify.DefaultDuration, "how `long` clients call")
	set.DurationVar(&f.soak, "soak", 0, "how `long` to soak: -duration, -chaos, and more")
	set.IntVar(&c.Clients, "clients", verify.DefaultClients, "`number` of clients at once; a quarter as many beside them call each for a feature of its own")
	set.IntVar(&c.Features, "features", verify.DefaultFeatures, "`number` of features that all clients call for")
	set.Float64Var(&c.Rate, "rate", 0, "`calls` of the clients a second, a quarter as many of those beside them; 0: each when its call before was answered")
	set.IntVar(&c.MaxEvents, "max-events", verify.DefaultMaxEvents, "`number` of events that the log may hold")
	set.DurationVar(&c.Skew, "skew", verify.DefaultSkew, "`time` by which the targets' clocks may differ from this machine's")
	set.DurationVar(&c.Timeout, "timeout", 0, "the targets' -timeout, `how long` they wait for the store (default 100ms, those started here 1s)")
	set.Uint64Var(&c.Seed, "seed", 0, "`number` that the calls and the kills depend on (default a random one)")
	set.StringVar(&c.Store, "store", verify.Memcached, "what to start: `memcached` or embedded")
	set.IntVar(&c.Fleet.Processes, "processes", 0, "`number` of processes of counterd to start (default 2, with -store embedded 1)")
	set.IntVar(&c.Fleet.Servers, "servers", verify.DefaultServers, "`number` of Memcached servers to start")
	set.IntVar(&c.Fleet.Replicas, "replicas", 1, "`copies` of each counter")
	set.StringVar(&c.Fleet.Protocol, "protocol", "", "`commands` for the servers: auto, meta or classic (default counterd's)")
	set.StringVar(&f.rules, "rules", "", "rules `file` of the processes to start (default the rules made up here)")
	set.BoolVar(&c.Chaos, "chaos", false, "kill the servers that were started, and start them again, empty")
	set.StringVar(&c.Fleet.Memcached, "memcached-binary", "memcached", "the `program` memcached")
	set.StringVar(&c.Fleet.Counterd, "counterd", "", "the `program` counterd (default the one beside this program)")
	set.BoolVar(&f.json, "json", false, "print the result as JSON")
	return set
}

func (f *verifyFlags) parse(set *flag.FlagSet, args []string) error {
	if err := parseFlags(set, args); err != nil {
		return err
	}
	if err := noArguments(set); err != nil {
		return err
	}
	c := &f.config
	c.URLs = f.urls
	if err := f.onlyWhere(set, len(f.urls) > 0); err != nil {
		return err
	}
	if err := f.preset(set); err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	if err := f.credentials.parse(f.urls...); err != nil {
		return err
	}
	c.Token, c.TLS = f.credentials.token(), f.credentials.tls
	if c.Fleet.Counterd == "" && len(f.urls) == 0 {
		var err error
		if c.Fleet.Counterd, err = besideThis("counterd"); err != nil {
			return err
		}
	}
	if f.rules != "" {
		text, err := os.ReadFile(f.rules)
		if err != nil {
			return fmt.Errorf("-rules: %w", err)
		}
		c.Fleet.Rules = string(text)
		if c.Event == "" {
			return errors.New("-rules wants -event, one of its events")
		}
	}
	return programsThere(c.Check())
}

// preset sets what -soak stands for.
func (f *verifyFlags) preset(set *flag.FlagSet) error {
	if !given(set, "soak") {
		return nil
	}
	for _, name := range []string{"duration", "chaos", "store"} {
		if given(set, name) {
			return fmt.Errorf("-soak and -%s exclude each other", name)
		}
	}
	c := &f.config
	c.Soak, c.Duration, c.Chaos = true, f.soak, len(f.urls) == 0
	for name, value := range map[string]string{"clients": "32", "servers": "3", "replicas": "2"} {
		if !given(set, name) {
			if err := set.Lookup(name).Value.Set(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// onlyWhere refuses the flags without an effect, and zeros where a number is needed.
func (f *verifyFlags) onlyWhere(set *flag.FlagSet, others bool) (err error) {
	set.Visit(func(given *flag.Flag) {
		if !others && slices.Contains(credentialFlags(), given.Name) {
			err = fmt.Errorf("-%s is for targets that others have started: with -url", given.Name)
			return
		}
		zero := given.Value.String() == "0" || given.Value.String() == "0s"
		switch given.Name {
		case "store", "processes", "servers", "replicas", "protocol", "rules", "memcached-binary", "counterd":
			if others {
				err = fmt.Errorf("-%s is of what is started here: not with -url", given.Name)
				return
			}
		}
		switch given.Name {
		case "duration", "soak", "clients", "features", "max-events", "processes", "servers", "replicas", "timeout":
			if zero {
				err = fmt.Errorf("-%s is more than 0", given.Name)
			}
		}
	})
	return err
}

func runVerify(ctx context.Context, args []string, std streams) int {
	var flags verifyFlags
	set := flags.set()
	if err := flags.parse(set, args); err != nil {
		return std.refused(set, func() string {
			return fmt.Sprintf(verifyUsage, judge.EntryBytes, 8, verify.DefaultMaxEvents, defaultsOf(set))
		}, err)
	}
	bar := newBar(std.err)
	flags.config.Progress = bar
	if isTerminal(std.err) {
		std.complain("this takes about %s; -seed %d", flags.config.Duration.Round(time.Second), flags.config.Seed)
	}
	report, err := verify.Run(ctx, flags.config)
	bar.finish()
	if err == nil {
		err = writeResult(std.out, report, flags.json)
	}
	if err != nil {
		return std.failed(ctx, flags.credentials.advised(err))
	}
	return std.ended(ctx, report.OK())
}
