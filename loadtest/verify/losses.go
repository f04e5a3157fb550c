package verify

import (
	"slices"
	"time"
)

// loss is a server that was killed, and came back empty. Times are those of entries.
type loss struct {
	server   int
	killed   int64
	back     int64 // it answers again
	away     bool  // it does not: back is until when that was waited for
	repaired int64 // what it had is copied back, and what was under way has ended; 0: never
}

// losses are the servers that were killed, in the order of time.
type losses []loss

// disturbed reports whether a server was away, or not repaired, at some time between those.
func (l losses) disturbed(from, to int64) bool {
	return slices.ContainsFunc(l, func(one loss) bool { return one.killed <= to && (one.repaired == 0 || from <= one.repaired) })
}

// noticing is how long after its return a process may not know that a server has lost what
// it had, where it does not speak the meta commands: a second from its next connection.
const noticing = 4 * time.Second

// excuses reports whether an entry was decided while it was said, or not known yet, that a
// limit's counter had lost something.
func (l losses) excuses(e entry, at int) bool {
	return e.incomplete&(1<<at) != 0 || l.unsettled(e)
}

// unsettled reports whether a server was away during a call, or had just come back.
func (l losses) unsettled(e entry) bool {
	return slices.ContainsFunc(l, func(one loss) bool {
		return one.killed <= e.answered && e.sent <= one.back+nanoseconds(noticing)
	})
}

// within returns how often counts may have begun again within a window. The function returns the
// second of a time.
func (l losses) within(from, to int64, second func(at int64) int64) (n int64) {
	for _, one := range l {
		if second(one.killed) <= to+grace && second(one.back) >= from-grace {
			n++
		}
	}
	return n
}

// lastBefore returns the last kill before a time; -1: there was none.
func (l losses) lastBefore(time int64) int64 {
	last := int64(-1)
	for _, one := range l {
		if one.killed <= time {
			last = max(last, one.killed)
		}
	}
	return last
}
