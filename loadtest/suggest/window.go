package suggest

// windows are those for which limits are suggested, the shortest first.
func windows() []window {
	return []window{{"second", 1, "s"}, {"minute", 60, "m"}, {"hour", 60 * 60, "h"}, {"day", 24 * 60 * 60, "d"}}
}

type window struct {
	name    string
	seconds int64
	unit    string // of a rate
}

// largest returns the largest sum in any window of so many seconds one after the other.
// The seconds ascend, and the sums of costs never get out of an int64.
func largest(seconds, costs []int64, length int64) int64 {
	most, sum, first := int64(0), int64(0), 0
	for last, second := range seconds {
		sum += costs[last]
		for seconds[first] <= second-length {
			sum -= costs[first]
			first++
		}
		most = max(most, sum)
	}
	return most
}
