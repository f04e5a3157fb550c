package judge

import (
	"fmt"
	"io"
	"reflect"
	"sync"
	"text/tabwriter"
	"time"
)

// What is held to the contract.
const (
	Windows    = "windows"     // no window held more than its limit
	Denials    = "denials"     // no hit that fitted was denied
	RetryAfter = "retry_after" // it was true, and so were resets
	Counts     = "counts"      // they equal the log
	Headers    = "headers"     // they agree with the bodies
	Bodies     = "bodies"      // they agree with themselves and with the rules
	Stamps     = "stamps"      // they lie within the call
	Answers    = "answers"     // there is one, and it is one of the contract's
	Processes  = "processes"   // of a soak: they keep no goroutines or memory, and are never slow
)

// Checks are all of these, in the order of a report.
var Checks = []string{Windows, Denials, RetryAfter, Counts, Headers, Bodies, Stamps, Answers, Processes}

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

// Write writes a violation as text.
func (v Violation) Write(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nWRONG  %s: %s\n", v.Check, v.Text)
	if len(v.Events) > 0 {
		fmt.Fprintln(table, "  stamped\tsent\tanswered\tclient\ttarget\tcall\tcost\tanswer")
	}
	for _, e := range v.Events {
		stamped := "-"
		if !e.Stamped.IsZero() {
			stamped = e.Stamped.Format(time.TimeOnly)
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\n", stamped, e.Sent.Format(ClockLayout), e.Answered.Format(ClockLayout),
			e.Client, e.Target, e.Call, e.Cost, e.Answer)
	}
	if v.Left > 0 {
		fmt.Fprintf(table, "  and %d more\n", v.Left)
	}
	if v.Raw != "" {
		fmt.Fprintf(table, "  %s\n", v.Raw)
	}
	return table.Flush()
}

// ClockLayout is how times are written.
const ClockLayout = "15:04:05.000"

// Findings are what was found so far. To add to them and to take all is safe for concurrent use.
type Findings struct {
	Checked Checked
	Excused Excused
	// Hits by their outcomes.
	Admitted, Denied int64

	// Total is the number of violations, by check.
	Total map[string]int

	mu   sync.Mutex
	kept map[string][]Violation
}

// Checked is how much was held to the contract.
type Checked struct {
	Windows     int64 `json:"windows"` // ends of windows that were summed
	Denials     int64 `json:"denials"` // each by each limit that denies
	Counts      int64 `json:"counts"`  // of counts, history's buckets and of decisions
	Bodies      int64 `json:"bodies"`
	Headers     int64 `json:"headers"`
	Waits       int64 `json:"waits"`       // of denials, what they say when to come again
	Lone        int64 `json:"lone"`        // decisions of features that one caller calls
	Predictions int64 `json:"predictions"` // of these, what the log knows to the last number, of token buckets give or take a token
	Retries     int64 `json:"retries"`     // hits of lone callers that came when retry_after was over, and were admitted
	Early       int64 `json:"early"`       // and before it was, and were denied
}

// Excused counts what the targets do not promise, and what is not held against them. The texts
// are those of a report.
type Excused struct {
	Windows        int64 `json:"windows" text:"windows over their limit, after a loss that was said"`
	MostBeyond     int64 `json:"most_beyond" text:"more than its limit in the fullest of these windows"`
	LowCounts      int64 `json:"low_counts" text:"counts that lack what came before a loss"`
	HighCounts     int64 `json:"high_counts" text:"counts that hold what may have been counted, or twice"`
	AtResets       int64 `json:"at_resets" text:"admitted hits that were under way at a reset: they are in no window"`
	AfterResets    int64 `json:"after_resets" text:"windows over their limit after a reset, by no more than was under way at it"`
	Late           int64 `json:"late" text:"denials beside a late increment, which say to come again as if it had not come"`
	OnError        int64 `json:"on_error" text:"hits admitted by on_error"`
	UnknownOutcome int64 `json:"unknown_outcome" text:"calls of unknown outcome"`
	Refused        int64 `json:"refused" text:"calls refused for overload"`
	Repeated       int64 `json:"repeated" text:"denials that repeat what a target had said in the same second, before others admitted more"`
	Overshoot      int64 `json:"overshoot" text:"denials for a transient overshoot of hits that were denied themselves"`
}

// Texts returns what was excused, and how often.
func (e Excused) Texts() (list []string) {
	for field, n := range reflect.ValueOf(e).Fields() {
		if n.Int() > 0 {
			list = append(list, fmt.Sprint(n, " ", field.Tag.Get("text")))
		}
	}
	return list
}

// count counts the outcome of an entry.
func (f *Findings) count(e *Entry) {
	switch {
	case e.Outcome == Unknown:
		f.Excused.UnknownOutcome++
	case e.Outcome == Refused:
		f.Excused.Refused++
	case e.Outcome == Denied && e.isHit():
		f.Denied++
	case e.Outcome == Admitted && e.isHit():
		f.Admitted++
	}
	if e.Outcome == Admitted && e.OnError != 0 && e.Kind != Check {
		f.Excused.OnError++
	}
}

// Add adds a violation. Of many alike some are kept, and the others only counted; the events
// of a kept one are gathered.
func (f *Findings) Add(v Violation, gather func() []Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept == nil {
		f.Total, f.kept = map[string]int{}, map[string][]Violation{}
	}
	f.Total[v.Check]++
	if len(f.kept[v.Check]) >= maxKept {
		return
	}
	if gather != nil {
		v.Events = gather()
	}
	v.Left = max(len(v.Events)-maxEvents, 0)
	v.Events = v.Events[:len(v.Events)-v.Left]
	v.Raw = v.Raw[:min(len(v.Raw), maxRaw)]
	f.kept[v.Check] = append(f.kept[v.Check], v)
}

// All returns the kept violations, in the order of the checks.
func (f *Findings) All() (list []Violation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range Checks {
		list = append(list, f.kept[name]...)
	}
	return list
}
