package run

import (
	"fmt"
	"io"
	"strings"

	"github.com/counterd/counterd/loadtest/columns"
)

// WriteText writes what was found as a text.
func (k *Knee) WriteText(out io.Writer) error {
	var b strings.Builder
	writeFacts(&b, k.facts())
	b.WriteByte('\n')
	columns.Write(&b, 1, append([][]string{trialHead}, k.trialRows()...))
	fmt.Fprintf(&b, "\n%s\n", k.verdict())
	if k.machine() {
		b.WriteString("Most of the p99 that is too long is this program's own lateness: it may be this machine, not the target, that bears no more.\n")
	}
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

// machine reports whether the rate that is too high is so by the generator's lateness.
func (k *Knee) machine() bool {
	for _, t := range k.Trials {
		if t.Rate == k.TooHigh && (t.TooHigh != ReasonP99 || !t.Busy) {
			return false
		}
	}
	return k.TooHigh > 0
}

var trialHead = []string{"trial", "rate", "reached", "p50, ms", "p99, ms", "late p99, ms", "failed", "verdict"}

// reasons are why a rate is too high, in words.
var reasons = map[string]string{"": "borne", ReasonP99: "p99 too long", ReasonRate: "not reached", ReasonFailed: "failures"}

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

func (k *Knee) verdict() string {
	switch {
	case k.Interrupted:
		return "Interrupted: the knee was not found."
	case k.Rate == 0:
		return fmt.Sprintf("Not even %s/s are borne.", rateText(k.TooHigh))
	case k.TooHigh == 0:
		return fmt.Sprintf("All rates up to %s/s are borne.", rateText(k.Rate))
	}
	return fmt.Sprintf("The knee is at %s/s: %s/s are too many.", rateText(k.Rate), rateText(k.TooHigh))
}
