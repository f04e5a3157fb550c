package process

import (
	"fmt"
	"time"
)

// Times are the CPU times of a machine since it was started, of all its CPUs together.
type Times struct {
	Busy   time.Duration // programs and the kernel ran
	Stolen time.Duration // a CPU was wanted, and the machine's host gave it to others
	Total  time.Duration // these, and when a CPU had nothing to do
}

// Share is how a machine's CPU time was shared, in parts of all of it.
type Share struct {
	Programs float64 `json:"programs"` // all programs and the kernel
	Others   float64 `json:"others"`   // of these, those other than the measuring program and what it measures
	Stolen   float64 `json:"stolen"`   // other machines on the same host
}

// ShareOf returns how the CPU time between two readings was shared, where a known part of it
// went to the measuring program and what it measures; nil where that is not known.
func ShareOf(before, after Times, known time.Duration) *Share {
	total := (after.Total - before.Total).Seconds()
	if total <= 0 {
		return nil
	}
	busy := (after.Busy - before.Busy).Seconds()
	return &Share{Programs: busy / total, Others: max(busy-known.Seconds(), 0) / total, Stolen: (after.Stolen - before.Stolen).Seconds() / total}
}

// busyPart is the part of a machine's CPU time that makes it busy when others take it.
const busyPart = 0.25

// BusyMeans says when a machine is busy.
var BusyMeans = fmt.Sprintf("programs other than loadtest and its target, or its host, took %.0f%% of its CPU time or more", busyPart*100)

// Busy reports whether others took so much that measurements say little of what is measured.
func (s *Share) Busy() bool { return s != nil && s.Others+s.Stolen >= busyPart }

// String says it in words.
func (s *Share) String() string {
	return fmt.Sprintf("programs took %.0f%% of its CPU time, %.0f%% those other than loadtest and its target; its host took %.0f%%",
		s.Programs*100, s.Others*100, s.Stolen*100)
}
