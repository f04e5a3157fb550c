package memproto

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

var (
	// ErrClosed is the error of a call to a server whose connections are closed.
	ErrClosed = errors.New("memcache: fleet is closed")
	// ErrDown is what calls return at once whose server is known to be down.
	ErrDown = errors.New("memcache: the server is down")
	// ErrClassic is the outcome of asking a server that does not know the meta commands.
	ErrClassic = errors.New("the server does not speak the meta commands")
	// ErrHungUp is the same of one that hangs up on each of them.
	ErrHungUp = fmt.Errorf("%w: it hangs up on them", ErrClassic)
	// ErrNoReply is the error of a call that was sent and not answered in time.
	ErrNoReply = fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded)
	// ErrBusy is the error of a call for which no connection became free in time.
	ErrBusy = errors.New("no connection became free in time")
	// ErrUnread is why a Swap is not sent: the connection that its version was read on is over.
	ErrUnread = errors.New("the version was read on another connection")
	// ErrNoKeys is the error of a server or proxy that does not list its keys.
	ErrNoKeys = errors.New("the server does not list its keys")
	// ErrKeysBusy is the error of a server that can list its keys later: it is at a list, or at
	// other work on all items.
	ErrKeysBusy = errors.New("the server is busy and can list its keys later")
	// ErrKeysMissed is the error of a list that has ended well and may lack keys nevertheless.
	ErrKeysMissed = errors.New("the server can miss keys as it lists them: Memcached 1.6.9 is the first that does not")

	errNotSent = fmt.Errorf("not sent in time: %w", os.ErrDeadlineExceeded)
	// errNoVersions is why replicas on a server cannot be repaired, and items of bytes not swapped.
	errNoVersions = errors.New("the server keeps no versions of items: it runs with -C")
)

// IsRefused reports whether the server took no connection, or did not let this process in.
func IsRefused(err error) bool {
	_, undialed := errors.AsType[*dialError](err)
	return undialed || isForbidden(err)
}

// IsOutage reports whether the error speaks for a server that is down: no listener, a
// refused connection, no answer in time, a connection that broke, or answers that make no
// sense.
func IsOutage(err error) bool {
	if errors.Is(err, ErrDown) || errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) {
		return false
	}
	if _, ok := errors.AsType[*dialError](err); ok || isForbidden(err) {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return true
	}
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.ErrClosedPipe) || errors.Is(err, errNonsense) || isNonsense(err)
}

// isForbidden reports whether the server demands a login. Such a server is as good as down.
func isForbidden(err error) bool {
	text := err.Error() // that is all that gomemcache gives
	return errors.Is(err, errNoCredentials) || strings.Contains(text, "memcache: client error: unauthenticated") || strings.Contains(text, unauthenticated)
}

// isNonsense reports whether the classic path was answered something that is no answer.
func isNonsense(err error) bool {
	text := err.Error()
	return (strings.Contains(text, "memcache: unexpected ") || strings.Contains(text, "memcache: corrupt ")) && !IsAnswer(err)
}

// IsAnswer reports whether the error is the server's own, in good form: then it is
// there.
func IsAnswer(err error) bool {
	if _, ok := errors.AsType[refusal](err); ok || errors.Is(err, ErrClassic) || errors.Is(err, errNoCount) || errors.Is(err, errNoData) {
		return true
	}
	if isForbidden(err) {
		return false
	}
	// gomemcache has a text only.
	text := err.Error()
	return strings.Contains(text, "memcache: ") &&
		(strings.Contains(text, `"ERROR`) || strings.Contains(text, `"SERVER_ERROR`) || strings.Contains(text, `"CLIENT_ERROR`) ||
			strings.Contains(text, "memcache: client error: ") || strings.HasSuffix(text, "memcache: server error"))
}
