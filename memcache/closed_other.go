//go:build !unix

package memcache

import "net"

// closedByPeer cannot be told here without waiting.
func closedByPeer(net.Conn) bool { return false }
