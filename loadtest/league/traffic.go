package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// arrival is a hit that comes at a time after the start.
type arrival struct {
	at      time.Duration
	limit   Limit
	feature string
}

// burst is how many hits come at once to an empty counter.
const burst = 64

// schedule returns the traffic of a limit from the start on, the same for each seed. So many features hit in
// each of four ways:
//
//   - edge: N hits before a window of the clock ends, more than N after it, and a trickle
//   - burst: 64 hits at once at an empty counter, and again after its window
//   - clumps: more than N hits at once, three times, somewhat more than half a window apart
//   - even: hits at random, twice as many as the limit admits
func schedule(seed uint64, limit Limit, start time.Time, length time.Duration, features int) (all []arrival) {
	random := rand.New(rand.NewPCG(seed, uint64(limit.Window)))
	part := func(d time.Duration, share float64) time.Duration { return time.Duration(float64(d) * share) }
	window := limit.Window
	for i := range features {
		hits := func(way string, from, to time.Duration, n int64) {
			for range n {
				at := from + part(to-from, random.Float64())
				all = append(all, arrival{at, limit, fmt.Sprintf("%s-%s-%d", limit.Name, way, i)})
			}
		}
		edge := window - time.Duration(start.UnixNano()%int64(window))
		edges := max(1, int((length-edge)/window))
		edge += time.Duration(random.IntN(edges)) * window
		hits("edge", edge-part(window, 1./15), edge, limit.N)
		hits("edge", edge, edge+part(window, 1./15), limit.N+limit.N/5)
		hits("edge", edge+part(window, 1./15), edge+window, limit.N/2)

		at := part(max(length-2*window, 0), random.Float64())
		hits("burst", at, at, burst)
		hits("burst", at+part(window, 1.05), at+part(window, 1.05), burst)

		at = part(max(length-2*window, 0), random.Float64())
		for range 3 {
			hits("clumps", at, at+part(window, 1./30), limit.N+2)
			at += part(window, 0.58)
		}

		even := min(length, 10*window)
		at = part(length-even, random.Float64())
		hits("even", at, at+even, 2*limit.N*int64(even)/int64(window))
	}
	all = slices.DeleteFunc(all, func(a arrival) bool { return a.at < 0 || a.at >= length })
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}
