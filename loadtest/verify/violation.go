package verify

import (
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"
)

// What is held to the contract.
const (
	CheckWindows    = "windows"     // no window held more than its limit
	CheckDenials    = "denials"     // no hit that fitted was denied
	CheckRetryAfter = "retry_after" // it was true, and so were resets
	CheckCounts     = "counts"      // they equal the log
	CheckHeaders    = "headers"     // they agree with the bodies
	CheckBodies     = "bodies"      // they agree with themselves and with the rules
	CheckStamps     = "stamps"      // they lie within the call
	CheckAnswers    = "answers"     // there is one, and it is one of the contract's
	CheckProcesses  = "processes"   // of a soak: they keep no goroutines or memory, and are never slow
)

var checks = []string{CheckWindows, CheckDenials, CheckRetryAfter, CheckCounts, CheckHeaders, CheckBodies, CheckStamps, CheckAnswers, CheckProcesses}

const (
	maxKept   = 3    // violations of each kind that are kept whole
	maxEvents = 60   // of a violation's events that are kept
	maxRaw    = 4096 // bytes of an answer that are kept
)

// Violation is one thing that the contract does not allow.
type Violation struct {
	Check   string  `json:"check"`
	Feature *string `json:"feature,omitempty"` // of the counter, as answers spell it: "" is that of the whole event; nil: no counter is meant
	Limit   string  `json:"limit,omitempty"`
	Text    string  `json:"text"`
	Events  []Event `json:"events,omitempty"` // of the window, or the calls that are meant
	Left    int     `json:"events_left_out,omitempty"`
	Raw     string  `json:"raw,omitempty"` // the answer, as it came

	sort string // of each sort of a check as many are kept beside the others
}

// Event is a call, as its client saw it.
type Event struct {
	Stamped  time.Time `json:"stamped,omitzero"`
	Sent     time.Time `json:"sent"`
	Answered time.Time `json:"answered"`
	Client   int       `json:"client"`
	Target   string    `json:"target"`
	Call     string    `json:"call"`
	Cost     int64     `json:"cost"`
	Answer   string    `json:"answer"`
}

func (v Violation) write(out io.Writer) error {
	fmt.Fprintf(out, "\nWRONG  %s: %s\n", v.Check, v.Text)
	if len(v.Events) > 0 {
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "  stamped\tsent\tanswered\tclient\ttarget\tcall\tcost\tanswer")
		for _, e := range v.Events {
			stamped := "-"
			if !e.Stamped.IsZero() {
				stamped = e.Stamped.Format(time.TimeOnly)
			}
			fmt.Fprintf(table, "  %s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\n", stamped, e.Sent.Format(clockLayout), e.Answered.Format(clockLayout),
				e.Client, e.Target, e.Call, e.Cost, e.Answer)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if v.Left > 0 {
		fmt.Fprintf(out, "  and %d more\n", v.Left)
	}
	if v.Raw != "" {
		fmt.Fprintf(out, "  %s\n", v.Raw)
	}
	return nil
}

const clockLayout = "15:04:05.000"

// findings are the violations so far. It is safe for concurrent use.
type findings struct {
	mu    sync.Mutex
	kept  map[string][]Violation
	total map[string]int
}

func newFindings() *findings {
	return &findings{kept: map[string][]Violation{}, total: map[string]int{}}
}

func (f *findings) add(v Violation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total[v.Check]++
	if f.alike(v) >= maxKept {
		return
	}
	if len(v.Events) > maxEvents {
		v.Left = len(v.Events) - maxEvents
		v.Events = v.Events[:maxEvents]
	}
	if len(v.Raw) > maxRaw {
		v.Raw = v.Raw[:maxRaw]
	}
	f.kept[v.Check] = append(f.kept[v.Check], v)
}

// passes counts one like that and reports true where as many are kept already: to gather
// its events goes through all of a counter, which is too much for each of many.
func (f *findings) passes(v Violation) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.alike(v) < maxKept {
		return false
	}
	f.total[v.Check]++
	return true
}

// alike returns how many of the kind are kept.
func (f *findings) alike(v Violation) (n int) {
	for _, o := range f.kept[v.Check] {
		if o.sort == v.sort {
			n++
		}
	}
	return n
}

// any reports whether there is one.
func (f *findings) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.kept) > 0
}

// all returns the kept violations, in the order of the checks.
func (f *findings) all() (list []Violation) {
	for _, name := range checks {
		list = append(list, f.kept[name]...)
	}
	return list
}
