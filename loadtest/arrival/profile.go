package arrival

import (
	"math"
	"sort"
	"time"
)

// Never is when a request is due that does not come any more.
const Never = time.Duration(math.MaxInt64)

// MaxRate is the most arrivals a second.
const MaxRate = 10_000_000

// Profile says when requests arrive. Moments are lengths of time since the beginning.
type Profile interface {
	// Due returns when the i-th request is due, from 0 on; Never if it is not. It does not
	// go back as i grows.
	Due(i int64) time.Duration
	// Rate returns the arrivals a second at a moment; of a burst, those around it.
	Rate(at time.Duration) float64
}

// Count returns how many requests are due before a moment: those of the profile in that
// length of time.
func Count(p Profile, before time.Duration) int64 {
	if before <= 0 {
		return 0
	}
	limit := int64(before.Seconds()*MaxRate) + 1
	return int64(sort.Search(int(limit), func(i int) bool { return p.Due(int64(i)) >= before }))
}

// CountBetween returns how many requests are due from one moment on, before another.
func CountBetween(p Profile, from, to time.Duration) int64 { return Count(p, to) - Count(p, from) }

// lengthOf returns a length of time of so many seconds, Never beyond what there is.
func lengthOf(seconds float64) time.Duration {
	if ns := seconds * float64(time.Second); ns < float64(Never) {
		return time.Duration(math.Round(ns))
	}
	return Never
}

// Constant is so many arrivals a second, evenly.
type Constant float64

// Due returns when the i-th request is due.
func (c Constant) Due(i int64) time.Duration { return lengthOf(float64(i) / float64(c)) }

// Rate returns the rate.
func (c Constant) Rate(time.Duration) float64 { return float64(c) }

// Ramp goes evenly from one rate to another, and stays there.
type Ramp struct {
	From, To float64 // arrivals a second; not both 0
	Over     time.Duration
}

// Due returns when the i-th request is due: where the integral of the rate is i.
func (r Ramp) Due(i int64) time.Duration {
	n, over := float64(i), r.Over.Seconds()
	if whole := (r.From + r.To) / 2 * over; n >= whole {
		return lengthOf(over + (n-whole)/r.To)
	}
	if i == 0 {
		return 0
	}
	// Of the two ways to write the root this one loses no digits where the ramp is flat.
	slope := (r.To - r.From) / over
	return lengthOf(2 * n / (r.From + math.Sqrt(max(r.From*r.From+2*slope*n, 0))))
}

// Rate returns the rate at a moment.
func (r Ramp) Rate(at time.Duration) float64 {
	return r.From + (r.To-r.From)*min(at.Seconds()/r.Over.Seconds(), 1)
}

// Steps are rates one after the other. The last one stays.
type Steps []Step

// Step is a rate and how long it lasts.
type Step struct {
	Rate   float64 // arrivals a second; 0: none
	Length time.Duration
}

// Due returns when the i-th request is due.
func (s Steps) Due(i int64) time.Duration {
	left := float64(i)
	var began time.Duration
	for k, step := range s {
		here := step.Rate * step.Length.Seconds()
		if left < here || k == len(s)-1 {
			after := lengthOf(left / step.Rate) // 0/0 and x/0 are Never
			if step.Rate == 0 || after > Never-began {
				return Never
			}
			return began + after
		}
		left -= here
		began += step.Length
	}
	return Never
}

// Rate returns the rate at a moment.
func (s Steps) Rate(at time.Duration) float64 {
	for _, step := range s {
		if at < step.Length {
			return step.Rate
		}
		at -= step.Length
	}
	return s[len(s)-1].Rate
}

// Length returns how long all steps last.
func (s Steps) Length() (all time.Duration) {
	for _, step := range s {
		all += step.Length
	}
	return all
}

// Burst is a steady rate, and in the middle of each period a burst beside it.
type Burst struct {
	Base  float64       // arrivals a second
	Size  int64         // arrivals of a burst
	Speed float64       // at which they come, a second; 0: all at once
	Every time.Duration // the period, longer than a burst
}

// Due returns when the i-th request is due: the last moment before which not more than i
// have come.
func (b Burst) Due(i int64) time.Duration {
	low, high := time.Duration(0), time.Duration(1)
	for ; b.before(high) <= i; high *= 2 {
		if high > Never/4 {
			return Never
		}
		low = high
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; b.before(middle) <= i {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// before returns how many requests are due before a moment.
func (b Burst) before(at time.Duration) int64 {
	n := evenly(b.Base, at)
	first := b.Every / 2
	if at <= first {
		return n
	}
	// All bursts that began before this period's are over.
	over := int64((at - first - 1) / b.Every)
	n += over * b.Size
	if b.Speed == 0 {
		return n + b.Size
	}
	return n + min(evenly(b.Speed, at-first-time.Duration(over)*b.Every), b.Size)
}

// evenly returns how many of a constant rate are due before a moment.
func evenly(rate float64, at time.Duration) int64 {
	if rate == 0 || at <= 0 {
		return 0
	}
	n := int64(math.Ceil(at.Seconds() * rate))
	for n > 0 && Constant(rate).Due(n-1) >= at {
		n--
	}
	for Constant(rate).Due(n) < at {
		n++
	}
	return n
}

// Rate returns the rate at a moment, a burst spread over its period.
func (b Burst) Rate(time.Duration) float64 {
	return b.Base + float64(b.Size)/b.Every.Seconds()
}
