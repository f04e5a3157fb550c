package plan

import (
	"context"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
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
	p := planning{config: c, report: Report{Replicas: c.Replicas}, items: held{}}
	if c.Log != nil {
		err = p.fromLog(ctx, chosen[0])
	} else {
		err = p.fromAmounts(chosen)
	}
	if err != nil {
		return nil, err
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
		var demands []demand
		for _, counter := range countersOf(event) {
			t, err := p.config.trafficOf(event, counter)
			if err != nil {
				return err
			}
			demands = append(demands, p.config.modelled(counter, t))
		}
		perDay, _ := p.config.Events.of(event.Name+"/", "")
		p.add(event.Name, perDay/daySeconds, perDay/daySeconds*p.config.Peak, demands)
	}
	p.report.Assumptions = p.config.assumptions()
	return nil
}

// add adds an event with so many hits a second, on average and at the peak, each of which is
// one request for all its counters.
func (p *planning) add(event string, hits, peak float64, demands []demand) {
	e := Event{Name: event, Counters: []Counter{}}
	for _, d := range demands {
		counter := p.counter(d)
		e.Counters = append(e.Counters, counter)
		e.Total.add(counter.Total)
	}
	e.Total.Average.Hits, e.Total.Peak.Hits = hits, peak
	for _, r := range []*Rates{&e.Total.Average, &e.Total.Peak} {
		r.CounterdCPU += r.Hits * requestCost.Seconds()
	}
	p.report.Events = append(p.report.Events, e)
	p.report.Total.add(e.Total)
}

// counter returns what a demand takes, and adds to the items of all.
func (p *planning) counter(d demand) Counter {
	c := Counter{
		Per: d.per, Limits: append([]string{}, d.limits...), Retention: events.FormatDuration(d.counter.Retention),
		FeaturesADay: d.features, Levels: []Level{}, Total: Figures{Counters: d.live},
	}
	items := held{}
	if d.logged {
		p.addLogs(&d, &c, items)
	}
	for l := d.finest; l <= d.coarsest && !d.logged; l++ {
		level := d.levels[l]
		n, value := level.items*float64(p.config.Replicas), digits(level.value)
		c.Total.Items += n
		c.Total.ItemBytes += n * float64(memcache.ItemBytes(value))
		items[memcache.ChunkBytes(value)] += n
		p.items[memcache.ChunkBytes(value)] += n
		c.Levels = append(c.Levels, Level{Level: l.String(), Lives: d.life(l).String(), ADay: level.aDay, Items: n})
	}
	c.Total.SlabBytes = items.slabBytes()
	c.Total.Average = p.rates(d, d.hits, d.reread)
	c.Total.Peak = p.rates(d, d.peak, d.peakReread)
	if d.whole() {
		p.hot.add(c.Total.Peak)
	}
	return c
}

// rates returns what so many hits a second take, a part of which reads closed buckets.
func (p *planning) rates(d demand, hits, reread float64) Rates {
	if d.logged {
		return p.logRates(&d, hits)
	}
	far := farReadsOf(d.counter, d.windows, hierarchy.DefaultGrace)
	trips := hits * float64(p.config.Replicas)
	var made, reads, found, value, wire float64
	for l := d.finest; l <= d.coarsest; l++ {
		level := d.levels[l]
		n := far.closed[l]*reread + far.open[l]
		reads += n
		found += n * level.beside
		value = max(value, level.value)
		wire += wireBytesOfAdd(d.life(l), level.value)
		made += level.made * trips
	}
	r := Rates{
		Hits: hits, Trips: trips, Adds: trips * float64(d.coarsest-d.finest+1), Reads: trips * reads,
		WireBytes: trips * (wire + wireBytesOfReads(reads, found, value)), CounterdCPU: trips * exchangeCost.Seconds(),
	}
	r.MemcachedCPU = tripCost.Seconds()*r.Trips + addCost.Seconds()*r.Adds + newCost.Seconds()*made + readCost.Seconds()*r.Reads
	return r
}
