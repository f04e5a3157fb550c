// Package child starts programs for a load test as processes of its own, each on a free port
// of loopback, and ends them.
package child

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/counterd/counterd/internal/loopback"
)

const (
	startTimeout = 30 * time.Second // until a child is ready
	stopTimeout  = 30 * time.Second // until a child has ended by itself: counterd drains for up to 18 s
	endIsKnown   = 10 * time.Second // after the calls to a child that ended have failed, on a busy machine
	startTries   = 5                // each on another port
	logTail      = 4 << 10          // bytes of a child's log
)

// Child is a child process.
type Child struct {
	name  string
	Addr  string // where it listens
	cmd   *exec.Cmd
	log   tail
	ended chan struct{}
}

// Program is a program to run as a child.
type Program struct {
	Path         string
	Args         func(addr string) []string // for an address to listen at
	Env          func(addr string) []string // variables besides this process's, as name=value; nil: none
	Ready        func(addr string) error    // nil once it is ready
	Unprivileged bool                       // it refuses to run as root
}

// Memcached is a Memcached server with further flags.
func Memcached(path string, flags ...string) Program {
	return Program{
		Path: path,
		Args: func(addr string) []string {
			host, port, _ := net.SplitHostPort(addr)
			return append([]string{"-l", host, "-p", port, "-U", "0"}, flags...)
		},
		Ready: func(addr string) error {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return err
			}
			return conn.Close()
		},
		Unprivileged: true,
	}
}

// Command returns a command that runs to its end. If the context ends, it gets SIGTERM, and is killed
// after a while. If this process is killed, so is the command.
func Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr, cmd.WaitDelay = apart(false), stopTimeout
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

// Start starts a program on a free port of loopback, and waits until it is ready.
func Start(ctx context.Context, p Program) (*Child, error) {
	for try := 1; ; try++ {
		addr, err := loopback.FreeAddr()
		if err != nil {
			return nil, err
		}
		c, err := StartAt(ctx, p, addr) // fails if another process has taken the port
		if err == nil || try == startTries || ctx.Err() != nil {
			return c, err
		}
	}
}

// StartAt starts a program at a free address, and waits until it is ready.
func StartAt(ctx context.Context, p Program, addr string) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &Child{name: p.Path, Addr: addr, cmd: exec.Command(p.Path, p.Args(addr)...), ended: make(chan struct{})}
	if p.Env != nil {
		c.cmd.Env = append(os.Environ(), p.Env(addr)...)
	}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.SysProcAttr = &c.log, &c.log, apart(p.Unprivileged)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = c.cmd.Wait() // Alive reports how it ended
		close(c.ended)
	}()
	if err := c.await(ctx, p.Ready); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// await waits until the child is ready.
func (c *Child) await(ctx context.Context, ready func(addr string) error) error {
	for deadline := time.After(startTimeout); ; {
		err := ready(c.Addr)
		if err == nil {
			return c.Alive()
		}
		select {
		case <-c.ended:
			return c.Alive()
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("%s is not ready after %s: %w", c.name, startTimeout, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Alive returns an error if the child has ended.
func (c *Child) Alive() error {
	select {
	case <-c.ended:
		return fmt.Errorf("%s has ended: %s; its log ends: %s", c.name, c.cmd.ProcessState, strings.TrimSpace(string(c.log)))
	default:
		return nil
	}
}

// Because adds to the error of a call to the child that the child has ended, if it has. The calls
// to a process that dies fail a moment before its end is known.
func (c *Child) Because(err error) error {
	select {
	case <-c.ended:
	case <-time.After(endIsKnown):
	}
	return errors.Join(err, c.Alive())
}

// PID returns the number of the process.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Stop lets the child end, or kills it after a while. It may be called again.
func (c *Child) Stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		_ = c.cmd.Process.Kill() // on a system without signals
	}
	select {
	case <-c.ended:
		return nil
	case <-time.After(stopTimeout):
		c.Kill()
		return fmt.Errorf("%s did not end within %s", c.name, stopTimeout)
	}
}

// Kill ends the child at once.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails if it has ended
	<-c.ended
}

// tail keeps the end of a log. It is read once the child has ended.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	all := append(*t, p...)
	*t = all[max(len(all)-logTail, 0):]
	return len(p), nil
}
