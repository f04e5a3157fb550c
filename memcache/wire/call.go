package wire

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/store"
)

// Call is one exchange on a shared connection: its commands, and what came of them. The
// goroutine that takes it out of waiting, with settle, has to wake its caller.
//
// A caller may leave before its answers come, and the reader goes on filling the
// call meanwhile. So the values are the call's own, never the caller's, and a call
// goes back to the pool only when all its answers were read: no one else has it
// then.
type Call struct {
	answers
	deadline int64 // as an instant

	state   atomic.Int32
	partly  atomic.Int32 // landed, of a call whose answers came in part
	verdict error        // how the call ended; nil: all answers came
	done    chan<- int   // is sent index when the call has ended
	index   int
	swaps   bool // it is a Swap, for the connection of the number on
	on      uint32
	timed   bool     // the fleet has an OnRoundTrip, which needs the instant of its end
	at      int64    // that, as an instant
	own     chan int // for a call of which alone the end is awaited
	// afterwards is called when all answers have come to a call whose caller has left. nil:
	// it is not called.
	afterwards Latecomer
}

// The states of a call.
const (
	waiting int32 = iota
	ended         // answered, or failed with its connection
	late          // its caller has left
)

var calls = sync.Pool{New: func() any { return &Call{own: make(chan int, 1)} }}

// newCall returns a call of the pool, without commands.
func newCall() *Call {
	c := calls.Get().(*Call)
	c.verdict, c.done, c.index, c.afterwards = nil, c.own, 0, nil
	c.swaps, c.on = false, 0
	c.timed, c.at = false, 0
	c.state.Store(waiting)
	c.partly.Store(0)
	return c
}

// free gives the call back. Only one that was answered to its end may be.
func (c *Call) free() {
	if !c.large() && cap(c.bytes) <= maxBatchAnswer {
		calls.Put(c)
	}
}

// answerCame ends a call all of whose answers have come.
func (c *Call) answerCame() {
	if !c.settle(ended, nil) && c.afterwards != nil { // a late call has no other holder
		// Of one that was answered in part before, the rest alone is missing to its caller.
		c.afterwards.AnsweredLate(c.fault == nil && c.partly.Load() == 0)
	}
}

// settle ends the call and wakes its caller, unless another goroutine has. It reports
// whether it did; if so the call is its caller's from then on.
func (c *Call) settle(state int32, verdict error) (first bool) {
	first = c.state.CompareAndSwap(waiting, state)
	if first {
		c.verdict = verdict
		if c.timed {
			c.at = Instant(time.Now())
		}
		c.done <- c.index
	}
	return first
}

// Latecomer is what a call is of whose caller may leave. AnsweredLate is called when all answers
// have come after that; whole: none of them is an error, and none had come before.
type Latecomer interface{ AnsweredLate(whole bool) }

// Notify has index sent to ended when the call has ended, instead of Wait. It is for a call
// that was not sent yet.
func (c *Call) Notify(ended chan<- int, index int, late Latecomer) {
	c.done, c.index, c.afterwards = ended, index, late
}

// Wait waits until the call has ended.
func (c *Call) Wait() { <-c.own }

// GiveUp has its caller leave, if the call has not ended.
func (c *Call) GiveUp() { c.settle(late, ErrNoReply) }

// Result is what came of a call.
type Result struct {
	Landed int   // writes acknowledged
	At     int64 // the instant of its end, where it was sent as timed
	// Orphaned are the writes that roll back adds which were acknowledged although one before
	// them had failed.
	Orphaned []store.Write
	Err      error
}

// Result takes in what came of a call that has ended, into the writes and the reads that it is
// of. It is the end of the call.
func (c *Call) Result(writes []store.Write, reads []store.Read) (r Result) {
	r.At, r.Err = c.at, c.verdict
	switch {
	case c.state.Load() == late:
		r.Landed = int(c.partly.Load())
	default:
		r.Landed = c.landed
		if r.Err == nil {
			r.Err = c.fault
		}
	}
	for i := range writes[:min(r.Landed, len(writes))] {
		writes[i].Result = c.values[i]
	}
	if r.Err == nil {
		c.takeResults(reads)
		c.free()
		return r
	}
	if c.state.Load() != late { // else it is still in the hands of the connection
		r.Orphaned = c.orphaned(writes)
	}
	return r
}

// Epoch is where instants begin.
var Epoch = time.Now()

// Instant is a time as nanoseconds since Epoch, on the monotonic clock where the
// time has its reading.
func Instant(t time.Time) int64 { return int64(t.Sub(Epoch)) }
