//go:build unix

package memcachedtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Pause stops the server in its tracks until Resume: it takes connections and bytes,
// and answers nothing.
func (s *Server) Pause() {
	s.tb.Helper()
	s.signal(syscall.SIGSTOP)
	for began := time.Now(); !s.paused(); time.Sleep(time.Millisecond) {
		if time.Since(began) > startTimeout {
			s.tb.Fatal("memcachedtest: the server does not stop")
		}
	}
}

// paused reports whether all threads have stopped, where the system tells: it takes a
// moment.
func (s *Server) paused() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.process.Pid))
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		_, state, _ := bytes.Cut(stat, []byte(") "))
		if err == nil && !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}

// Resume lets a paused server go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.tb.Helper()
	if err := s.process.Signal(signal); err != nil {
		s.tb.Fatalf("memcachedtest: %v", err)
	}
}
