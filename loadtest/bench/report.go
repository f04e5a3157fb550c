package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/counterd/counterd/loadtest/columns"
)

// Report is what a run has measured.
type Report struct {
	Machine  string  `json:"machine"` // that the figures were measured on
	Rounds   int     `json:"rounds"`
	Duration string  `json:"duration"` // of a slice
	Seconds  float64 `json:"seconds"`  // of the run
	Rows     []Row   `json:"rows"`
}

// Row is what was measured of one row.
type Row struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Callers    int     `json:"callers"`
	Operations int64   `json:"operations"` // in all rounds
	PerSecond  Spread  `json:"per_second"`
	Ratios     []Ratio `json:"ratios,omitempty"`
	// Costs are of one operation, which is a hit or a count, in a batch, too.
	Costs map[string]float64 `json:"costs"`
}

// columnsOfCosts are the costs in the table: the names in Costs, and the heads.
var columnsOfCosts = [][2]string{
	{"trips", "trips"}, {"adds", "adds"}, {"reads", "reads"}, {"bytes", "bytes"},
	{"client_cpu_us", "CPU client"}, {"server_cpu_us", "server"}, {"memcached_cpu_us", "memcached"}, {"allocs", "allocs"},
}

// Ratio compares the rate of a row with that of another, round by round.
type Ratio struct {
	Against string `json:"against"` // identity of the other
	Spread
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

// WriteText writes the report as Markdown.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d rounds of %s, %.0f s in all. Ratios and rates: median (least–greatest) of the rounds.\n\n", r.Machine, r.Rounds, r.Duration, r.Seconds)
	b.WriteString("Figures are of one operation, a hit or a count. Trips: as the client makes them. Adds to and reads of buckets, and bytes: as\nMemcached counts them. CPU: µs.\n\n")
	head, rule := []string{"|  ", "|  ", "|", "a second |", "ratio |"}, []string{"| --- ", "| --- ", "|", "---: |", "---: |"}
	for _, column := range columnsOfCosts {
		head, rule = append(head, column[1]+" |"), append(rule, "---: |")
	}
	lines := [][]string{head, rule}
	for _, row := range r.Rows {
		var ratios []string
		for _, ratio := range row.Ratios {
			ratios = append(ratios, ratio.text(columns.Digits, "×")+" "+ratio.Against)
		}
		line := []string{"| " + row.ID + " ", "| " + row.Name + " ", "|", row.PerSecond.text(columns.Rounded, "") + " |", cmp.Or(strings.Join(ratios, ", "), "–") + " |"}
		for _, column := range columnsOfCosts {
			line = append(line, row.cost(column[0])+" |")
		}
		lines = append(lines, line)
	}
	columns.Write(&b, 3, lines) // figures on the right
	_, err := io.WriteString(out, b.String())
	return err
}

func (s Spread) text(number func(float64) string, unit string) string {
	return fmt.Sprintf("%s%s (%s–%s)", number(s.Median), unit, number(s.Least), number(s.Most))
}

func (r Row) cost(name string) string {
	f, known := r.Costs[name]
	switch {
	case !known:
		return "–"
	case f >= 0.05 && f < 10:
		return fmt.Sprintf("%.1f", f)
	}
	return columns.Digits(f)
}
