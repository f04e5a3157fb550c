package memcache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
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

// dialMeta opens a connection and makes sure that the other side knows the meta
// commands. It returns errClassic only of a server that refused those and then
// answered a classic command: one that is down, silent or talks nonsense may well
// know them. check is what comes before any other command.
func dialMeta(ctx context.Context, deadline time.Time, to *endpoint, check func(net.Conn) error) (net.Conn, error) {
	conn, err := to.dial(ctx, deadline)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	refused, err := probeMeta(conn, deadline)
	if err == nil {
		refused, err = false, check(conn)
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
	if fault := probeClassic(ctx, deadline, to); fault != nil {
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
func probeClassic(ctx context.Context, deadline time.Time, to *endpoint) error {
	conn, err := to.dial(ctx, deadline)
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

// dialect is which commands a server speaks.
type dialect struct {
	protocol Protocol      // of the config
	lasts    time.Duration // how long it is remembered that it is a classic server: classicFor
	since    atomic.Int64  // when it last was found to be a classic server
	until    atomic.Int64  // until when that is taken for granted; 0: it is not known to be one
	asking   atomic.Bool   // it is being asked again
	known    atomic.Int32  // the Protocol that learned was called with last; 0: none
	learned  func(speaks Protocol)
}

// speaks returns what is known: Meta or Classic, or Auto where it was not asked yet.
func (d *dialect) speaks() Protocol {
	if d.protocol == Classic {
		return Classic
	}
	return Protocol(d.known.Load())
}

// isClassic reports whether the server is known not to know the meta commands. After a
// while, ask is true: the caller has it asked again in the background, and
// sets asking to false in the end: trips go the classic way meanwhile.
func (d *dialect) isClassic(now int64) (classic, ask bool) {
	until := d.until.Load()
	return until != 0, until != 0 && now >= until && d.asking.CompareAndSwap(false, true)
}

// learn remembers what came of asking. A server that could not be asked is not
// taken for a classic one: the next trip finds out.
func (d *dialect) learn(err error) {
	now := instant(time.Now())
	if errors.Is(err, errClassic) {
		d.since.Store(now)
		d.until.Store(now + int64(d.lasts))
		d.tell(Classic)
		return
	}
	d.until.Store(0)
	if err == nil {
		d.tell(Meta)
	}
}

// tell says how the server speaks, if that is news.
func (d *dialect) tell(speaks Protocol) {
	if d.known.Swap(int32(speaks)) != int32(speaks) && d.learned != nil {
		d.learned(speaks)
	}
}

// reconnected notes that a classic connection was opened anew: there may be another
// server behind it.
func (d *dialect) reconnected() {
	now := instant(time.Now())
	if d.until.Load() != 0 && now-d.since.Load() > int64(classicReconnect) {
		d.until.Store(min(now, d.until.Load()))
	}
}

// epoch is where instants begin.
var epoch = time.Now()

// instant is a time as nanoseconds since epoch, on the monotonic clock where the
// time has its reading.
func instant(t time.Time) int64 { return int64(t.Sub(epoch)) }
