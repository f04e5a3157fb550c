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

// Length returns how long all steps last.
func (s Steps) Length() (all time.Duration) {
	for _, step := range s {
		all += step.Length
	}
	return all
}

// Burst is a steady rate, and in the middle of each period so many requests more at once.
type Burst struct {
	Base  float64 // arrivals a second
	Size  int64   // arrivals of a burst
	Every time.Duration
}

// Due returns when the i-th request is due.
func (b Burst) Due(i int64) time.Duration {
	moment := func(burst int) time.Duration { return lengthOf((float64(burst) + 0.5) * b.Every.Seconds()) }
	steady := func(burst int) int64 { return Count(Constant(b.Base), moment(burst)) }
	bursts := sort.Search(int(i/b.Size)+1, func(n int) bool { return steady(n)+int64(n)*b.Size > i })
	rest := i - int64(bursts)*b.Size
	if bursts > 0 && rest < steady(bursts-1) {
		return moment(bursts - 1)
	}
	return Constant(b.Base).Due(rest)
}
