package plan

import (
	"github.com/counterd/counterd/hierarchy"
)

// demand is what is done to the counters of one kind, without copies.
type demand struct {
	features   float64 // that do it each day
	hits, peak float64 // a second, on the average and at the peak
	// What of the hits, on the average and at the peak, has to read closed buckets: the
	// others find them remembered, by a process that has read them less than a second ago.
	again, peakAgain float64
	live             float64 // counters that have a bucket, at the most
	levels           [hierarchy.Levels]levelDemand
}

// levelDemand is that of the buckets of a level.
type levelDemand struct {
	items  float64 // at the most
	made   float64 // by a hit
	aDay   float64 // a feature has each day
	value  float64 // in one of them, on the average
	beside float64 // the chance that the bucket beside the one that a hit adds to is there
}

// modelled returns the demand of traffic on counters.
func (c Config) modelled(counters counters, t Traffic) demand {
	d := demand{features: t.Features, hits: t.Events / daySeconds}
	d.peak = d.hits * t.Peak
	// Closed buckets are read by the first hit after the second is over.
	perSecond := t.perFeature() / daySeconds / float64(c.Processes)
	d.again, d.peakAgain = 1/(1+perSecond), 1/(1+perSecond*t.Peak)
	if counters.shut {
		return d
	}
	for l := counters.finest; l <= counters.coarsest; l++ {
		span, length := c.span(counters, l), float64(l.Seconds())
		items, day := t.buckets(length, span), daySeconds/length*t.active(length, 1)
		d.levels[l] = levelDemand{
			items: items, made: day / t.Events, aDay: day / t.Features, value: t.events(span) / items,
		}
		// The first bucket of all has none beside it.
		if span > length {
			d.levels[l].beside = t.active(length, 1) / t.Features
		}
	}
	d.live = 1
	if !counters.whole() {
		// A feature that comes back the next day is one counter, others are two: this is the
		// greater number.
		d.live = t.buckets(daySeconds, c.span(counters, counters.coarsest))
	}
	return d
}

// span returns for how many seconds the buckets of a level have been gathering: as long as
// they live, unless the servers have not been filled for so long.
func (c Config) span(counters counters, l hierarchy.Level) float64 {
	span := counters.life(l, c.Grace)
	if c.filled > 0 {
		span = min(span, c.filled)
	}
	return span.Seconds()
}
