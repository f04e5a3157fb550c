// Package memcachedtest runs real Memcached servers for tests, and finds the goroutines
// that these leave behind.
package memcachedtest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterd/counterd/internal/loopback"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// startTimeout is how long a server may take until it answers.
const startTimeout = time.Minute

// Server is a running Memcached server.
type Server struct {
	Addr     string // host:port, or the path of its socket
	AuthFile string // the users that it takes; empty: all

	args     []string
	tb       testing.TB
	process  *os.Process
	stop     func()
	security Security
	client   *tls.Config // for Ask; nil: no TLS
}

// Start runs a server on a free loopback port until the test ends. Further
// arguments go to memcached. Where there is no memcached the test fails.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return (&Server{tb: tb}).start(args)
}

func (s *Server) start(args []string) *Server {
	s.tb.Helper()
	for range 20 {
		s.Addr = freeAddr(s.tb)
		_, port, _ := net.SplitHostPort(s.Addr)
		s.args = append([]string{"-l", "127.0.0.1", "-p", port}, args...)
		if s.run() {
			return s
		}
		// Another process took the port in between.
	}
	s.tb.Fatal("memcachedtest: memcached does not start")
	return nil
}

// StartUnix runs a server on a Unix socket until the test ends.
func StartUnix(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := &Server{Addr: filepath.Join(tb.TempDir(), "s"), tb: tb}
	s.args = append([]string{"-s", s.Addr}, args...)
	if !s.run() {
		tb.Fatal("memcachedtest: memcached does not start")
	}
	return s
}

// StartMany runs n servers and returns their addresses.
func StartMany(tb testing.TB, n int) []string {
	tb.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = Start(tb).Addr
	}
	return addrs
}

// Stop kills the server. It may be called more than once.
func (s *Server) Stop() { s.stop() }

// Restart runs the server again, empty, after Stop.
func (s *Server) Restart() {
	s.tb.Helper()
	if !s.run() {
		s.tb.Fatal("memcachedtest: memcached does not start again")
	}
}

// run reports whether the server came up.
func (s *Server) run() bool {
	s.tb.Helper()
	leaktest.Check(s.tb)
	path, err := exec.LookPath("memcached")
	if err != nil {
		s.tb.Fatal("memcachedtest: this test needs memcached: apt-get install memcached")
	}
	// -u is what memcached wants when root runs it.
	command := exec.Command(path, append([]string{"-u", "nobody", "-U", "0", "-t", "2"}, s.args...)...)
	if s.network() == "unix" {
		command.Args = append(command.Args, "-a", "0777", "-u", "root")
	}
	if err := command.Start(); err != nil {
		s.tb.Fatalf("memcachedtest: %v", err)
	}
	s.process = command.Process
	ended := make(chan struct{})
	go func() {
		command.Wait()
		close(ended)
	}()
	s.stop = sync.OnceFunc(func() {
		command.Process.Kill()
		<-ended
	})
	s.tb.Cleanup(s.stop)
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		select {
		case <-ended:
			return false
		case <-time.After(5 * time.Millisecond):
		}
		if conn, err := net.Dial(s.network(), s.Addr); err == nil {
			own := s.owns(conn)
			conn.Close()
			if own {
				return true
			}
		}
	}
	s.stop()
	return false
}

// owns reports whether the connection is to this server, as far as it says so without TLS: one that had not got its port
// has ended, or is about to.
func (s *Server) owns(conn net.Conn) bool {
	if s.security.Authority != nil || s.security.User != "" {
		return true
	}
	_ = conn.SetDeadline(time.Now().Add(startTimeout))
	if _, err := fmt.Fprint(conn, "stats\r\n"); err != nil {
		return false
	}
	for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != "END"; {
		if pid, found := strings.CutPrefix(lines.Text(), "STAT pid "); found {
			return pid == fmt.Sprint(s.process.Pid)
		}
	}
	return false
}

func (s *Server) network() string {
	if strings.Contains(s.Addr, "/") {
		return "unix"
	}
	return "tcp"
}

// Stats returns the server's own statistics: of "stats" where section is empty,
// else of that section.
func (s *Server) Stats(section string) map[string]string {
	s.tb.Helper()
	stats := map[string]string{}
	for _, line := range s.Ask(strings.TrimSpace("stats " + section)) {
		if fields := strings.SplitN(line, " ", 3); len(fields) == 3 && fields[0] == "STAT" {
			stats[fields[1]] = fields[2]
		}
	}
	return stats
}

// Ask sends one command line and returns the lines of the answer, up to END or,
// for commands that have none, the first. A server that is busy with keys has none.
func (s *Server) Ask(command string) []string {
	s.tb.Helper()
	conn, err := s.dial()
	if err != nil {
		s.tb.Fatalf("memcachedtest: %v", err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\n", command)
	long := strings.HasPrefix(command, "stats") || strings.HasPrefix(command, "get") || strings.HasPrefix(command, "lru_crawler metadump")
	var lines []string
	for answer := bufio.NewScanner(conn); answer.Scan(); {
		line := strings.TrimSuffix(answer.Text(), "\r")
		if line == "END" {
			return lines
		}
		if strings.HasPrefix(line, "BUSY") { // the list of keys before goes on
			return nil
		}
		lines = append(lines, line)
		if !long {
			return lines
		}
	}
	s.tb.Fatalf("memcachedtest: %q is not answered to its end", command)
	return nil
}

func freeAddr(tb testing.TB) string {
	tb.Helper()
	addr, err := loopback.FreeAddr()
	if err != nil {
		tb.Fatalf("memcachedtest: %v", err)
	}
	return addr
}
