//go:build unix

package memcachedtest

import "syscall"

// Pause stops the server in its tracks until Resume: it takes connections and bytes,
// and answers nothing.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.tb.Helper()
	if err := s.process.Signal(signal); err != nil {
		s.tb.Fatalf("memcachedtest: %v", err)
	}
}
