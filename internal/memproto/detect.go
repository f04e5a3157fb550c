package memproto

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

const (
	// probe asks for what the meta path uses, on a key that no counter has.
	probe = "ma " + absentKey + " MD D1 Oprb\r\nmn\r\n"
	// classicProbe is a command that every server and proxy knows.
	classicProbe = "get " + absentKey + "\r\n"
)

// DialMeta opens a connection and makes sure that the other side knows the meta
// commands. It returns ErrClassic only of a server that refused those and then
// answered a classic command: one that is down, silent or talks nonsense may well
// know them. A connection that breaks is no refusal, since the server may have been
// started again; some proxies hang up on each meta command, and then it is
// ErrHungUp. check is what comes before any other command.
func DialMeta(ctx context.Context, deadline time.Time, to *Endpoint, check func(net.Conn) error) (net.Conn, error) {
	conn, refused, err := dialProbed(ctx, deadline, to, check)
	if !refused {
		return conn, err
	}
	if fault := probeClassic(ctx, deadline, to); fault != nil {
		return nil, fmt.Errorf("%w, and to a classic one: %w", err, fault)
	}
	if !hungUp(err) {
		return nil, ErrClassic
	}
	conn, refused, err = dialProbed(ctx, deadline, to, check)
	switch {
	case refused && hungUp(err):
		return nil, ErrHungUp
	case refused:
		return nil, ErrClassic
	}
	return conn, err
}

// dialProbed opens a connection, and reports whether the server refused the meta commands, with
// an error in good form or by hanging up.
func dialProbed(ctx context.Context, deadline time.Time, to *Endpoint, check func(net.Conn) error) (_ net.Conn, refused bool, err error) {
	conn, err := to.Dial(ctx, deadline)
	if err != nil {
		return nil, false, err
	}
	// It may run after this has returned: so it has a variable of its own.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	refused, err = probeMeta(conn, deadline)
	if err == nil {
		refused, err = false, check(conn)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err == nil {
		return conn, false, nil
	}
	conn.Close()
	return nil, refused, err
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
	answers := bufio.NewReaderSize(conn, MaxLine)
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
func probeClassic(ctx context.Context, deadline time.Time, to *Endpoint) error {
	conn, err := to.Dial(ctx, deadline)
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
	line, err := bufio.NewReaderSize(conn, MaxLine).ReadSlice('\n')
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
