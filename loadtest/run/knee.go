package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/process"
)

// Defaults of a Search.
const (
	DefaultTrial = 5 * time.Second
	DefaultStart = 100
)

const (
	// reachedPart is how much of a rate has to be reached, and failedPart how much of the
	// requests may fail.
	reachedPart = 0.97
	failedPart  = 0.01
)

// Search says what to look for: the highest rate at which a target still answers well.
type Search struct {
	P99   time.Duration // what the p99 must not exceed; needed
	Trial time.Duration // length of a trial; 0: DefaultTrial
	Start float64       // rate of the first trial; 0: DefaultStart
}

// Check finds what is wrong with the search.
func (s Search) Check() error {
	var faults []error
	if s.P99 <= 0 {
		faults = append(faults, errors.New("run: the bound of the p99 is above 0"))
	}
	if s.Trial != 0 && s.Trial < MinDuration {
		faults = append(faults, fmt.Errorf("run: a trial takes at least %s, not %s", MinDuration, s.Trial))
	}
	if s.Start != 0 && s.Start < lowest || s.Start > arrival.MaxRate {
		faults = append(faults, fmt.Errorf("run: the first rate is %d to %d, not %v", lowest, arrival.MaxRate, s.Start))
	}
	return errors.Join(faults...)
}

// Reasons why a rate is too high.
const (
	ReasonP99    = "p99"    // it exceeds the bound
	ReasonRate   = "rate"   // it was not reached
	ReasonFailed = "failed" // too many requests failed
)

// Trial is one rate that was tried.
type Trial struct {
	Rate    float64 `json:"rate"` // asked
	Reached float64 `json:"rate_reached"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	LateP99 float64 `json:"late_p99"`
	Failed  int64   `json:"failed"`
	TooHigh string  `json:"too_high,omitzero"` // why the trial failed: p99, rate or failed; empty: it passed
	// Busy is set where most of the p99 is the generator's own lateness.
	Busy    bool           `json:"busy,omitzero"`
	Machine *process.Share `json:"machine,omitempty"` // nil: not known
}

// Tried is what the trials of one rate came to.
type Tried struct {
	Rate    float64 `json:"rate"`
	Trials  int     `json:"trials"`
	Failed  int     `json:"trials_failed"`
	TooHigh bool    `json:"too_high"`
}

// Knee is what a search has found.
type Knee struct {
	Targets     []string `json:"targets"`
	Traffic     string   `json:"traffic"`
	Bound       float64  `json:"p99_bound"` // milliseconds
	Seconds     float64  `json:"trial_seconds"`
	Trials      []Trial  `json:"trials"`   // in their order
	Rates       []Tried  `json:"rates"`    // from the lowest on
	Rate        float64  `json:"rate"`     // the highest that was borne; 0: none was
	TooHigh     float64  `json:"too_high"` // the lowest that was not; 0: there was none
	Interrupted bool     `json:"interrupted,omitzero"`
	Unsettled   bool     `json:"unsettled,omitzero"` // the trials disagreed too often to find it
	At          *Report  `json:"at,omitempty"`       // the last trial at Rate that passed
}

// Found reports whether there is a knee between two rates.
func (k *Knee) Found() bool { return k.Rate > 0 && k.TooHigh > 0 && !k.Interrupted && !k.Unsettled }

// FindMax looks for the highest rate that the target bears: it doubles the rate until the
// p99 exceeds the bound, the rate is not reached, or requests fail, and then bisects. A trial
// that fails is repeated before its rate is believed too high. When the context ends it
// says how far it came.
func FindMax(ctx context.Context, config Config, search Search) (*Knee, error) {
	config.Profile = arrival.Constant(cmp.Or(search.Start, DefaultStart))
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
	passed := map[float64]*Report{}
	s := newSearch(cmp.Or(search.Start, DefaultStart))
	for s.rate > 0 {
		rate := s.rate
		report := r.measure(ctx, fmt.Sprintf("%s/s", rateText(rate)), arrival.Constant(rate), trial)
		if ctx.Err() != nil {
			k.Interrupted = true
			break
		}
		t := k.trial(rate, report)
		k.Trials = append(k.Trials, t)
		if t.TooHigh == "" {
			passed[rate] = report
		}
		s.tried(t.TooHigh != "")
	}
	k.Rate, k.TooHigh = bound(s.borne), bound(s.tooHigh)
	k.At, k.Unsettled = passed[k.Rate], !k.Interrupted && !s.settled()
	k.sumUp()
	return k, nil
}

// sumUp counts the trials by rate.
func (k *Knee) sumUp() {
	trials := slices.Clone(k.Trials)
	slices.SortStableFunc(trials, func(a, b Trial) int { return cmp.Compare(a.Rate, b.Rate) })
	for _, t := range trials {
		if n := len(k.Rates); n == 0 || k.Rates[n-1].Rate != t.Rate {
			k.Rates = append(k.Rates, Tried{Rate: t.Rate, TooHigh: k.TooHigh > 0 && t.Rate >= k.TooHigh})
		}
		last := &k.Rates[len(k.Rates)-1]
		last.Trials++
		if t.TooHigh != "" {
			last.Failed++
		}
	}
}

// trial returns what became of a trial.
func (k *Knee) trial(rate float64, r *Report) Trial {
	t := Trial{
		Rate: rate, Reached: r.RateReached, P50: r.Latency.P50, P99: r.Latency.P99, LateP99: r.Late.P99, Failed: r.Failed + r.Unsent, Busy: r.busy(), Machine: r.Machine,
	}
	switch {
	case float64(t.Failed) > failedPart*float64(r.Arrived):
		t.TooHigh = ReasonFailed
	case r.Latency.P99 > k.Bound:
		t.TooHigh = ReasonP99
	case r.RateReached < reachedPart*r.RateAsked:
		t.TooHigh = ReasonRate
	}
	return t
}
