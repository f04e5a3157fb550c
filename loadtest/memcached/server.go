// Package memcached starts a Memcached server for a load test, and reads its statistics.
package memcached

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"time"

	"github.com/counterd/counterd/loadtest/child"
)

const (
	askTimeout  = 30 * time.Second
	fillTimeout = 10 * time.Minute // gigabytes take minutes
)

// Server is a Memcached child process, with a connection for its stats. It is not safe for
// concurrent use.
type Server struct {
	*child.Child
	conn net.Conn
	in   *bufio.Reader
	own  int64 // bytes of reading the stats so far
}

// Start starts a server with further flags, and waits until it is ready. Close ends it.
func Start(ctx context.Context, binary string, flags ...string) (*Server, error) {
	c, err := child.Start(ctx, child.Memcached(binary, flags...))
	if err != nil {
		return nil, err
	}
	s := &Server{Child: c}
	if s.conn, err = net.Dial("tcp", c.Addr); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	s.in = bufio.NewReader(s.conn)
	return s, nil
}

// Close ends the server.
func (s *Server) Close() error {
	s.Kill() // Stop would take a second
	return s.conn.Close()
}

// Stats returns the server's statistics, without the bytes of reading them.
func (s *Server) Stats() (Stats, error) {
	const command = "stats\r\n"
	lines, answered, err := s.exchange(command)
	if err != nil {
		return Stats{}, errors.Join(fmt.Errorf("memcached's stats: %w", err), s.Alive())
	}
	stats, err := parseStats(lines)
	asked := s.own + int64(len(command)) // an answer's own bytes are in the next one
	stats.Bytes -= asked
	s.own = asked + answered
	return stats, err
}

// exchange sends a command, and returns the lines of its answer up to END, and their length.
func (s *Server) exchange(command string) (lines []string, answered int64, err error) {
	if err := s.conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return nil, 0, err
	}
	if _, err := s.conn.Write([]byte(command)); err != nil {
		return nil, 0, err
	}
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return nil, 0, err
		}
		answered += int64(len(line))
		line = strings.TrimSuffix(line, "\r\n")
		if line == "END" {
			return lines, answered, nil
		}
		lines = append(lines, line)
	}
}

// Fill makes an item of each key that holds 1, without expiry. Millions take seconds, since
// none is answered; the stats tell whether all were made.
func (s *Server) Fill(ctx context.Context, keys iter.Seq[string]) error {
	before, err := s.Stats()
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(fillTimeout)); err != nil {
		return err
	}
	out := bufio.NewWriterSize(conn, 1<<16)
	sent := int64(0)
	for key := range keys {
		out.WriteString("set ")
		out.WriteString(key)
		out.WriteString(" 0 0 1 noreply\r\n1\r\n")
		sent++
	}
	out.WriteString("version\r\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("filling memcached: %w", err)
	}
	// Its answer follows all sets.
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		return fmt.Errorf("filling memcached: %w", err)
	}
	after, err := s.Stats()
	if err != nil {
		return err
	}
	if made := after.Items - before.Items; made != sent {
		return fmt.Errorf("filling memcached: of %d items %d were made", sent, made)
	}
	return nil
}
