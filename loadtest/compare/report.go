package compare

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/columns"
)

// What is judged by.
const (
	wholeSeconds = "second"
	nanoseconds  = "nanosecond"
)

// Comparison is what one traffic made of the ways of limiting.
type Comparison struct {
	Traffic    string `json:"traffic"`
	Hits       int    `json:"hits"`
	Features   int    `json:"features"` // that hit
	Malformed  int    `json:"malformed,omitzero"`
	Limit      string `json:"limit"`      // of each
	Resolution string `json:"resolution"` // of the judge's times: second or nanosecond
	Rows       []Row  `json:"rows"`
}

// Row is one way of limiting.
type Row struct {
	Name            string  `json:"name"`
	Admitted        int64   `json:"admitted"`
	Denied          int64   `json:"denied"`
	WrongAdmissions int64   `json:"wrong_admissions"`
	WrongDenials    int64   `json:"wrong_denials"`
	MostInAWindow   int64   `json:"most_in_a_window"`
	WorstWindow     float64 `json:"worst_window"` // that, in parts of the limit
	Bytes           float64 `json:"bytes"`        // the most of each feature, on the average
	MostBytes       int64   `json:"most_bytes"`   // of any
	Trips           float64 `json:"trips"`        // of a decision, as are the next two
	Reads           float64 `json:"reads"`
	Writes          float64 `json:"writes"`
	Bucket          *Held   `json:"by_its_own_rule,omitempty"` // of a token bucket
}

// finish adds what the decisions took. The bytes are the most of each feature, the limit n.
func (r Row) finish(n int64, a asked, bytes map[string]int64) Row {
	sum := int64(0)
	for _, b := range bytes {
		sum += b
		r.MostBytes = max(r.MostBytes, b)
	}
	r.Bytes = float64(sum) / float64(len(bytes))
	if r.Bucket != nil {
		r.Bucket.Worst = float64(r.Bucket.Most) / float64(n)
	}
	decisions := float64(r.Admitted + r.Denied)
	r.WorstWindow = float64(r.MostInAWindow) / float64(n)
	r.Trips, r.Reads, r.Writes = float64(a.trips)/decisions, float64(a.reads)/decisions, float64(a.writes)/decisions
	return r
}

// Report is all that was compared.
type Report struct {
	Comparisons []*Comparison `json:"comparisons"`
}

// OK reports whether counterd was as right as it promises to be: in whole seconds no
// admission is wrong, and with a second's precision or a log no denial. With fixed windows it
// admits as many as the reference, and a token bucket keeps to its own rule.
func (r *Report) OK() bool {
	for _, c := range r.Comparisons {
		fixed := slices.IndexFunc(c.Rows, func(row Row) bool { return row.Name == fixedReference })
		for _, row := range c.Rows {
			exact := row.Name == nameOf(events.Second) || row.Name == inLog
			ours := exact || row.Name == nameOf(events.Minute)
			if ours && c.Resolution == wholeSeconds && (row.WrongAdmissions > 0 || exact && row.WrongDenials > 0) {
				return false
			}
			if h := row.Bucket; row.Name == inBucket && c.Resolution == wholeSeconds && h.WrongAdmissions+h.WrongDenials > 0 {
				return false
			}
			if (row.Name == inFixed || row.Name == inFixedLog) && c.Resolution == wholeSeconds && fixed >= 0 && row.Admitted != c.Rows[fixed].Admitted {
				return false
			}
		}
	}
	return true
}

// WriteText writes the report as one table.
func (r *Report) WriteText(out io.Writer) error {
	var text strings.Builder
	rows := [][]string{{"", "admitted", "denied", "wrong adm.", "wrong den.", "worst", "bytes", "most", "trips", "reads", "writes"}}
	for i, c := range r.Comparisons {
		fmt.Fprintf(&text, "%d: %s\n   %s hits by %s features, %s each, judged by the %s", i+1, c.Traffic,
			columns.Grouped(int64(c.Hits)), columns.Grouped(int64(c.Features)), c.Limit, c.Resolution)
		if c.Malformed > 0 {
			fmt.Fprintf(&text, "; %s lines are malformed", columns.Grouped(int64(c.Malformed)))
		}
		text.WriteByte('\n')
		rows = append(rows, []string{fmt.Sprintf("%d, %s", i+1, c.Limit)})
		for _, row := range c.Rows {
			rows = append(rows, row.cells())
		}
		var tokens [][]string
		for _, row := range c.Rows {
			if h := row.Bucket; h != nil {
				row.WrongAdmissions, row.WrongDenials, row.WorstWindow = h.WrongAdmissions, h.WrongDenials, h.Worst
				tokens = append(tokens, row.cells()[:6])
			}
		}
		if len(tokens) > 0 {
			rows = append(append(rows, []string{"by a bucket's own rule"}), tokens...)
		}
	}
	text.WriteByte('\n')
	columns.Write(&text, 1, rows)
	text.WriteString(legend)
	_, err := io.WriteString(out, text.String())
	return err
}

const legend = `
wrong adm.  admitted, though the window that ends with it then holds more than the limit
wrong den.  denied, though it would have fitted; both by what that way itself had admitted
worst       the most that any window held, in parts of the limit
by a bucket's own rule   no interval holds more than the burst, as large as the limit, and what returns in it
bytes       the most that a feature took in Memcached, on the average, and of any
trips, reads, writes   of a decision, were the store elsewhere
`

func (r Row) cells() []string {
	cells := []string{r.Name}
	for _, n := range []int64{r.Admitted, r.Denied, r.WrongAdmissions, r.WrongDenials} {
		cells = append(cells, columns.Grouped(n))
	}
	cells = append(cells, fmt.Sprintf("%.2f", r.WorstWindow), columns.Grouped(int64(r.Bytes+0.5)), columns.Grouped(r.MostBytes))
	for _, each := range []float64{r.Trips, r.Reads, r.Writes} {
		cells = append(cells, fmt.Sprintf("%.2f", each))
	}
	return cells
}
