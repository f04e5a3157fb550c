package process

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Known reports whether this system knows the CPU time of processes. Elsewhere figures are 0.
const Known = true

// CPU returns the CPU time of all threads of the process by the clock of
// clock_getcpuclockid(3), to the nanosecond; /proc/PID/stat has hundredths of a second.
func CPU(pid int) (time.Duration, error) {
	const sched = 2 // the kernel's CPUCLOCK_SCHED, of a process
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// Machine returns the CPU times of the whole machine.
func Machine() (Times, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Times{}, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return Times{}, err
	}
	return timesOf(stat.CPUTotal), nil
}

// timesOf sums up CPU times. Those of guests are part of User and Nice.
func timesOf(c procfs.CPUStat) Times {
	seconds := func(sum float64) time.Duration { return time.Duration(sum * float64(time.Second)) }
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ
	return Times{seconds(busy), seconds(c.Steal), seconds(busy + c.Steal + c.Idle + c.Iowait)}
}

// Sleep sleeps for that time. time.Sleep would round up to a millisecond in an idle process.
func Sleep(d time.Duration) {
	left := unix.NsecToTimespec(int64(d))
	for errors.Is(unix.Nanosleep(&left, &left), unix.EINTR) { // the runtime sends signals
	}
}
