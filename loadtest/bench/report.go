package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/counterd/counterd/loadtest/columns"
)

// Report is what a run has measured.
type Report struct {
	Machine  Machine  `json:"machine"`
	Rounds   int      `json:"rounds"`
	Duration string   `json:"duration"` // of a slice
	Seconds  float64  `json:"seconds"`  // that the run took
	Wanted   int      `json:"wanted"`   // rows
	Rows     []Row    `json:"rows"`
	Targets  []Target `json:"targets"`
	// Interrupted is set where the run was: rows may be missing, and have had fewer rounds.
	Interrupted bool `json:"interrupted,omitzero"`
}

// Row is what was measured of one row. Figures are for one operation, which is a hit
// or a count, in a batch too; nil where there is no such figure.
type Row struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Callers    int      `json:"callers"`
	Operations int64    `json:"operations"` // in all rounds
	PerSecond  Spread   `json:"per_second"`
	Ratios     []Ratio  `json:"ratios,omitempty"`
	Trips      *float64 `json:"trips,omitempty"`
	Adds       *float64 `json:"adds,omitempty"`  // buckets added to
	Reads      *float64 `json:"reads,omitempty"` // buckets read
	// Calls are the reads and writes of the system by the process that speaks with
	// Memcached: the server where there is one, else the program itself.
	Calls        *float64 `json:"calls,omitempty"`
	Bytes        *float64 `json:"bytes,omitempty"`         // between that process and Memcached, both ways
	ClientCPU    *float64 `json:"client_cpu_us,omitempty"` // CPU times are in microseconds
	ServerCPU    *float64 `json:"server_cpu_us,omitempty"`
	MemcachedCPU *float64 `json:"memcached_cpu_us,omitempty"`
	Allocs       *float64 `json:"allocs,omitempty"`
	Latency      *Latency `json:"latency,omitempty"`
}

// Ratio compares a row with another, round by round.
type Ratio struct {
	Against string `json:"against"` // identity of the other
	Of      string `json:"of"`
	Spread
}

// row returns the row of that identity, or nil.
func (r *Report) row(id string) *Row {
	for i := range r.Rows {
		if r.Rows[i].ID == id {
			return &r.Rows[i]
		}
	}
	return nil
}

// WriteText writes the report as Markdown that can be read as it is.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d rounds of %s, %.0f s in all. Ratios and rates: median (least–greatest) of the rounds.\n\n", r.Machine, r.Rounds, r.Duration, r.Seconds)
	if r.Interrupted {
		fmt.Fprintf(&b, "Interrupted: there are %d of %d rows, and the last of them have had fewer rounds.\n\n", len(r.Rows), r.Wanted)
	}
	b.WriteString("Figures are for one operation, a hit or a count. Trips, adds and reads of buckets: as the engine asks for them, over HTTP as\nMemcached tells. Calls: reads and writes of the system by the server, where there is none by the program. Bytes: to and from\nMemcached. CPU: µs.\n\n")
	rows := [][]string{{"", "", "a second", "ratio", "trips", "adds", "reads", "calls", "bytes", "CPU client", "server", "memcached", "allocs"}}
	for _, row := range r.Rows {
		rows = append(rows, []string{
			row.ID, row.Name, row.PerSecond.rate(), row.ratios(), figure(row.Trips), figure(row.Adds), figure(row.Reads), figure(row.Calls),
			figure(row.Bytes), figure(row.ClientCPU), figure(row.ServerCPU), figure(row.MemcachedCPU), figure(row.Allocs),
		})
	}
	writeTable(&b, rows, 2)
	if late := r.latencies(); len(late) > 1 {
		b.WriteString("\nThe open model: requests arrive evenly, and an answer's time, in ms, begins when its request was due. Late: until it was sent.\n\n")
		writeTable(&b, late, 2)
		if r.busy() {
			b.WriteString("\nMost of a p99 is this program's own lateness: the machine is too busy for it to say much of the servers.\n")
		}
	}
	if len(r.Targets) > 0 {
		b.WriteString("\nTargets:\n\n")
		rows := [][]string{{"target", "", "measured", ""}}
		for _, t := range r.Targets {
			rows = append(rows, []string{t.Text, t.Wanted, t.Measured, t.Verdict})
		}
		writeTable(&b, rows, len(rows[0]))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// latencies returns the table of the open model.
func (r *Report) latencies() [][]string {
	rows := [][]string{{"", "", "arrivals a second", "requests", "p50", "p99", "p99.9", "late p99", "ratio of the p99"}}
	for _, row := range r.Rows {
		if l := row.Latency; l != nil {
			rows = append(rows, []string{
				row.ID, row.Name, fmt.Sprintf("%.0f", l.Rate), fmt.Sprint(l.Requests), l.P50.spread(), l.P99.spread(), l.P999.spread(),
				l.LateP99.spread(), row.ratiosOf("p99"),
			})
		}
	}
	return rows
}

// busy reports whether requests were sent so late that the latencies say little. It
// goes by the row that is compared with no other, of the server that does nothing: one
// that is slow has requests wait for a free connection, which is its own fault.
func (r *Report) busy() bool {
	for _, row := range r.Rows {
		if l := row.Latency; l != nil && len(row.Ratios) == 0 && l.LateP99.Median > l.P99.Median/2 {
			return true
		}
	}
	return false
}

func (r Row) ratios() string { return r.ratiosOf("operations/s") }

func (r Row) ratiosOf(what string) string {
	var list []string
	for _, ratio := range r.Ratios {
		if ratio.Of == what {
			list = append(list, fmt.Sprintf("%s %s", ratio.Spread, ratio.Against))
		}
	}
	if len(list) == 0 {
		return dash
	}
	return strings.Join(list, ", ")
}

// dash stands where there is no figure.
const dash = "–"

// String returns the spread of a ratio.
func (s Spread) String() string {
	return fmt.Sprintf("%s× (%s–%s)", digits(s.Median), digits(s.Least), digits(s.Most))
}

// rate returns the spread of a rate.
func (s Spread) rate() string {
	return fmt.Sprintf("%s (%s–%s)", thousands(s.Median), thousands(s.Least), thousands(s.Most))
}

// digits writes a figure with as many digits as it is good for.
func digits(f float64) string {
	switch {
	case f < 10:
		return fmt.Sprintf("%.2f", f)
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}

func figure(f *float64) string {
	if f == nil {
		return dash
	}
	switch {
	case *f < 0.05:
		return fmt.Sprintf("%.2f", *f)
	case *f < 100:
		return fmt.Sprintf("%.1f", *f)
	}
	return fmt.Sprintf("%.0f", *f)
}

// spread returns the spread of a figure without a unit.
func (s Spread) spread() string {
	return fmt.Sprintf("%s (%s–%s)", digits(s.Median), digits(s.Least), digits(s.Most))
}

// writeTable writes a table in Markdown, its columns in line: the first ones to the
// left, the others, which are figures, to the right.
func writeTable(b *strings.Builder, rows [][]string, left int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string) {
		for i, cell := range row {
			blank := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < left {
				fmt.Fprintf(b, "| %s%s ", cell, blank)
			} else {
				fmt.Fprintf(b, "| %s%s ", blank, cell)
			}
		}
		b.WriteString("|\n")
	}
	line(rows[0])
	for i := range widths {
		if i < left {
			fmt.Fprintf(b, "| %s ", strings.Repeat("-", max(widths[i], 1)))
		} else {
			fmt.Fprintf(b, "| %s: ", strings.Repeat("-", max(widths[i]-1, 1)))
		}
	}
	b.WriteString("|\n")
	for _, row := range rows[1:] {
		line(row)
	}
}

// thousands writes a whole figure in groups of three.
func thousands(f float64) string { return columns.Grouped(int64(math.RoundToEven(f))) }
