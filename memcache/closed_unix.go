//go:build unix

package memcache

import (
	"net"
	"syscall"
)

// closedByPeer reports whether an idle connection has been closed by the other
// side, or holds bytes that nobody asked for. It looks without waiting.
func closedByPeer(conn net.Conn) bool {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := raw.SyscallConn()
	return err != nil || closedRaw(control)
}

// closedRaw is closedByPeer of the connection's control.
func closedRaw(control syscall.RawConn) bool {
	closed := false
	err := control.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
	})
	return err != nil || closed
}
