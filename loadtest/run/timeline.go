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
	answered int64      // well, in it
	failed   int64
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
	var merged []slot
	for i := 0; i < len(t.slots); i += 2 {
		one := t.slots[i]
		if i+1 < len(t.slots) {
			one.add(t.slots[i+1])
		}
		merged = append(merged, one)
	}
	t.slots = merged
}

// add merges the next slot.
func (s *slot) add(next slot) {
	s.latency.add(next.latency)
	s.answered += next.answered
	s.failed += next.failed
}

// Slot is a piece of a run's time.
type Slot struct {
	At      float64 `json:"at"`      // seconds since the beginning
	Seconds float64 `json:"seconds"` // its length
	Asked   float64 `json:"asked"`   // arrivals a second
	Reached float64 `json:"reached"` // answers a second, without failures
	Failed  int64   `json:"failed"`  // failures
	Latency Latency `json:"latency"` // of the requests due in it, to two digits
}

// report returns the slots of a run with arrivals during span and the last answer at elapsed.
// A last slot shorter than half of one merges with the one before: a few answers of a
// millisecond are no rate.
func (t *timeline) report(p arrival.Profile, span, elapsed time.Duration) []Slot {
	end, merged := max(span, elapsed), false
	if last := len(t.slots) - 1; last > 0 && end-time.Duration(last)*t.length < t.length/2 {
		t.slots[last-1].add(t.slots[last])
		t.slots, merged = t.slots[:last], true
	}
	slots := make([]Slot, 0, len(t.slots))
	for i, s := range t.slots {
		from := time.Duration(i) * t.length
		to := max(min(from+t.length, end), from+time.Millisecond)
		if merged && i == len(t.slots)-1 {
			to = max(end, to)
		}
		seconds := (to - from).Seconds()
		asked := arrival.Count(p, min(to, span)) - arrival.Count(p, min(from, span))
		slots = append(slots, Slot{
			At: from.Seconds(), Seconds: seconds, Asked: float64(asked) / seconds,
			Reached: float64(s.answered) / seconds, Failed: s.failed, Latency: s.latency.latency(),
		})
	}
	return slots
}
