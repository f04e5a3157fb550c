//go:build unix

package main

import (
	"math"

	"golang.org/x/sys/unix"
)

// maxFiles returns how many files the process may have open. Go has raised that to
// what the system lets it.
func maxFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt // it says itself when there are too many
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
