package plan

import (
	"errors"
	"fmt"
	"math"
)

const (
	// baseMemory is Memcached's memory beside its items and their table: threads, and buffers
	// of connections.
	baseMemory = 64 << 20
	minMemory  = 256 << 20
	megabyte   = 1 << 20
	megabytes  = 64 // -m is a multiple of it
	maxServers = 10_000
)

// loadOf returns the load of one of so many servers, the busiest at the peak.
func (p *planning) loadOf(servers int) Servers {
	each := p.items.each(servers)
	s := Servers{Items: each.all(), SlabBytes: each.slabBytes(), HashBytes: hashBytes(each.all())}
	s.Megabytes = max(int64(math.Ceil(s.SlabBytes*(1+headroom)/megabyte/megabytes))*megabytes, megabytes)
	// A table that doubles coexists with the one of half its size.
	s.MemoryBytes = float64(s.Megabytes)*megabyte + 1.5*s.HashBytes + baseMemory
	// Counters of whole events are on as many servers as there are replicas; the busiest
	// server has one of each.
	even := 1 / float64(servers)
	hot := max(1/float64(p.config.Replicas)-even, 0)
	peak := p.report.Total.Peak
	s.PeakCPU = peak.MemcachedCPU*even + p.hot.MemcachedCPU*hot
	s.PeakWire = peak.WireBytes*even + p.hot.WireBytes*hot
	return s
}

// servers finds the least number of servers.
func (p *planning) servers() (Servers, error) {
	least := func(fits func(Servers) bool) int {
		for n := p.config.Replicas; n <= maxServers; n++ {
			if fits(p.loadOf(n)) {
				return n
			}
		}
		return 0
	}
	server := p.config.Server
	byMemory := least(func(s Servers) bool { return s.MemoryBytes <= float64(server.Memory) })
	byCPU := least(func(s Servers) bool { return s.PeakCPU <= server.Cores*busy })
	switch {
	case byMemory == 0:
		return Servers{}, fmt.Errorf("%d servers of %s do not hold the items", maxServers, bytesText(float64(server.Memory)))
	case byCPU == 0:
		return Servers{}, errors.New("no number of servers is enough: a counter of a whole event is on one server per replica, and takes more CPU time than it has; give the servers more cores")
	}
	rest := max(byMemory, byCPU)
	s := p.loadOf(rest)
	s.ByMemory, s.ByCPU, s.Needed = byMemory, byCPU, rest+1
	s.CounterdCores = p.report.Total.Peak.CounterdCPU / busy
	return s, nil
}
