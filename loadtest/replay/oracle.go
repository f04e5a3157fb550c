package replay

import "slices"

// oracle is the exact log: for each counter the second of every event. Its
// counters are numbered from 0.
type oracle struct {
	seconds [][]int64 // each in order
	unsure  []bool    // an event of it may have been counted, or not
}

func newOracle(counters int) *oracle {
	return &oracle{make([][]int64, counters), make([]bool, counters)}
}

// add adds an event that is not earlier than the counters' others.
func (o *oracle) add(counters []uint32, second int64) {
	for _, counter := range counters {
		o.seconds[counter] = append(o.seconds[counter], second)
	}
}

// doubt notes an event that may have been counted, or not.
func (o *oracle) doubt(counters []uint32) {
	for _, counter := range counters {
		o.unsure[counter] = true
	}
}

// sum returns how many events of the counter are in the seconds from first to
// last, both included.
func (o *oracle) sum(counter uint32, first, last int64) int64 {
	seconds := o.seconds[counter]
	from, _ := slices.BinarySearch(seconds, first)
	to, _ := slices.BinarySearch(seconds, last+1)
	return int64(to - from)
}

// counters returns how many counters hold events for sure, and of how many it is
// not known what they hold.
func (o *oracle) counters() (sure, unsure int) {
	for counter, seconds := range o.seconds {
		switch {
		case o.unsure[counter]:
			unsure++
		case len(seconds) > 0:
			sure++
		}
	}
	return sure, unsure
}
