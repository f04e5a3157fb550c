package memcache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// errClassic is the outcome of asking a server that does not know the meta commands.
var errClassic = errors.New("the server does not speak the meta commands")

const (
	// probe asks for what the meta path uses, on a key that no counter has.
	probe = "ma " + absentKey + " MD D1 Oprb\r\nmn\r\n"
	// classicProbe is a command that every server and proxy knows.
	classicProbe = "get " + absentKey + "\r\n"
)

// dial opens a connection.
func (s *server) dial(ctx context.Context, deadline time.Time) (net.Conn, error) {
	if s.dialing != nil {
		return s.dialing(ctx, deadline)
	}
	conn, err := s.dialer.dial(ctx, s.Network(), s.name, deadline)
	if err != nil {
		return nil, &dialError{err}
	}
	return conn, nil
}

// dialError is why no connection could be opened: nobody is there, or lets anybody in.
type dialError struct{ cause error }

func (e *dialError) Error() string { return e.cause.Error() }

func (e *dialError) Unwrap() error { return e.cause }

// dialMeta opens a connection and makes sure that the other side knows the meta
// commands. It returns errClassic only of a server that refused those and then
// answered a classic command: one that is down, silent or talks nonsense may well
// know them.
func (s *server) dialMeta(ctx context.Context, deadline time.Time) (net.Conn, error) {
	conn, err := s.dial(ctx, deadline)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	refused, err := probeMeta(conn, deadline)
	if err == nil {
		// Before anything else is asked: whoever uses the connection knows.
		refused, err = false, s.checkMarker(conn, nil)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err == nil {
		return conn, nil
	}
	conn.Close()
	if !refused {
		return nil, err
	}
	if fault := s.probeClassic(ctx, deadline); fault != nil {
		return nil, fmt.Errorf("%w, and to a classic one: %w", err, fault)
	}
	return nil, errClassic
}

// probeMeta reports whether the server refused: with an error in good form, as old
// versions do, or by hanging up, as some proxies do.
func probeMeta(conn net.Conn, deadline time.Time) (refused bool, err error) {
	if err := conn.SetDeadline(deadline); err != nil {
		return false, err
	}
	if _, err := io.WriteString(conn, probe); err != nil {
		return hungUp(err), err
	}
	answers := bufio.NewReaderSize(conn, maxLine)
	first, err := answers.ReadSlice('\n')
	if err != nil {
		return len(first) == 0 && hungUp(err), err
	}
	line := strings.TrimSuffix(string(first), "\r\n")
	switch {
	case line == unauthenticated: // which a classic one answers too
		return false, errNoCredentials
	case line == "ERROR", strings.HasPrefix(line, "CLIENT_ERROR"):
		return true, fmt.Errorf("the server answered %s to the meta commands", line)
	case line != "NF Oprb" && line != "HD Oprb":
		return false, fmt.Errorf("asked for the meta commands: %w", nonsense(first))
	}
	second, err := answers.ReadSlice('\n')
	if err != nil {
		return false, err
	}
	if string(second) != "MN\r\n" || answers.Buffered() > 0 {
		return false, fmt.Errorf("asked for the meta commands: %w", nonsense(second))
	}
	return false, nil
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// probeClassic returns nil of a server that answers a classic command.
func (s *server) probeClassic(ctx context.Context, deadline time.Time) error {
	conn, err := s.dial(ctx, deadline)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, classicProbe); err != nil {
		return unanswered(conn, err)
	}
	line, err := bufio.NewReaderSize(conn, maxLine).ReadSlice('\n')
	switch {
	case err != nil && len(line) == 0:
		return unanswered(conn, err)
	case err != nil:
		return err
	case string(line) != "END\r\n" && !strings.HasPrefix(string(line), "VALUE "+absentKey+" "):
		return nonsense(line)
	}
	return nil
}

// How long it is remembered that a server does not know the meta commands: it may
// be replaced by one that does, or stand behind a name with others that do.
const (
	classicFor       = time.Minute
	classicReconnect = time.Second // at least, also where connections come and go
)

// classic reports whether the server is known not to know the meta commands. After a
// while it is asked again, in the background: trips go the classic way meanwhile.
func (s *server) classic(now int64) bool {
	until := s.classicUntil.Load()
	if until == 0 {
		return false
	}
	if now >= until && s.asking.CompareAndSwap(false, true) {
		if !s.pipeline.background(func(ctx context.Context) {
			defer s.asking.Store(false)
			conn, err := s.dialMeta(ctx, time.Now().Add(s.pipeline.timeout))
			if err == nil {
				conn.Close()
			}
			s.learn(err)
		}) {
			s.asking.Store(false)
		}
	}
	return true
}

// learn remembers what came of asking. A server that could not be asked is not
// taken for a classic one: the next trip finds out.
func (s *server) learn(err error) {
	now := instant(time.Now())
	if errors.Is(err, errClassic) {
		s.classicSince.Store(now)
		s.classicUntil.Store(now + int64(s.pipeline.classicFor))
		s.tell(Classic)
		return
	}
	s.classicUntil.Store(0)
	if err == nil {
		s.tell(Meta)
	}
}

// tell says how the server speaks, if that is news.
func (s *server) tell(speaks Protocol) {
	if s.known.Swap(int32(speaks)) != int32(speaks) && s.learned != nil {
		s.learned(s.name, speaks)
	}
}

// reconnected notes that a classic connection was opened anew: there may be another
// server behind it.
func (s *server) reconnected() {
	s.poke()
	now := instant(time.Now())
	if s.classicUntil.Load() != 0 && now-s.classicSince.Load() > int64(classicReconnect) {
		s.classicUntil.Store(min(now, s.classicUntil.Load()))
	}
}

// epoch is where instants begin.
var epoch = time.Now()

// instant is a time as nanoseconds since epoch, on the monotonic clock where the
// time has its reading.
func instant(t time.Time) int64 { return int64(t.Sub(epoch)) }
