package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"time"

	"golang.org/x/time/rate"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/migrate"
	"github.com/counterd/counterd/loadtest/rlsclient"
	"github.com/counterd/counterd/loadtest/traffic"
)

const migrateAbout = `It asks two servers of Envoy's RateLimitService the same, in the same order, -from the one in
use, say, and -to the one that shall replace it, and lists each verdict in which they differ,
with both answers and the cause. Both count what they are asked. With FILE, - being standard
input, it takes the lines of a log, in the order of time, now and not at their times; else it
makes up -requests. Each is one descriptor, with an entry for each kind of -kind or of
-features, in that order. The exit status is 1 if a verdict differs. It shows features.

`

const migrateExamples = `  loadtest migrate -from 127.0.0.1:8081 -to 127.0.0.1:9081 -domain edge -kind remote_address
  loadtest migrate -from old:8081 -to new:8081 -domain edge -features remote_address=host -rate 100 access.log
  loadtest migrate -from old:8081 -to new:8081 -domain edge -kind user -costs 1=9,5=1 -population 10 -json
`

// migrateFlags are the arguments of loadtest migrate.
type migrateFlags struct {
	from, to    string
	domain      string
	requests    int
	rate        float64
	timeout     time.Duration
	traffic     trafficFlags
	log         logFlags
	credentials credentials
}

func (f *migrateFlags) flags(set *flag.FlagSet) {
	set.StringVar(&f.from, "from", "", "`host:port` of one server")
	set.StringVar(&f.to, "to", "", "`host:port` of the other one")
	set.StringVar(&f.domain, "domain", "", "the `domain`")
	set.IntVar(&f.requests, "requests", 10_000, "`number` of requests, without FILE")
	set.Float64Var(&f.rate, "rate", 0, "requests a second, a `number`; 0: each when both have answered the one before")
	set.DurationVar(&f.timeout, "timeout", client.DefaultTimeout, "longest `time` for one request")
	f.traffic.add(set, "hit, check")
	f.log.add(set)
	f.credentials.add(set)
}

func (f *migrateFlags) check(set *flag.FlagSet) error {
	logged := set.NArg() > 0
	err := refused(set,
		refusal{logged, "requests " + generatedFlags, "is of requests that are made up: not with FILE"},
		refusal{!logged, "format regexp features time-field time-layout year", "is of a log: with FILE"},
		refusal{f.rate < 0, "rate", "is 0 or more"},
	)
	switch {
	case err != nil:
		return err
	case f.from == "" || f.to == "" || f.domain == "":
		return errors.New("-from, -to and -domain are needed")
	}
	f.traffic.calls.Event = "any"
	return errors.Join(f.log.parse(set), f.traffic.parse(), f.traffic.overRLS(), f.credentials.parseRLS())
}

func (f *migrateFlags) run(ctx context.Context, s *session) (right bool, err error) {
	config := migrate.Config{Domain: f.domain, Progress: s.bar}
	requests, n, says := f.generated(), f.requests, f.traffic.says(f.domain)
	if !f.log.implied {
		log, err := f.log.read(ctx, s.streams)
		if err != nil {
			return false, err
		}
		requests, n, says = f.logged(log), len(log.Events), fmt.Sprintf("%d lines of a log", len(log.Events))
	}
	for flag, one := range map[string]struct {
		addr string
		to   *rlsclient.Asker
	}{"-from": {f.from, &config.From}, "-to": {f.to, &config.To}} {
		c, err := rlsclient.New(rlsclient.Config{Addr: one.addr, TLS: f.credentials.tls, Token: f.credentials.token(), Timeout: f.timeout})
		if err != nil {
			return false, fmt.Errorf("%s: %w", flag, err)
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		*one.to = c
	}
	s.bar.Start("asking", n)
	config.Requests = f.paced(ctx, requests)
	report, err := migrate.Run(ctx, config)
	if err != nil && !errors.Is(err, migrate.ErrNoLimit) {
		return false, f.credentials.advised(err)
	}
	report.From, report.To, report.Traffic = f.from, f.to, says
	return report.Different == 0, errors.Join(s.print(report), err)
}

// generated makes up requests.
func (f *migrateFlags) generated() iter.Seq[migrate.Request] {
	return func(yield func(migrate.Request) bool) {
		for range f.requests {
			call := f.traffic.source.Next()
			if call.Kind == traffic.Check {
				call.Cost = 0
			}
			if !yield(migrate.Request{Kinds: f.traffic.kinds(), Features: call.Features, Cost: call.Cost}) {
				return
			}
		}
	}
}

// logged has a request for each line of a log with a feature.
func (f *migrateFlags) logged(log *accesslog.Log) iter.Seq[migrate.Request] {
	var kinds []string
	for _, kind := range f.log.mapping {
		kinds = append(kinds, kind.Kind)
	}
	return func(yield func(migrate.Request) bool) {
		for at, features := range log.All() {
			if len(features) > 0 && !yield(migrate.Request{Logged: at, Kinds: kinds, Features: features, Cost: 1}) {
				return
			}
		}
	}
}

// paced yields requests at the rate, until the context ends.
func (f *migrateFlags) paced(ctx context.Context, requests iter.Seq[migrate.Request]) iter.Seq[migrate.Request] {
	pace := rate.NewLimiter(rate.Inf, 1)
	if f.rate > 0 {
		pace.SetLimit(rate.Limit(f.rate))
	}
	return func(yield func(migrate.Request) bool) {
		for request := range requests {
			if pace.Wait(ctx) != nil || !yield(request) {
				return
			}
		}
	}
}
