package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/rlsclient"
)

// counterdTimeout keeps a slow machine from deciding hits without the store.
const counterdTimeout = time.Second

// counterdContenders are counterd's algorithms in a program, and its protocols. The first is what the others' speed is
// compared with.
func counterdContenders(p Programs, version, memcachedVersion string) []Contender {
	store := "Memcached " + memcachedVersion
	embedded := func(name string, promise Promise) Contender {
		return Contender{Name: "counterd, in a program, " + name, Where: store, Promise: promise, Start: embedded(p, name)}
	}
	list := []Contender{
		embedded(events.DefaultAlgorithm, Seconds),
		embedded(events.SlidingLog, Log),
		embedded(events.FixedWindow, Aligned),
		embedded(events.TokenBucket, Bucket),
		{Name: "counterd, HTTP by its Go client, " + events.DefaultAlgorithm, Where: store, Promise: Seconds, Start: served(p, overHTTP)},
		{Name: "counterd, gRPC (RLS), " + events.DefaultAlgorithm, Where: store, Promise: Seconds, Start: served(p, overRLS)},
	}
	for i := range list {
		if p.Memcached == "" {
			list[i].Missing = "install memcached, or name it with -memcached"
		}
	}
	list = append(list, Contender{
		Name: "counterd, one process, " + events.DefaultAlgorithm, Where: "its own memory", Promise: Seconds, Start: closing(alone),
	})
	for i := range list {
		list[i].Version = version
	}
	return list
}

// rulesOf returns rules with an event for each limit.
func rulesOf(limits []Limit, name string) string {
	text := "events:\n"
	for _, l := range limits {
		text += fmt.Sprintf("  %s: {limits: [{per: user, rate: %d/%s, algorithm: %s", l.Name, l.N, l.Window, name)
		if name == events.TokenBucket {
			text += fmt.Sprintf(", burst: %d", l.N)
		}
		text += "}]}\n"
	}
	return text
}

func embedded(p Programs, name string) start {
	return closing(func(ctx context.Context, limits []Limit, c *closers) (*Fleet, error) {
		addr, memory, err := startMemcached(ctx, p, c)
		if err != nil {
			return nil, err
		}
		f := &Fleet{Memory: memory}
		for range instances {
			instance, err := inProgram(rulesOf(limits, name), c, counterd.WithMemcached(addr))
			if err != nil {
				return nil, err
			}
			f.Instances = append(f.Instances, instance)
		}
		return f, nil
	})
}

// alone is one process that shares its counters with none.
func alone(_ context.Context, limits []Limit, c *closers) (*Fleet, error) {
	instance, err := inProgram(rulesOf(limits, events.DefaultAlgorithm), c)
	if err != nil {
		return nil, err
	}
	return &Fleet{Instances: []Instance{instance}, Memory: heap}, nil
}

var errOnError = errors.New("counterd decided without its store")

func inProgram(text string, c *closers, options ...counterd.Option) (Instance, error) {
	rules, err := counterd.ParseRules([]byte(text))
	if err != nil {
		return nil, err
	}
	options = append(options, counterd.WithTimeout(counterdTimeout), counterd.WithLog(slog.New(slog.DiscardHandler)))
	limiter, err := counterd.New(rules, options...)
	if err != nil {
		return nil, err
	}
	c.add(limiter.Close)
	return instanceFunc(func(ctx context.Context, l Limit, feature string) (Answer, error) {
		decision, err := limiter.Hit(ctx, l.Name, counterd.Features{"user": feature})
		if err == nil && (decision.Unavailable || decision.Limits[0].Failed) {
			err = errOnError
		}
		return Answer{Allowed: decision.Allowed, RetryAfter: decision.RetryAfter}, err
	}), nil
}

// served starts processes of the command.
func served(p Programs, dial func(fleet.Process, *closers) (Instance, error)) start {
	return closing(func(ctx context.Context, limits []Limit, c *closers) (*Fleet, error) {
		servers, err := fleet.Start(ctx, fleet.Config{
			Counterd: p.Counterd, Memcached: p.Memcached, Processes: instances, Servers: 1, Timeout: counterdTimeout,
			Flags: []string{"-t", "1", "-m", "1024", "-R", "1000"},
			Rules: rulesOf(limits, events.DefaultAlgorithm), RLS: descriptorsOf(limits),
		})
		if err != nil {
			return nil, err
		}
		c.add(servers.Close)
		f := &Fleet{Memory: func() (int64, error) { return slabsOf(servers.Servers[0].Addr) }}
		for _, process := range servers.Processes {
			instance, err := dial(process, c)
			if err != nil {
				return nil, err
			}
			f.Instances = append(f.Instances, instance)
		}
		return f, nil
	})
}

// overHTTP calls by the Go client as it is by default: it coalesces hits.
func overHTTP(process fleet.Process, c *closers) (Instance, error) {
	url := "http://" + process.Addr
	caller, err := client.New(client.Config{URL: url, Conns: callers / instances, Timeout: hitTimeout})
	if err != nil {
		return nil, err
	}
	c.add(func() error { caller.Close(); return nil })
	return instanceFunc(func(ctx context.Context, l Limit, feature string) (Answer, error) {
		decision, err := caller.Hit(ctx, l.Name, events.Features{"user": feature}, 1)
		if err != nil {
			return Answer{}, err
		}
		if decision.Limits[0].OnError != "" {
			return Answer{}, errOnError
		}
		return answerOf(decision), nil
	}), nil
}

func answerOf(d wire.Decision) Answer {
	answer := Answer{Allowed: d.Allowed, Silent: d.RetryAfter == nil}
	if d.RetryAfter != nil {
		answer.RetryAfter = time.Duration(*d.RetryAfter) * time.Second
	}
	if d.RetryAfterMS > 0 {
		answer.RetryAfter = time.Duration(d.RetryAfterMS) * time.Millisecond
	}
	return answer
}

func overRLS(process fleet.Process, c *closers) (Instance, error) { return rlsAt(process.RLS, c) }

// rlsDomain is the domain of the descriptors.
const rlsDomain = "league"

// descriptorsOf returns the configuration of envoyproxy/ratelimit that all servers of its protocol have: a key for each
// limit of a second or a minute.
func descriptorsOf(limits []Limit) string {
	config := "domain: " + rlsDomain + "\ndescriptors:\n"
	for _, l := range limits {
		unit := map[time.Duration]string{time.Second: "second", time.Minute: "minute"}[l.Window]
		config += fmt.Sprintf("  - {key: %s, rate_limit: {unit: %s, requests_per_unit: %d}}\n", l.Name, unit, l.N)
	}
	return config
}

// rlsAt calls a server of Envoy's RateLimitService.
func rlsAt(addr string, c *closers) (Instance, error) {
	caller, err := rlsclient.New(rlsclient.Config{Addr: addr})
	if err != nil {
		return nil, err
	}
	c.add(caller.Close)
	return instanceFunc(func(ctx context.Context, l Limit, feature string) (Answer, error) {
		answer, err := caller.Ask(ctx, rlsclient.NewRequest(rlsDomain, []string{l.Name}, events.Features{l.Name: feature}, 1))
		if err != nil {
			return Answer{}, err
		}
		status := answer.Statuses[0]
		if status.CurrentLimit == nil {
			return Answer{}, errors.New("the server decided without its store")
		}
		return Answer{
			Allowed:    answer.OverallCode == rlsclient.OK,
			RetryAfter: status.DurationUntilReset.AsDuration(), Silent: status.DurationUntilReset == nil,
		}, nil
	}), nil
}

// unique returns a name that no other call returns.
func unique() string { return strconv.FormatUint(rand.Uint64(), 36) }
