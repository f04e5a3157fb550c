package run

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/traffic"
)

// text is a report in lines and tables.
type text struct{ strings.Builder }

// fact writes a line with a name.
func (t *text) fact(name, format string, args ...any) {
	fmt.Fprintf(t, "%-10s %s\n", name, fmt.Sprintf(format, args...))
}

// table writes a table, with an empty line behind it.
func (t *text) table(rows [][]string) {
	columns.Write(&t.Builder, 1, rows)
	t.WriteString("\n")
}

func (t *text) write(out io.Writer) error {
	_, err := io.WriteString(out, t.String())
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

// WriteText writes the report as a text.
func (r *Report) WriteText(out io.Writer) error {
	var t text
	r.writeFacts(&t)
	t.WriteString("\n")
	t.table(r.latencyTable())
	if len(r.Limits) > 0 {
		rows := [][]string{{"limit", "admitted", "denied", "shadow denied"}}
		for _, l := range r.Limits {
			rows = append(rows, []string{l.Name, columns.Grouped(l.Admitted), columns.Grouped(l.Denied), columns.Grouped(l.ShadowDenied)})
		}
		t.table(rows)
	}
	r.writeCosts(&t)
	return t.write(out)
}

// writeFacts writes the lines ahead of the tables.
func (r *Report) writeFacts(t *text) {
	t.fact("target", "%s", strings.Join(r.Targets, ", "))
	t.fact("traffic", "%s", r.Traffic)
	t.fact("arrivals", "%s", r.Profile)
	interrupted := ""
	if r.Interrupted {
		interrupted = "; interrupted"
	}
	t.fact("rate", "%s/s asked for %s, %s/s reached%s", rateText(r.RateAsked), seconds(r.Seconds), rateText(r.RateReached), interrupted)
	t.fact("requests", "%s", counts(fmt.Sprintf("%s came due, %s answered", columns.Grouped(r.Arrived), columns.Grouped(r.Answered-r.Failed)),
		r.Failed, "failed", r.Unsent, "not sent: no place in flight until the end", r.BrokenOff, "in flight when it was interrupted"))
	var answers []string
	for _, s := range r.Statuses {
		answers = append(answers, fmt.Sprintf("%s × %s", columns.Grouped(s.Requests), s.Name))
	}
	t.fact("answers", "%s", cmp.Or(strings.Join(answers, ", "), "none"))
	if h := r.Hits; h != (Hits{}) {
		t.fact("hits", "%s", counts(fmt.Sprintf("%s admitted, %s denied", columns.Grouped(h.Admitted), columns.Grouped(h.Denied)),
			h.Unavailable, "could not be decided", h.Faults, "at fault", h.OnError, "of these decided without a limit, or without the store"))
	}
	waited := "none"
	if r.Waited.Requests > 0 {
		waited = columns.Grouped(r.Waited.Requests)
	}
	t.fact("in flight", "%s waited for one of %s places", waited, columns.Grouped(int64(r.InFlight)))
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
		if l, found := r.Kinds[kind]; found && len(r.Kinds) > 1 {
			add(string(kind), l)
		}
	}
	add("late", r.Late)
	if r.Waited.Requests > 0 {
		add("waited", r.Waited)
	}
	return rows
}

// writeCosts writes the lines behind the tables.
func (r *Report) writeCosts(t *text) {
	if s := r.Store; s != nil {
		t.fact("store", "%s trips and %s reads a %s (%s and %s in all)", columns.Digits(s.Trip), columns.Digits(s.Read), s.Per, columns.Grouped(s.Trips), columns.Grouped(s.Reads))
	} else if r.StoreNote != "" {
		t.fact("store", "not known: %s", r.StoreNote)
	}
	if p := r.Process; p != nil {
		of := ""
		if p.Processes > 1 {
			of = fmt.Sprintf("%d together: ", p.Processes)
		}
		t.fact("process", "%s%s s of CPU time, %.0f%% of a core, %s µs a call; %.1f MiB of memory",
			of, columns.Digits(p.CPUSeconds), p.Cores*100, columns.Digits(p.Microseconds), float64(p.Memory)/(1<<20))
	}
	if r.GeneratorCPU > 0 {
		t.fact("generator", "%s s of CPU time", columns.Digits(r.GeneratorCPU))
	}
	if r.Machine != nil {
		t.fact("machine", "%s", r.Machine)
	}
	if r.Machine.Busy() {
		t.fact("note", "this machine was busy: %s; repeat it on a quiet machine before believing a bad figure", process.BusyMeans)
	}
	if r.late() {
		t.fact("note", "most of the p99 is this program's own lateness: this machine is too busy for it to say much of the target")
	}
}

// late reports whether the latencies say more of the generator than of the target. If more
// than a hundredth waited for a place in flight, their waits make the p99.
func (r *Report) late() bool {
	return r.Late.Requests > 0 && r.Late.P99 > r.Latency.P99/2 && r.Waited.Requests <= r.Latency.Requests/100
}

func rateText(f float64) string {
	if f < 1000 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
	}
	return columns.Grouped(int64(f + 0.5))
}

func seconds(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + "s" }
