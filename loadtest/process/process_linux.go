package process

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Known says whether this system tells what a process takes. Elsewhere figures are 0, and
// processes are not found.
const Known = true

// CPU returns the CPU time of all threads of the process, on the clock that
// clock_getcpuclockid(3) names: it is exact to the nanosecond, where /proc/PID/stat
// counts in hundredths of a second.
func CPU(pid int) (time.Duration, error) {
	const sched = 2 // the kernel's CPUCLOCK_SCHED, for a process, not a thread
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// Calls returns how often the process has called the system to read or to write.
// Waiting for either is not among them.
func Calls(pid int) (int64, error) {
	values, err := table(fmt.Sprintf("/proc/%d/io", pid), "syscr", "syscw")
	if err != nil {
		return 0, err
	}
	return values[0] + values[1], nil
}

// Memory returns the bytes of memory that the process has now, and the most that it ever
// had.
func Memory(pid int) (now, most int64, err error) {
	values, err := table(fmt.Sprintf("/proc/%d/status", pid), "VmRSS", "VmHWM")
	if err != nil {
		return 0, 0, err
	}
	const kB = 1024
	return values[0] * kB, values[1] * kB, nil
}

// Machine returns the CPU times of the whole machine, which /proc/stat counts in hundredths of
// a second.
func Machine() (Times, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Times{}, err
	}
	return timesOf(string(text))
}

// timesOf reads the first line of /proc/stat. The times of guests behind those that it takes
// are among them.
func timesOf(text string) (Times, error) {
	const tick = 10 * time.Millisecond // of the kernel's interface, whatever its own clock has
	const (
		idle   = 3
		iowait = 4
		steal  = 7
		fields = 8
	)
	line, _, _ := strings.Cut(text, "\n")
	values := strings.Fields(strings.TrimPrefix(line, "cpu "))
	if !strings.HasPrefix(line, "cpu ") || len(values) < fields {
		return Times{}, errors.New("/proc/stat does not tell the CPU times")
	}
	var t Times
	for i, value := range values[:fields] {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return Times{}, fmt.Errorf("/proc/stat: %w", err)
		}
		of := time.Duration(n) * tick
		t.Total += of
		switch i {
		case idle, iowait:
		case steal:
			t.Stolen = of
		default:
			t.Busy += of
		}
	}
	return t, nil
}

// Ended returns the CPU time of all processes that this one has started, has waited for, and
// that have ended.
func Ended() (time.Duration, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err != nil {
		return 0, fmt.Errorf("the CPU time of ended processes: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// table reads values of a file with a name and a value on each line.
func table(file string, names ...string) ([]int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values := make([]int64, len(names))
	found := 0
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		for i, wanted := range names {
			if name != wanted {
				continue
			}
			number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
			if values[i], err = strconv.ParseInt(number, 10, 64); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			found++
		}
	}
	if found != len(names) {
		return nil, fmt.Errorf("%s does not tell of %s", file, strings.Join(names, " and "))
	}
	return values, nil
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
	if err := isHere(host); err != nil {
		return 0, err
	}
	sockets, err := listeners(uint16(number))
	if err != nil {
		return 0, err
	}
	return ownerOf(sockets)
}

// isHere returns nil if the host is this machine.
func isHere(host string) error {
	names, err := net.LookupHost(host)
	if err != nil {
		return err
	}
	here, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, name := range names {
		addr, err := netip.ParseAddr(name)
		if err == nil && addr.IsLoopback() {
			return nil
		}
		for _, own := range here {
			if prefix, err := netip.ParsePrefix(own.String()); err == nil && prefix.Addr() == addr {
				return nil
			}
		}
	}
	return errors.New("it is not on this machine")
}

// listeners returns what /proc/PID/fd calls the sockets that listen at a port.
func listeners(port uint16) (map[string]bool, error) {
	const (
		listen     = "0A" // the kernel's TCP_LISTEN
		localField = 1
		stateField = 3
		inodeField = 9
	)
	sockets := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // a machine without IPv6
		}
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			fields := strings.Fields(string(line))
			if len(fields) > inodeField && fields[stateField] == listen && strings.HasSuffix(fields[localField], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+fields[inodeField]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return nil, fmt.Errorf("nobody listens at port %d", port)
	}
	return sockets, nil
}

// ownerOf returns the process that has one of the sockets open. Processes of others cannot
// be looked into.
func ownerOf(sockets map[string]bool) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && sockets[to] {
			return strconv.Atoi(strings.Split(file, "/")[2])
		}
	}
	return 0, errors.New("who listens there is not to be seen: it is of another user")
}

// Sleep sleeps for that time. time.Sleep would round up to a whole millisecond in a
// process that has nothing else to do.
func Sleep(d time.Duration) {
	left := unix.NsecToTimespec(int64(d))
	for errors.Is(unix.Nanosleep(&left, &left), unix.EINTR) { // the runtime sends signals
	}
}
