package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/backend"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/memcache"
)

const keysUsage = `counterd keys prints the Memcached keys of a counter now, a line for each level of its
buckets, and one for its log, if it has them: for a look with any Memcached client.

Usage:
  counterd keys -event E -feature K:V [-feature K:V ...] [flags]

Flags, each with its environment variable:
`

const keysExamples = `
Examples:
  counterd keys -event url_shorten -feature ip:192.168.0.1
  counterd keys -rules rules.yaml -memcached 10.0.0.1:11211,10.0.0.2:11211 -event url_shorten -feature ip:192.168.0.1 -feature user:42
  counterd keys -key-secret /run/secrets/keys -event url_shorten -feature ip:192.168.0.1
`

// featureList is a flag that may be given more than once.
type featureList []string

func (l *featureList) String() string { return "" }

func (l *featureList) Set(s string) error {
	*l = append(*l, s)
	return nil
}

// keys prints the keys of one counter's current buckets, and of its log.
func keys(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var name, rulesFile string
	var list featureList
	s := settings.Default()
	flags := newFlags("counterd keys", stdout, keysUsage, keysExamples)
	flags.StringVar(&name, "event", "", "`name` of the event")
	flags.Var(&list, "feature", "`kind:value`; several name the combined counter")
	flags.StringVar(&rulesFile, "rules", "", "rules `file`; none: one example event, url_shorten")
	registerServers(flags, &s, "`servers` as counterd has them, to print which holds the counter")
	registerTLS(flags, &s) // a cluster's endpoint may want it
	registerKeySecret(flags, &s)
	flags.IntVar(&s.Replicas, "replicas", s.Replicas, "`number` as counterd has it, to print all servers of the counter")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return usageError(fmt.Sprintf("unknown argument %q", flags.Arg(0)))
	}
	if err := s.ValidateKeys(); err != nil {
		return usageError(oneLine(err))
	}
	event, counter, err := findCounter(rulesFile, name, list)
	if err != nil {
		return err
	}
	servers, secret, err := backend.ServersOf(ctx, s, counter.ID())
	if err != nil {
		return err
	}
	return printKeys(stdout, event, counter, secret, cmp.Or(strings.Join(servers, ","), "-"), time.Now())
}

// findCounter returns the counter that the flags name.
func findCounter(rulesFile, name string, list []string) (event *events.Event, counter events.Counter, err error) {
	rules := events.Example()
	if rulesFile != "" {
		if rules, err = rulesfile.Read(rulesFile); err != nil {
			return nil, counter, err
		}
	}
	if name == "" {
		return nil, counter, usageError("-event is missing: name an event of the rules")
	}
	if event, err = rules.Event(name); err != nil {
		return nil, counter, usageError(fmt.Sprintf("-event: the rules have no event %q", name))
	}
	features, err := events.ParseFeatures(list)
	if err != nil {
		return nil, counter, usageError("-feature: " + oneLine(err))
	}
	if counter, err = event.Counter(features); err != nil {
		return nil, counter, usageError("-feature: " + oneLine(err))
	}
	return event, counter, nil
}

func printKeys(to io.Writer, event *events.Event, counter events.Counter, secret []byte, server string, now time.Time) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LEVEL\tFROM\tKEY\tSERVER")
	kinds := counter.Feature.Kinds()
	inBuckets := !slices.ContainsFunc(combinations(event), func(per combination) bool {
		return len(per.rules) > 0 && slices.Equal(per.rules[0].Per, kinds) && !per.inBuckets()
	})
	if inBuckets {
		for bucket := range hierarchy.BucketsOf(counter, now.Unix()) {
			keys, err := memcache.SecretKeys(secret, counter.ID(), []uint64{bucket.ID()})
			if err != nil {
				return err
			}
			from := time.Unix(bucket.First(), 0).UTC().Format(time.RFC3339)
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", bucket.Level, from, keys[0], server)
		}
	}
	for _, log := range []struct {
		name   string
		item   uint64
		leases bool
	}{{"log", eventlog.Item(), false}, {"leases", eventlog.LeasesItem(), true}} {
		if !slices.ContainsFunc(event.Rules, func(rule events.Rule) bool {
			return rule.InLog() && rule.Leases() == log.leases && slices.Equal(rule.Per, kinds)
		}) {
			continue
		}
		keys, err := memcache.SecretKeys(secret, counter.ID(), []uint64{log.item})
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t-\t%s\t%s\n", log.name, keys[0], server)
	}
	return table.Flush()
}
