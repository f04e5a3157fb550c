package plan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
)

// Log is what was in a log.
type Log struct {
	Hits    int       `json:"hits"`    // that the rules apply to
	Denied  int       `json:"denied"`  // that a deny list keeps from being counted
	Skipped int       `json:"skipped"` // that no rule applies to
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	PeakAt  time.Time `json:"peak_at"` // the busiest minute
}

// seconds returns how long it is, a minute at least.
func (l Log) seconds() float64 { return max(l.Last.Sub(l.First).Seconds()+1, 60) }

// planLog plans for what is in the log: for one event.
func (c Config) planLog(ctx context.Context, event *events.Event) (*Report, error) {
	m := newMeasuring(c, event)
	for at, features := range c.Log {
		if m.all++; m.all%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := m.hit(at, features); err != nil {
			return nil, err
		}
	}
	if m.log.Hits == 0 {
		return nil, fmt.Errorf("of %d events in the log none is one that a rule of %s counts", m.all, event.Name)
	}
	return m.plan()
}

// measuring counts the buckets that the events of a log make, as they come and expire.
type measuring struct {
	config Config
	event  *events.Event
	census []*census // as countersOf has them
	log    Log
	all    int
	now    int64

	list   []events.Applied
	most   float64 // items, in all
	minute int64   // that is being counted
	inIt   int
	busy   int // events of the busiest minute
}

func newMeasuring(c Config, event *events.Event) *measuring {
	m := &measuring{config: c, event: event}
	for _, counter := range countersOf(event) {
		m.census = append(m.census, newCensus(counter, c))
	}
	return m
}

// hit counts an event of the log.
func (m *measuring) hit(at time.Time, features events.Features) error {
	second := at.Unix()
	if second < m.now {
		return errors.New("the log is not in the order of time")
	}
	named, denied, err := m.countersOf(features)
	switch {
	case denied:
		m.log.Denied++
		return nil
	case err != nil || len(named) == 0:
		m.log.Skipped++
		return nil
	}
	if m.log.Hits == 0 {
		m.log.First = at.UTC()
	}
	m.log.Last, m.now = at.UTC(), second
	m.log.Hits++
	m.count(second)
	for _, census := range m.census {
		census.expire(second)
	}
	for _, n := range named {
		m.census[n.census].add(n.id, at, m.log.Hits%m.config.Processes)
	}
	m.compare()
	return nil
}

// count counts the events of each minute.
func (m *measuring) count(second int64) {
	if minute := second / 60; minute != m.minute {
		m.minute, m.inIt = minute, 0
	}
	if m.inIt++; m.inIt > m.busy {
		m.busy, m.log.PeakAt = m.inIt, time.Unix(m.minute*60, 0).UTC()
	}
}

// compare keeps how things are if there have never been as many items.
func (m *measuring) compare() {
	items := 0.
	for _, census := range m.census {
		items += census.items()
	}
	if items <= m.most {
		return
	}
	m.most = items
	for _, census := range m.census {
		census.keep()
	}
}

// named is a counter, and the census that it belongs to.
type named struct {
	id     string
	census int
}

// countersOf returns the counters that a hit adds to.
func (m *measuring) countersOf(features events.Features) (list []named, denied bool, err error) {
	if len(m.event.Rules) == 0 {
		all, err := m.event.Counters(features)
		for _, counter := range all {
			list = append(list, named{counter.ID(), 0})
		}
		return list, false, err
	}
	if m.list, err = m.event.Apply(m.list[:0], features); err != nil {
		return nil, false, err
	}
	for i := range m.list {
		a := &m.list[i]
		if a.Listing == events.Denied && !a.Rule.Shadow {
			return nil, true, nil
		}
		if i > 0 && containsID(list, a.ID) {
			continue
		}
		for j, census := range m.census {
			if census.counters.per == perOf(a.Rule.Per) {
				list = append(list, named{a.ID, j})
			}
		}
	}
	return list, false, nil
}

func containsID(list []named, id string) bool {
	for _, n := range list {
		if n.id == id {
			return true
		}
	}
	return false
}

// plan makes the plan of what was counted.
func (m *measuring) plan() (*Report, error) {
	p := planning{config: m.config}
	seconds := m.log.seconds()
	peak := max(float64(m.busy)/60, float64(m.log.Hits)/seconds)
	p.begin(m.event, float64(m.log.Hits)/seconds, peak)
	longest := time.Duration(0)
	for _, census := range m.census {
		d := census.demand(seconds)
		d.peak = d.hits * peak / (float64(m.log.Hits) / seconds)
		p.plan(census.counters, d)
		longest = max(longest, census.counters.life(census.counters.coarsest, m.config.Grace))
	}
	p.report.Log = &m.log
	return p.end(m.config.measured(m.log, longest))
}
