package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/eventlog/journal"
)

// counters are the counters of an event per the same kinds.
type counters struct {
	kinds            []string
	each             bool // per each feature, of an event without limits
	per              string
	limits           []string // as rates
	windows          []events.Limit
	counter          events.Counter // one of them, without its feature
	finest, coarsest hierarchy.Level
	logged           bool            // each is a log, in place of the buckets of its finest level
	leases           bool            // the log is of leases
	bounds           []journal.Limit // of the log
	waits            int64           // for which it knows each entry, in milliseconds: until turns come, or leases end
}

func perOf(kinds []string) string {
	if len(kinds) == 0 {
		return "(all)"
	}
	return strings.Join(kinds, "+")
}

// countersOf returns the counters of an event's rules in their order, of the same kinds in buckets,
// in a log, and leases apart; without rules one for each feature.
func countersOf(event *events.Event) []counters {
	made := func(c counters, precision events.Precision) counters {
		c.counter = events.Counter{Event: event.Name, Retention: event.Remembered(), Precision: precision}
		c.finest, c.coarsest = levelsOf(c.counter)
		return c
	}
	if len(event.Rules) == 0 {
		return []counters{made(counters{each: true, per: "(each feature)"}, events.Second)}
	}
	var all []counters
	for i := range event.Rules {
		rule := &event.Rules[i]
		at := slices.IndexFunc(all, func(c counters) bool { return c.counts(rule) })
		if at < 0 {
			at = len(all)
			c := made(counters{kinds: rule.Per, per: perOf(rule.Per), logged: rule.InLog(), leases: rule.Leases(), waits: event.LongestWait().Milliseconds()}, rule.Precision)
			if c.logged {
				c.coarsest, c.counter.Retention = c.finest, 0
			}
			all = append(all, c)
		}
		for _, limit := range rule.Limits {
			c, ceiling := &all[at], rule.Throttle.Ceiling(limit.Most())
			if c.logged { // it is needed for so long
				c.counter.Retention = max(c.counter.Retention, limit.Span(ceiling))
			}
			switch {
			case c.leases:
				c.waits = limit.Window.Milliseconds()
			case c.logged && limit.Burst == 0: // token buckets keep no events
				c.counter.Retention = max(c.counter.Retention, event.Remembered())
			}
			c.bounds = append(c.bounds, journal.LimitFrom(limit, ceiling))
			c.limits = append(c.limits, events.FormatRate(limit))
			c.windows = append(c.windows, limit)
		}
	}
	return all
}

// counts reports whether the counters are those of the rule.
func (c counters) counts(rule *events.Rule) bool {
	return slices.Equal(c.kinds, rule.Per) && c.logged == rule.InLog() && c.leases == rule.Leases()
}

// whole reports whether one counter holds the whole event.
func (c counters) whole() bool { return !c.each && len(c.kinds) == 0 }

// life returns the lifetime of a bucket with an event in its first second, or of a log after its last.
func (c counters) life(l hierarchy.Level) time.Duration {
	if c.logged {
		return eventlog.Life(c.counter.Retention, events.DefaultGrace)
	}
	return time.Duration(hierarchy.BucketAt(l, 0).Expires(c.counter.Retention, hierarchy.DefaultGrace)) * time.Second
}

// demand is what the traffic does to counters of one kind, replicas not counted.
type demand struct {
	counters
	features   float64 // of a day
	hits, peak float64 // a second, on average and at the peak
	// The parts of the hits that read closed buckets: other hits find them in the cache of
	// their process, which is good for a second.
	reread, peakReread float64
	live               float64 // counters with a bucket, at most
	levels             [hierarchy.Levels]levelDemand
	logs               map[int64]float64 // of the items, by the hits in them
}

type levelDemand struct {
	items  float64 // at most
	made   float64 // by a hit
	aDay   float64 // of a feature
	value  float64 // of an item, on average
	beside float64 // the probability that the bucket before the hit's own exists
}

// modelled returns the demand of traffic on counters.
func (c Config) modelled(counters counters, t Traffic) demand {
	d := demand{counters: counters, features: t.Features, hits: t.Events / daySeconds, live: 1}
	d.peak = d.hits * t.Peak
	if counters.logged {
		return c.modelledLogs(d, t)
	}
	perSecond := t.Events / t.Features / daySeconds / float64(c.processes)
	d.reread, d.peakReread = 1/(1+perSecond), 1/(1+perSecond*t.Peak)
	for l := d.finest; l <= d.coarsest; l++ {
		span, length := c.span(d.life(l)), float64(l.Seconds())
		items, day := t.buckets(length, span), daySeconds/length*t.active(length, 1)
		d.levels[l] = levelDemand{items: items, made: day / t.Events, aDay: day / t.Features, value: t.events(span) / items}
		if span > length { // the first bucket has none before it
			d.levels[l].beside = t.active(length, 1) / t.Features
		}
	}
	if !counters.whole() {
		// As if every day had other features: the greater number.
		d.live = t.buckets(daySeconds, c.span(d.life(d.coarsest)))
	}
	return d
}

// span returns for how many seconds buckets of that lifetime have been gathering.
func (c Config) span(life time.Duration) float64 {
	if c.filled > 0 {
		life = min(life, c.filled)
	}
	return life.Seconds()
}
