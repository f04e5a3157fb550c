package plan

import "math"

const daySeconds = 86400

// Traffic is how the features of one counter do an event. Every day is like every other; a
// feature's day is a calendar day in UTC. Each event is by itself, which makes the most buckets.
type Traffic struct {
	Features float64 // of a day
	Events   float64 // of a day, of all of them; at least Features
	Peak     float64 // the busiest rate in average rates, at least 1, until the day's events have come
}

// active returns the features with an event in an interval of at most a day, at a multiple of
// the average rate.
func (t Traffic) active(seconds, times float64) float64 {
	part := min(seconds*times/daySeconds, 1)
	return t.Features * (1 - math.Pow(1-part, t.Events/t.Features))
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
