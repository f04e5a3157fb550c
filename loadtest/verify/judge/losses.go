package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/verify/contract"
)

// Kill is a server that was killed, and came back empty. What the run did not live to see has
// no time.
type Kill struct {
	Server   int       `json:"server"`
	Killed   time.Time `json:"killed"` // when it was about to be: until it is dead it may still answer
	Dead     time.Time `json:"dead,omitzero"`
	Back     time.Time `json:"back,omitzero"`     // all processes say that it is there
	Repaired time.Time `json:"repaired,omitzero"` // what it had is copied back, where there are replicas, and what was under way has ended
}

// String tells of it in words.
func (k Kill) String() string {
	clock := func(at time.Time) string {
		if at.IsZero() {
			return "not yet"
		}
		return "at " + at.Format(ClockLayout)
	}
	return fmt.Sprintf("server %d %s, back %s, repaired %s", k.Server, clock(k.Killed), clock(k.Back), clock(k.Repaired))
}

// losses are the kills by the times of entries, in the order of time.
type losses []loss

type loss struct{ killed, dead, back, repaired int64 }

func lossesOf(kills []Kill, began time.Time) (list losses) {
	far := began.Add(math.MaxInt64 / 2) // of what has no time
	since := func(at time.Time) int64 { return int64(cmp.Or(at, far).Sub(began)) }
	for _, k := range kills {
		list = append(list, loss{since(k.Killed), since(k.Dead), since(k.Back), since(k.Repaired)})
	}
	return list
}

// disturbed reports whether a server was away, or not repaired, at some time between those.
func (l losses) disturbed(from, to int64) bool {
	return slices.ContainsFunc(l, func(one loss) bool { return one.killed <= to && from <= one.repaired })
}

// noticing is how long after its return a process may not know that a server has lost what
// it had, where it does not speak the meta commands: a second from its next connection.
const noticing = int64(4 * time.Second)

// unsettled reports whether a server was away during a call, or had just come back.
func (l losses) unsettled(c Call) bool {
	return slices.ContainsFunc(l, func(one loss) bool { return one.killed <= c.Answered && c.Sent <= one.back+noticing })
}

// within returns how often counts may have begun again within a window. The function returns the
// second of a time.
func (l losses) within(from, to int64, second func(at int64) int64) (n int64) {
	for _, one := range l {
		if second(one.killed) <= to+contract.Grace && second(one.back) >= from-contract.Grace {
			n++
		}
	}
	return n
}
