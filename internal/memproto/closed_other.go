//go:build !unix

package memproto

import "syscall"

// closedRaw cannot find that out here without waiting.
func closedRaw(syscall.RawConn, bool) bool { return false }
