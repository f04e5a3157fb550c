package events

import "time"

// Algorithm is one way in which a limit counts. The key algorithm of the rules names a row of the
// table below; a row defines which seconds share a window. A new algorithm is a row, and its name
// in docs/rules.md and docs/rules.schema.json.
type Algorithm struct {
	Name string // in the rules
	// Log: one ordered log of all hits decides. Else buckets do.
	Log bool
	// Tiles: windows follow one another, and each second is in one of them. Else one ends with each
	// second, and only windows that tile may be of a calendar.
	Tiles bool
	// Around returns the seconds whose hits share a window with hits of the second, from first
	// to last, the second among them, none of them as far away as the longest window is long. Both
	// directions agree: one second is around another where that is around the one. Length is that
	// of the window, at least 1; with a zone it names the unit of its calendar. A hit leaves the
	// windows of others when the last second around it has passed. nil: a log counts more finely
	// than by seconds.
	Around func(second, length int64, zone *time.Location) (first, last int64)
	// Fault returns why the algorithm has no windows of that length at that precision, both in
	// seconds; empty: it has. nil: it has all.
	Fault func(length, precision int64, zone *time.Location) string
}

// Windows are the windows of a limit.
type Windows struct {
	Algorithm Algorithm
	Length    int64          // in seconds
	Zone      *time.Location // of the calendar that they are a unit of; nil: of none
}

// Around returns the seconds that share a window with the second.
func (w Windows) Around(second int64) (first, last int64) {
	return w.Algorithm.Around(second, w.Length, w.Zone)
}

// Slides reports whether a whole window ends with each second.
func (w Windows) Slides() bool {
	if w.Algorithm.Around == nil {
		return true
	}
	one, _ := w.Around(0)
	next, _ := w.Around(1)
	return next == one+1
}

// Longest returns the most seconds of a window.
func (w Windows) Longest() int64 { return LongestWindow(w.Length, w.Zone) }

// Unit returns hour, day, week or month if that is the unit of a calendar; else nothing.
func (w Windows) Unit() string {
	if w.Zone == nil {
		return ""
	}
	return CalendarUnit(w.Length)
}

// table has the algorithms, the default first.
var algorithms = []Algorithm{
	{Name: "sliding-window", Around: slidingWindow},
	{Name: FixedWindow, Tiles: true, Around: FixedWindowAround, Fault: FixedWindowFault},
	{Name: SlidingLog, Log: true},
	{Name: TokenBucket, Log: true},
	{Name: LeakyBucket, Log: true},
	{Name: Concurrency, Log: true},
}

// FixedWindow is the algorithm of windows that follow one another, those of a calendar among them.
const FixedWindow = "fixed-window"

// Algorithms that one ordered log of all hits decides.
const (
	// SlidingLog is sliding windows.
	SlidingLog = "sliding-log"
	// TokenBucket admits a burst, and then as many as the rate.
	TokenBucket = "token-bucket"
	// LeakyBucket is a token bucket that admits hits ahead of their turn, and says how long to wait.
	LeakyBucket = "leaky-bucket"
	// Concurrency is of limits on how many leases there are at a time. They have a log of their own.
	Concurrency = "concurrency"
)

// AlgorithmInLog reports whether a log keeps the limits of that algorithm.
func AlgorithmInLog(name string) bool {
	a, known := AlgorithmByName(name)
	return known && a.Log
}

// DefaultAlgorithm is the algorithm of limits that name none.
var DefaultAlgorithm = algorithms[0].Name

// AlgorithmByName returns the algorithm of that name. The empty name is DefaultAlgorithm.
func AlgorithmByName(name string) (Algorithm, bool) {
	if name == "" {
		return algorithms[0], true
	}
	for _, a := range algorithms {
		if a.Name == name {
			return a, true
		}
	}
	return Algorithm{}, false
}

// AlgorithmNames returns the names of all algorithms, the default first.
func AlgorithmNames() []string {
	names := make([]string, len(algorithms))
	for i := range algorithms {
		names[i] = algorithms[i].Name
	}
	return names
}

// slidingWindow: a window of the length ends with each second.
func slidingWindow(second, length int64, _ *time.Location) (first, last int64) {
	return second - length + 1, second + length - 1
}
