//go:build !linux

package bench

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// processesAreKnown says whether this system tells what a process takes. Where it
// does not the table has dashes.
const processesAreKnown = false

var selfPID = os.Getpid()

func cpuOf(int) (time.Duration, error) { return 0, nil }

func callsOf(int) (int64, error) { return 0, nil }

func apart(nobody bool) (*syscall.SysProcAttr, error) {
	if nobody && os.Getuid() == 0 {
		return nil, errors.New("memcached does not run as root: run this as another user")
	}
	return nil, nil
}

func sleep(d time.Duration) { time.Sleep(d) }
