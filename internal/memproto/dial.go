package memproto

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// Endpoint is where a server is, and how connections to it are opened. It is the net.Addr that
// gomemcache dials, and the ServerSelector that sends every key there: which server has a
// counter is decided once for a trip, not for each of its keys.
type Endpoint struct {
	Name    string // as configured: the address, and the server's part in placement
	Dialer  Dialer
	Dialing func(ctx context.Context, name string, deadline time.Time) (net.Conn, error) // nil: the dialer; for tests
}

// Network returns tcp, or unix for a name that is a path.
func (e *Endpoint) Network() string {
	if strings.Contains(e.Name, "/") {
		return "unix"
	}
	return "tcp"
}

// String returns the server's name.
func (e *Endpoint) String() string { return e.Name }

// PickServer returns the server, whatever the key.
func (e *Endpoint) PickServer(string) (net.Addr, error) { return e, nil }

// Each calls f with the server.
func (e *Endpoint) Each(f func(net.Addr) error) error { return f(e) }

// Check finds the names that can never be reached. A server that is down is no
// fault: it may come back. Nor is a name without an address: each dial looks it up.
func (e *Endpoint) Check(ctx context.Context) error {
	if e.Network() == "unix" {
		return nil
	}
	host, port, err := net.SplitHostPort(e.Name)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("memcache: server %q is neither host:port nor the path of a socket", e.Name)
	}
	if _, err := net.DefaultResolver.LookupPort(ctx, "tcp", port); err != nil {
		return fmt.Errorf("memcache: server %q has no valid port", e.Name)
	}
	return nil
}

// Dial opens a connection.
func (e *Endpoint) Dial(ctx context.Context, deadline time.Time) (net.Conn, error) {
	dial := e.Dialing
	if dial == nil {
		dial = func(ctx context.Context, name string, deadline time.Time) (net.Conn, error) {
			return e.Dialer.Dial(ctx, e.Network(), name, deadline)
		}
	}
	conn, err := dial(ctx, e.Name, deadline)
	if err != nil {
		return nil, &dialError{err}
	}
	return conn, nil
}

// dialError is why no connection could be opened: no listener, or a refusal.
type dialError struct{ cause error }

func (e *dialError) Error() string { return e.cause.Error() }

func (e *dialError) Unwrap() error { return e.cause }

// Wrap names the server in an error.
func (e *Endpoint) Wrap(err error) error {
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrDown) {
		return err
	}
	return fmt.Errorf("memcache: server %s: %w", e.Name, err)
}

// Unwrap takes the server's name off an error that Wrap put there.
func (e *Endpoint) Unwrap(err error) error {
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "memcache: server "+e.Name+": ") {
		return inner
	}
	return err
}

// Dialer opens the connections to servers. It is asked for each what the server has to
// be shown, so that what is renewed takes effect on the connections opened after.
type Dialer struct {
	TLS         func() (*tls.Config, error) // nil: none
	Credentials func() (Credentials, error) // nil: none
}

// Check finds out at the start what would make every connection fail.
func (d Dialer) Check() error {
	var faults []error
	if d.TLS != nil {
		if _, err := d.TLS(); err != nil {
			faults = append(faults, fmt.Errorf("memcache: TLS: %w", err))
		}
	}
	if d.Credentials != nil {
		if _, err := d.readCredentials(); err != nil {
			faults = append(faults, fmt.Errorf("memcache: %w", err))
		}
	}
	return errors.Join(faults...)
}

func (d Dialer) readCredentials() (Credentials, error) {
	c, err := d.Credentials()
	if err != nil {
		return c, fmt.Errorf("credentials: %w", err)
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("credentials: %w", err)
	}
	return c, nil
}

// Dial opens a connection on which the server takes commands: with TLS and the
// credentials, where those are set. All of it takes until the deadline at the most;
// the connection that it returns has none.
func (d Dialer) Dial(ctx context.Context, network, address string, deadline time.Time) (net.Conn, error) {
	open := net.Dialer{Deadline: deadline}
	conn, err := open.DialContext(ctx, network, address)
	if err != nil || d.Credentials == nil && !d.secures(network) {
		return conn, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	ready, err := d.enter(ctx, conn, network, address, deadline)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return ready, nil
}

// secures reports whether connections have TLS. Those to sockets do not: they stay on
// this machine, and Memcached speaks none there.
func (d Dialer) secures(network string) bool { return d.TLS != nil && network != "unix" }

// enter does what comes before the first command.
func (d Dialer) enter(ctx context.Context, conn net.Conn, network, address string, deadline time.Time) (net.Conn, error) {
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if d.secures(network) {
		tunnel, err := d.handshake(ctx, conn, address)
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		conn = tunnel
	}
	if d.Credentials != nil {
		c, err := d.readCredentials()
		if err != nil {
			return nil, err
		}
		if err := c.present(conn); err != nil {
			return nil, err
		}
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return conn, ctx.Err()
}

// handshake verifies the server's name: the one in its address, where the config names no
// other.
func (d Dialer) handshake(ctx context.Context, conn net.Conn, address string) (tunnel, error) {
	config, err := d.TLS()
	if err != nil {
		return tunnel{}, err
	}
	if config == nil {
		config = &tls.Config{}
	}
	config = config.Clone()
	config.DynamicRecordSizingDisabled = true // see maxRecord
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return tunnel{}, err
		}
		config.ServerName = host
	}
	t := tunnel{tls.Client(conn, config)}
	if err := t.HandshakeContext(ctx); err != nil {
		switch _, plain := errors.AsType[tls.RecordHeaderError](err); {
		case plain:
			return tunnel{}, errors.New("the server does not speak TLS")
		case isTimeout(err):
			return tunnel{}, fmt.Errorf("the handshake was not over in time, as with a server that does not speak TLS: %w", err)
		case hungUp(err):
			return tunnel{}, fmt.Errorf("the server hung up in the handshake: %w", err)
		}
		return tunnel{}, err
	}
	return t, nil
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// tunnel is a connection with TLS.
type tunnel struct{ *tls.Conn }

// Close hangs up. What TLS would have sent before might have to wait for a server that does
// not read, and the closing goroutine must not.
func (t tunnel) Close() error { return t.NetConn().Close() }

// control returns what a connection is watched by without reading from it, or nil, and
// whether what is to be seen there are TLS records.
func control(conn net.Conn) (raw syscall.RawConn, records bool) {
	if t, ok := conn.(tunnel); ok {
		conn, records = t.NetConn(), true
	}
	if c, ok := conn.(syscall.Conn); ok {
		raw, _ = c.SyscallConn()
	}
	return raw, records
}

// unanswered says more of an error that came in place of the first answer on a connection.
// A server hangs up on a client without a certificate only after the handshake: the
// client's side of it is over before the server has looked.
func unanswered(conn net.Conn, err error) error {
	if !hungUp(err) {
		return err
	}
	wants := "TLS"
	if _, ok := conn.(tunnel); ok {
		wants = "a client certificate"
	}
	return fmt.Errorf("the server hung up before it answered anything, as one does that wants %s: %w", wants, err)
}
