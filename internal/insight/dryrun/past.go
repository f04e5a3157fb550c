package dryrun

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

const (
	// maxMinutes is of how many minutes the seconds are read, for one counter: more are read by the minute.
	maxMinutes = 120
	// featureBytes bounds the counters of one feature.
	featureBytes = 16 << 20
)

// Histories are what a counter has counted, and what its limits denied. A *service.Service has them.
type Histories interface {
	History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error)
	DeniedHistory(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error)
}

// Hits are so many hits at a Unix second.
type Hits struct{ Second, Count int64 }

// Past are the hits of a feature, the oldest first. A hit that cost more than 1 is as many hits.
type Past struct {
	Hits     []Hits
	Denied   int64 // of them
	ByMinute bool  // the seconds of some are not known: they are spread evenly over their minute
}

// PastOf returns the hits on a counter from one moment to another, with the hits that its limits denied, of which only
// the minute is known. The counter is that of a rule of the event.
func PastOf(ctx context.Context, of Histories, counter events.Counter, from, to time.Time) (past Past, err error) {
	if past, err = counted(ctx, of, counter, from, to); err != nil {
		return past, err
	}
	denied, err := of.DeniedHistory(ctx, counter, engine.Minute, from, to)
	if err != nil {
		return past, err
	}
	countsAll := false
	for rule := range counter.Limits() {
		countsAll = countsAll || rule.Count == events.CountAll
	}
	for _, minute := range denied.Intervals {
		past.Denied += minute.Count
		if !countsAll { // else the counter has counted them
			past.spread(minute)
		}
	}
	slices.SortStableFunc(past.Hits, func(a, b Hits) int { return cmp.Compare(a.Second, b.Second) })
	return past, nil
}

// counted returns what the counter has counted.
func counted(ctx context.Context, of Histories, counter events.Counter, from, to time.Time) (past Past, err error) {
	level := max(engine.Level(counter.Precision), engine.Minute)
	coarse, err := of.History(ctx, counter, level, from, to)
	if err != nil {
		return past, err
	}
	busy := slices.DeleteFunc(slices.Clone(coarse.Intervals), func(i engine.Interval) bool { return i.Count == 0 })
	if counter.Precision != events.Second || len(busy) > maxMinutes {
		for _, interval := range busy {
			past.spread(interval)
		}
		return past, nil
	}
	for _, minute := range busy {
		fine, err := of.History(ctx, counter, engine.Second, latest(minute.First, from), earliest(minute.Last, to))
		if err != nil {
			return past, err
		}
		for _, second := range fine.Intervals {
			if second.Count > 0 {
				past.Hits = append(past.Hits, Hits{second.First, second.Count})
			}
		}
	}
	return past, nil
}

func latest(second int64, moment time.Time) time.Time {
	return time.Unix(max(second, moment.Unix()), 0)
}

func earliest(second int64, moment time.Time) time.Time {
	return time.Unix(min(second, moment.Unix()), 0)
}

// spread adds hits at even distances in an interval.
func (p *Past) spread(i engine.Interval) {
	if i.Count == 0 {
		return
	}
	p.ByMinute = true
	seconds := i.Last - i.First + 1
	for s := range seconds {
		if n := i.Count*(s+1)/seconds - i.Count*s/seconds; n > 0 {
			p.Hits = append(p.Hits, Hits{i.First + s, n})
		}
	}
}

// Result is what became of the hits of a feature.
type Result struct {
	Hits, Denied int64
}

// Decide decides the hits of a feature by the event's rules, each of cost 1.
func Decide(ctx context.Context, event *events.Event, features events.Features, past Past) (r Result, err error) {
	e, err := New(featureBytes)
	if err != nil {
		return r, err
	}
	countsAll := slices.ContainsFunc(event.Rules, func(rule events.Rule) bool { return rule.Count == events.CountAll })
	for _, hits := range past.Hits {
		r.Hits += hits.Count
		for n := range hits.Count {
			d, err := e.Hit(ctx, time.Unix(hits.Second, 0), limiter.Hit{Event: event, Features: features, Cost: 1})
			if err != nil {
				return r, err
			}
			if d.Allowed {
				continue
			}
			if !countsAll { // nothing has room until the second is over
				r.Denied += hits.Count - n
				break
			}
			r.Denied++
		}
	}
	return r, nil
}
