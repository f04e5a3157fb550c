package replica

import (
	"maps"
	"slices"
	"sync"
)

// maxMissing bounds the counters of which servers have missed bytes: no more than a Repairer has room for.
const maxMissing = 1 << 16

// missing are counters of which servers have missed bytes: what hints are for adds. It is safe for concurrent
// use.
type missing struct {
	mu      sync.Mutex
	of      map[Server]map[string]bool // the names of the counters; true: they were taken
	n       int
	isTaken bool // by a Repairer, which will take what comes, too
}

// note adds a counter of a server. If there is no room it drops those of the server: all of its counters
// have to be copied, as they have where nothing in this process repairs what a server misses while it is down.
func (o *missing) note(server Server, counter string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	counters := o.of[server]
	_, found := counters[counter]
	switch {
	case !o.isTaken && !server.Up():
		return false
	case !found && o.n >= maxMissing:
		o.n -= len(counters)
		delete(o.of, server)
		return false
	case counters == nil:
		if o.of == nil {
			o.of = map[Server]map[string]bool{}
		}
		counters = map[string]bool{}
		o.of[server] = counters
	}
	if !found {
		o.n++
	}
	counters[counter] = false
	return true
}

// take takes the counters of the servers that are up, which were not taken.
func (o *missing) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isTaken = true
	names := map[string]bool{}
	for server, counters := range o.of {
		if !server.Up() {
			continue
		}
		for counter, taken := range counters {
			if !taken {
				names[counter], counters[counter] = true, true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// settle notes that a server misses nothing of a counter, unless there is more of it since it was taken.
func (o *missing) settle(counter string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for server, counters := range o.of {
		if counters[counter] {
			delete(counters, counter)
			o.n--
		}
		if len(counters) == 0 {
			delete(o.of, server)
		}
	}
}

// isAny reports whether a server misses something.
func (o *missing) isAny(server Server) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.of[server]) > 0
}

// drop forgets what a server misses that is not used any more.
func (o *missing) drop(server Server) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n -= len(o.of[server])
	delete(o.of, server)
}
