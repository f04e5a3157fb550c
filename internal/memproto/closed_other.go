//go:build !unix

package wire

import "syscall"

// closedRaw cannot find that out here without waiting.
func closedRaw(syscall.RawConn, bool) bool { return false }
