package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/loadtest/plan"
)

const planAbout = `From numbers (-features-a-day, -events-a-day) or from a log it prints the items in Memcached
at the peak and their memory, the load of a second, and how many Memcached servers that
takes, one of which may be lost; and what that rests on.

-features-a-day are the addresses, users and so on that do the event each day, -events-a-day
the events of all of them. A number may be of one kind, as in 1000000,user=300000, of kinds
together (ip+user=1500000), or of one event (login/ip=20000, login/=50000).

A log is of one event, in memory, some 50 bytes a line for each kind that is limited. Its
buckets are counted from their first events until they expire, and its busiest minute is the
peak.

`

const planExamples = `  loadtest plan -rules rules.yaml -features-a-day 1000000 -events-a-day 20000000
  loadtest plan -rules rules.yaml -event url_shorten access.log.gz
`

// planFlags are the arguments of loadtest plan.
type planFlags struct {
	config plan.Config
	rules  string
	memory int // MiB
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
	set.IntVar(&c.Replicas, "replicas", plan.DefaultReplicas, "`number` of replicas of each counter, as counterd's -replicas")
	set.IntVar(&f.memory, "server-memory", plan.DefaultMemory>>20, "`MiB` of memory of one Memcached process as a whole")
	set.Float64Var(&c.Server.Cores, "server-cores", plan.DefaultCores, "`number` of cores, and threads, of one Memcached")
	f.log.add(set)
}

func (f *planFlags) check(set *flag.FlagSet) error {
	if set.NArg() > 0 {
		if err := cmp.Or(f.log.parse(set), refused(set, refusal{true, "features-a-day events-a-day peak", "is of no use with a log"})); err != nil {
			return err
		}
		f.config.Log = func(func(time.Time, events.Features) bool) {} // for Check
	}
	if f.rules == "" {
		return errors.New("-rules is needed: the rules file to plan for")
	}
	var err error
	if f.config.Rules, err = rulesfile.Read(f.rules); err != nil {
		return fmt.Errorf("-rules: %w", err)
	}
	f.config.Server.Memory = int64(f.memory) << 20
	return f.config.Check()
}

func (f *planFlags) run(ctx context.Context, s *session) (bool, error) {
	if len(f.log.files) > 0 {
		log, err := f.log.read(ctx, s.streams)
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
