//go:build !unix

package memcache

import (
	"net"
	"syscall"
)

// closedByPeer cannot be told here without waiting.
func closedByPeer(net.Conn) bool { return false }

// closedRaw cannot be told here either.
func closedRaw(syscall.RawConn) bool { return false }
