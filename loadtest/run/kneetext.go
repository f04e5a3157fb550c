package run

import (
	"fmt"
	"io"
	"strings"

	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/process"
)

// WriteText writes what was found as a text.
func (k *Knee) WriteText(out io.Writer) error {
	var b strings.Builder
	writeFacts(&b, k.facts())
	b.WriteByte('\n')
	columns.Write(&b, 1, append([][]string{trialHead}, k.trialRows()...))
	b.WriteByte('\n')
	columns.Write(&b, 1, append([][]string{rateHead}, k.rateRows()...))
	fmt.Fprintf(&b, "\n%s\n", strings.Join(k.verdicts(), "\n"))
	_, err := io.WriteString(out, b.String())
	return err
}

func (k *Knee) facts() []fact {
	return []fact{
		{"target", strings.Join(k.Targets, ", ")},
		{"traffic", k.Traffic},
		{"bound", fmt.Sprintf("p99 of %s ms, in trials of %s", digits(k.Bound), seconds(k.Seconds))},
	}
}

var trialHead = []string{"trial", "rate", "reached", "p50, ms", "p99, ms", "late p99, ms", "failed", "verdict"}

// reasons are why a trial failed, in words.
var reasons = map[string]string{"": "passed", ReasonP99: "p99 too long", ReasonRate: "not reached", ReasonFailed: "failures"}

func (k *Knee) trialRows() (rows [][]string) {
	for i, t := range k.Trials {
		rows = append(rows, []string{
			fmt.Sprint(i + 1), rateText(t.Rate), rateText(t.Reached), digits(t.P50), digits(t.P99), digits(t.LateP99), columns.Grouped(t.Failed), t.verdict(),
		})
	}
	return rows
}

func (t Trial) verdict() string {
	if t.TooHigh == ReasonP99 && t.Busy {
		return reasons[t.TooHigh] + ", by lateness"
	}
	return reasons[t.TooHigh]
}

var rateHead = []string{"rate", "trials", "failed", "verdict"}

func (k *Knee) rateRows() (rows [][]string) {
	for _, r := range k.Rates {
		verdict := "borne"
		switch {
		case r.TooHigh:
			verdict = "too high"
		case r.Rate > k.Rate:
			verdict = "not known"
		}
		rows = append(rows, []string{rateText(r.Rate), fmt.Sprint(r.Trials), fmt.Sprint(r.Failed), verdict})
	}
	return rows
}

// verdicts are the result, and what makes it doubtful.
func (k *Knee) verdicts() []string {
	lines := []string{k.verdict()}
	borne, unsteady, late, failed, busy := 0, 0, 0, 0, 0
	for _, r := range k.Rates {
		if r.Rate <= k.Rate {
			borne, unsteady = borne+r.Trials, unsteady+r.Failed
		}
	}
	for _, t := range k.Trials {
		if t.Rate == k.TooHigh && t.TooHigh != "" {
			failed++
			if t.TooHigh == ReasonP99 && t.Busy {
				late++
			}
		}
		if t.Machine.Busy() {
			busy++
		}
	}
	if unsteady > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d trials at rates that are borne failed: the machine or the target is unsteady. Longer trials (-trial) are steadier.", unsteady, borne))
	}
	if failed > 0 && late == failed {
		lines = append(lines, "Most of the p99 that is too long is this program's own lateness: it may be this machine, not the target, that bears no more.")
	}
	if busy > 0 {
		lines = append(lines, fmt.Sprintf("In %d of %d trials this machine was busy: %s. Repeat the search on a quiet machine.", busy, len(k.Trials), process.BusyMeans))
	}
	return lines
}

func (k *Knee) verdict() string {
	switch {
	case k.Interrupted:
		return "Interrupted: the knee was not found."
	case k.Unsettled:
		return fmt.Sprintf("Not found in %d trials: those of the same rate disagree too often. Take longer trials (-trial), or a longer bound (-p99).", len(k.Trials))
	case k.Rate == 0:
		return fmt.Sprintf("Not even %s/s are borne.", rateText(k.TooHigh))
	case k.TooHigh == 0:
		return fmt.Sprintf("All rates up to %s/s are borne.", rateText(k.Rate))
	}
	return fmt.Sprintf("The knee is at %s/s: %s/s are too many.", rateText(k.Rate), rateText(k.TooHigh))
}
