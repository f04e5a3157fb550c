// Package child starts the programs that a load test needs as processes of its own, each
// on a free port of loopback, and ends them.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/counterd/counterd/internal/loopback"
)

const (
	StartTimeout = 10 * time.Second // until a child answers
	stopTimeout  = 5 * time.Second  // until one ends that was asked to
	startTries   = 5                // each on another port
	logTail      = 4 << 10          // bytes of a child's log that are kept
)

// Child is a process that this one has started.
type Child struct {
	name  string
	Addr  string // where it listens
	cmd   *exec.Cmd
	log   tail
	ended chan struct{}
}

// Program is what a child runs.
type Program struct {
	Path   string
	Args   func(addr string) []string // that tell it where to listen
	Ready  func(addr string) error    // nil once it does what it is for
	Nobody bool                       // it is not to be root
}

// Start starts a program that listens on a free port of loopback, and waits
// until it is ready.
func Start(ctx context.Context, p Program) (*Child, error) {
	for try := 1; ; try++ {
		addr, err := loopback.FreeAddr()
		if err != nil {
			return nil, err
		}
		c, err := StartAt(ctx, p, addr)
		// Somebody else may have taken the port in between.
		if err == nil || try == startTries || ctx.Err() != nil {
			return c, err
		}
	}
}

// StartAt starts it at an address where nobody listens, and waits until it is ready.
func StartAt(ctx context.Context, p Program, addr string) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // nobody waits for it
	}
	attributes, err := apart(p.Nobody)
	if err != nil {
		return nil, err
	}
	c := &Child{name: p.Path, Addr: addr, ended: make(chan struct{})}
	c.cmd = exec.Command(p.Path, p.Args(addr)...)
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.cmd.SysProcAttr = attributes
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = c.cmd.Wait() // how it ended nobody asks; that it did shows
		close(c.ended)
	}()
	if err := c.await(ctx, p.Ready); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// await waits until the child is ready.
func (c *Child) await(ctx context.Context, ready func(addr string) error) error {
	deadline := time.After(StartTimeout)
	for {
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
			return fmt.Errorf("%s is not ready after %s: %w", c.name, StartTimeout, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Alive returns an error if the child has ended.
func (c *Child) Alive() error {
	select {
	case <-c.ended:
		return fmt.Errorf("%s has ended: %s; its log ends: %s", c.name, c.cmd.ProcessState, c.log.String())
	default:
		return nil
	}
}

// PID returns the number of the process.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Stop asks the child to end, and kills it if it does not. It may be called again.
func (c *Child) Stop() error {
	select {
	case <-c.ended:
		return nil
	default:
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		// Where there are no signals it is killed at once.
		_ = c.cmd.Process.Kill()
	}
	select {
	case <-c.ended:
		return nil
	case <-time.After(stopTimeout):
	}
	c.Kill()
	return fmt.Errorf("%s did not end within %s", c.name, stopTimeout)
}

// Kill ends a child that has nothing to finish.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	<-c.ended
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(len(t.text)-logTail, 0):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
