package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/process"
)

// Defaults of a Search.
const (
	DefaultTrial = 5 * time.Second
	DefaultStart = 100
)

const (
	reachedPart = 0.97 // of a rate, at least
	failedPart  = 0.01 // of the requests, at most
)

// Search looks for the highest rate that a target sustains.
type Search struct {
	P99   time.Duration // bound of the p99; needed
	Trial time.Duration // length of a trial; 0: DefaultTrial
	Start float64       // rate of the first trial; 0: DefaultStart
}

// Check returns all faults of the search, joined.
func (s Search) Check() error {
	var faults []error
	if s.P99 <= 0 {
		faults = append(faults, errors.New("-p99 is above 0: the longest p99 that -find-max accepts"))
	}
	if s.Trial != 0 && s.Trial < MinDuration {
		faults = append(faults, fmt.Errorf("-trial is at least %s, not %s", MinDuration, s.Trial))
	}
	if s.Start != 0 && s.Start < lowest || s.Start > arrival.MaxRate {
		faults = append(faults, fmt.Errorf("-rate is %d to %d, not %v", lowest, arrival.MaxRate, s.Start))
	}
	return errors.Join(faults...)
}

// Reasons of failed trials.
const (
	ReasonP99    = "p99"    // beyond the bound
	ReasonRate   = "rate"   // not reached
	ReasonFailed = "failed" // too many requests failed
)

// verdictTexts are in the table of trials.
var verdictTexts = map[string]string{"": "borne", ReasonP99: "p99 too long", ReasonRate: "rate not reached", ReasonFailed: "too many failed"}

// Trial is a trial of one rate.
type Trial struct {
	Rate    float64 `json:"rate"`              // asked
	TooHigh string  `json:"too_high,omitzero"` // the reason; "": it passed
	Report  *Report `json:"report"`
}

// Knee is the result of a search.
type Knee struct {
	Targets     []string `json:"targets"`
	Traffic     string   `json:"traffic"`
	Bound       float64  `json:"p99_bound"` // milliseconds
	Seconds     float64  `json:"trial_seconds"`
	Trials      []Trial  `json:"trials"`   // in their order
	Rate        float64  `json:"rate"`     // the highest that was borne; 0: none
	TooHigh     float64  `json:"too_high"` // the lowest that was not; 0: none
	Interrupted bool     `json:"interrupted,omitzero"`
	Unsettled   bool     `json:"unsettled,omitzero"` // the trials disagreed too often
}

// Found reports whether the knee was found.
func (k *Knee) Found() bool { return k.Rate > 0 && k.TooHigh > 0 && !k.Interrupted && !k.Unsettled }

// FindMax looks for the highest rate that the target sustains: it doubles the rate until
// trials fail, and then bisects. It repeats failed trials.
func FindMax(ctx context.Context, config Config, search Search) (*Knee, error) {
	config.Profile, config.Arrivals = arrival.Constant(cmp.Or(search.Start, DefaultStart)), ""
	if err := errors.Join(config.Check(), search.Check()); err != nil {
		return nil, err
	}
	r := &runner{Config: config.withDefaults()}
	if err := r.probe(ctx); err != nil {
		return nil, err
	}
	r.warmUp(ctx)
	trial := cmp.Or(search.Trial, DefaultTrial)
	k := &Knee{Targets: r.Target.Names(), Traffic: r.Traffic, Bound: milliseconds(search.P99), Seconds: trial.Seconds()}
	s := newSearch(cmp.Or(search.Start, DefaultStart))
	for s.rate > 0 {
		rate := s.rate
		report := r.measure(ctx, fmt.Sprintf("%s/s", rateText(rate)), arrival.Constant(rate), trial)
		if ctx.Err() != nil {
			k.Interrupted = true
			break
		}
		reason := k.tooHigh(report)
		k.Trials = append(k.Trials, Trial{rate, reason, report})
		s.tried(reason != "")
	}
	k.Rate, k.TooHigh = bound(s.borne), bound(s.tooHigh)
	k.Unsettled = !k.Interrupted && !s.settled()
	return k, nil
}

// tooHigh returns the reason why a trial failed; "": it passed.
func (k *Knee) tooHigh(r *Report) string {
	switch {
	case float64(r.Failed+r.Unsent) > failedPart*float64(r.Arrived):
		return ReasonFailed
	case r.Latency.P99 > k.Bound:
		return ReasonP99
	case r.RateReached < reachedPart*r.RateAsked:
		return ReasonRate
	}
	return ""
}

// WriteText writes the search as a text.
func (k *Knee) WriteText(out io.Writer) error {
	var t text
	t.fact("target", "%s", strings.Join(k.Targets, ", "))
	t.fact("traffic", "%s", k.Traffic)
	t.fact("bound", "p99 of %s ms, in trials of %s", columns.Digits(k.Bound), seconds(k.Seconds))
	rows := [][]string{{"rate", "reached", "p50, ms", "p99, ms", "failed", "verdict"}}
	for _, trial := range k.Trials {
		r := trial.Report
		rows = append(rows, []string{
			rateText(trial.Rate), rateText(r.RateReached), columns.Digits(r.Latency.P50), columns.Digits(r.Latency.P99),
			columns.Grouped(r.Failed + r.Unsent), verdictTexts[trial.TooHigh],
		})
	}
	t.WriteString("\n")
	t.table(rows)
	t.WriteString(strings.Join(k.verdicts(), "\n") + "\n")
	return t.write(out)
}

// verdicts are the result, and doubts.
func (k *Knee) verdicts() []string {
	lines := []string{k.verdict()}
	tooHigh, late, unsteady, busy := 0, 0, 0, 0
	for _, t := range k.Trials {
		switch {
		case t.TooHigh != "" && t.Rate <= k.Rate:
			unsteady++
		case t.TooHigh != "" && t.Rate == k.TooHigh:
			tooHigh++
			if t.TooHigh == ReasonP99 && t.Report.late() {
				late++
			}
		}
		if t.Report.Machine.Busy() {
			busy++
		}
	}
	if unsteady > 0 {
		lines = append(lines, fmt.Sprintf("%d trials at rates that are borne failed: the machine or the target is unsteady. Longer trials (-trial) are steadier.", unsteady))
	}
	if late > 0 && late == tooHigh {
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
