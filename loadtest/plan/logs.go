package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/footprint"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/memcache"
)

// modelledLogs returns the demand of traffic on counters that are logs.
func (c Config) modelledLogs(d demand, t Traffic) demand {
	life, window := c.span(d.life(d.finest)), c.span(d.counter.Retention)
	each := t.Events / t.Features // in a day
	items := t.buckets(min(life, daySeconds), life)
	if d.whole() {
		items = 1
	}
	part := min(life/daySeconds, 1)
	gone := math.Pow(1-part, each) // no other hit of the day is as near before
	created := 1 - gone + each*gone
	d.levels[d.finest] = levelDemand{items: items, made: created / each, aDay: created}
	if c.filled > 0 { // no log is older
		d.levels[d.finest].made = max(created/each, daySeconds/each/c.filled.Seconds())
	}
	d.live = items
	times := 1.
	if window < daySeconds {
		times = min(t.Peak, daySeconds/window)
	}
	most, _, _ := footprint.Spread(d.bounds, d.counter.Retention.Milliseconds(), young, d.waits)
	d.logs = map[int64]float64{}
	for hits, part := range spread(each, min(window*times/daySeconds, 1)) {
		d.logs[min(hits, most)] += part * items
	}
	return d
}

// spread returns which part of the counters with a hit has how many, if a counter has so many in a
// day, each in the window with that probability.
func spread(each, part float64) map[int64]float64 {
	const many = 1000 // of which as many as on the average are close enough
	all := math.Ceil(each)
	part *= each / all
	if all > many || part == 1 {
		return map[int64]float64{max(int64(all*part+0.5), 1): 1}
	}
	parts := map[int64]float64{}
	none := math.Pow(1-part, all)
	for hits, p := 1., none; hits <= all; hits++ {
		p *= (all - hits + 1) / hits * part / (1 - part)
		parts[int64(hits)] = p / (1 - none)
	}
	return parts
}

// logSizes is what logs of so many hits take.
type logSizes struct {
	sizes []int // that come up in the end, equally often
	// On the average of all hits of a log:
	mean     float64
	rewrites float64 // by a hit
}

// phase sums up the hits of a log before its window is full, or after.
type phase struct{ hits, bytes, rewrites float64 }

func (p *phase) add(size, before, entry int) {
	p.hits, p.bytes = p.hits+1, p.bytes+float64(size)
	if size < before+entry && before > 0 {
		p.rewrites++
	}
}

// sizesOf returns the sizes of logs that have so many hits, and come to all in their lives.
func (d *demand) sizesOf(hits int64, all float64) (s logSizes) {
	const enough = 200 // hits, for all sizes to come up
	var growing, full phase
	last, before := min(int64(all+0.5), hits+enough), 0
	extensions := d.extensions(all) / all // by a hit
	growth := footprint.Growth(d.bounds, d.counter.Retention.Milliseconds(), young, d.waits, hits, 1/extensions)
	if d.leases {
		growth = footprint.LeasesGrowth(d.bounds[0], young, hits, 1/extensions)
	}
	for size := range growth {
		if growing.hits < float64(hits) {
			growing.add(size, before, d.entry())
		} else {
			full.add(size, before, d.entry())
		}
		if growing.hits == float64(hits) {
			s.sizes = append(s.sizes, size)
		}
		if before = size; int64(growing.hits+full.hits) >= max(last, hits) {
			break
		}
	}
	later := max(all-growing.hits, 0) / max(full.hits, 1)
	total := growing.hits + later*full.hits
	s.mean = (growing.bytes + later*full.bytes) / total
	// Of a log that is extended less than once on the average none was added.
	s.rewrites = max((growing.rewrites+later*full.rewrites)/total, extensions)
	return s
}

// extensions returns how often a log of so many hits is rewritten to live for longer.
func (d *demand) extensions(all float64) (n float64) {
	life := float64(d.life(d.finest).Milliseconds())
	need, distance := int64(life*4/5), 1000*d.features/max(d.hits, 1e-9)
	spare, renewal := journal.Spare(need, 0)
	for hits := all - 1; hits > 0 && distance < life; n++ {
		age := float64(spare - renewal)
		needed := 1 + age/distance // hits at random
		if hits < needed {
			return n + hits/needed
		}
		hits -= needed
		spare, renewal = journal.Spare(need, int64(age+distance))
	}
	return n
}

// young is for how long a hit has an identity, in milliseconds.
const young = int64(2 * events.DefaultGrace / time.Millisecond)

// entry returns the bytes that a hit adds to a log.
func (d *demand) entry() int {
	if d.leases {
		return 26
	}
	return 15
}

// addLogs adds the logs of a demand to a counter and to its items.
func (p *planning) addLogs(d *demand, c *Counter, items held) {
	all := 1 / max(d.levels[d.finest].made, 1e-9)
	for hits, n := range d.logs {
		s := d.sizesOf(hits, all)
		n *= float64(p.config.Replicas)
		for _, size := range s.sizes {
			part := n / float64(len(s.sizes))
			c.Total.ItemBytes += part * float64(memcache.ItemBytesOfData(size))
			items[memcache.ChunkBytesOfData(size)] += part
			p.items[memcache.ChunkBytesOfData(size)] += part
		}
	}
	level := d.levels[d.finest]
	c.Total.Items += level.items * float64(p.config.Replicas)
	c.Levels = append(c.Levels, Level{Level: "log", Lives: d.life(d.finest).String(), ADay: level.aDay, Items: level.items * float64(p.config.Replicas)})
}

// logRates returns what so many hits a second on logs take: each appends to its log and reads it.
// The first one of a log creates it, and now and then one rewrites it.
func (p *planning) logRates(d *demand, hits float64) Rates {
	created := d.levels[d.finest].made
	var mean, rewrites, logs float64
	for n, part := range d.logs {
		s := d.sizesOf(n, 1/max(created, 1e-9))
		mean, rewrites, logs = mean+part*s.mean, rewrites+part*s.rewrites, logs+part
	}
	mean, rewrites = mean/max(logs, 1e-9), rewrites/max(logs, 1e-9)
	trips := hits * float64(p.config.Replicas)
	entry := d.entry()
	wire := wireBytesOfLog(mean, entry) + created*(wireBytesOfLog(mean, entry)+wireBytesOfSwap(mean)) + rewrites*wireBytesOfSwap(mean)
	r := Rates{
		Hits: hits, Trips: trips * (1 + created + rewrites), Adds: trips * (1 + 2*created + rewrites), Reads: trips * (1 + created), WireBytes: trips * wire,
	}
	r.CounterdCPU = r.Trips * exchangeCost.Seconds()
	r.MemcachedCPU = tripCost.Seconds()*r.Trips + (addCost+newCost).Seconds()*r.Adds + readCost.Seconds()*r.Reads
	return r
}

// wireBytesOfLog returns the bytes of an append of a hit, and of a read of the log.
func wireBytesOfLog(size float64, entry int) float64 {
	request := "append  0 0 15\r\n\r\nmg  v c f Oabc\r\n"
	answer := "STORED\r\nVA 150 c12345 f3085 Oabc\r\n\r\n"
	return float64(len(request)+2*keyBytes+entry+len(answer)) + size
}

// wireBytesOfSwap returns the bytes of a write of a log.
func wireBytesOfSwap(size float64) float64 {
	return float64(len(fmt.Sprintf("cas  3085 3607 %d 12345\r\n\r\nSTORED\r\n", int(size)))+keyBytes) + size
}
