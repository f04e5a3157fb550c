// Package process reads the CPU times of processes and of the machine. They are known on Linux
// only, see [Known].
package process

import (
	"fmt"
	"os"
	"time"
)

// Times are the CPU times of a machine since its start, of all its CPUs.
type Times struct {
	Busy   time.Duration // of programs and the kernel
	Stolen time.Duration // a CPU was ready, and the machine's host ran another machine
	Total  time.Duration // these, and idle time
}

// Own returns the CPU time of this process; 0: unknown.
func Own() time.Duration {
	own, err := CPU(os.Getpid())
	if err != nil {
		return 0 // never: this process exists
	}
	return own
}

// Share is how a machine's CPU time was shared, in parts of all of it.
type Share struct {
	Programs float64 `json:"programs"` // programs and the kernel
	Others   float64 `json:"others"`   // of these, all but the measuring program and what it measures
	Stolen   float64 `json:"stolen"`   // other machines on the same host
}

// ShareOf returns the share of the CPU time between two readings, of which a known part was
// the measuring program's and what it measures; nil: unknown.
func ShareOf(before, after Times, known time.Duration) *Share {
	total := (after.Total - before.Total).Seconds()
	if total <= 0 {
		return nil
	}
	busy := (after.Busy - before.Busy).Seconds()
	return &Share{Programs: busy / total, Others: max(busy-known.Seconds(), 0) / total, Stolen: (after.Stolen - before.Stolen).Seconds() / total}
}

// busyPart is the part of the CPU time that makes a machine busy when others take it.
const busyPart = 0.25

// BusyMeans explains when a machine is busy.
var BusyMeans = fmt.Sprintf("programs other than loadtest and its target, or its host, took %.0f%% of its CPU time or more", busyPart*100)

// Busy reports whether others took so much that measurements mean little.
func (s *Share) Busy() bool { return s != nil && s.Others+s.Stolen >= busyPart }

// String returns it in words.
func (s *Share) String() string {
	return fmt.Sprintf("programs took %.0f%% of its CPU time, %.0f%% those other than loadtest and its target; its host took %.0f%%",
		s.Programs*100, s.Others*100, s.Stolen*100)
}
