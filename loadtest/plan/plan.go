package plan

import (
	"context"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

// Run makes the plan. Only a log takes time; an error is a fault of the config or of the log,
// or the context's.
func Run(ctx context.Context, config Config) (*Report, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	c := config.withDefaults()
	chosen, err := c.chosen()
	if err != nil {
		return nil, err
	}
	p := planning{config: c, report: Report{Replicas: c.Replicas}}
	if c.Log != nil {
		err = p.fromLog(ctx, chosen[0])
	} else {
		err = p.fromAmounts(chosen)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range p.report.Events {
		p.report.Total.add(e.Total)
	}
	p.report.Total.SlabBytes = p.items.slabBytes()
	p.report.Servers, err = p.servers()
	return &p.report, err
}

// planning is a plan in the making.
type planning struct {
	config Config
	report Report
	hot    Rates // at the peak, of counters of whole events: each is on one server per replica
	items  held
}

func (p *planning) fromAmounts(chosen []*events.Event) error {
	for _, event := range chosen {
		perDay, _ := p.config.Events.of(event.Name, "")
		p.begin(event, perDay/daySeconds, perDay/daySeconds*p.config.Peak)
		for _, counter := range countersOf(event) {
			t, err := p.config.trafficOf(event, counter)
			if err != nil {
				return err
			}
			p.add(counter, p.config.modelled(counter, t))
		}
	}
	p.report.Assumptions = p.config.assumptions()
	return nil
}

// begin begins an event. A hit on it is one request for all its counters.
func (p *planning) begin(event *events.Event, hits, peak float64) {
	e := Event{Name: event.Name, Counters: []Counter{}}
	e.Total.Average.Hits, e.Total.Peak.Hits = hits, peak
	for _, r := range []*Rates{&e.Total.Average, &e.Total.Peak} {
		r.CounterdCPU = r.Hits * requestCost.Seconds()
	}
	p.report.Events = append(p.report.Events, e)
}

// add adds counters to the event.
func (p *planning) add(c counters, d demand) {
	copies := float64(p.config.Replicas)
	counter := Counter{
		Per: c.per, Limits: append([]string{}, c.limits...), Retention: events.FormatDuration(c.counter.Retention),
		FeaturesADay: d.features, Levels: []Level{}, Shut: c.shut,
	}
	figures := &counter.Total
	figures.Counters = d.live
	var items held
	for l := c.finest; l <= c.coarsest && !c.shut; l++ {
		level := d.levels[l]
		n, bytes := level.items*copies, itemBytes(level.value)
		figures.Items += n
		figures.ItemBytes += n * bytes
		items[classOf(bytes)] += n
		counter.Levels = append(counter.Levels, Level{Level: l.String(), Lives: c.life(l).String(), ADay: level.aDay, Items: n})
	}
	figures.SlabBytes = items.slabBytes()
	for class := range items {
		p.items[class] += items[class]
	}
	var far hierarchy.FarReads
	if !c.shut {
		far = hierarchy.FarReadsOf(c.counter, c.windows, hierarchy.DefaultGrace)
	}
	figures.Average = p.rates(c, d, far, d.hits, d.reread)
	figures.Peak = p.rates(c, d, far, d.peak, d.peakReread)
	if c.whole() {
		p.hot.add(figures.Peak)
	}
	event := &p.report.Events[len(p.report.Events)-1]
	event.Counters = append(event.Counters, counter)
	hits, peak := event.Total.Average.Hits, event.Total.Peak.Hits
	event.Total.add(*figures)
	event.Total.Average.Hits, event.Total.Peak.Hits = hits, peak
}

// rates returns what so many hits a second take, a part of which reads closed buckets.
func (p *planning) rates(c counters, d demand, far hierarchy.FarReads, hits, reread float64) Rates {
	trips := hits * float64(p.config.Replicas)
	r := Rates{Hits: hits, Trips: trips}
	var made float64
	if c.shut {
		reads := float64(hierarchy.FootprintOf(c.counter, hierarchy.DefaultGrace).Reads)
		r.Reads, r.WireBytes = trips*reads, trips*wireBytesOfReads(reads, 0, 1)
	} else {
		var reads, found, value, wire float64
		for l := c.finest; l <= c.coarsest; l++ {
			level := d.levels[l]
			n := far.Closed[l]*reread + far.Open[l]
			reads += n
			found += n * level.beside
			value = max(value, level.value)
			wire += wireBytesOfAdd(c.life(l), level.value)
			made += level.made * trips
		}
		r.Adds = trips * float64(c.coarsest-c.finest+1)
		r.Reads, r.WireBytes = trips*reads, trips*(wire+wireBytesOfReads(reads, found, value))
	}
	r.MemcachedCPU = tripCost.Seconds()*r.Trips + addCost.Seconds()*r.Adds + newCost.Seconds()*made + readCost.Seconds()*r.Reads
	r.CounterdCPU = exchangeCost.Seconds() * r.Trips
	return r
}
