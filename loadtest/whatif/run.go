package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/dryrun"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/progress"
)

const (
	// DefaultTop is how many of the most denied features are named.
	DefaultTop = 10
	// DefaultMaxBytes bounds the memory of the counters.
	DefaultMaxBytes int64 = 1 << 30

	// progressStep is how many lines are one report of progress.
	progressStep = 1000
)

var (
	// ErrNoHits is returned where no line of the log can be decided.
	ErrNoHits = errors.New("whatif: nothing to decide")
	// ErrTime is returned for a log with times that cannot be counted.
	ErrTime = errors.New("whatif: a time that cannot be counted")
)

// Config sets up a run. Event and Log are needed.
type Config struct {
	Event *events.Event  // with the rules to try
	Log   *accesslog.Log // whose actors have features of the kinds of the rules
	// CostKind is the kind of an actor's features that is no feature, but what its hits
	// cost; a hit without it, or of "", costs 1.
	CostKind string
	Top      int   // most denied features to name; 0: DefaultTop, negative: none
	MaxBytes int64 // of the counters; 0: DefaultMaxBytes
	Progress progress.Progress
}

// run is one under way.
type run struct {
	Config
	engine   *dryrun.Engine
	actors   *actors
	whole    score
	limits   []*limit
	named    map[string]*limit
	timeline Timeline
	lines    [withoutCost + 1]int // by fate
}

// Run decides all lines of the log, one after the other in the order of time, each at the
// second in which it was. Errors wrap those of this package or of package dryrun, and that of the
// context when it ends.
func Run(ctx context.Context, config Config) (*Report, error) {
	r, err := newRun(config)
	if err != nil {
		return nil, err
	}
	r.Progress.Start("deciding", len(r.Log.Events))
	for i, e := range r.Log.Events {
		if i%progressStep == progressStep-1 {
			r.Progress.Add(progressStep)
		}
		if err := r.decide(ctx, e); err != nil {
			return nil, err
		}
	}
	if r.lines[decided] == 0 {
		return nil, r.nothing()
	}
	return r.report(), nil
}

func newRun(config Config) (*run, error) {
	config.Top = max(0, cmp.Or(config.Top, DefaultTop))
	config.MaxBytes = cmp.Or(config.MaxBytes, DefaultMaxBytes)
	config.Progress = progress.Or(config.Progress)
	r := &run{Config: config, named: map[string]*limit{}}
	if err := checkTimes(r.Log.Events); err != nil {
		return nil, err
	}
	r.actors = newActors(r.Event, r.Log.Actors, r.CostKind)
	r.whole = newScore(len(r.actors.names))
	if n := len(r.Log.Events); n > 0 {
		r.timeline = newTimeline(r.Log.Events[0].Second(), r.Log.Events[n-1].Second())
	}
	r.limits = newLimits(r.Event, r.actors)
	for _, l := range r.limits {
		r.named[l.found.Name] = l
	}
	var err error
	r.engine, err = dryrun.New(r.MaxBytes)
	return r, err
}

// checkTimes finds times whose windows would begin before 1970, or that no calendar of
// four digits has: seconds that were taken for milliseconds, or the other way round.
func checkTimes(list []accesslog.Event) error {
	if len(list) == 0 {
		return nil
	}
	earliest := time.Unix(0, 0).Add(events.MaxRetention)
	latest := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, e := range []accesslog.Event{list[0], list[len(list)-1]} {
		if at := e.Time(); at.Before(earliest) || !at.Before(latest) {
			return fmt.Errorf("%w: the log goes from %s to %s", ErrTime,
				list[0].Time().Format(time.RFC3339), list[len(list)-1].Time().Format(time.RFC3339))
		}
	}
	return nil
}

// decide decides a line, and counts what came of it.
func (r *run) decide(ctx context.Context, e accesslog.Event) error {
	a := &r.actors.all[e.Actor]
	r.lines[a.fate]++
	if a.fate != decided {
		return nil
	}
	second := e.Second()
	decision, err := r.engine.Hit(ctx, e.Time(), limiter.Hit{Event: r.Event, Features: a.features, Cost: a.cost})
	if err != nil {
		return err
	}
	r.add(a, second, &decision)
	return nil
}

func (r *run) add(a *actor, second int64, d *events.Decision) {
	r.whole.add(a.whole, second, d.Allowed)
	r.timeline.add(second, d.Allowed)
	denials := 0
	for i := range d.Limits {
		if d.Limits[i].Vetoes() {
			denials++
		}
	}
	for i := range d.Limits {
		state := &d.Limits[i]
		l := r.named[state.Name]
		l.add(a.in[l.rule], second, d, state, denials)
	}
}

// nothing says why no line was decided.
func (r *run) nothing() error {
	switch {
	case r.Log.Lines == 0:
		return fmt.Errorf("%w: the log is empty", ErrNoHits)
	case len(r.Event.Rules) == 0:
		return fmt.Errorf("%w: %s has no limits", ErrNoHits, r.Event.Name)
	case r.lines[withoutCost] > 0:
		return fmt.Errorf("%w: of %d lines %d have no cost from 1 to %d", ErrNoHits, r.Log.Lines, r.lines[withoutCost], limiter.MaxCost)
	}
	return fmt.Errorf("%w: of %d lines none has the features that %s is limited per: %s", ErrNoHits,
		r.Log.Lines, r.Event.Name, strings.Join(r.Event.Kinds(), ", "))
}

func (r *run) report() *Report {
	last := r.Log.Events[len(r.Log.Events)-1]
	report := &Report{
		Event: r.Event.Name, Lines: r.Log.Lines, Filtered: r.Log.Filtered, Malformed: r.Log.Malformed,
		Unlimited: r.lines[unlimited], Refused: r.lines[refused], WithoutCost: r.lines[withoutCost],
		Missing: r.missing(), From: utc(r.Log.Events[0].Second()), To: utc(last.Second()),
		All: r.whole.report(r.Top, r.actors.names), Timeline: r.timeline,
	}
	for _, l := range r.limits {
		l.found.Score = l.score.report(r.Top, r.actors.names)
		report.Limits = append(report.Limits, l.found)
	}
	return report
}

// missing counts the lines that have no feature of a kind that the rules name.
func (r *run) missing() []Missing {
	missing := []Missing{}
	for _, kind := range r.Event.Kinds() {
		lines := 0
		for _, e := range r.Log.Events {
			if _, found := r.Log.Actors[e.Actor][kind]; !found {
				lines++
			}
		}
		if lines > 0 {
			missing = append(missing, Missing{kind, lines})
		}
	}
	return missing
}
