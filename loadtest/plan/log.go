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

	applied []events.Applied
	most    int   // items
	minute  int64 // in progress
	inIt    int
	busy    int // events of the busiest minute
}

// fromLog plans for the events of the log.
func (p *planning) fromLog(ctx context.Context, event *events.Event) error {
	s := &census{config: p.config, event: event}
	for _, c := range countersOf(event) {
		s.groups = append(s.groups, newGroup(c))
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
	p.begin(event, hits, peak)
	var longest time.Duration
	for _, g := range s.groups {
		d := g.demand(seconds)
		d.peak = d.hits * peak / hits
		p.add(g.counters, d)
		longest = max(longest, g.counters.life(g.counters.coarsest, p.config.Grace))
	}
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
	hit, denied := s.countersOf(features)
	switch {
	case denied:
		s.log.Denied++
		return nil
	case len(hit) == 0:
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
		g.expire(second, s.config.Grace)
	}
	for _, h := range hit {
		s.groups[h.group].add(h.id, at, s.log.Hits%s.config.Processes)
	}
	items := 0
	for _, g := range s.groups {
		items += g.items()
	}
	if items > s.most {
		s.most = items
		for _, g := range s.groups {
			g.keep()
		}
	}
	return nil
}

// counterHit is a counter of a hit, and the index of its group.
type counterHit struct {
	id    string
	group int
}

// countersOf returns the counters that a hit adds to.
func (s *census) countersOf(features events.Features) (list []counterHit, denied bool) {
	if len(s.event.Rules) == 0 {
		all, _ := s.event.Counters(features) // features at fault have none
		for _, counter := range all {
			list = append(list, counterHit{counter.ID(), 0})
		}
		return list, false
	}
	var err error
	if s.applied, err = s.event.Apply(s.applied[:0], features); err != nil {
		return nil, false
	}
	for i := range s.applied {
		a := &s.applied[i]
		if a.Listing == events.Denied && !a.Rule.Shadow {
			return nil, true
		}
		if slices.ContainsFunc(list, func(h counterHit) bool { return h.id == a.ID }) {
			continue
		}
		of := slices.IndexFunc(s.groups, func(g *group) bool { return g.counters.per == perOf(a.Rule.Per) })
		list = append(list, counterHit{a.ID, of})
	}
	return list, false
}

// group is the counters of a log per the same kinds.
type group struct {
	counters counters
	members  map[string]*member
	levels   [hierarchy.Levels]row
	live     row // the counters, by their last bucket of the coarsest level
	hits     int
	rereads  int // hits that read closed buckets
	days     int // of all features
	kept     demand
}

// member is one counter.
type member struct {
	last   [hierarchy.Levels]int64 // its last bucket's number
	beside [hierarchy.Levels]bool  // it has the bucket before that
	day    int64                   // of its last hit
	read   map[int]time.Time       // by process: its last read of closed buckets
}

const noBucket = -1 << 62

func newGroup(c counters) *group { return &group{counters: c, members: map[string]*member{}} }

func (g *group) expire(second int64, grace time.Duration) {
	for l := g.counters.finest; l <= g.counters.coarsest; l++ {
		gone := func(number int64) bool {
			return hierarchy.Bucket{Level: l, Number: number}.Expires(g.counters.counter.Retention, grace) <= second
		}
		g.levels[l].expire(gone)
		if l == g.counters.coarsest {
			g.live.expire(gone)
		}
	}
}

// add counts an event.
func (g *group) add(id string, at time.Time, process int) {
	g.hits++
	m := g.members[id]
	if m == nil {
		m = &member{last: [hierarchy.Levels]int64{noBucket, noBucket, noBucket, noBucket}, day: noBucket, read: map[int]time.Time{}}
		g.members[id] = m
	}
	if day := hierarchy.BucketAt(hierarchy.Day, at.Unix()).Number; m.day != day {
		m.day = day
		g.days++
	}
	if read, before := m.read[process]; !before || at.Sub(read) >= time.Second {
		m.read[process] = at
		g.rereads++
	}
	if g.counters.shut {
		return
	}
	for l := g.counters.finest; l <= g.counters.coarsest; l++ {
		number, row := hierarchy.BucketAt(l, at.Unix()).Number, &g.levels[l]
		if m.last[l] != number {
			row.begin(number)
			m.beside[l] = m.last[l] == number-1
			if l == g.counters.coarsest {
				g.live.leave(m.last[l])
				g.live.begin(number)
			}
			m.last[l] = number
		}
		row.add(m.beside[l])
	}
}

func (g *group) items() (sum int) {
	for _, row := range g.levels {
		sum += row.items
	}
	return sum
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
