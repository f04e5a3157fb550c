package run

import (
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
)

const (
	slotLength = time.Second // at first
	maxSlots   = 512         // of 28 kB; a longer timeline merges each two
)

// timeline is a run over time.
type timeline struct {
	length time.Duration // of a slot
	slots  []slot
}

// slot is a piece of the timeline.
type slot struct {
	latency  *histogram // of the requests due in it
	answered int64      // in it
	failed   int64      // of these
}

func newTimeline() *timeline { return &timeline{length: slotLength} }

// at returns the slot of a moment since the beginning.
func (t *timeline) at(moment time.Duration) *slot {
	for moment >= t.length*maxSlots {
		t.halve()
	}
	i := int(max(moment, 0) / t.length)
	for len(t.slots) <= i {
		t.slots = append(t.slots, slot{latency: newHistogram(2)})
	}
	return &t.slots[i]
}

// halve merges each two slots.
func (t *timeline) halve() {
	t.length *= 2
	for i := 0; i < len(t.slots); i += 2 {
		one := t.slots[i]
		if i+1 < len(t.slots) {
			next := t.slots[i+1]
			one.latency.add(next.latency)
			one.answered += next.answered
			one.failed += next.failed
		}
		t.slots[i/2] = one
	}
	t.slots = t.slots[:(len(t.slots)+1)/2]
}

// Slot is a piece of a run's time.
type Slot struct {
	At       float64 `json:"at"`       // seconds since the beginning
	Seconds  float64 `json:"seconds"`  // its length
	Arrived  int64   `json:"arrived"`  // requests that came due in it
	Answered int64   `json:"answered"` // in it, also with a failure
	Failed   int64   `json:"failed"`
	Latency  Latency `json:"latency"` // of the requests due in it, to two digits
}

// report returns the slots of a run with arrivals during span and the last answer at elapsed.
func (t *timeline) report(p arrival.Profile, span, elapsed time.Duration) []Slot {
	slots := make([]Slot, 0, len(t.slots))
	for i, s := range t.slots {
		from := time.Duration(i) * t.length
		to := min(from+t.length, max(span, elapsed, from))
		slots = append(slots, Slot{
			At: from.Seconds(), Seconds: (to - from).Seconds(), Arrived: arrival.Count(p, min(to, span)) - arrival.Count(p, min(from, span)),
			Answered: s.answered, Failed: s.failed, Latency: s.latency.latency(),
		})
	}
	return slots
}
