package replay

import "github.com/counterd/counterd/loadtest/exactlog"

// oracle is the exact log of each counter, in seconds. Counters are numbered from 0.
type oracle struct {
	logs   []exactlog.Log
	unsure []bool // an increment of unknown outcome was sent
}

func newOracle(counters int) *oracle {
	return &oracle{make([]exactlog.Log, counters), make([]bool, counters)}
}

// add adds an event that is not earlier than the counters' others.
func (o *oracle) add(counters []uint32, second int64) {
	for _, counter := range counters {
		o.logs[counter].Add(second, 1)
	}
}

// doubt notes an event of unknown outcome.
func (o *oracle) doubt(counters []uint32) {
	for _, counter := range counters {
		o.unsure[counter] = true
	}
}

// counters returns how many counters hold events for sure, and how many are unsure.
func (o *oracle) counters() (sure, unsure int) {
	for counter := range o.logs {
		switch {
		case o.unsure[counter]:
			unsure++
		case o.logs[counter].Len() > 0:
			sure++
		}
	}
	return sure, unsure
}
