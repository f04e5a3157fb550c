package suggest

import (
	"fmt"
	"slices"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/exactlog"
	"github.com/counterd/counterd/loadtest/whatif"
)

// population is what the features of one kind did.
type population struct {
	features int
	hits     int
	missing  int       // lines without such a feature
	largest  [][]int64 // by window, then by feature
	traffic  []int64   // what the hits cost together, by feature
}

// newPopulation finds the largest counts of the features of a kind.
func newPopulation(log *accesslog.Log, kind, costKind string, ipv6Prefix int) (*population, error) {
	c := &population{}
	numbers, costs, err := c.number(log, kind, costKind, ipv6Prefix)
	if err != nil {
		return nil, err
	}
	logs := make([]exactlog.Log, c.features)
	for _, e := range log.Events {
		switch n := numbers[e.Actor]; n {
		case useless:
		case absent:
			c.missing++
		default:
			c.hits++
			logs[n].Add(e.Second(), costs[e.Actor])
		}
	}
	for _, one := range logs {
		c.traffic = append(c.traffic, one.Total())
	}
	for _, w := range windows() {
		list := make([]int64, c.features)
		for i := range logs {
			list[i] = logs[i].Largest(w.seconds)
		}
		c.largest = append(c.largest, list)
	}
	return c, nil
}

// What an actor has instead of the number of a feature.
const (
	absent  = -1 // no feature of that kind
	useless = -2 // no cost, or a feature that is refused
)

// number returns the number of the feature of each actor, and what its hits cost.
func (c *population) number(log *accesslog.Log, kind, costKind string, ipv6Prefix int) (numbers []int, costs []int64, err error) {
	event := events.Event{Name: "suggested", Rules: []events.Rule{{Per: []string{kind}, IPv6Prefix: ipv6Prefix}}}
	known := map[events.Feature]int{}
	numbers, costs = make([]int, len(log.Actors)), make([]int64, len(log.Actors))
	used := make([]bool, len(log.Actors))
	for _, e := range log.Events {
		used[e.Actor] = true
	}
	for i, features := range log.Actors {
		value, found := features[kind]
		if !found || !used[i] {
			numbers[i] = absent
			continue
		}
		cost, fine := whatif.CostOf(features, costKind)
		counter, err := event.Counter(events.Features{kind: value})
		if !fine || err != nil {
			numbers[i] = useless
			continue
		}
		n, seen := known[counter.Feature]
		if !seen {
			n = len(known)
			known[counter.Feature] = n
		}
		numbers[i], costs[i] = n, cost
	}
	c.features = len(known)
	if c.features == 0 {
		return nil, nil, fmt.Errorf("%w: of %d lines none has a feature of the kind %s that can be counted", ErrNoFeatures, log.Lines, kind)
	}
	return numbers, costs, nil
}

// sorted returns the largest counts in a window, ascending.
func (c *population) sorted(window int) []int64 {
	return slices.Sorted(slices.Values(c.largest[window]))
}

// quantile returns the smallest value that so many thousandths of the sorted values do not
// exceed.
func quantile(sorted []int64, thousandths int) int64 {
	return sorted[max(0, (len(sorted)*thousandths+999)/1000-1)]
}

// smallest returns the smallest limit, at least 1, that at most so many of the sorted
// values exceed.
func smallest(sorted []int64, exceed int) int64 {
	if exceed >= len(sorted) {
		return 1
	}
	return max(1, sorted[len(sorted)-1-exceed])
}

// above returns how many of the sorted values exceed the limit.
func above(sorted []int64, limit int64) int {
	at, _ := slices.BinarySearch(sorted, limit+1)
	return len(sorted) - at
}
