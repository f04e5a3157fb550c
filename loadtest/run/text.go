package run

import (
	"fmt"
	"io"
	"strings"

	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/traffic"
)

// fact is a line of a text.
type fact struct{ name, text string }

func textOf(facts []fact) string {
	var b strings.Builder
	for _, f := range facts {
		fmt.Fprintf(&b, "%-10s %s\n", f.name, f.text)
	}
	return b.String()
}

// WriteText writes the report as a text.
func (r *Report) WriteText(out io.Writer) error {
	parts := []string{textOf(r.facts()), textOfTable(r.latencyTable())}
	if len(r.Limits) > 0 {
		parts = append(parts, textOfTable(r.limitTable()))
	}
	return writeParts(out, append(parts, textOf(r.costs()))...)
}

func textOfTable(rows [][]string) string {
	var b strings.Builder
	columns.Write(&b, 1, rows)
	return b.String()
}

// writeParts writes texts with empty lines between them.
func writeParts(out io.Writer, parts ...string) error {
	_, err := io.WriteString(out, strings.Join(parts, "\n"))
	return err
}

// counts writes the positive ones of several numbers, after a first text.
func counts(text string, of ...any) string {
	for i := 0; i < len(of); i += 2 {
		if n := of[i].(int64); n > 0 {
			text += fmt.Sprintf(", %s %s", columns.Grouped(n), of[i+1])
		}
	}
	return text
}

// facts are the lines ahead of the tables.
func (r *Report) facts() []fact {
	rate := fmt.Sprintf("%s/s asked for %s, %s/s reached", rateText(r.RateAsked), seconds(r.Seconds), rateText(r.RateReached))
	if r.Interrupted {
		rate += "; interrupted"
	}
	var answers []string
	for _, s := range r.Statuses {
		answers = append(answers, fmt.Sprintf("%s × %s", columns.Grouped(s.Requests), s.Name))
	}
	if len(answers) == 0 {
		answers = []string{"none"}
	}
	facts := []fact{
		{"target", strings.Join(r.Targets, ", ")},
		{"traffic", r.Traffic},
		{"arrivals", r.Profile},
		{"rate", rate},
		{"requests", counts(fmt.Sprintf("%s came due, %s answered", columns.Grouped(r.Arrived), columns.Grouped(r.Answered-r.Failed)),
			r.Failed, "failed", r.Unsent, "not sent: no place in flight until the end", r.BrokenOff, "in flight when it was interrupted")},
		{"answers", strings.Join(answers, ", ")},
	}
	if h := r.Hits; h != (Hits{}) {
		facts = append(facts, fact{"hits", counts(fmt.Sprintf("%s admitted, %s denied", columns.Grouped(h.Admitted), columns.Grouped(h.Denied)),
			h.Unavailable, "could not be decided", h.Faults, "at fault", h.OnError, "of these decided without the store")})
	}
	waited := "none"
	if r.Waited.Requests > 0 {
		waited = columns.Grouped(r.Waited.Requests)
	}
	return append(facts, fact{"in flight", fmt.Sprintf("%s waited for one of %s places", waited, columns.Grouped(int64(r.InFlight)))})
}

// latencyTable has the latencies of all requests, of each of several kinds, and until they
// were sent.
func (r *Report) latencyTable() [][]string {
	rows := [][]string{{"latency, ms", "requests", "p50", "p90", "p99", "p99.9", "p99.99", "max"}}
	add := func(name string, l Latency) {
		row := []string{name, columns.Grouped(l.Requests)}
		for _, ms := range []float64{l.P50, l.P90, l.P99, l.P999, l.P9999, l.Max} {
			if l.Requests == 0 {
				row = append(row, "–")
			} else {
				row = append(row, columns.Digits(ms))
			}
		}
		rows = append(rows, row)
	}
	add("all", r.Latency)
	for _, kind := range traffic.Kinds() {
		if l, found := r.Kinds[kind.String()]; found && len(r.Kinds) > 1 {
			add(kind.String(), l)
		}
	}
	add("late", r.Late)
	if r.Waited.Requests > 0 {
		add("waited", r.Waited)
	}
	return rows
}

func (r *Report) limitTable() [][]string {
	rows := [][]string{{"limit", "admitted", "denied", "shadow denied"}}
	for _, l := range r.Limits {
		rows = append(rows, []string{l.Name, columns.Grouped(l.Admitted), columns.Grouped(l.Denied), columns.Grouped(l.ShadowDenied)})
	}
	return rows
}

// costs are the lines behind the tables.
func (r *Report) costs() (facts []fact) {
	add := func(known bool, name, format string, args ...any) {
		if known {
			facts = append(facts, fact{name, fmt.Sprintf(format, args...)})
		}
	}
	if s := r.Store; s != nil {
		add(true, "store", "%s trips and %s reads a %s (%s and %s in all)", columns.Digits(s.Trip), columns.Digits(s.Read), s.Per, columns.Grouped(s.Trips), columns.Grouped(s.Reads))
	}
	add(r.Store == nil && r.StoreNote != "", "store", "not known: %s", r.StoreNote)
	if p := r.Process; p != nil {
		of := ""
		if p.Processes > 1 {
			of = fmt.Sprintf("%d together: ", p.Processes)
		}
		add(true, "process", "%s%s s of CPU time, %.0f%% of a core, %s µs a call; %.1f MiB of memory",
			of, columns.Digits(p.CPUSeconds), p.Cores*100, columns.Digits(p.Microseconds), float64(p.Memory)/(1<<20))
	}
	add(r.GeneratorCPU > 0, "generator", "%s s of CPU time", columns.Digits(r.GeneratorCPU))
	add(r.Machine != nil, "machine", "%s", r.Machine)
	add(r.Machine.Busy(), "note", "this machine was busy: %s; repeat it on a quiet machine before believing a bad figure", process.BusyMeans)
	add(r.busy(), "note", "most of the p99 is this program's own lateness: this machine is too busy for it to say much of the target")
	return facts
}

// busy reports whether the latencies say more of the generator than of the target. If more
// than a hundredth waited for a place in flight, their waits make the p99.
func (r *Report) busy() bool {
	return r.Late.Requests > 0 && r.Late.P99 > r.Latency.P99/2 && r.Waited.Requests <= r.Latency.Requests/100
}

func rateText(f float64) string {
	if f < 1000 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
	}
	return columns.Grouped(int64(f + 0.5))
}

func seconds(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + "s" }
