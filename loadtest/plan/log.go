package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
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

// census counts the buckets that the events of a log make, as they come and expire.
type census struct {
	config Config
	event  *events.Event
	groups []*group // as countersOf has them
	log    Log
	most   int   // items
	minute int64 // in progress
	inIt   int
	busy   int // events of the busiest minute
}

// fromLog plans for the events of the log.
func (p *planning) fromLog(ctx context.Context, event *events.Event) error {
	s := &census{config: p.config, event: event}
	for _, c := range countersOf(event) {
		s.groups = append(s.groups, &group{counters: c, members: map[string]*member{}})
	}
	all := 0
	for at, features := range p.config.Log {
		if all++; all%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.hit(at, features); err != nil {
			return err
		}
	}
	if s.log.Hits == 0 {
		return fmt.Errorf("of %d events in the log none is one that a rule of %s counts", all, event.Name)
	}
	seconds := s.log.seconds()
	hits := float64(s.log.Hits) / seconds
	peak := max(float64(s.busy)/60, hits)
	var longest time.Duration
	var demands []demand
	for _, g := range s.groups {
		d := g.demand(seconds)
		d.peak = d.hits * peak / hits
		demands = append(demands, d)
		longest = max(longest, g.life(g.coarsest))
	}
	p.add(event.Name, hits, peak, demands)
	p.report.Log = &s.log
	p.report.Assumptions = p.config.assumptionsOfLog(s.log, longest)
	return nil
}

// hit counts an event of the log.
func (s *census) hit(at time.Time, features events.Features) error {
	second := at.Unix()
	if s.log.Hits > 0 && second < s.log.Last.Unix() {
		return errors.New("the log is not in the order of time")
	}
	counters := map[string]*group{} // that it adds to, by their identity
	applied, _ := s.event.Apply(nil, features)
	for _, a := range applied {
		if a.Listing == events.Denied && !a.Rule.Shadow {
			s.log.Denied++
			return nil
		}
		of := slices.IndexFunc(s.groups, func(g *group) bool { return g.per == perOf(a.Rule.Per) })
		counters[a.ID] = s.groups[of]
	}
	if len(s.event.Rules) == 0 {
		each, _ := s.event.Counters(features) // features at fault have none
		for _, counter := range each {
			counters[counter.ID()] = s.groups[0]
		}
	}
	if len(counters) == 0 {
		s.log.Skipped++
		return nil
	}
	if s.log.Hits == 0 {
		s.log.First = at.UTC()
	}
	s.log.Hits++
	s.log.Last = at.UTC()
	if second/60 != s.minute {
		s.minute, s.inIt = second/60, 0
	}
	if s.inIt++; s.inIt > s.busy {
		s.busy, s.log.PeakAt = s.inIt, time.Unix(s.minute*60, 0).UTC()
	}
	for _, g := range s.groups {
		g.expire(second)
	}
	for id, g := range counters {
		g.add(id, at, s.log.Hits%s.config.processes)
	}
	items := 0
	for _, g := range s.groups {
		for _, row := range g.levels {
			items += row.items
		}
	}
	if items > s.most {
		s.most = items
		for _, g := range s.groups {
			g.keep()
		}
	}
	return nil
}

// group is the counters of a log per the same kinds.
type group struct {
	counters
	members map[string]*member
	levels  [hierarchy.Levels]row
	live    row // the counters, by their last bucket of the coarsest level
	hits    int
	rereads int // hits that read closed buckets
	days    int // of all features
	kept    demand
}

// member is one counter.
type member struct {
	next   [hierarchy.Levels]int64 // the number behind its last bucket's; 0: it has none
	beside [hierarchy.Levels]bool  // it has the bucket before its last
	day    int64                   // behind that of its last hit
	read   map[int]time.Time       // by process: its last read of closed buckets
}

func (g *group) expire(second int64) {
	for l := g.finest; l <= g.coarsest; l++ {
		gone := func(number int64) bool {
			return hierarchy.Bucket{Level: l, Number: number}.Expires(g.counter.Retention, hierarchy.DefaultGrace) <= second
		}
		g.levels[l].expire(gone)
		if l == g.coarsest {
			g.live.expire(gone)
		}
	}
}

// add counts an event.
func (g *group) add(id string, at time.Time, process int) {
	g.hits++
	m := g.members[id]
	if m == nil {
		m = &member{read: map[int]time.Time{}}
		g.members[id] = m
	}
	if day := hierarchy.BucketAt(hierarchy.Day, at.Unix()).Number + 1; m.day != day {
		m.day = day
		g.days++
	}
	if read, before := m.read[process]; !before || at.Sub(read) >= time.Second {
		m.read[process] = at
		g.rereads++
	}
	for l := g.finest; l <= g.coarsest; l++ {
		number, row := hierarchy.BucketAt(l, at.Unix()).Number, &g.levels[l]
		if last := m.next[l] - 1; last != number {
			row.begin(number)
			m.beside[l] = last == number-1
			if l == g.coarsest {
				g.live.leave(last)
				g.live.begin(number)
			}
			m.next[l] = number + 1
		}
		row.add(m.beside[l])
	}
}

// keep keeps the present numbers as the greatest.
func (g *group) keep() {
	for l, row := range g.levels {
		g.kept.levels[l].items = float64(row.items)
		if row.items > 0 {
			g.kept.levels[l].value = float64(row.events) / float64(row.items)
		}
	}
	g.kept.live = float64(g.live.items)
}

// demand returns what the group counted in so many seconds.
func (g *group) demand(seconds float64) demand {
	d, hits := g.kept, float64(max(g.hits, 1))
	d.counters = g.counters
	d.hits = float64(g.hits) / seconds
	d.features = float64(g.days) / max(seconds/daySeconds, 1)
	d.reread = float64(g.rereads) / hits
	d.peakReread = d.reread
	for l, row := range g.levels {
		d.levels[l].made = float64(row.made) / hits
		d.levels[l].aDay = float64(row.made) / float64(max(g.days, 1))
		d.levels[l].beside = float64(row.beside) / hits
	}
	return d
}

// row is the live buckets of a level, of all counters, the oldest first.
type row struct {
	counts        []bucketCount
	items, events int
	made          int // ever
	beside        int // events of counters with the bucket before, ever
}

// bucketCount is the buckets of one number.
type bucketCount struct {
	number        int64
	items, events int
}

// begin adds a bucket of that number, which is at least the last one.
func (r *row) begin(number int64) {
	if n := len(r.counts); n == 0 || r.counts[n-1].number != number {
		r.counts = append(r.counts, bucketCount{number: number})
	}
	r.counts[len(r.counts)-1].items++
	r.items++
	r.made++
}

// add adds an event to a bucket of the last number.
func (r *row) add(beside bool) {
	r.counts[len(r.counts)-1].events++
	r.events++
	if beside {
		r.beside++
	}
}

// leave removes a bucket of that number, if it is live.
func (r *row) leave(number int64) {
	if i := slices.IndexFunc(r.counts, func(c bucketCount) bool { return c.number == number }); i >= 0 {
		r.counts[i].items--
		r.items--
	}
}

func (r *row) expire(gone func(number int64) bool) {
	for len(r.counts) > 0 && gone(r.counts[0].number) {
		r.items -= r.counts[0].items
		r.events -= r.counts[0].events
		r.counts = r.counts[1:]
	}
}
