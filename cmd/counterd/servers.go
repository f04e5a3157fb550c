package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/memcache/discovery"
)

// firstAnswer is how long a name or an endpoint may take to tell of the first servers: when
// all is started at once, it may not be there yet. A file that is not there or broken stays
// so, and ends the start at once.
const firstAnswer = 10 * time.Second

// fleetServers are the servers of the fleet as the flags name them: one by one, or by where
// they are found.
type fleetServers struct {
	named serverList
	file  string
}

// register defines the flags.
func (s *fleetServers) register(flags flagSet, usage string) {
	flags.Var(&s.named, "memcached", usage)
	flags.Func("memcached-file", "`file` of servers instead, one a line, followed when it changes and on SIGHUP", func(path string) error {
		if path == "" {
			return errors.New("no file is named")
		}
		s.file = path
		return nil
	})
}

func (s *fleetServers) check() error {
	if s.file != "" && len(s.named) > 0 {
		return usageError("-memcached-file: the servers are named by -memcached already")
	}
	return nil
}

// none reports whether there is no fleet.
func (s *fleetServers) none() bool { return s.file == "" && len(s.named) == 0 }

// fewerThan reports whether fewer servers are named than copies of each counter are wanted.
// How many are found elsewhere may change.
func (s *fleetServers) fewerThan(replicas int) bool {
	source, _, err := s.source()
	_, fixed := source.(discovery.Static)
	return replicas > 1 && err == nil && fixed && len(s.named) < replicas
}

// byEndpoint reports whether a cluster's endpoint tells the servers.
func (s *fleetServers) byEndpoint() bool {
	source, _, err := s.source()
	_, cluster := source.(*discovery.Cluster)
	return err == nil && cluster
}

// place says where the servers are found.
func (s *fleetServers) place() string {
	if s.file != "" {
		return s.file
	}
	return s.named.String()
}

// kind says of what kind the place is, where servers are not named one by one: file, dns or
// aws.
func (s *fleetServers) kind() string {
	if s.file != "" {
		return "file"
	}
	kind, _, _ := strings.Cut(s.place(), ":")
	return kind
}

// source returns what knows the servers, and how long it may take at the start.
func (s *fleetServers) source() (source discovery.Source, wait time.Duration, err error) {
	if s.file != "" {
		return discovery.File{Path: s.file}, 0, nil
	}
	if len(s.named) == 1 {
		source, err = parseSource(s.named[0])
		if source != nil || err != nil {
			return source, firstAnswer, err
		}
	}
	return discovery.Static(s.named), 0, nil
}

// find returns the servers at the start, and their source. What fails before they are found
// is told to report.
func (s *fleetServers) find(ctx context.Context, security security, report func(error)) ([]string, discovery.Source, error) {
	source, wait, err := s.source()
	if err != nil {
		return nil, nil, err
	}
	if err := security.secure(source); err != nil {
		return nil, nil, err
	}
	if wait == 0 {
		servers, err := discovery.List(ctx, source)
		return servers, source, err
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	servers, err := discovery.Await(bounded, source, report)
	switch {
	case ctx.Err() != nil:
		return nil, nil, fmt.Errorf("stopped before a memcached server was found: %w", ctx.Err())
	case err != nil:
		return nil, nil, fmt.Errorf("no memcached server was found within %s: %w", wait, err)
	}
	return servers, source, nil
}

// serverList is a flag of comma-separated servers, or of one name for where they are found.
type serverList []string

func (l *serverList) String() string { return strings.Join(*l, ",") }

// Set finds what is not written as servers are. Whether their names resolve is not
// a matter of writing.
func (l *serverList) Set(s string) error {
	*l = nil
	found := ""
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		source, err := parseSource(name)
		if err == nil && source == nil {
			err = discovery.CheckServer(name)
		}
		if err != nil {
			return err
		}
		if slices.Contains(*l, name) {
			return fmt.Errorf("%s is named twice", name)
		}
		if source != nil {
			found = name
		}
		*l = append(*l, name)
	}
	switch {
	case len(*l) == 0:
		return errors.New("no server is named")
	case found != "" && len(*l) > 1:
		return fmt.Errorf("%s stands by itself, with no servers beside it", found)
	}
	return nil
}

// parseSource reads where servers are found; nil: the name is that of a server.
func parseSource(name string) (discovery.Source, error) {
	kind, rest, _ := strings.Cut(name, ":")
	// A host may be called dns.
	if discovery.CheckServer(name) == nil {
		return nil, nil
	}
	switch kind {
	case "dns":
		source, err := discovery.ParseDNS(rest)
		if err != nil {
			return nil, fmt.Errorf("dns:NAME:PORT: %w", err)
		}
		return source, nil
	case "aws":
		source, err := discovery.ParseCluster(rest)
		if err != nil {
			return nil, fmt.Errorf("aws:HOST:PORT: %w", err)
		}
		return source, nil
	}
	return nil, nil
}

// fleetFollower keeps the servers of a fleet as their source has them.
type fleetFollower struct {
	*discovery.Follower
	hangup chan os.Signal
	done   chan struct{}
}

// followServers has set put in force what the source names from now on, until Close. On
// SIGHUP it is asked at once. Why the servers stay is logged at most once a second for each
// cause.
func followServers(source discovery.Source, place string, servers []string, set func(context.Context, []string) error, log *slog.Logger) *fleetFollower {
	var failures sparse.Lines
	log = log.With("from", place)
	f := &fleetFollower{hangup: make(chan os.Signal, 1), done: make(chan struct{})}
	f.Follower = discovery.Follow(discovery.Config{
		Source:  source,
		Servers: servers,
		Changed: func(ctx context.Context, change discovery.Change) error {
			if err := set(ctx, change.Servers); err != nil {
				return err
			}
			log.Info("the memcached servers have changed", "added", strings.Join(change.Added, ","),
				"removed", strings.Join(change.Removed, ","), "servers", strings.Join(change.Servers, ","))
			return nil
		},
		Unchanged: func(servers []string) {
			log.Info("the memcached servers found are those in force", "servers", strings.Join(servers, ","))
		},
		Report: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				log.Warn("looking for the memcached servers failed, those in force stay", "error", oneLine(err), "suppressed", suppressed)
			})
		},
	})
	// Every channel gets the signal: that of the rules file, too.
	signal.Notify(f.hangup, syscall.SIGHUP)
	go f.relay()
	return f
}

// relay has the source asked on each SIGHUP.
func (f *fleetFollower) relay() {
	defer close(f.done)
	for range f.hangup {
		f.Ask()
	}
}

// Close ends the following. The servers in force stay.
func (f *fleetFollower) Close() {
	signal.Stop(f.hangup)
	close(f.hangup)
	<-f.done
	f.Follower.Close()
}
