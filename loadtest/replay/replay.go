// Package replay proves a counterd server on a real log. It shifts the log in time
// so that it ends now, increments through HTTP, then counts every feature, and every
// combination that a rule names, over several windows, now and as of past moments,
// and holds each count against an exact log of its own.
//
// All events are held in memory, about 100 bytes each at the peak, and each
// feature once: a log of a million lines takes some 100 MB.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/progress"
)

const (
	// DefaultConcurrency is how many requests are under way at once.
	DefaultConcurrency = 16
	// pastMoments is how many past moments the windows are asked for as of.
	pastMoments = 3
	// DefaultSettle is how long a server may go on remembering what it read before
	// an increment that was late, or a reset, by another process.
	DefaultSettle = 1100 * time.Millisecond

	// A reset reads many buckets: few go at once, as the server does them. One that the server
	// fails is tried again, with longer pauses.
	resetsAtOnce = 4
	resetRetries = 4
	resetPause   = 250 * time.Millisecond

	maxNamedDifferences = 10
)

var (
	// ErrNotEmpty is returned where the log's counters hold events already.
	ErrNotEmpty = errors.New("replay: the counters are not empty")
	// ErrNoEvents is returned where nothing of the log can be counted.
	ErrNoEvents = errors.New("replay: no event to count")
	// ErrWindow is returned for a window that is longer than the retention, or not
	// in whole seconds.
	ErrWindow = errors.New("replay: wrong window")
	// ErrContract is returned where the server's answer breaks the contract in a way
	// that leaves nothing to compare.
	ErrContract = errors.New("replay: the server does not keep the contract")
)

// DefaultWindows are compared where none are given.
func DefaultWindows() []time.Duration {
	return []time.Duration{time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}
}

// Config sets up a run. Client and Event are needed.
type Config struct {
	Client *client.Client
	Event  string
	// Windows are compared, each once; nil: those of DefaultWindows that the server remembers
	// long enough.
	Windows     []time.Duration
	Concurrency int           // requests under way at once; 0: DefaultConcurrency
	Reset       bool          // forget the log's counters first
	Settle      time.Duration // wait before counting; 0: DefaultSettle
	Progress    progress.Progress
	// Clock is this machine's, which may be apart from the server's by a second;
	// nil: time.Now.
	Clock func() time.Time
}

func (c Config) withDefaults() Config {
	c.Concurrency = max(1, cmp.Or(c.Concurrency, DefaultConcurrency))
	c.Settle = cmp.Or(c.Settle, DefaultSettle)
	c.Progress = progress.Or(c.Progress)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return c
}

// run is one replay under way.
type run struct {
	Config
	log       *accesslog.Log
	retention int64 // seconds
	windows   []int64
	end       int64             // the second of the last event
	later     int64             // by how many seconds the events come later than in the log
	events    []accesslog.Event // to be sent, in the log's own time
	roster    *roster
	seconds   []int64 // those of the events that were counted, in order

	mu     sync.Mutex
	result *Result
}

// Run replays the log. Each increment is sent once and never again, the oldest first. The
// first request that fails ends the run. An event that slides out of the retention before it
// is sent is Skipped.
//
// With an error, the result says how far the run came; it is never nil. Errors
// of the client are wrapped, and so is the context's when it ends.
func Run(ctx context.Context, config Config, log *accesslog.Log) (*Result, error) {
	r := &run{Config: config.withDefaults(), log: log, result: &Result{
		Event: config.Event, Lines: log.Lines, Filtered: log.Filtered, Malformed: log.Malformed,
		MalformedLines: append([]string{}, log.Places...), FirstDifferences: []Difference{},
		Windows: []string{}, LeftOutWindows: []string{},
	}}
	// Every process of the server sees by then what was done.
	settle := func(ctx context.Context) error { return sleep(ctx, r.Settle) }
	stages := []func(context.Context) error{r.askRules, r.shift, r.checkEmpty, r.increment, settle, r.count}
	if r.Reset {
		stages = slices.Insert(stages, 2, r.reset, settle)
	}
	for _, stage := range stages {
		if err := stage(ctx); err != nil {
			return r.result, err
		}
	}
	return r.result, nil
}

// askRules asks how the event is counted, and fits the windows to it.
func (r *run) askRules(ctx context.Context) error {
	told, err := r.Client.Event(ctx, r.Event)
	if err != nil {
		return fmt.Errorf("replay: asking how %s is counted: %w", r.Event, err)
	}
	event, err := eventOf(told)
	if err != nil {
		return err
	}
	r.roster = newRoster(event)
	r.retention = seconds(event.Retention)
	r.result.Retention = events.FormatDuration(event.Retention)
	return r.fitWindows(event.Retention)
}

func (r *run) fitWindows(retention time.Duration) error {
	windows := r.Windows
	if windows == nil {
		for _, window := range DefaultWindows() {
			if window <= retention {
				windows = append(windows, window)
			} else {
				r.result.LeftOutWindows = append(r.result.LeftOutWindows, events.FormatDuration(window))
			}
		}
	}
	if windows == nil {
		windows = []time.Duration{retention}
	}
	for _, window := range windows {
		switch {
		case window < time.Second || window%time.Second != 0:
			return fmt.Errorf("%w: %s is not in whole seconds, at least 1s", ErrWindow, window)
		case window > retention:
			return fmt.Errorf("%w: %s is longer than the %s that the server remembers %s",
				ErrWindow, events.FormatDuration(window), events.FormatDuration(retention), r.Event)
		case !slices.Contains(r.windows, seconds(window)):
			r.windows = append(r.windows, seconds(window))
			r.result.Windows = append(r.result.Windows, events.FormatDuration(window))
		}
	}
	return nil
}

// shift moves the events so that the last one is now, and leaves out what is then too old,
// and the lines without features.
func (r *run) shift(context.Context) error {
	r.end = r.now()
	if n := len(r.log.Events); n > 0 {
		r.later = r.end - r.log.Events[n-1].Second()
	}
	first := r.end - r.retention + margin(r.retention, eventMargin)
	r.events = make([]accesslog.Event, 0, len(r.log.Events))
	for _, e := range r.log.Events {
		switch features := r.log.Actors[e.Actor]; {
		case len(features) == 0:
			r.result.Featureless++
		case r.second(e) < first:
			r.result.Skipped++
		default:
			if err := r.roster.add(e.Actor, features); err != nil {
				return fmt.Errorf("replay: %w", err)
			}
			r.events = append(r.events, e)
		}
	}
	if len(r.events) == 0 {
		return fmt.Errorf("%w: of %d lines %d are malformed, %d without any of the features, %d too old",
			ErrNoEvents, r.log.Lines, r.log.Malformed, r.result.Featureless, r.result.Skipped)
	}
	return nil
}

// second returns the one in which the event is to be counted.
func (r *run) second(e accesslog.Event) int64 { return e.Second() + r.later }

// reset forgets the counters. It tries again where the server could not: a reset that is
// repeated changes nothing.
func (r *run) reset(ctx context.Context) error {
	askers := r.roster.first
	return r.forEach(ctx, "resetting", len(askers), min(r.Concurrency, resetsAtOnce), func(ctx context.Context, i int) error {
		for try := 0; ; try++ {
			err := r.Client.Reset(ctx, r.Event, askers[i].features)
			if !errors.Is(err, client.ErrUnavailable) || try == resetRetries {
				return err
			}
			if waited := sleep(ctx, resetPause<<try); waited != nil {
				return waited
			}
		}
	})
}

// checkEmpty makes sure that the counters hold nothing.
func (r *run) checkEmpty(ctx context.Context) error {
	askers := r.roster.first
	var full atomic.Int64
	longest := time.Duration(r.retention) * time.Second
	err := r.forEach(ctx, "checking", len(askers), r.Concurrency, func(ctx context.Context, i int) error {
		count, err := r.Client.Count(ctx, r.Event, askers[i].features, longest, time.Time{})
		if err == nil && count.Count != 0 {
			full.Add(1)
		}
		return err
	})
	if n := full.Load(); err == nil && n > 0 {
		err = fmt.Errorf("%w: %d of %d hold events of %s", ErrNotEmpty, n, len(askers), r.Event)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// fate is what became of an event.
type fate uint8

const (
	unsent fate = iota
	counted
	tooOld
	unknown // it may have been counted, or not
)

// increment sends all events, and makes the exact logs of the events that the server
// has acknowledged.
func (r *run) increment(ctx context.Context) error {
	fates := make([]fate, len(r.events))
	err := r.forEach(ctx, "incrementing", len(r.events), r.Concurrency, func(ctx context.Context, i int) (err error) {
		fates[i], err = r.incrementOne(ctx, r.events[i])
		return err
	})
	for i, e := range r.events { // in the order of time
		askers := r.roster.actors[e.Actor]
		switch fates[i] {
		case counted:
			for _, a := range askers {
				a.log.Add(r.second(e), 1)
			}
			r.seconds = append(r.seconds, r.second(e))
			r.result.Events++
		case tooOld:
			r.result.Skipped++
		case unknown:
			r.result.Unknown++
		}
	}
	for _, c := range r.roster.counters {
		if c.log.Len() > 0 {
			r.result.Counters++
		}
	}
	return err
}

// incrementOne sends an event at its own time.
func (r *run) incrementOne(ctx context.Context, e accesslog.Event) (fate, error) {
	second := r.second(e)
	done, err := r.Client.Increment(ctx, r.Event, r.log.Actors[e.Actor], 1, time.Unix(second, 0))
	switch {
	case err == nil:
		return counted, r.acknowledges(done, e, second)
	// The server's clock may be ahead by a second.
	case errors.Is(err, client.ErrInvalid) && second <= r.now()-r.retention+1:
		return tooOld, nil
	case errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrUnknown):
		return unsent, err
	}
	return unknown, cmp.Or(ctx.Err(), err)
}

// acknowledges checks that the server says it has counted the event, once, and in its second.
func (r *run) acknowledges(done wire.Incremented, e accesslog.Event, second int64) error {
	for _, a := range r.roster.actors[e.Actor] {
		if !slices.Contains(done.Counters, a.feature) {
			return fmt.Errorf("%w: an increment did not go to the counters that its rules name", ErrContract)
		}
	}
	if done.Event != r.Event || done.By != 1 || done.At.Unix() != second {
		return fmt.Errorf("%w: it answered an increment with another event, number or moment", ErrContract)
	}
	return nil
}

// count asks every question for every asker.
func (r *run) count(ctx context.Context) error {
	questions := questionsOf(r.windows, r.retention, r.end, max(r.end, r.now()), pastMoments, r.seconds)
	askers := r.roster.askers
	return r.forEach(ctx, "counting", len(questions)*len(askers), r.Concurrency, func(ctx context.Context, i int) error {
		return r.compare(ctx, questions[i/len(askers)], askers[i%len(askers)])
	})
}

// compare asks one question for one asker, and holds the answer against the log.
func (r *run) compare(ctx context.Context, q question, a *asker) error {
	earliest, latest, at := q.at, q.at, time.Unix(q.at, 0)
	if q.now {
		earliest, at = r.now()-1, time.Time{}
	} else if q.begins() < r.now()-r.retention {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.result.LeftOut++
		return nil
	}
	window := time.Duration(q.window) * time.Second
	got, err := r.Client.Count(ctx, r.Event, a.features, window, at)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	if q.now {
		latest = r.now() + 1
	}
	from, to := got.From.Unix(), got.To.Unix()
	if q.now && a.slides && to-from == q.window {
		from++ // it begins within that second, and all events are at the beginning of theirs
	}
	difference := Difference{
		Feature: a.feature, Window: events.FormatDuration(window), At: moment(q.at),
		From: got.From, To: got.To, Got: got.Count,
		Expected: a.log.Sum(from, to),
	}
	switch {
	case got.Event != r.Event || got.Feature != difference.Feature || got.Window != difference.Window:
		difference.Reason = "it is the answer to another question"
	case !answers(from, to, q.window, a.step, earliest, latest):
		difference.Reason = "this is not the window that was asked for"
	case got.Count != difference.Expected:
		difference.Reason = "the count is wrong"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Comparisons++
	if difference.Reason != "" {
		if r.result.Differences++; r.result.Differences <= maxNamedDifferences {
			r.result.FirstDifferences = append(r.result.FirstDifferences, difference)
		}
	}
	return nil
}

// forEach calls do for each number below n, in order, some of them at once, until one
// returns an error.
func (r *run) forEach(ctx context.Context, stage string, n, atOnce int, do func(ctx context.Context, i int) error) error {
	r.Progress.Start(stage, n)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(max(1, min(n, atOnce)))
	for i := 0; i < n && within.Err() == nil; i++ {
		group.Go(func() error {
			err := within.Err() // it may have ended while this one waited for its place
			if err == nil {
				err = do(within, i)
			}
			if err == nil {
				r.Progress.Add(1)
			}
			return err
		})
	}
	if err := cmp.Or(group.Wait(), ctx.Err()); err != nil {
		return fmt.Errorf("replay: %s: %w", stage, err)
	}
	return nil
}

func (r *run) now() int64 { return r.Clock().Unix() }

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
