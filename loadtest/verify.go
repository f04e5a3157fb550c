package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/counterd/counterd/loadtest/verify"
)

// verifyAbout explains what is held; docs/loadtest.md what is excused.
const verifyAbout = `Many clients hit several targets, and check, batch, increment (now and late), count and
reset in between. An exact log keeps all answers and judges them, by the rules that the
targets say they have:

  windows      by the second of its stamps, no window of any limit held more than it admits;
               no interval of t seconds of a token bucket more than burst + rate*t; and no
               more leases were live than a limit on them admits
  denials      no hit that fitted was denied: a user with one caller gets exactly N
  counts       of any window, now and of past moments, at every level, equal the log
               within what was under way or of unknown outcome
  retry_after  a hit after it is admitted, a hit before it is denied
  headers, bodies, stamps  agree with themselves, with the rules and with the call

Without -url it starts what it needs, on free ports of loopback, and ends it; with -chaos it
kills (kill -9) the Memcached servers and starts them again, empty, one at a time. With -url
it adds to the event's counters, of features that it makes up, and resets some of these.

With -rls it calls servers of Envoy's RateLimitService, counterd's or others, and holds admissions,
denials, limit_remaining and duration_until_reset to the log, by the -rules: the event is the
domain, and each hit is one descriptor with all kinds of features of the rules, in alphabetical
order. envoyproxy/ratelimit counts as {algorithm: fixed-window, count: all} does.

-soak 10m is a long run with 32 clients, two processes, three servers that it kills, and two
copies of each counter, unless flags say otherwise. It bounds each call, the goroutines and
the heap, too.
`

const verifyExamples = `  loadtest verify -store embedded -duration 10s
  loadtest verify -servers 3 -replicas 2 -chaos -duration 2m
  loadtest verify -soak 8h -clients 128 -json
  loadtest verify -protocol classic -processes 3
  loadtest verify -rls 127.0.0.1:8081 -rules rules.yaml -event login
  loadtest verify -url http://10.0.0.1:8080 -url http://10.0.0.2:8080 -event url_shorten -rate 500
`

// verifyFlags are the arguments of loadtest verify.
type verifyFlags struct {
	config      verify.Config
	urls        texts
	credentials credentials
	rls, rules  string
	soak        time.Duration
}

func (f *verifyFlags) flags(set *flag.FlagSet) {
	c, d := &f.config, verify.Config{}.Filled()
	set.Var(&f.urls, "url", "a target's `URL`, once for each; none: they are started here")
	set.StringVar(&f.rls, "rls", "", "targets of Envoy's RateLimitService at `host:port,...`; with -rules and -event")
	f.credentials.add(set)
	set.StringVar(&c.Event, "event", "", "the `event` to call for (default verify, of the rules made up here)")
	set.DurationVar(&c.Duration, "duration", d.Duration, "how `long` clients call")
	set.DurationVar(&f.soak, "soak", 0, "how `long` to soak: -duration, -chaos, and more")
	set.IntVar(&c.Clients, "clients", 0, "`number` of clients at once, a quarter as many beside them call each for a feature of its own (default 16, with -soak 32)")
	set.IntVar(&c.Features, "features", d.Features, "`number` of features that all clients call for")
	set.Float64Var(&c.Rate, "rate", 0, "`calls` of the clients a second, a quarter as many of those beside them; 0: each when its call before was answered")
	set.DurationVar(&c.Skew, "skew", d.Skew, "`time` by which the targets' clocks may differ from this machine's")
	set.DurationVar(&c.Timeout, "timeout", 0, "the targets' -timeout, `how long` they wait for the store (default 100ms, those started here 1s)")
	set.Uint64Var(&c.Seed, "seed", 0, "`number` that the calls and the kills depend on (default a random one)")
	set.StringVar(&c.Store, "store", d.Store, "what to start: `memcached` or embedded")
	set.IntVar(&c.Fleet.Processes, "processes", 0, "`number` of processes of counterd to start (default 2, with -store embedded 1)")
	set.IntVar(&c.Fleet.Servers, "servers", 0, "`number` of Memcached servers to start (default 2, with -soak 3)")
	set.IntVar(&c.Fleet.Replicas, "replicas", 0, "`copies` of each counter (default 1, with -soak 2)")
	set.StringVar(&c.Fleet.Protocol, "protocol", "", "`commands` for the servers: auto, meta or classic (default counterd's)")
	set.StringVar(&f.rules, "rules", "", "rules `file` of the processes to start (default the rules made up here), or of what -rls calls")
	set.BoolVar(&c.Chaos, "chaos", false, "kill the servers that were started, and start them again, empty")
	set.StringVar(&c.Fleet.Counterd, "counterd", "", "the `program` counterd (default the one beside this program)")
}

func (f *verifyFlags) check(set *flag.FlagSet) error {
	c := &f.config
	c.URLs, c.Fleet.Memcached = f.urls, "memcached"
	if f.rls != "" {
		c.RLS = strings.Split(f.rls, ",")
	}
	others := len(f.urls)+len(c.RLS) > 0
	if err := refused(set,
		refusal{!others, credentialFlags, "is for targets that others have started: with -url or -rls"},
		refusal{others, "store processes servers replicas protocol counterd soak chaos", "is of what is started here: not with -url or -rls"},
		refusal{len(f.urls) > 0, "rls", "and -url exclude each other"},
		refusal{len(f.urls) > 0, "rules", "is not for -url: it is asked for them"},
		refusal{given(set, "soak"), "duration chaos store", "and -soak exclude each other"},
	); err != nil {
		return err
	}
	if given(set, "soak") {
		c.Soak, c.Duration, c.Chaos = true, f.soak, true
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	parse := func() error { return f.credentials.parse(f.urls...) }
	if f.rls != "" {
		parse = f.credentials.parseRLS
	}
	if err := parse(); err != nil {
		return err
	}
	c.Token, c.TLS = f.credentials.token(), f.credentials.tls
	if c.Fleet.Counterd == "" && !others {
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
	} else if f.rls != "" {
		return errors.New("-rls wants -rules, what its targets shall admit, and -event")
	}
	return programsThere(c.Check())
}

func (f *verifyFlags) run(ctx context.Context, s *session) (bool, error) {
	f.config.Progress = s.bar
	if isTerminal(s.err) {
		s.complain("this takes about %s; -seed %d", f.config.Duration.Round(time.Second), f.config.Seed)
	}
	report, err := verify.Run(ctx, f.config)
	if err != nil {
		return false, f.credentials.advised(err)
	}
	return report.OK(), s.print(report)
}
