//go:build unix

package memproto

import (
	"encoding/binary"
	"syscall"
)

// closedRaw reports whether the other side has closed an idle connection, or unsolicited
// bytes have come. It looks without waiting. Where TLS records are to be seen, only one
// that ends the connection means that: others are of TLS itself.
func closedRaw(control syscall.RawConn, records bool) bool {
	closed := false
	err := control.Control(func(fd uintptr) {
		var b [recordHead]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err != nil:
			closed = err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
		case records && n > 0:
			closed = endsTLS(b[:n])
		default:
			closed = true
		}
	})
	return err != nil || closed
}

// A TLS record begins with its type, two bytes of version and two of length.
const (
	recordHead      = 5
	recordAlert     = 21
	recordEncrypted = 23
	// From TLS 1.3 on records look alike, but for their length: an alert has two bytes,
	// its true type and 16 bytes of seal, and whatever else comes unasked is longer.
	encryptedAlert = 2 + 1 + 16
)

// endsTLS reports whether a record that begins like this is an alert: all that come to
// an idle connection end it.
func endsTLS(head []byte) bool {
	if len(head) < recordHead {
		return false
	}
	return head[0] == recordAlert || head[0] == recordEncrypted && binary.BigEndian.Uint16(head[3:]) == encryptedAlert
}
