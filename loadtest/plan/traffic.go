package plan

import (
	"math"
	"time"
)

const daySeconds = 86400

// Traffic is how the features of one counter do an event. Every day is like every other,
// and a feature's day is a calendar day in UTC.
type Traffic struct {
	Features float64 // that do it, each day
	Events   float64 // of all of them together, each day; no fewer than Features
	// Peak is how much more comes in the busiest time than on the average of a day; 1 at
	// least. The peak lasts until the day's events have come.
	Peak     float64
	Sessions Sessions
}

// Sessions are how a feature's events lie in its day: in sessions of so many events, spread
// over that time, each begun at any time of the day. The zero Sessions has each event at a
// time of its own, which is as many buckets as can be expected of so many events.
type Sessions struct {
	Events float64
	Length time.Duration
}

// perFeature returns the events of a feature each day.
func (t Traffic) perFeature() float64 { return t.Events / t.Features }

// sessions returns how many sessions a feature has each day, and of how many events.
func (t Traffic) sessions() (number, each float64) {
	n := t.perFeature()
	each = max(1, min(t.Sessions.Events, n))
	return n / each, each
}

// touched returns in how many buckets of that length, in seconds, the events of a session
// are expected to lie.
//
// Points lie in 1 bucket and one more for each gap between neighbours, as far as it is as
// long as a bucket: the beginning of the buckets is anywhere. The gaps of k points that lie
// anywhere in L are longer than s with the probability (1-s/L)^k.
func (t Traffic) touched(length float64) float64 {
	_, k := t.sessions()
	l := t.Sessions.Length.Seconds()
	if k <= 1 || l <= 0 {
		return 1
	}
	gap := l / (k + 1) * (1 - math.Pow(1-min(length/l, 1), k+1))
	return 1 + (k-1)*gap/length
}

// active returns how many features do the event in an interval of that many seconds, at
// most a day, in which so many times the average comes.
func (t Traffic) active(seconds, times float64) float64 {
	if seconds <= 0 {
		return 0
	}
	sessions, _ := t.sessions()
	hit := min(t.touched(seconds)*seconds*times/daySeconds, 1)
	return t.Features * (1 - math.Pow(1-hit, sessions))
}

// buckets returns how many buckets of that length, of all features, have events in the
// last so many seconds, of which the last ones are the peak.
func (t Traffic) buckets(length, seconds float64) float64 {
	days := math.Floor(seconds / daySeconds)
	sum := days * daySeconds / length * t.active(length, 1)
	// The rest holds no more than a day's events.
	rest := seconds - days*daySeconds
	if rest > 0 {
		times := min(t.Peak, daySeconds/rest)
		whole := math.Floor(rest / length)
		sum += whole*t.active(length, times) + t.active(rest-whole*length, times)
	}
	return sum
}

// events returns how many events come in the last so many seconds.
func (t Traffic) events(seconds float64) float64 {
	days := math.Floor(seconds / daySeconds)
	return t.Events * (days + min(t.Peak*(seconds-days*daySeconds)/daySeconds, 1))
}
