package plan

import (
	"math"
	"time"
)

const daySeconds = 86400

// Traffic is how the features of one counter do an event. Every day is like every other; a
// feature's day is a calendar day in UTC.
type Traffic struct {
	Features float64 // of a day
	Events   float64 // of a day, of all of them; at least Features
	Peak     float64 // the busiest rate in average rates, at least 1, until the day's events have come
	Sessions Sessions
}

// Sessions gather a feature's events: so many, spread over a length, anywhere in the day. The
// zero Sessions has each event by itself, which makes the most buckets.
type Sessions struct {
	Events float64
	Length time.Duration
}

func (t Traffic) perFeature() float64 { return t.Events / t.Features }

// sessions returns a feature's sessions of a day, and the events of one.
func (t Traffic) sessions() (number, each float64) {
	n := t.perFeature()
	each = max(1, min(t.Sessions.Events, n))
	return n / each, each
}

// touched returns the expected number of buckets of a session, for a bucket's length in
// seconds: 1, and one more for each gap between neighbours, as far as it is as long as a
// bucket. A gap of k points in L is longer than s with the probability (1-s/L)^k.
func (t Traffic) touched(length float64) float64 {
	_, k := t.sessions()
	l := t.Sessions.Length.Seconds()
	if k <= 1 || l <= 0 {
		return 1
	}
	gap := l / (k + 1) * (1 - math.Pow(1-min(length/l, 1), k+1))
	return 1 + (k-1)*gap/length
}

// active returns the features with an event in an interval of at most a day, at a multiple of
// the average rate.
func (t Traffic) active(seconds, times float64) float64 {
	if seconds <= 0 {
		return 0
	}
	sessions, _ := t.sessions()
	hit := min(t.touched(seconds)*seconds*times/daySeconds, 1)
	return t.Features * (1 - math.Pow(1-hit, sessions))
}

// buckets returns the buckets of that length, of all features, with events in the last so many
// seconds, which end with the peak.
func (t Traffic) buckets(length, seconds float64) float64 {
	days := math.Floor(seconds / daySeconds)
	sum := days * daySeconds / length * t.active(length, 1)
	if rest := seconds - days*daySeconds; rest > 0 { // with no more than a day's events
		times := min(t.Peak, daySeconds/rest)
		whole := math.Floor(rest / length)
		sum += whole*t.active(length, times) + t.active(rest-whole*length, times)
	}
	return sum
}

// events returns the events of the last so many seconds.
func (t Traffic) events(seconds float64) float64 {
	days := math.Floor(seconds / daySeconds)
	return t.Events * (days + min(t.Peak*(seconds-days*daySeconds)/daySeconds, 1))
}
