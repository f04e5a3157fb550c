package play

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute      // until a process serves
	endTimeout   = 20 * time.Second // until it is killed
)

// Folder returns a folder for the files of the run.
func (s *Stage) Folder() string {
	if s.folder == "" {
		folder, err := os.MkdirTemp("", "counterd")
		s.Check(err)
		s.folder = folder
		s.Stop(func() { os.RemoveAll(folder) })
	}
	return s.folder
}

// Program returns the path of a program, or ends the run.
func (s *Stage) Program(name string) string {
	for _, folder := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
		if path, err := exec.LookPath(folder + name); err == nil {
			return path
		}
	}
	s.Check(fmt.Errorf("this example needs %s: apt-get install %[1]s, or brew install %[1]s", name))
	return ""
}

// Counterd is a running counterd.
type Counterd struct {
	URL string // of the HTTP interface
	RLS string // the address of Envoy's rate limit service; empty: it has none
	// Stop stops it before the end of the run.
	Stop func()
}

// Counterd runs counterd on free ports, as the main module has it.
func (s *Stage) Counterd(args ...string) *Counterd {
	path, err := exec.CommandContext(s.ctx, "go", "tool", "-n", "counterd").Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("counterd is not built: %s", failed.Stderr)
	}
	s.Check(err)
	command := s.command(strings.TrimSpace(string(path)), append([]string{"-listen", "127.0.0.1:0"}, args...)...)
	command.Env = append(os.Environ(), "COUNTERD_TIMEOUT="+timeout.String(), "COUNTERD_GRACE="+grace.String())
	log, err := command.StderrPipe()
	s.Check(err)
	c := &Counterd{Stop: s.start(command)}
	var said bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(log, &said))
	for c.URL == "" && lines.Scan() {
		line, address, _ := strings.Cut(lines.Text(), " address=")
		address, _, _ = strings.Cut(address, " ")
		switch {
		case strings.HasSuffix(line, "msg=serving"):
			c.URL = "http://" + address
		case strings.HasSuffix(line, `msg="serving Envoy's rate limit service"`):
			c.RLS = address
		}
	}
	if c.URL == "" {
		s.Check(fmt.Errorf("counterd does not serve: %s", &said))
	}
	go io.Copy(io.Discard, log) // until it ends
	return c
}

// Memcached runs a server on a socket of that name and returns its path.
func (s *Stage) Memcached(name string) string {
	path := filepath.Join(s.Folder(), name)
	command := s.command(s.Program("memcached"), "-s", path)
	if own, err := user.Current(); err == nil {
		command.Args = append(command.Args, "-u", own.Username) // root has to name a user
	}
	command.Stderr = os.Stderr
	s.start(command)
	s.Await("unix", path)
	return path
}

// Run runs a program until the end of the run.
func (s *Stage) Run(path string, args ...string) {
	command := s.command(path, args...)
	command.Stderr = os.Stderr
	s.start(command)
}

// Await waits until an address takes connections.
func (s *Stage) Await(network, address string) {
	for end := time.Now().Add(startTimeout); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial(network, address)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) || s.ctx.Err() != nil {
			s.Check(err)
		}
	}
}

// command prints a command and returns it. It ends with the run.
func (s *Stage) command(path string, args ...string) *exec.Cmd {
	shown := filepath.Base(path) + " " + strings.Join(args, " ")
	if s.folder != "" {
		shown = strings.ReplaceAll(shown, s.folder, "FOLDER")
	}
	fmt.Println("$", shown)
	command := exec.CommandContext(s.ctx, path, args...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = endTimeout
	return command
}

// start starts a command, and returns what stops it.
func (s *Stage) start(command *exec.Cmd) (stop func()) {
	s.Check(command.Start())
	stop = sync.OnceFunc(func() {
		command.Process.Signal(syscall.SIGTERM)
		command.Wait()
	})
	s.Stop(stop)
	return stop
}
