package bench

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
	// memcachedMegabytes is more than all rows fill: an eviction fails the run.
	memcachedMegabytes = 2048
	memcachedThreads   = 2
	askTimeout         = 30 * time.Second
)

// memcached is a Memcached server of our own, with a connection for its stats. It
// is not safe for concurrent use.
type memcached struct {
	*child.Child
	conn net.Conn
	in   *bufio.Reader
	own  int64 // bytes that asking for stats took so far
}

func startMemcached(ctx context.Context, binary string) (*memcached, error) {
	c, err := child.Start(ctx, child.Memcached(binary, "-t", fmt.Sprint(memcachedThreads), "-m", fmt.Sprint(memcachedMegabytes), "-c", "2048"))
	if err != nil {
		return nil, err
	}
	m := &memcached{Child: c}
	if m.conn, err = net.Dial("tcp", c.Addr); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	m.in = bufio.NewReader(m.conn)
	return m, nil
}

func (m *memcached) close() error {
	m.Kill() // asked to end it would take a second
	return m.conn.Close()
}

// readStats returns the server's figures. The bytes are without those of this and
// all earlier calls.
func (m *memcached) readStats() (stats, error) {
	const command = "stats\r\n"
	lines, answered, err := m.ask(command)
	if err != nil {
		return stats{}, errors.Join(fmt.Errorf("memcached's stats: %w", err), m.Alive())
	}
	s, err := parseStats(lines)
	// The answer is not among the bytes that it tells.
	m.own += int64(len(command))
	s.bytes -= m.own
	m.own += answered
	return s, err
}

// ask sends a command that is answered with lines up to END, and returns those and
// the length of the answer.
func (m *memcached) ask(command string) (lines []string, answered int64, err error) {
	if err := m.conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return nil, 0, err
	}
	if _, err := m.conn.Write([]byte(command)); err != nil {
		return nil, 0, err
	}
	for {
		line, err := m.in.ReadString('\n')
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

// fill makes an item that holds 1 of each key. Millions of them take seconds, since
// none is answered; that they are there is seen from the stats.
func (m *memcached) fill(ctx context.Context, keys iter.Seq[string]) error {
	before, err := m.readStats()
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", m.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
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
	// The answer to the last command says that all before it are done.
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		return fmt.Errorf("filling memcached: %w", err)
	}
	after, err := m.readStats()
	if err != nil {
		return err
	}
	if made := after.items - before.items; made != sent {
		return fmt.Errorf("filling memcached: of %d items %d were made", sent, made)
	}
	return nil
}
