package memcache

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/store"
)

// call is one exchange on a shared connection: its commands, and what came of them. The
// goroutine that takes it out of waiting, with settle, has to wake its caller.
//
// A caller may leave before its answers come, and the reader goes on filling the
// call meanwhile. So the values are the call's own, never the caller's, and a call
// goes back to the pool only when all its answers were read: no one else has it
// then.
type call struct {
	request  []byte
	asked    int // where in the request the keys of the get begin, each behind a blank
	kind     store.Kind
	tag      uint32 // of the first tagged command
	tagged   int    // tagged commands
	reads    int    // keys of the get
	deadline int64  // as instant has it

	// What the reader fills in.
	values   []int64  // what each write made of its item, before its answer what it adds; then what each read found
	answered int      // commands answered: first the tagged ones, then keys of the get
	landed   int      // adds acknowledged, from the first on
	fault    error    // the first answer that was an error
	versions []uint64 // as long as the reads if the call asks for the versions of items, else empty
	skipping bool     // in the body of an item that is too long to hold a count
	skip     int      // how much of it is still to come

	state   atomic.Int32
	partly  atomic.Int32 // landed, of a call whose answers came in part
	verdict error        // how the call ended; nil: all answers came
	done    chan<- int   // is sent index when the call has ended
	index   int
	timed   bool     // the fleet has an OnRoundTrip, which needs the instant of its end
	at      int64    // that, as an instant
	own     chan int // for a call of which alone the end is awaited
	// afterwards is called when all answers have come to a call whose caller has left. nil:
	// it is not called.
	afterwards interface{ answeredLate(*call) }
}

// The states of a call.
const (
	waiting int32 = iota
	ended         // answered, or failed with its connection
	late          // its caller has left
)

// refused is the value of an add that was answered with an error.
const refused = math.MinInt64

var calls = sync.Pool{New: func() any { return &call{own: make(chan int, 1)} }}

func newCall() *call { return calls.Get().(*call) }

// free gives the call back. Only one that was answered to its end may be.
func (c *call) free() {
	if !c.large() {
		calls.Put(c)
	}
}

// reset makes the call a new one.
func (c *call) reset(k store.Kind, tag uint32, tagged, reads int) {
	c.request = c.request[:0]
	c.kind, c.tag, c.tagged, c.reads, c.asked = k, tag, tagged, reads, 0
	c.versions, c.skipping, c.skip = c.versions[:0], false, 0
	if n := tagged + reads; n <= cap(c.values) {
		c.values = c.values[:n]
	} else {
		c.values = make([]int64, n)
	}
	c.answered, c.landed, c.fault, c.verdict = 0, 0, nil, nil
	c.done, c.index, c.afterwards = c.own, 0, nil
	c.timed, c.at = false, 0
	c.state.Store(waiting)
	c.partly.Store(0)
}

// answerCame ends a call all of whose answers have come.
func (c *call) answerCame() {
	if !c.settle(ended, nil) && c.afterwards != nil { // a late call has no other holder
		c.afterwards.answeredLate(c)
	}
}

// settle ends the call and wakes its caller, unless another goroutine has. It reports
// whether it did; if so the call is its caller's from then on.
func (c *call) settle(state int32, verdict error) (first bool) {
	first = c.state.CompareAndSwap(waiting, state)
	if first {
		c.verdict = verdict
		if c.timed {
			c.at = instant(time.Now())
		}
		c.done <- c.index
	}
	return first
}

// takeResults copies what the call has found to the reads.
func (c *call) takeResults(reads []store.Read) {
	for i := range reads {
		reads[i].Value, reads[i].Version = c.values[c.tagged+i], 0
		if len(c.versions) > 0 {
			reads[i].Version = c.versions[i]
		}
	}
}

// answerBytes returns about how long the answers may be at most.
func (c *call) answerBytes() int { return 40*c.tagged + 70*c.reads }

// large reports whether the call is more than a batch may be. It goes alone.
func (c *call) large() bool {
	return len(c.request) > maxBatchRequest || c.answerBytes() > maxBatchAnswer
}
