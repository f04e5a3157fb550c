package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/progress"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/slidinglog"
)

const (
	// DefaultTop is how many of the most denied features are named.
	DefaultTop = 10
	// DefaultMaxBytes bounds the memory of the counters.
	DefaultMaxBytes int64 = 1 << 30

	// cacheBytes is what the limiter remembers closed buckets in. It does so for a second,
	// and there is one hit after the other: more makes it no faster.
	cacheBytes = 512 << 10

	// progressStep is how many lines are one report of progress.
	progressStep = 1000
)

var (
	// ErrNoHits is returned where no line of the log can be decided.
	ErrNoHits = errors.New("whatif: nothing to decide")
	// ErrMemory is returned where the counters do not fit into the memory that they may take.
	ErrMemory = errors.New("whatif: the counters take too much memory")
	// ErrTime is returned for a log with times that cannot be counted.
	ErrTime = errors.New("whatif: a time that cannot be counted")
	// ErrEngine is returned where the engine could not decide a hit. That is a fault of this
	// program.
	ErrEngine = errors.New("whatif: the engine failed")
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
	clock    *clock
	store    *memcache.Embedded
	limiter  *limiter.Limiter
	failed   error // what the limiter reported
	actors   *actors
	whole    score
	limits   []*limit
	named    map[string]*limit
	timeline Timeline
	lines    [withoutCost + 1]int // by fate
}

// Run decides all lines of the log, one after the other in the order of time, each at the
// second in which it was. Errors wrap those of this package, and that of the context when
// it ends.
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
	r := &run{Config: config, clock: &clock{}, named: map[string]*limit{}}
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
	r.store = memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: r.MaxBytes, Clock: r.clock.now})
	counters := hierarchy.NewCounters(hierarchy.Config{Store: patientStore{r.store}, Clock: r.clock.now, CacheBytes: cacheBytes})
	logs, err := slidinglog.New(counters.Base())
	if err != nil {
		return nil, err
	}
	leases, err := slidinglog.NewLeases(counters.Base())
	if err != nil {
		return nil, err
	}
	decider, err := limiter.New(limiter.Config{Timeout: timeout,
		OnStoreError: func(err error) { r.failed = errors.Join(r.failed, err) }}, counters, logs, leases)
	r.limiter = decider
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
	r.clock.at = e.Time().Truncate(time.Millisecond) // which logs go by in windows below a minute
	hit := limiter.Hit{Event: r.Event, Features: a.features, Cost: a.cost}
	decision, err := r.limiter.Hit(ctx, hit)
	if err == nil {
		decision, err = r.exactly(ctx, hit, decision)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil || r.failed != nil:
		return fmt.Errorf("%w: %w", ErrEngine, errors.Join(err, r.failed))
	case r.store.Evicted() > 0:
		return fmt.Errorf("%w: more than %d MiB at %s, after %d hits", ErrMemory, r.MaxBytes>>20, utc(second).Format(time.RFC3339), r.whole.hits)
	}
	return r.add(a, second, &decision)
}

// exactly returns the decision with what is above N: a count below the ceiling may be an upper
// bound, which is then taken for above N. A check is exact.
func (r *run) exactly(ctx context.Context, hit limiter.Hit, d limiter.Decision) (limiter.Decision, error) {
	if !d.Allowed || !slices.ContainsFunc(d.Limits, func(s limiter.LimitState) bool { return s.Over && !s.Exact }) {
		return d, nil
	}
	check, err := r.limiter.Check(ctx, hit)
	for i := range check.Limits {
		d.Limits[i].Over = d.Limits[i].Over && check.Limits[i].Count > d.Limits[i].N
	}
	return d, err
}

func (r *run) add(a *actor, second int64, d *limiter.Decision) error {
	r.whole.add(a.whole, second, d.Allowed)
	r.timeline.add(second, d.Allowed)
	denials := 0
	for i := range d.Limits {
		if state := &d.Limits[i]; !state.Allowed && !state.Shadow {
			denials++
		}
	}
	for i := range d.Limits {
		state := &d.Limits[i]
		l := r.named[state.Name]
		if state.Failed || state.Incomplete {
			return fmt.Errorf("%w: it did not ask the limit %s", ErrEngine, state.Name)
		}
		l.add(a.in[l.rule], second, d, state, denials)
	}
	return nil
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
