package verify

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/counterd/counterd/loadtest/verify/judge"
)

// Report is what came of it.
type Report struct {
	Targets        []string          `json:"targets"`
	Event          string            `json:"event"`
	Seed           uint64            `json:"seed"`
	Duration       time.Duration     `json:"seconds"`
	Interrupted    bool              `json:"interrupted,omitzero"` // it ended before its time, and counts less in the end
	Calls          map[string]int64  `json:"calls"`                // by kind
	Admitted       int64             `json:"admitted"`
	Denied         int64             `json:"denied"`
	Features       int               `json:"features"`
	Counters       int               `json:"counters"`
	CountersClosed int               `json:"counters_closed"` // that were counted in the end
	Kills          []judge.Kill      `json:"kills"`
	NotHeld        []string          `json:"not_held"` // what the rules do not let be checked, and why
	Checked        judge.Checked     `json:"checked"`
	Excused        judge.Excused     `json:"excused"`
	Soak           *Soak             `json:"soak,omitempty"`
	Wrong          map[string]int    `json:"wrong"` // violations, by what was held to the contract
	Violations     []judge.Violation `json:"violations"`
}

// OK reports whether nothing is wrong.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// add adds what a round did to the report.
func (r *run) add() {
	report := &r.report
	users, counters := r.log.Size()
	report.Features += users
	report.Counters += counters
	report.Kills = append(report.Kills, r.kills...)
}

// finish completes the report when all rounds are over.
func (r *run) finish(ctx context.Context) *Report {
	report := &r.report
	report.Targets, report.Event, report.Seed, report.Interrupted = r.hosts, r.Event, r.config.Seed, ctx.Err() != nil
	report.Calls = map[string]int64{}
	for k := range judge.Kinds {
		report.Calls[k.String()] = r.calls[k].Load()
	}
	report.NotHeld = r.notHeld()
	report.Checked, report.Excused = r.findings.Checked, r.findings.Excused
	report.Admitted, report.Denied = r.findings.Admitted, r.findings.Denied
	report.Wrong, report.Violations = r.findings.Total, r.findings.All()
	return report
}

// notHeld says what was not checked.
func (r *run) notHeld() (list []string) {
	whole := r.HasWhole()
	for _, one := range []struct {
		so   bool
		what string
	}{
		{!r.alone && whole, "denials by the whole event, how long it says to wait, and counts of more than is in the log: others may call for it"},
		{len(r.rls) > 0, "stamps, counts, history, resets and headers, which the rate limit service has not, and requests of several descriptors"},
		{len(r.rls) > 0, "limits that a status does not name: no other one has less room, or denies for longer"},
		{r.queued() && whole, "that exactly what fits of a burst is admitted: a rule counts the whole event, where other hits are in its way"},
		{len(r.rls) == 0 && !r.RemembersLate(), "late increments: the event is remembered for less than two minutes"},
		{r.mayNotReset.Load(), "resets: the targets do not let this caller make them"},
		{whole, "resets of the whole event: hits are under way on it at all times"},
	} {
		if one.so {
			list = append(list, one.what)
		}
	}
	for i, l := range r.Limits {
		if l.Bounded() || i > 0 && r.Limits[i-1].Index == l.Index {
			continue
		}
		what := "shadow"
		if l.Elastic {
			what = "elastic, and the whole event is held to its own"
		}
		list = append(list, fmt.Sprintf("windows of %s and its rule: it is %s", l.Name, what))
	}
	return list
}

// WriteText writes the report as text.
func (r *Report) WriteText(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("targets", "%s", strings.Join(r.Targets, " "))
	row("event", "%s", r.Event)
	row("time", "%s  -seed %d", r.Duration.Round(100*time.Millisecond), r.Seed)
	if r.Interrupted {
		row("", "interrupted: what was seen until then is judged")
	}
	var calls []string
	for k := range judge.Kinds {
		calls = append(calls, fmt.Sprintf("%s %d", k, r.Calls[k.String()]))
	}
	row("calls", "%s", strings.Join(calls, "  "))
	row("hits", "%d admitted, %d denied", r.Admitted, r.Denied)
	row("features", "%d, with %d counters", r.Features, r.Counters)
	for _, k := range r.Kills {
		row("killed", "%s", k)
	}
	for _, what := range r.NotHeld {
		row("not held", "%s", what)
	}
	c := r.Checked
	row("windows", "%d summed, by the seconds that hits were stamped with", c.Windows)
	row("denials", "%d held to the log: no hit that fitted was denied", c.Denials)
	row("counts", "%d held to the log, %d counters in the end", c.Counts, r.CountersClosed)
	row("predicted", "%d of %d decisions of features that one caller calls, to the last number", c.Predictions, c.Lone)
	row("retry_after", "%d held to the log; %d came when it was over, %d before", c.Waits, c.Retries, c.Early)
	row("headers", "%d answers", c.Headers)
	row("bodies", "%d answers", c.Bodies)
	excused := r.Excused.Texts()
	if len(excused) == 0 {
		excused = []string{"nothing"}
	}
	for _, what := range excused {
		row("excused", "%s", what)
	}
	if r.Soak != nil {
		r.Soak.rows(row)
	}
	if r.OK() {
		row("violations", "none")
	}
	for _, name := range judge.Checks {
		if n := r.Wrong[name]; n > 0 {
			row("violations", "%s %d", name, n)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, v := range r.Violations {
		if err := v.Write(out); err != nil {
			return err
		}
	}
	return nil
}
