//go:build unix

package server

import (
	"math"

	"golang.org/x/sys/unix"
)

// maxFiles returns how many files the process may have open. Go has raised that to the
// system's hard limit.
func maxFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt // opening one too many is an error then
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
