//go:build !linux

package bench

import (
	"os"
	"time"
)

// processesAreKnown says whether this system tells what a process takes. Where it
// does not the table has dashes.
const processesAreKnown = false

var selfPID = os.Getpid()

func cpuOf(int) (time.Duration, error) { return 0, nil }

func callsOf(int) (int64, error) { return 0, nil }

func sleep(d time.Duration) { time.Sleep(d) }
