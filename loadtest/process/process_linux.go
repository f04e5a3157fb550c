package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Known reports whether this system knows the usage of processes. Elsewhere figures are 0,
// and processes are not found.
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

// Memory returns the process's memory in bytes, and the most that it ever had.
func Memory(pid int) (now, most int64, err error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	status, err := proc.NewStatus()
	return int64(status.VmRSS), int64(status.VmHWM), err
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
	seconds := func(of ...float64) (sum time.Duration) {
		for _, s := range of {
			sum += time.Duration(s * float64(time.Second))
		}
		return sum
	}
	t := Times{Busy: seconds(c.User, c.Nice, c.System, c.IRQ, c.SoftIRQ), Stolen: seconds(c.Steal)}
	t.Total = t.Busy + t.Stolen + seconds(c.Idle, c.Iowait)
	return t
}

// Ended returns the CPU time of all children of this process that have ended.
func Ended() (time.Duration, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err != nil {
		return 0, fmt.Errorf("the CPU time of ended processes: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// Listening returns the process that listens at an address of this machine, host:port.
func Listening(addr string) (pid int, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("the port %q is no number", port)
	}
	own, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, errors.New("it is not on this machine")
	}
	own.Close()
	sockets, err := listeners(number)
	if err != nil {
		return 0, err
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	for _, proc := range processes {
		files, _ := proc.FileDescriptorTargets() // those of other users are hidden
		for _, file := range files {
			if sockets[file] {
				return proc.PID, nil
			}
		}
	}
	return 0, errors.New("the process that listens there is another user's")
}

// listeners returns the sockets that listen at a port, as /proc/PID/fd names them.
func listeners(port uint64) (map[string]bool, error) {
	const ( // fields of /proc/net/tcp, and the kernel's TCP_LISTEN
		local, state, inode = 1, 3, 9
		listen              = "0A"
	)
	sockets := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a machine may have no IPv6
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > inode && fields[state] == listen && strings.HasSuffix(fields[local], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+fields[inode]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return nil, fmt.Errorf("no process listens at port %d", port)
	}
	return sockets, nil
}

// Sleep sleeps for that time. time.Sleep would round up to a millisecond in an idle process.
func Sleep(d time.Duration) {
	left := unix.NsecToTimespec(int64(d))
	for errors.Is(unix.Nanosleep(&left, &left), unix.EINTR) { // the runtime sends signals
	}
}
