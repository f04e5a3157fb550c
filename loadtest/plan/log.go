package plan

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog/footprint"
)

// Log sums up a log.
type Log struct {
	Hits    int       `json:"hits"`    // that rules apply to
	Denied  int       `json:"denied"`  // by a deny list, and not counted
	Skipped int       `json:"skipped"` // that no rule applies to
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	PeakAt  time.Time `json:"peak_at"` // the busiest minute
}

// seconds returns its length, a minute at least.
func (l Log) seconds() float64 { return max(l.Last.Sub(l.First).Seconds()+1, 60) }

// census is what the events of a log are counted by.
type census struct {
	event  *events.Event
	groups []*group // as countersOf has them
	log    Log
	busy   map[int64]int // events by their minute
}

// group is the counters of a log per the same kinds.
type group struct {
	counters
	visits map[string][]visit // of each counter, by its identity
}

// visit is an event on a counter.
type visit struct {
	at      time.Time
	process int // of counterd
}

// fromLog plans for the events of the log.
func (p *planning) fromLog(ctx context.Context, event *events.Event) error {
	s := &census{event: event, busy: map[int64]int{}}
	for _, c := range countersOf(event) {
		s.groups = append(s.groups, &group{c, map[string][]visit{}})
	}
	all := 0
	for at, features := range p.config.Log {
		if all++; all%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if s.log.Hits > 0 && at.Before(s.log.Last) {
			return errors.New("the log is not in the order of time")
		}
		s.hit(visit{at.UTC(), all % p.config.processes}, features)
	}
	if s.log.Hits == 0 {
		return fmt.Errorf("of %d events in the log none is one that a rule of %s counts", all, event.Name)
	}
	most := 0
	for _, minute := range slices.Sorted(maps.Keys(s.busy)) {
		if n := s.busy[minute]; n > most {
			most, s.log.PeakAt = n, time.Unix(minute*60, 0).UTC()
		}
	}
	hits := float64(s.log.Hits) / s.log.seconds()
	peak := max(float64(most)/60, hits)
	second := s.fullest()
	var longest time.Duration
	var demands []demand
	for _, g := range s.groups {
		d := g.demand(s.log.seconds(), second)
		d.peak = d.hits * peak / hits
		demands = append(demands, d)
		longest = max(longest, g.life(g.coarsest))
	}
	p.add(event.Name, hits, peak, demands)
	p.report.Log = &s.log
	p.report.Assumptions = p.config.assumptionsOfLog(s.log, longest)
	return nil
}

// hit adds an event of the log to its counters.
func (s *census) hit(v visit, features events.Features) {
	type counter struct {
		group *group
		id    string
	}
	counters := map[counter]bool{}
	applied, _ := s.event.Apply(nil, features)
	for _, a := range applied {
		if a.Listing == events.Denied && !a.Rule.Shadow {
			s.log.Denied++
			return
		}
		of := slices.IndexFunc(s.groups, func(g *group) bool { return g.counts(a.Rule) })
		counters[counter{s.groups[of], a.ID}] = true
	}
	if len(s.event.Rules) == 0 {
		each, _ := s.event.Counters(features) // features at fault have none
		for _, c := range each {
			counters[counter{s.groups[0], c.ID()}] = true
		}
	}
	if len(counters) == 0 {
		s.log.Skipped++
		return
	}
	if s.log.Hits == 0 {
		s.log.First = v.at
	}
	s.log.Hits++
	s.log.Last = v.at
	s.busy[v.at.Unix()/60]++
	for c := range counters {
		c.group.visits[c.id] = append(c.group.visits[c.id], v)
	}
}

// fullest returns the first second in which the log makes the most items.
func (s *census) fullest() (second int64) {
	changes := map[int64]int{} // of the number of items
	for _, g := range s.groups {
		for _, visits := range g.visits {
			for _, b := range g.buckets(visits) {
				changes[b.first]++
				changes[b.expires]--
			}
		}
	}
	items, most := 0, 0
	for _, at := range slices.Sorted(maps.Keys(changes)) {
		if items += changes[at]; items > most {
			second, most = at, items
		}
	}
	return second
}

// bucket is one that a log makes: it is there from its first event on until it expires.
type bucket struct {
	first, expires int64
	visits         []visit
	beside         bool // the counter has the bucket before it
}

// logs yields the logs that visits of a counter make one after the other, as buckets do.
func (g *group) logs(visits []visit) iter.Seq2[hierarchy.Level, bucket] {
	return func(yield func(hierarchy.Level, bucket) bool) {
		life := int64(g.life(g.finest) / time.Second)
		for rest := visits; len(rest) > 0; {
			end := 1
			for end < len(rest) && rest[end].at.Unix() < rest[end-1].at.Unix()+life {
				end++
			}
			if !yield(g.finest, bucket{rest[0].at.Unix(), rest[end-1].at.Unix() + life, rest[:end], false}) {
				return
			}
			rest = rest[end:]
		}
	}
}

// held returns how many of the visits are in the log in the second, at least one.
func (g *group) held(visits []visit, second int64) (hits int64) {
	for _, v := range visits {
		if at := v.at.Unix(); at <= second && at > second-int64(g.counter.Retention/time.Second) {
			hits++
		}
	}
	return max(hits, 1)
}

// buckets yields the buckets that visits of a counter make, with their levels.
func (g *group) buckets(visits []visit) iter.Seq2[hierarchy.Level, bucket] {
	if g.logged {
		return g.logs(visits)
	}
	return func(yield func(hierarchy.Level, bucket) bool) {
		for l := g.finest; l <= g.coarsest; l++ {
			before := int64(-1)
			for rest := visits; len(rest) > 0; {
				first := rest[0].at.Unix()
				in := hierarchy.BucketAt(l, first)
				end := slices.IndexFunc(rest, func(v visit) bool { return v.at.Unix() > in.Last() })
				if end < 0 {
					end = len(rest)
				}
				b := bucket{first, in.Expires(g.counter.Retention, hierarchy.DefaultGrace), rest[:end], in.Number-1 == before}
				if !yield(l, b) {
					return
				}
				before, rest = in.Number, rest[end:]
			}
		}
	}
}

// demand returns what the log of so many seconds does to the counters; items are those of the
// second.
func (g *group) demand(seconds float64, second int64) demand {
	d := demand{counters: g.counters, logs: map[int64]float64{}}
	most, _, _ := footprint.Spread(g.bounds, g.counter.Retention.Milliseconds(), young, g.waits)
	var hits, days, rereads float64
	for _, visits := range g.visits {
		hits += float64(len(visits))
		read := map[int]time.Time{} // by process: its last read of closed buckets
		day := int64(-1)
		for _, v := range visits {
			if last, before := read[v.process]; !before || v.at.Sub(last) >= time.Second {
				read[v.process] = v.at
				rereads++
			}
			if today := hierarchy.BucketAt(hierarchy.Day, v.at.Unix()).Number; today != day {
				day = today
				days++
			}
		}
		live := 0.
		for l, b := range g.buckets(visits) {
			level := &d.levels[l]
			level.made++
			if b.beside {
				level.beside += float64(len(b.visits))
			}
			if b.first <= second && second < b.expires {
				live = 1
				level.items++
				if g.logged {
					d.logs[min(g.held(b.visits, second), most)]++
				}
				for _, v := range b.visits {
					if v.at.Unix() <= second {
						level.value++
					}
				}
			}
		}
		d.live += live
	}
	d.hits = hits / seconds
	d.features = days / max(seconds/daySeconds, 1)
	d.reread = rereads / max(hits, 1)
	d.peakReread = d.reread
	for l := range d.levels {
		level := &d.levels[l]
		level.value /= max(level.items, 1)
		level.aDay = level.made / max(days, 1)
		level.made /= max(hits, 1)
		level.beside /= max(hits, 1)
	}
	return d
}
