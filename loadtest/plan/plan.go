package plan

import (
	"cmp"
	"context"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

// Run makes the plan. Only a log takes time; the error is then that of the log, or of the
// context when it ends.
func Run(ctx context.Context, config Config) (*Report, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	chosen, err := config.chosen()
	if err != nil {
		return nil, err
	}
	if config.Log != nil {
		return config.planLog(ctx, chosen[0])
	}
	return config.planTraffic(chosen)
}

func (c Config) planTraffic(chosen []*events.Event) (*Report, error) {
	p := planning{config: c}
	for _, event := range chosen {
		perDay, _ := c.Events.of(event.Name, "")
		p.begin(event, perDay/daySeconds, perDay/daySeconds*c.Peak)
		for _, counter := range countersOf(event) {
			t, err := c.trafficOf(event, counter)
			if err != nil {
				return nil, err
			}
			p.plan(counter, c.modelled(counter, t))
		}
	}
	return p.end(c.assumptions(chosen))
}

// planning is a plan that is being made.
type planning struct {
	config Config
	report Report
	hot    Rates // at the peak, on counters of whole events: each is on one server for each copy
	items  held
}

// begin begins the plan of an event. A hit on it is one request, whatever its counters.
func (p *planning) begin(event *events.Event, hits, peak float64) {
	e := Event{Name: event.Name, Counters: []Counter{}}
	e.Total.Average.Hits, e.Total.Peak.Hits = hits, peak
	p.report.Events = append(p.report.Events, e)
	p.request(&p.report.Events[len(p.report.Events)-1].Total)
}

// request adds what a hit costs whatever its counters.
func (p *planning) request(total *Figures) {
	costs := p.config.Costs
	for _, r := range []*Rates{&total.Average, &total.Peak} {
		r.CounterdCPU = r.Hits * cmp.Or(costs.CounterdHit, costs.Request).Seconds()
		r.MemcachedCPU = r.Hits * costs.MemcachedHit.Seconds()
	}
}

// plan plans for the counters of a kind.
func (p *planning) plan(c counters, d demand) {
	event := &p.report.Events[len(p.report.Events)-1]
	counter := Counter{
		Per: c.per, Limits: append([]string{}, c.limits...), Retention: events.FormatDuration(c.counter.Retention),
		FeaturesADay: d.features, Levels: []Level{}, Shut: c.shut,
	}
	copies := float64(p.config.Replicas)
	figures := &counter.Total
	figures.Counters = d.live
	var items held
	for l := c.finest; l <= c.coarsest && !c.shut; l++ {
		level := d.levels[l]
		own := itemBytes(level.value)
		figures.Items += level.items * copies
		figures.ItemBytes += level.items * copies * own
		items[classOf(own)] += level.items * copies
		counter.Levels = append(counter.Levels, Level{
			Level: l.String(), Lives: c.life(l, p.config.Grace).String(),
			ADay: level.aDay, Items: level.items * copies,
		})
	}
	figures.SlabBytes = items.slabBytes()
	for class := range items {
		p.items[class] += items[class]
	}
	var far hierarchy.FarReads
	if !c.shut {
		far = hierarchy.FarReadsOf(c.counter, c.windows, p.config.Grace) // it takes milliseconds: once
	}
	figures.Average = p.rates(c, d, far, d.hits, d.again)
	figures.Peak = p.rates(c, d, far, d.peak, d.peakAgain)
	if c.whole() {
		p.hot.add(figures.Peak)
	}
	event.Counters = append(event.Counters, counter)
	event.Total.add(sum(*figures))
}

// sum returns the figures without the hits, which are the event's.
func sum(f Figures) Figures {
	f.Average.Hits, f.Peak.Hits = 0, 0
	return f
}

// rates returns what so many hits a second take, of which that part has to read what is
// remembered for a second.
func (p *planning) rates(c counters, d demand, far hierarchy.FarReads, hits, again float64) Rates {
	copies := float64(p.config.Replicas)
	r := Rates{Hits: hits, Trips: hits * copies}
	var made float64
	if c.shut {
		r.Reads = hits * copies * float64(hierarchy.FootprintOf(c.counter, p.config.Grace).Reads)
		r.WireBytes = hits * copies * wireBytesOfReads(r.Reads/hits/copies, 0, 1)
	} else {
		var reads, found, value, wire float64
		for l := c.finest; l <= c.coarsest; l++ {
			level := d.levels[l]
			n := far.Closed[l]*again + far.Open[l]
			reads += n
			found += n * level.beside
			value = max(value, level.value)
			wire += wireBytesOfAdd(c.life(l, p.config.Grace), level.value)
			made += level.made * hits * copies
		}
		r.Adds = hits * copies * float64(c.coarsest-c.finest+1)
		r.Reads = hits * copies * reads
		r.WireBytes = hits * copies * (wire + wireBytesOfReads(reads, found, value))
	}
	costs := p.config.Costs
	if costs.MemcachedHit == 0 {
		r.MemcachedCPU = times(costs.Trip, r.Trips) + times(costs.Add, r.Adds) + times(costs.New, made) + times(costs.Read, r.Reads)
	}
	if costs.CounterdHit == 0 {
		r.CounterdCPU = times(costs.Exchange, r.Trips)
	}
	return r
}

// end makes the sums.
func (p *planning) end(assumptions []string) (*Report, error) {
	r := &p.report
	r.Replicas = p.config.Replicas
	for _, e := range r.Events {
		r.Total.add(e.Total)
	}
	r.Total.SlabBytes = p.items.slabBytes()
	r.Assumptions = assumptions
	var err error
	r.Servers, err = p.servers()
	return r, err
}
