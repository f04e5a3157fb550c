package main

import (
	"cmp"
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

const planAbout = `From numbers (-features-a-day, -events-a-day) or from a log it prints the items in Memcached
at the peak and their memory, the load of a second, and how many Memcached servers that
takes, one of which may be lost; and what that rests on.

-features-a-day are the addresses, users and so on that do the event each day, -events-a-day
the events of all of them. A number may be of one kind, as in 1000000,user=300000, of kinds
together (ip+user=1500000), or of one event (login/ip=20000, login/=50000).

A log is of one event, in memory, 16 bytes a line and each feature once. Its buckets are
counted as they come and expire, and its busiest minute is the peak.

`

const planExamples = `  loadtest plan -rules rules.yaml -features-a-day 1000000 -events-a-day 20000000
  loadtest plan -rules rules.yaml -features-a-day 1e6 -events-a-day 2e7 -session-events 10 -session-length 5m
  loadtest plan -rules rules.yaml -event url_shorten access.log.gz
`

// planFlags are the arguments of loadtest plan.
type planFlags struct {
	config plan.Config
	rules  string
	log    logFlags
}

func (f *planFlags) flags(set *flag.FlagSet) {
	c := &f.config
	set.StringVar(&f.rules, "rules", "", "the rules `file`")
	set.StringVar(&c.Event, "event", "", "plan for this `event` only (default all events of the rules)")
	set.Func("features-a-day", "`number` of features that do an event each day, of each kind", func(s string) (err error) {
		c.Features, err = plan.ParseAmounts(s)
		return err
	})
	set.Func("events-a-day", "`number` of events each day, of all features together", func(s string) (err error) {
		c.Events, err = plan.ParseAmounts(s)
		return err
	})
	set.Float64Var(&c.Peak, "peak", plan.DefaultPeak, "the busiest rate, in average rates, as a `number`")
	set.Float64Var(&c.Sessions.Events, "session-events", 0, "`number` of events of a session of a feature")
	set.Func("session-length", "`time` over which the events of a session are spread, as 5m", func(s string) (err error) {
		c.Sessions.Length, err = events.ParseDuration(s)
		return err
	})
	set.IntVar(&c.Replicas, "replicas", plan.DefaultReplicas, "`number` of replicas of each counter, as counterd's -replicas")
	c.Server.Memory = plan.DefaultMemory
	set.Func("server-memory", "`memory` of one Memcached process as a whole (default 4GiB)", func(s string) (err error) {
		c.Server.Memory, err = parseBytes(s)
		return err
	})
	set.Float64Var(&c.Server.Cores, "server-cores", plan.DefaultCores, "`number` of cores, and threads, of one Memcached")
	f.log.add(set)
}

func (f *planFlags) check(set *flag.FlagSet) error {
	if set.NArg() > 0 {
		if err := cmp.Or(f.log.parse(set), refused(set, refusal{true, "features-a-day events-a-day peak session-events session-length", "is of no use with a log"})); err != nil {
			return err
		}
		f.config.Log = func(func(time.Time, events.Features) bool) {} // for Check
	}
	if f.rules == "" {
		return errors.New("-rules is needed: the rules file to plan for")
	}
	var err error
	if f.config.Rules, err = events.ReadRules(f.rules); err != nil {
		return fmt.Errorf("-rules: %w", err)
	}
	return f.config.Check()
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

func (f *planFlags) run(ctx context.Context, s *session) (bool, error) {
	if len(f.log.source.files) > 0 {
		log, err := f.log.source.read(ctx, s.streams)
		if err != nil {
			return false, err
		}
		f.config.Log = log.All()
	}
	report, err := plan.Run(ctx, f.config)
	if err != nil {
		return false, err
	}
	return true, s.print(report)
}
