package memcachedtest

import (
	"bufio"
	"fmt"
	"testing"
)

// StartSmall runs a server with room for some thousand buckets, beyond which it evicts
// those not used for longest, until the test ends.
func StartSmall(tb testing.TB) *Server {
	tb.Helper()
	return Start(tb, "-m", "1", "-I", "512k")
}

// Flood has the server keep so many items more, each as large as a bucket, of names that
// begin with the prefix.
func (s *Server) Flood(prefix string, items int) {
	s.tb.Helper()
	conn, err := s.dial()
	if err != nil {
		s.tb.Fatalf("memcachedtest: %v", err)
	}
	defer conn.Close()
	out := bufio.NewWriter(conn)
	for i := range items {
		fmt.Fprintf(out, "set %s%0*d 0 0 1 noreply\r\n1\r\n", prefix, 28-len(prefix), i)
	}
	// The answer to the last command says that all before it are done.
	fmt.Fprint(out, "mn\r\n")
	if err := out.Flush(); err != nil {
		s.tb.Fatalf("memcachedtest: %v", err)
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		s.tb.Fatalf("memcachedtest: %v", err)
	}
}
