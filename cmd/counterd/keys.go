package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

const keysUsage = `counterd keys prints the Memcached keys of a counter now, a line for each level:
for a look with any Memcached client.

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

// keys prints the keys of one counter's current buckets.
func keys(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var name, rulesFile string
	var list featureList
	var servers fleetServers
	var secret keySecret
	var tls security
	flags := newFlags("counterd keys", stdout, keysUsage, keysExamples)
	flags.StringVar(&name, "event", "", "`name` of the event")
	flags.Var(&list, "feature", "`kind:value`; several name the combined counter")
	flags.StringVar(&rulesFile, "rules", "", "rules `file`; none: one example event, url_shorten")
	servers.register(flags, "`servers` as counterd has them, to say which holds the counter")
	tls.addTLSFlags(flags) // a cluster's endpoint may want it
	secret.addFlag(flags)
	replicas := flags.Int("replicas", 1, "`copies` as counterd has them, to say which servers those are on")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return usageError(fmt.Sprintf("unknown argument %q", flags.Arg(0)))
	}
	if err := cmp.Or(servers.check(), tls.check(servers)); err != nil {
		return err
	}
	if *replicas < 1 || *replicas > memcache.MaxReplicas {
		return usageError(fmt.Sprintf("-replicas: %d is not between 1 and %d", *replicas, memcache.MaxReplicas))
	}
	rules, err := readRules(rulesFile)
	if err != nil {
		return err
	}
	event, err := rules.Event(name)
	if err != nil {
		return usageError(fmt.Sprintf("-event: no event %q in the rules", name))
	}
	features, err := events.ParseFeatures(list)
	if err != nil {
		return usageError("-feature: " + oneLine(err))
	}
	counter, err := event.Counter(features)
	if err != nil {
		return usageError("-feature: " + oneLine(err))
	}
	config := memcache.Config{Replicas: *replicas}
	if config.KeySecret, err = secret.read(); err != nil {
		return err
	}
	server, err := serversOf(ctx, servers, tls, config, counter)
	if err != nil {
		return err
	}
	return printKeys(stdout, counter, config.KeySecret, server, time.Now())
}

// serversOf returns the names of the servers that hold the counter, the first of its order
// first, where there is a fleet.
func serversOf(ctx context.Context, servers fleetServers, security security, config memcache.Config, counter events.Counter) (string, error) {
	if servers.none() {
		return "-", nil
	}
	found, _, err := servers.find(ctx, security, func(error) {})
	if err != nil {
		return "", err
	}
	config.Servers = found
	fleet, err := memcache.NewFleet(ctx, config)
	if err != nil {
		return "", err
	}
	return strings.Join(fleet.Servers(counter.ID()), ","), fleet.Close()
}

func printKeys(to io.Writer, counter events.Counter, secret []byte, server string, now time.Time) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LEVEL\tFROM\tKEY\tSERVER")
	for bucket := range hierarchy.BucketsOf(counter, now.Unix()) {
		keys, err := memcache.SecretKeys(secret, counter.ID(), []uint64{bucket.ID()})
		if err != nil {
			return err
		}
		from := time.Unix(bucket.First(), 0).UTC().Format(time.RFC3339)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", bucket.Level, from, keys[0], server)
	}
	return table.Flush()
}
