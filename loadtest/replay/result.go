package replay

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/counterd/counterd/api/wire"
)

// Result is what a run did and found. Lines are Events, Skipped, Featureless, Filtered and
// Malformed together, once all is sent.
type Result struct {
	Event          string   `json:"event"`
	Retention      string   `json:"retention"` // as the server has it
	Lines          int      `json:"lines"`
	Events         int      `json:"events"`      // counted by the server
	Skipped        int      `json:"skipped"`     // older than the retention, or less than 10s from being so
	Unknown        int      `json:"-"`           // increments of unknown outcome, of a run that failed
	Featureless    int      `json:"featureless"` // lines without any of the features
	Filtered       int      `json:"filtered"`    // lines that the format leaves out
	Malformed      int      `json:"malformed"`   // lines that cannot be read
	MalformedLines []string `json:"malformed_lines"`

	Counters         int          `json:"counters"` // that hold events
	Windows          []string     `json:"windows"`
	LeftOutWindows   []string     `json:"left_out_windows"` // longer than the retention
	Comparisons      int64        `json:"comparisons"`
	LeftOut          int64        `json:"left_out"` // comparisons whose window slid out of the retention first
	Differences      int64        `json:"differences"`
	FirstDifferences []Difference `json:"first_differences"`
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

// WriteText writes the result as text.
func (r *Result) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range []struct {
		name, value, remark string
		optional            bool // left out if it is 0
	}{
		{"lines", strconv.Itoa(r.Lines), "", false},
		{"filtered", strconv.Itoa(r.Filtered), "lines that -regexp or -format leaves out", true},
		{"malformed", strconv.Itoa(r.Malformed), "", false},
		{"featureless", strconv.Itoa(r.Featureless), "lines without any of the features", true},
		{"skipped", strconv.Itoa(r.Skipped), "older than the " + r.Retention + " that the server remembers, or about to be", false},
		{"events", strconv.Itoa(r.Events), "", false},
		{"counters", strconv.Itoa(r.Counters), "", false},
		{"windows", strings.Join(r.Windows, " "), "", false},
		{"left out", cmp.Or(strings.Join(r.LeftOutWindows, " "), "0"), "longer than the retention", true},
		{"comparisons", strconv.FormatInt(r.Comparisons, 10), "", false},
		{"left out", strconv.FormatInt(r.LeftOut, 10), "their windows slid out of the retention", true},
		{"differences", strconv.FormatInt(r.Differences, 10), "", false},
	} {
		if !row.optional || row.value != "0" {
			fmt.Fprintln(w, strings.TrimSuffix(row.name+"\t"+row.value+"\t"+row.remark, "\t"))
		}
	}
	for _, d := range r.FirstDifferences {
		fmt.Fprintln(w, d)
	}
	return w.Flush()
}

// String returns the difference on one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s  window %s as of %s  from %s to %s  expected %d, got %d: %s", d.Feature, d.Window,
		clock(d.At), clock(d.From), clock(d.To), d.Expected, d.Got, d.Reason)
}

func clock(m wire.Moment) string { return m.UTC().Format("2006-01-02T15:04:05Z") }
