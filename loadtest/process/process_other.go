//go:build !linux

package process

import (
	"errors"
	"time"
)

// Known says whether this system tells what a process takes. Elsewhere figures are 0, and
// processes are not found.
const Known = false

// CPU returns 0: it is not known.
func CPU(int) (time.Duration, error) { return 0, nil }

// Calls returns 0: they are not known.
func Calls(int) (int64, error) { return 0, nil }

// Memory returns 0: it is not known.
func Memory(int) (now, most int64, err error) { return 0, 0, nil }

// Machine returns none: they are not known.
func Machine() (Times, error) { return Times{}, nil }

// Ended returns 0: it is not known.
func Ended() (time.Duration, error) { return 0, nil }

// Listening finds nobody.
func Listening(string) (pid int, err error) {
	return 0, errors.New("who listens where is known on Linux only")
}

// Sleep sleeps for that time.
func Sleep(d time.Duration) { time.Sleep(d) }
