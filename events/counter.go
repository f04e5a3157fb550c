package events

import (
	"time"
)

// Precision is the finest step in which a counter is kept.
type Precision uint8

// The precisions of a counter. Second, the zero value, is exact to the second;
// the others round the edges of a window outward to whole minutes or hours, and
// need a sixtieth of the memory each.
const (
	Second Precision = iota
	Minute
	Hour
)

var precisionNames = [...]string{"second", "minute", "hour"}

// String returns second, minute or hour.
func (p Precision) String() string { return precisionNames[p] }

// Length returns the length of the step.
func (p Precision) Length() time.Duration {
	return [...]time.Duration{time.Second, time.Minute, time.Hour}[p]
}

// Counter names one counter, and says how it is kept.
type Counter struct {
	Event     string
	Feature   Feature       // the zero Feature: the event as a whole
	Retention time.Duration // how long its events are remembered, whole seconds; 0 means DefaultRetention
	Precision Precision
}

// ID returns the identity of the counter: its event and feature, each kind and
// value behind its length, so that no two counters share one. How a counter is
// kept is not part of it. It holds arbitrary bytes.
func (c Counter) ID() string {
	var space [idSpace]byte
	return string(append(appendString(space[:0], c.Event), c.Feature.id...))
}
