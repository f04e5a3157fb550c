package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processesAreKnown says whether this system tells what a process takes.
const processesAreKnown = true

var selfPID = os.Getpid()

// cpuOf returns the CPU time of all threads of the process, on the clock that
// clock_getcpuclockid(3) names: it is exact to the nanosecond, where /proc/PID/stat
// counts in hundredths of a second.
func cpuOf(pid int) (time.Duration, error) {
	const sched = 2 // the kernel's CPUCLOCK_SCHED, for a process, not a thread
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// callsOf returns how often the process has called the system to read or to write.
// Waiting for either is not among them.
func callsOf(pid int) (int64, error) {
	file := fmt.Sprintf("/proc/%d/io", pid)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var sum int64
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		if string(name) != "syscr" && string(name) != "syscw" {
			continue
		}
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += n
	}
	return sum, nil
}

// sleep sleeps for that time. time.Sleep would round up to a whole millisecond in a
// process that has nothing else to do.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // cut short by a signal it returns early; the caller looks at the clock
}
