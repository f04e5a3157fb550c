// Package fleet starts what a load test needs: Memcached servers and processes of counterd
// before them, as children of this process, on free ports of loopback. It kills servers and
// starts them again, empty, and tells when what they had is copied back.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/loadtest/child"
)

// Config says what to start.
type Config struct {
	Counterd  string   // the program
	Memcached string   // the program; not needed where there are no servers
	Processes int      // of counterd
	Servers   int      // of Memcached; 0: the embedded store, of each process its own
	Flags     []string // of Memcached; nil: one thread, 256 MB
	Replicas  int      // of each counter; 0: 1
	Protocol  string   // that counterd speaks with the servers; empty: its default
	Rules     string   // the text of the rules
	RLS       string   // the text of a configuration of envoyproxy/ratelimit; empty: there is no gRPC
	Timeout   time.Duration
	Grace     time.Duration // 0: counterd's default
}

// Fleet is what was started. One goroutine at a time kills and restarts its servers.
type Fleet struct {
	config    Config
	dir       string
	memcached child.Program
	Servers   []*child.Child
	Processes []Process
}

// Process is a process of counterd.
type Process struct {
	*child.Child
	Admin string // its address for operators
	RLS   string // its address for gRPC, if it has one
}

// adminOf returns the address for operators of the process that listens at an address.
func adminOf(addr string) string { return behind(addr, 1) }

// rlsOf returns the address for gRPC of the process that listens at an address.
func rlsOf(addr string) string { return behind(addr, 2) }

// behind returns the address with a port that is higher by so much.
func behind(addr string, by uint16) string {
	listen := netip.MustParseAddrPort(addr)
	return netip.AddrPortFrom(listen.Addr(), listen.Port()+by).String()
}

// Start starts a fleet and waits until it is ready. What it returns beside an error has
// been closed.
func Start(ctx context.Context, config Config) (f *Fleet, err error) {
	if config.Flags == nil {
		config.Flags = []string{"-t", "1", "-m", "256"}
	}
	f = &Fleet{config: config, memcached: child.Memcached(config.Memcached, config.Flags...)}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if f.dir, err = os.MkdirTemp("", "counterd-loadtest"); err != nil {
		return f, err
	}
	if err := errors.Join(f.write(rulesFile, config.Rules), f.write(rlsFile, config.RLS)); err != nil {
		return f, err
	}
	var names []string
	for range config.Servers {
		server, err := child.Start(ctx, f.memcached)
		if err != nil {
			return f, err
		}
		f.Servers = append(f.Servers, server)
		names = append(names, server.Addr)
	}
	for range config.Processes {
		process, err := child.Start(ctx, f.program(names))
		if err != nil {
			return f, err
		}
		f.Processes = append(f.Processes, Process{process, adminOf(process.Addr), rlsOf(process.Addr)})
	}
	return f, nil
}

// Files of counterd.
const (
	rulesFile = "rules.yaml"
	rlsFile   = "limits.yaml"
)

func (f *Fleet) path(file string) string { return filepath.Join(f.dir, file) }

func (f *Fleet) write(file, text string) error {
	return os.WriteFile(f.path(file), []byte(text), 0o600)
}

func (f *Fleet) program(servers []string) child.Program {
	return child.Program{
		Path: f.config.Counterd,
		Args: func(addr string) []string {
			args := []string{"-listen", addr, "-admin", adminOf(addr), "-rules", f.path(rulesFile), "-timeout", f.config.Timeout.String()}
			if f.config.RLS != "" {
				args = append(args, "-rls", rlsOf(addr), "-rls-config", f.path(rlsFile))
			}
			if f.config.Grace > 0 {
				args = append(args, "-grace", f.config.Grace.String())
			}
			if len(servers) > 0 {
				args = append(args, "-memcached", strings.Join(servers, ","), "-replicas", strconv.Itoa(max(f.config.Replicas, 1)))
			}
			if f.config.Protocol != "" {
				args = append(args, "-protocol", f.config.Protocol)
			}
			return args
		},
		Ready: func(addr string) error { return f.ready(adminOf(addr)) },
	}
}

// ready returns nil where the process with that address for operators says that all servers are there.
func (f *Fleet) ready(admin string) error { return f.allAre(admin, `:"reachable`) }

// Whole returns nil where it says, too, that they have all that they had.
func (f *Fleet) Whole(admin string) error { return f.allAre(admin, `:"reachable"`) }

func (f *Fleet) allAre(admin, state string) error {
	answer, err := Ask(admin, "/readyz")
	if err == nil && strings.Count(answer, state) < f.config.Servers {
		err = fmt.Errorf("%s is not said of all servers: %s", state, answer)
	}
	return err
}

// Ready returns nil if all processes report all servers as reachable.
func (f *Fleet) Ready() error { return f.all(f.ready) }

// Restart starts a server again that was killed: empty, where it was.
func (f *Fleet) Restart(ctx context.Context, i int) error {
	server, err := child.StartAt(ctx, f.memcached, f.Servers[i].Addr)
	if err == nil {
		f.Servers[i] = server
	}
	return err
}

// AwaitRepaired waits until every process has noticed that a server had come back empty,
// and then until none says any more that one has lost something.
func (f *Fleet) AwaitRepaired(ctx context.Context) error {
	// All at once: while one has not noticed yet, another may be done with it.
	var noticing []string
	for _, process := range f.Processes {
		noticing = append(noticing, process.Admin)
	}
	err := Until(ctx, time.Minute, func() error {
		noticing = slices.DeleteFunc(noticing, func(admin string) bool { return f.Whole(admin) != nil })
		if len(noticing) > 0 {
			return fmt.Errorf("%v do not notice that a server came back empty", noticing)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return Until(ctx, 10*time.Minute, func() error { return f.all(f.Whole) })
}

func (f *Fleet) all(are func(admin string) error) error {
	for _, process := range f.Processes {
		if err := are(process.Admin); err != nil {
			return err
		}
	}
	return nil
}

// Alive returns an error if a process of counterd has ended.
func (f *Fleet) Alive() error {
	var faults []error
	for _, process := range f.Processes {
		faults = append(faults, process.Alive())
	}
	return errors.Join(faults...)
}

// Close ends all.
func (f *Fleet) Close() (err error) {
	for _, process := range f.Processes {
		err = errors.Join(err, process.Stop())
	}
	for _, server := range f.Servers {
		server.Kill()
	}
	if f.dir != "" {
		err = errors.Join(err, os.RemoveAll(f.dir))
	}
	return err
}
