package run

import (
	"fmt"
	"io"
	"strings"

	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/traffic"
)

// WriteText writes the report as a text.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	r.writeHead(&b)
	columns.Write(&b, 1, append([][]string{latencyHead}, r.latencyRows()...))
	b.WriteByte('\n')
	if len(r.Limits) > 0 {
		columns.Write(&b, 1, append([][]string{limitHead}, r.limitRows()...))
		b.WriteByte('\n')
	}
	writeFacts(&b, r.costs())
	_, err := io.WriteString(out, b.String())
	return err
}

// fact is a line of a text: what, and how much.
type fact struct{ name, text string }

func writeFacts(b *strings.Builder, facts []fact) {
	for _, f := range facts {
		fmt.Fprintf(b, "%-10s %s\n", f.name, f.text)
	}
}

func (r *Report) writeHead(b *strings.Builder) {
	writeFacts(b, r.facts())
	b.WriteByte('\n')
}

// facts are what the report says ahead of its tables.
func (r *Report) facts() []fact {
	rate := fmt.Sprintf("%s/s asked for %s, %s/s reached", rateText(r.RateAsked), seconds(r.Seconds), rateText(r.RateReached))
	if r.Interrupted {
		rate += "; interrupted"
	}
	facts := []fact{
		{"target", strings.Join(r.Targets, ", ")},
		{"traffic", r.Traffic},
		{"arrivals", r.Profile},
		{"rate", rate},
		{"requests", r.requests()},
		{"answers", r.statuses()},
	}
	if hits := r.Hits; hits != (Hits{}) {
		facts = append(facts, fact{"hits", hits.String()})
	}
	return append(facts, fact{"in flight", r.waits()})
}

func (r *Report) requests() string {
	parts := []string{fmt.Sprintf("%s came due, %s answered", columns.Grouped(r.Arrived), columns.Grouped(r.Answered-r.Failed))}
	for _, one := range []struct {
		n    int64
		what string
	}{
		{r.Failed, "failed"},
		{r.Unsent, "not sent: no place in flight until the end"},
		{r.BrokenOff, "in flight when it was interrupted"},
	} {
		if one.n > 0 {
			parts = append(parts, columns.Grouped(one.n)+" "+one.what)
		}
	}
	return strings.Join(parts, ", ")
}

func (r *Report) statuses() string {
	var parts []string
	for _, s := range r.Statuses {
		parts = append(parts, fmt.Sprintf("%s × %s", columns.Grouped(s.Requests), s.Name))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// String returns the hits in words.
func (h Hits) String() string {
	text := fmt.Sprintf("%s admitted, %s denied", columns.Grouped(h.Admitted), columns.Grouped(h.Denied))
	for _, one := range []struct {
		n    int64
		what string
	}{
		{h.Unavailable, "could not be decided"},
		{h.Faults, "at fault"},
		{h.OnError, "of these decided without the store"},
	} {
		if one.n > 0 {
			text += fmt.Sprintf(", %s %s", columns.Grouped(one.n), one.what)
		}
	}
	return text
}

func (r *Report) waits() string {
	if r.Waited.Requests == 0 {
		return fmt.Sprintf("none waited for one of %s places", columns.Grouped(int64(r.InFlight)))
	}
	return fmt.Sprintf("%s waited for one of %s places", columns.Grouped(r.Waited.Requests), columns.Grouped(int64(r.InFlight)))
}

var latencyHead = []string{"latency, ms", "requests", "p50", "p90", "p99", "p99.9", "p99.99", "max"}

// latencyRows returns the lines of the latencies: of all, of each kind where there are
// several, and of what went before the sending.
func (r *Report) latencyRows() [][]string {
	rows := [][]string{r.Latency.row("all")}
	if len(r.Kinds) > 1 {
		for _, kind := range traffic.Kinds() {
			if l, there := r.Kinds[kind.String()]; there {
				rows = append(rows, l.row(kind.String()))
			}
		}
	}
	rows = append(rows, r.Late.row("late"))
	if r.Waited.Requests > 0 {
		rows = append(rows, r.Waited.row("waited"))
	}
	return rows
}

func (l Latency) row(name string) []string {
	if l.Requests == 0 {
		return []string{name, "0", dash, dash, dash, dash, dash, dash}
	}
	return []string{name, columns.Grouped(l.Requests), digits(l.P50), digits(l.P90), digits(l.P99), digits(l.P999), digits(l.P9999), digits(l.Max)}
}

var limitHead = []string{"limit", "admitted", "denied", "shadow denied"}

func (r *Report) limitRows() (rows [][]string) {
	for _, l := range r.Limits {
		rows = append(rows, []string{l.Name, columns.Grouped(l.Admitted), columns.Grouped(l.Denied), columns.Grouped(l.ShadowDenied)})
	}
	return rows
}

// costs are what the report says behind its tables.
func (r *Report) costs() (facts []fact) {
	if r.Store != nil {
		facts = append(facts, fact{"store", fmt.Sprintf("%s trips and %s reads a %s (%s and %s in all)",
			digits(r.Store.Trip), digits(r.Store.Read), r.Store.Per, columns.Grouped(r.Store.Trips), columns.Grouped(r.Store.Reads))})
	} else if r.StoreNote != "" {
		facts = append(facts, fact{"store", "not known: " + r.StoreNote})
	}
	for _, p := range r.Processes {
		facts = append(facts, fact{"process", fmt.Sprintf("%d: %s s of CPU time, %s of a core, %s µs a call; %s MiB of memory, %s at the most",
			p.PID, digits(p.CPUSeconds), percent(p.Cores), digits(p.Microseconds), mebibytes(p.Memory), mebibytes(p.MostMemory))})
	}
	if r.ProcessesNote != "" {
		facts = append(facts, fact{"process", "not known: " + r.ProcessesNote})
	}
	if r.GeneratorCPU > 0 {
		facts = append(facts, fact{"generator", fmt.Sprintf("%s s of CPU time", digits(r.GeneratorCPU))})
	}
	if r.Machine != nil {
		facts = append(facts, fact{"machine", r.Machine.String()})
	}
	if r.Machine.Busy() {
		facts = append(facts, fact{"note", "this machine was busy: " + process.BusyMeans + "; repeat it on a quiet machine before believing a bad figure"})
	}
	if r.busy() {
		facts = append(facts, fact{"note", "most of the p99 is this program's own lateness: this machine is too busy for it to say much of the target"})
	}
	return facts
}

// busy reports whether the latencies say more of the generator than of the target. Where more
// than a hundredth waited for a place in flight, it is they who make the p99.
func (r *Report) busy() bool {
	return r.Late.Requests > 0 && r.Late.P99 > r.Latency.P99/2 && r.Waited.Requests <= r.Latency.Requests/100
}

// dash stands where there is no figure.
const dash = "–"

// digits writes a figure with as many digits as it is good for.
func digits(f float64) string {
	switch {
	case f < 10:
		return fmt.Sprintf("%.2f", f)
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	}
	return columns.Grouped(int64(f + 0.5))
}

func rateText(f float64) string {
	if f < 1000 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
	}
	return columns.Grouped(int64(f + 0.5))
}

func seconds(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + "s" }

func percent(part float64) string { return fmt.Sprintf("%.0f%%", part*100) }

func mebibytes(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }
