package replay

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/loadtest/accesslog"
)

// Result is what a run did and found. Lines are Events, Skipped, Failed, Featureless,
// Filtered and Malformed together, once all is sent.
type Result struct {
	Event          string            `json:"event"`
	Retention      string            `json:"retention"` // as the server has it
	Lines          int               `json:"lines"`
	Events         int               `json:"events"`      // counted by the server
	Skipped        int               `json:"skipped"`     // older than the retention, or less than 10s from being so
	Failed         int               `json:"failed"`      // increments of unknown outcome, not repeated
	Featureless    int               `json:"featureless"` // lines without any of the features
	Filtered       int               `json:"filtered"`    // lines that the format leaves out
	Malformed      int               `json:"malformed"`   // lines that cannot be read
	MalformedLines []accesslog.Place `json:"malformed_lines"`

	Counters         int          `json:"counters"`          // that hold events
	Unsure           int          `json:"unsure"`            // counters with a failed increment; they are not compared
	Seconds          float64      `json:"seconds"`           // that the increments took
	EventsPerSecond  float64      `json:"events_per_second"` // 0: too fast to tell
	CountsPerSecond  float64      `json:"counts_per_second"`
	Windows          []string     `json:"windows"`
	LeftOutWindows   []string     `json:"left_out_windows"` // longer than the retention
	Comparisons      int64        `json:"comparisons"`
	LeftOut          int64        `json:"left_out"`      // comparisons whose window slid out of the retention first
	FailedCounts     int64        `json:"failed_counts"` // comparisons whose count failed
	Differences      int64        `json:"differences"`
	FirstDifferences []Difference `json:"first_differences"`
	FirstFailure     string       `json:"first_failure,omitempty"`
}

// Difference is a count that is not what the log says.
type Difference struct {
	Feature  string      `json:"feature"`
	Window   string      `json:"window"`
	At       wire.Moment `json:"at"` // the moment that was asked for
	From     wire.Moment `json:"from"`
	To       wire.Moment `json:"to"`
	Expected int64       `json:"expected"` // from From to To
	Got      int64       `json:"got"`
	Reason   string      `json:"reason"`
}

// OK reports whether the server counted right: every increment and every count
// was answered, and no count differs.
func (r *Result) OK() bool {
	return r.Differences == 0 && r.Failed == 0 && r.FailedCounts == 0
}

// WriteText writes the result as text.
func (r *Result) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, value any, remark string) {
		fmt.Fprintf(w, "%s\t%v", name, value)
		if remark != "" {
			fmt.Fprintf(w, "\t%s", remark)
		}
		fmt.Fprintln(w)
	}
	line("lines", r.Lines, "")
	if r.Filtered > 0 {
		line("filtered", r.Filtered, "lines that -regexp or -format leaves out")
	}
	line("malformed", r.Malformed, "")
	if r.Featureless > 0 {
		line("featureless", r.Featureless, "lines without any of the features")
	}
	line("skipped", r.Skipped, "older than the "+r.Retention+" that the server remembers, or about to be")
	if r.Failed > 0 {
		line("failed", r.Failed, "increments of unknown outcome, not repeated")
	}
	line("events", r.Events, "")
	line("events/s", rate(r.EventsPerSecond), "")
	line("counters", r.Counters, "")
	if r.Unsure > 0 {
		line("unsure", r.Unsure, "counters with a failed increment, not compared")
	}
	line("windows", strings.Join(r.Windows, " "), "")
	if len(r.LeftOutWindows) > 0 {
		line("left out", strings.Join(r.LeftOutWindows, " "), "longer than the retention")
	}
	line("counts/s", rate(r.CountsPerSecond), "")
	line("comparisons", r.Comparisons, "")
	if r.LeftOut > 0 {
		line("left out", r.LeftOut, "their windows slid out of the retention")
	}
	if r.FailedCounts > 0 {
		line("failed", r.FailedCounts, "counts, not compared")
	}
	line("differences", r.Differences, "")
	if err := w.Flush(); err != nil {
		return err
	}
	for _, d := range r.FirstDifferences {
		if _, err := fmt.Fprintln(out, d); err != nil {
			return err
		}
	}
	return nil
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", perSecond)
}

// String returns the difference on one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s  window %s as of %s  from %s to %s  expected %d, got %d: %s", d.Feature, d.Window,
		clock(d.At), clock(d.From), clock(d.To), d.Expected, d.Got, d.Reason)
}

func clock(m wire.Moment) string { return m.UTC().Format("2006-01-02T15:04:05Z") }
