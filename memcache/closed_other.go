//go:build !unix

package memcache

import "syscall"

// closedRaw cannot be told here without waiting.
func closedRaw(syscall.RawConn, bool) bool { return false }
