package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/loadtest/columns"
)

// Report is what a run has measured.
type Report struct {
	Machine  string  `json:"machine"` // that the figures were measured on
	Rounds   int     `json:"rounds"`
	Duration string  `json:"duration"` // of a slice
	Seconds  float64 `json:"seconds"`  // of the run
	Wanted   int     `json:"wanted"`   // rows
	Rows     []Row   `json:"rows"`
	// Interrupted runs have fewer rows, and fewer rounds of the last ones.
	Interrupted bool `json:"interrupted,omitzero"`
}

// Row is what was measured of one row. Figures are of one operation, which is a hit or a
// count, in a batch, too; nil: there is none.
type Row struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Callers      int      `json:"callers"`
	Operations   int64    `json:"operations"` // in all rounds
	PerSecond    Spread   `json:"per_second"`
	Ratios       []Ratio  `json:"ratios,omitempty"`
	Trips        *float64 `json:"trips,omitempty"`
	Adds         *float64 `json:"adds,omitempty"`          // buckets added to
	Reads        *float64 `json:"reads,omitempty"`         // buckets read
	Bytes        *float64 `json:"bytes,omitempty"`         // to and from Memcached
	ClientCPU    *float64 `json:"client_cpu_us,omitempty"` // microseconds
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

// Latency is the latency in the open model, in milliseconds: percentiles of each slice.
type Latency struct {
	Rate     float64 `json:"rate"`     // arrivals a second
	Requests int     `json:"requests"` // in all slices
	P50      Spread  `json:"p50"`
	P99      Spread  `json:"p99"`
	P999     Spread  `json:"p99_9"`
	LateP99  Spread  `json:"late_p99"` // of the part until the request was sent
}

// Spread is a median, with the least and the greatest figure.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// spreadOf returns the spread of one figure or more. The median of an even number is the mean
// of the middle two.
func spreadOf(figures []float64) Spread {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// ratios returns the spread of ratios of figures of the same round.
func ratios(of, to []float64) Spread {
	list := make([]float64, len(of))
	for i := range list {
		list[i] = of[i] / to[i]
	}
	return spreadOf(list)
}

// percentile returns the nearest-rank percentile of sorted times; part is above 0, to 1.
func percentile(sorted []time.Duration, part float64) time.Duration {
	// A hair less: 0.99*100 is not 99.
	rank := int(math.Ceil(part*float64(len(sorted)) - 1e-9))
	return sorted[max(rank, 1)-1]
}

// percentiles returns a percentile of each list, in milliseconds.
func percentiles(turns []arrivals, part float64, listOf func(arrivals) []time.Duration) (list []float64) {
	for _, a := range turns {
		list = append(list, float64(percentile(slices.Sorted(slices.Values(listOf(a))), part).Nanoseconds())/1e6)
	}
	return list
}

func latenciesOf(a arrivals) []time.Duration { return a.latencies }
func latenessOf(a arrivals) []time.Duration  { return a.late }

func p99s(turns []arrivals) []float64 { return percentiles(turns, 0.99, latenciesOf) }

// latencyOf returns the latency in slices of that rate.
func latencyOf(rate float64, turns []arrivals) Latency {
	l := Latency{
		Rate: rate, P50: spreadOf(percentiles(turns, 0.5, latenciesOf)), P99: spreadOf(p99s(turns)),
		P999: spreadOf(percentiles(turns, 0.999, latenciesOf)), LateP99: spreadOf(percentiles(turns, 0.99, latenessOf)),
	}
	for _, a := range turns {
		l.Requests += len(a.latencies)
	}
	return l
}

// machineOf describes the machine on one line.
func machineOf(ctx context.Context) string {
	cpu, memcached := "unknown processor", "memcached of unknown version"
	text, _ := os.ReadFile("/proc/cpuinfo") // of Linux
	if _, rest, found := strings.Cut(string(text), "model name\t: "); found {
		cpu, _, _ = strings.Cut(rest, "\n")
	}
	if out, err := exec.CommandContext(ctx, memcachedProgram, "-V").Output(); err == nil {
		memcached = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("%s, %d cores, GOMAXPROCS %d, %s/%s, %s, %s with %d threads, all on loopback",
		cpu, runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version(), memcached, memcachedThreads)
}

// late reports whether requests were sent so late that the latencies say little. The row of
// the do-nothing server, which is compared with none, decides: the requests of a slow server
// wait for a free connection.
func (r *Report) late() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool {
		return row.Latency != nil && len(row.Ratios) == 0 && row.Latency.LateP99.Median > row.Latency.P99.Median/2
	})
}

// WriteText writes the report as Markdown.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d rounds of %s, %.0f s in all. Ratios and rates: median (least–greatest) of the rounds.\n\n", r.Machine, r.Rounds, r.Duration, r.Seconds)
	if r.Interrupted {
		fmt.Fprintf(&b, "Interrupted: there are %d of %d rows, and the last of them have had fewer rounds.\n\n", len(r.Rows), r.Wanted)
	}
	b.WriteString("Figures are of one operation, a hit or a count. Trips, adds and reads of buckets: as the engine asks for them, over HTTP as\nMemcached counts them. Bytes: to and from Memcached. CPU: µs.\n\n")
	rows := [][]string{{"", "", "a second", "ratio", "trips", "adds", "reads", "bytes", "CPU client", "server", "memcached", "allocs"}}
	latencies := [][]string{{"", "", "arrivals a second", "requests", "p50", "p99", "p99.9", "late p99", "ratio of the p99"}}
	for _, row := range r.Rows {
		cells := []string{row.ID, row.Name, row.PerSecond.text(columns.Rounded, ""), row.ratios("operations/s")}
		for _, f := range []*float64{row.Trips, row.Adds, row.Reads, row.Bytes, row.ClientCPU, row.ServerCPU, row.MemcachedCPU, row.Allocs} {
			cells = append(cells, figure(f))
		}
		rows = append(rows, cells)
		if l := row.Latency; l != nil {
			latencies = append(latencies, []string{
				row.ID, row.Name, fmt.Sprintf("%.0f", l.Rate), fmt.Sprint(l.Requests), l.P50.text(columns.Digits, ""), l.P99.text(columns.Digits, ""), l.P999.text(columns.Digits, ""),
				l.LateP99.text(columns.Digits, ""), row.ratios("p99"),
			})
		}
	}
	writeTable(&b, rows)
	if len(latencies) > 1 {
		b.WriteString("\nThe open model: requests arrive evenly, and a latency, in ms, counts from the moment at which the request was due. Late: until it was sent.\n\n")
		writeTable(&b, latencies)
		if r.late() {
			b.WriteString("\nMost of a p99 is this program's own lateness: the machine is too busy for it to say much of the servers.\n")
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// ratios returns the row's ratios of that figure.
func (r Row) ratios(of string) string {
	var list []string
	for _, ratio := range r.Ratios {
		if ratio.Of == of {
			list = append(list, ratio.text(columns.Digits, "×")+" "+ratio.Against)
		}
	}
	if len(list) == 0 {
		return "–"
	}
	return strings.Join(list, ", ")
}

func (s Spread) text(number func(float64) string, unit string) string {
	return fmt.Sprintf("%s%s (%s–%s)", number(s.Median), unit, number(s.Least), number(s.Most))
}

func figure(f *float64) string {
	switch {
	case f == nil:
		return "–"
	case *f >= 0.05 && *f < 10:
		return fmt.Sprintf("%.1f", *f)
	}
	return columns.Digits(*f)
}

// writeTable writes a table in Markdown, figures right of the first two columns.
func writeTable(to *strings.Builder, rows [][]string) {
	var lines [][]string
	rule := []string{"---", "---"}
	for range rows[0][2:] {
		rule = append(rule, "---:")
	}
	for _, row := range slices.Insert(rows, 1, rule) {
		line := []string{"| " + row[0] + " ", "| " + row[1] + " ", "|"}
		for _, cell := range row[2:] {
			line = append(line, cell+" |")
		}
		lines = append(lines, line)
	}
	columns.Write(to, 3, lines)
}
