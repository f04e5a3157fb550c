package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/loadtest/child"
)

// rules are those of the processes. The limits are held against the oracle.
const rules = `
events:
  wide:   {retention: 24h, limits: [{per: user, rate: 1000000000/d, on_error: deny}]}
  narrow: {retention: 24h, limits: [{per: user, rate: [10/s, 40/10s, 150/m, 1000/d], on_error: deny}]}
  count:  {retention: 24h}
`

// stage are the children.
type stage struct {
	dir       string
	memcached child.Program
	servers   []*child.Child
	processes []*child.Child
	clients   []*client.Client
}

func newStage(ctx context.Context, config Config) (s *stage, err error) {
	s = &stage{memcached: child.Memcached(config.Memcached, "-t", "1", "-m", "256")}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "counterd-soak"); err != nil {
		return s, err
	}
	file := filepath.Join(s.dir, "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		return s, err
	}
	var names []string
	for range servers {
		server, err := child.Start(ctx, s.memcached)
		if err != nil {
			return s, err
		}
		s.servers = append(s.servers, server)
		names = append(names, server.Addr)
	}
	for range processes {
		process, err := child.Start(ctx, counterdProgram(config.Counterd, file, names))
		if err != nil {
			return s, err
		}
		s.processes = append(s.processes, process)
		c, err := client.New(client.Config{URL: "http://" + process.Addr, Conns: config.callers()})
		if err != nil {
			return s, err
		}
		s.clients = append(s.clients, c)
	}
	return s, nil
}

func counterdProgram(path, rules string, servers []string) child.Program {
	return child.Program{
		Path: path,
		Args: func(addr string) []string {
			return []string{"-listen", addr, "-rules", rules, "-memcached", strings.Join(servers, ","),
				"-replicas", strconv.Itoa(copies), "-timeout", timeout.String()}
		},
		Ready: ready,
	}
}

// ready returns nil where a process says that all servers are there.
func ready(addr string) error { return allAre(addr, `:"reachable`) }

// whole returns nil where it says, too, that they have all that they had.
func whole(addr string) error { return allAre(addr, `:"reachable"`) }

func allAre(addr, state string) error {
	answer, err := ask(addr, "/readyz")
	if err == nil && strings.Count(answer, state) < servers {
		err = fmt.Errorf("%s is not said of all servers: %s", state, answer)
	}
	return err
}

// restart starts a server again that was killed: empty, where it was.
func (s *stage) restart(ctx context.Context, i int) error {
	server, err := child.StartAt(ctx, s.memcached, s.servers[i].Addr)
	if err == nil {
		s.servers[i] = server
	}
	return err
}

// alive returns an error if a process of counterd has ended.
func (s *stage) alive() error {
	var faults []error
	for _, process := range s.processes {
		faults = append(faults, process.Alive())
	}
	return errors.Join(faults...)
}

func (s *stage) close() error {
	var faults []error
	s.idle()
	for _, process := range s.processes {
		faults = append(faults, process.Stop())
	}
	for _, server := range s.servers {
		server.Kill()
	}
	if s.dir != "" {
		faults = append(faults, os.RemoveAll(s.dir))
	}
	return errors.Join(faults...)
}

// idle closes the connections to the processes that nobody uses.
func (s *stage) idle() {
	for _, c := range s.clients {
		c.Close()
	}
}
