package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 10 * time.Second // until a child answers
	stopTimeout  = 5 * time.Second  // until one ends that was asked to
	startTries   = 5                // each on another port
	logTail      = 4 << 10          // bytes of a child's log that are kept
)

// child is a process that this one has started.
type child struct {
	name  string
	addr  string // where it listens
	cmd   *exec.Cmd
	log   tail
	ended chan struct{}
}

// program is what a child runs.
type program struct {
	path   string
	args   func(addr string) []string // that tell it where to listen
	ready  func(addr string) error    // nil once it does what it is for
	nobody bool                       // it is not to be root
}

// startChild starts a program that listens on a free port of loopback, and waits
// until it is ready.
func startChild(ctx context.Context, p program) (*child, error) {
	attributes, err := apart(p.nobody)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		c := &child{name: p.path, addr: addr, ended: make(chan struct{})}
		c.cmd = exec.Command(p.path, p.args(addr)...)
		c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
		c.cmd.SysProcAttr = attributes
		if err := c.cmd.Start(); err != nil {
			return nil, err
		}
		go func() {
			_ = c.cmd.Wait() // how it ended nobody asks; that it did shows
			close(c.ended)
		}()
		err = c.await(ctx, p.ready)
		if err == nil {
			return c, nil
		}
		// Somebody else may have taken the port in between.
		if err = errors.Join(err, c.stop()); try == startTries || ctx.Err() != nil {
			return nil, err
		}
	}
}

// await waits until the child is ready.
func (c *child) await(ctx context.Context, ready func(addr string) error) error {
	deadline := time.After(startTimeout)
	for {
		err := ready(c.addr)
		if err == nil {
			return c.alive()
		}
		select {
		case <-c.ended:
			return c.alive()
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("%s is not ready after %s: %w", c.name, startTimeout, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// alive returns an error if the child has ended.
func (c *child) alive() error {
	select {
	case <-c.ended:
		return fmt.Errorf("%s has ended: %s; its log ends: %s", c.name, c.cmd.ProcessState, c.log.String())
	default:
		return nil
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop asks the child to end, and kills it if it does not. It may be called again.
func (c *child) stop() error {
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
	c.kill()
	return fmt.Errorf("%s did not end within %s", c.name, stopTimeout)
}

// kill ends a child that has nothing to finish.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	<-c.ended
}

// freeAddr returns an address of loopback on which nobody listens right now.
func freeAddr() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
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
