package plan

import (
	"errors"
	"fmt"
	"math"
)

const (
	// baseMemory is what Memcached takes beside its items and their table: itself, its
	// threads, and buffers of connections, of which a process of counterd has two.
	baseMemory = 64 << 20
	// minMemory leaves room for the smallest -m that makes sense.
	minMemory   = 256 << 20
	megabyte    = 1 << 20
	minMegabyte = 64
	megabytes   = 64 // -m is a multiple of this many
	maxServers  = 10_000
)

// share is what one of several servers has.
type share struct {
	held           held
	slabs, hash    float64
	megabytes      int64
	memory         float64
	cpu, wireBytes float64 // a second, at the peak, of the busiest
}

// shareOf returns the share of each of so many servers.
func (p *planning) shareOf(servers int) share {
	var s share
	s.held = p.items.each(servers)
	s.slabs = s.held.slabBytes()
	s.hash = hashBytes(s.held.all())
	s.megabytes = max(int64(math.Ceil(s.slabs*(1+p.config.Server.Headroom)/megabyte/megabytes))*megabytes, minMegabyte)
	// While the table doubles, the one of half its size is there too.
	s.memory = float64(s.megabytes)*megabyte + 1.5*s.hash + baseMemory
	// What is of whole events is on as many servers as there are copies: the busiest has
	// one of each.
	peak, copies := p.report.Total.Peak, float64(p.config.Replicas)
	even := 1 / float64(servers)
	hot := 1/copies - even
	s.cpu = peak.MemcachedCPU*even + p.hotCPU()*max(hot, 0)
	s.wireBytes = peak.WireBytes*even + p.hot.WireBytes*max(hot, 0)
	return s
}

// hotCPU returns what of Memcached's CPU time at the peak is of whole events.
func (p *planning) hotCPU() float64 {
	if p.config.Costs.MemcachedHit == 0 || p.report.Total.Peak.Trips == 0 {
		return p.hot.MemcachedCPU
	}
	return p.report.Total.Peak.MemcachedCPU * p.hot.Trips / p.report.Total.Peak.Trips
}

// mayTake is the CPU time that a server may take each second.
func (s Server) mayTake() float64 { return s.Cores * s.Busy }

// servers finds the fewest that will do.
func (p *planning) servers() (Servers, error) {
	least := func(fits func(share) bool) int {
		for n := p.config.Replicas; n <= maxServers; n++ {
			if fits(p.shareOf(n)) {
				return n
			}
		}
		return 0
	}
	server := p.config.Server
	s := Servers{
		ByMemory: least(func(s share) bool { return s.memory <= float64(server.Memory) }),
		ByCPU:    least(func(s share) bool { return s.cpu <= server.mayTake() }),
	}
	switch {
	case s.ByMemory == 0:
		return s, fmt.Errorf("%d servers of %s do not hold the items", maxServers, bytesText(float64(server.Memory)))
	case s.ByCPU == 0:
		return s, errors.New("no number of servers does it: a counter of a whole event is on one server for each copy, and takes more of it than there is; give the servers more cores")
	}
	rest := max(s.ByMemory, s.ByCPU)
	s.ByLoss = rest + 1
	s.Needed = s.ByLoss
	s.Reason = p.reason(s, rest)
	each := p.shareOf(rest)
	s.Megabytes, s.Items, s.SlabBytes, s.HashBytes = each.megabytes, each.held.all(), each.slabs, each.hash
	s.MemoryBytes, s.PeakCPU, s.PeakWire = each.memory, each.cpu, each.wireBytes
	s.CounterdCores = p.report.Total.Peak.CounterdCPU / server.Busy
	return s, nil
}

// reason says why it takes so many.
func (p *planning) reason(s Servers, rest int) string {
	var why string
	switch {
	case s.ByMemory > s.ByCPU && s.ByMemory > p.config.Replicas:
		why = "hold the items"
	case s.ByCPU > s.ByMemory && s.ByCPU > p.config.Replicas:
		why = "have the CPU time"
	case rest > p.config.Replicas:
		why = "hold the items and have the CPU time"
	case p.config.Replicas == 1:
		return "one does it all, and when it is gone another has to be there to count on, from zero"
	default:
		return fmt.Sprintf("%d copies want %d servers, and one more when one of them is gone and taken out of the list", rest, rest)
	}
	return fmt.Sprintf("%d %s, and have to when one is gone and taken out of the list", rest, why)
}
