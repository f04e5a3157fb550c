// Package arrival is the open model: requests arrive when they are due, whatever becomes of
// earlier ones.
//
// A [Profile] says when each is due, by arithmetic alone. [Open] starts each at its moment,
// if there is a place in flight, and says when it was due: the wait for a stalled target is
// part of the latency. A clock that starts when a request is sent would leave it out
// ("coordinated omission").
//
// Most callers want [Parse] or [Constant], and then [Open.Run].
package arrival

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Arrival is a request to send now.
type Arrival struct {
	N      int64     // its number, from 0 on
	Due    time.Time // latencies count from here
	Waited bool      // for a place in flight
}

// Open has requests arrive. Drain and Pause are optional.
type Open struct {
	Due      func(i int64) time.Duration // when the i-th is due, since the beginning
	Arrivals int64                       // their number
	InFlight int                         // requests without an answer, at most
	// Do sends a request and waits for its answer. Several goroutines call it at once, each
	// with a number of its own below InFlight.
	Do    func(worker int, a Arrival)
	Drain time.Duration       // the longest wait for a place after the last arrival; 0: any
	Pause func(time.Duration) // sleeps; nil: time.Sleep
}

// Tally is the result of the arrivals.
type Tally struct {
	Arrived              int64         // all, unless the context ended
	UnsentFrom, UnsentTo int64         // the requests from one number to before the other waited in vain
	Stopped              time.Duration // the last arrival, or the end of the context
	Elapsed              time.Duration // the last answer
}

// Run returns when all sent requests are answered. When the context ends no further request
// arrives or is sent. Do ends by itself, by no other context: that of a parent ends earlier.
func (o Open) Run(ctx context.Context) Tally {
	q := &queue{Open: o, ctx: ctx, began: time.Now()}
	arrived := int64(0)
	for ; arrived < o.Arrivals && o.await(ctx, q.dueAt(arrived)); arrived++ {
		q.arrive(arrived)
	}
	stopped := time.Since(q.began)
	if o.Drain > 0 {
		defer time.AfterFunc(o.Drain, q.close).Stop()
	}
	q.finish()
	q.working.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return Tally{arrived, q.unsentFrom, q.unsentTo, stopped, time.Since(q.began)}
}

// await waits for a moment, and reports whether the context still goes on.
func (o Open) await(ctx context.Context, moment time.Time) bool {
	const nap = 5 * time.Millisecond // the longest uninterruptible Pause
	ahead := time.Until(moment)
	if ahead > 0 {
		runtime.Gosched() // workers that were just woken up would wait behind this sleep
		ahead = time.Until(moment)
	}
	if ahead > 2*nap {
		timer := time.NewTimer(ahead - nap)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		ahead = time.Until(moment)
	}
	for ; ahead > 0 && ctx.Err() == nil; ahead = time.Until(moment) {
		if o.Pause == nil {
			time.Sleep(ahead)
		} else {
			o.Pause(ahead)
		}
	}
	return ctx.Err() == nil
}

// queue gives arrivals to an idle worker, else to a new one, else to the first that gets idle.
// Waiting requests are in their order, without gaps: two numbers describe them.
type queue struct {
	Open
	ctx     context.Context
	began   time.Time
	working sync.WaitGroup

	mu                   sync.Mutex
	workers              int
	idle                 []chan int64
	head, tail           int64 // waiting: head to tail-1
	finished             bool  // no further arrivals
	closed               bool  // no further sending
	unsentFrom, unsentTo int64 // waiting at the closing, and later arrivals
}

func (q *queue) dueAt(i int64) time.Time { return q.began.Add(q.Due(i)) }

// arrive has a request sent, or wait.
func (q *queue) arrive(i int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch last := len(q.idle) - 1; {
	case q.over():
		if q.unsentFrom == q.unsentTo {
			q.unsentFrom = i
		}
		q.unsentTo = i + 1
	case last >= 0: // the last one's connection is the warmest
		q.idle[last] <- i
		q.idle = q.idle[:last]
	case q.workers < q.InFlight:
		number, next := q.workers, make(chan int64, 1)
		q.workers++
		q.working.Go(func() { q.work(number, next, i) })
	case q.head == q.tail:
		q.head, q.tail = i, i+1
	default:
		q.tail = i + 1
	}
}

// work sends one request after the other.
func (q *queue) work(number int, next chan int64, i int64) {
	for waited, more := false, true; more; i, waited, more = q.next(next) {
		q.Do(number, Arrival{N: i, Due: q.dueAt(i), Waited: waited})
	}
}

// next returns the next request for a worker.
func (q *queue) next(next chan int64) (i int64, waited, more bool) {
	q.mu.Lock()
	if !q.over() && q.head < q.tail {
		defer q.mu.Unlock()
		q.head++
		return q.head - 1, true, true
	}
	if q.finished {
		q.mu.Unlock()
		return 0, false, false
	}
	q.idle = append(q.idle, next)
	q.mu.Unlock()
	i, more = <-next
	return i, false, more
}

// over reports whether the sending has stopped. It asks the context itself: a function that runs
// at its end runs later than the calls that its end breaks off.
func (q *queue) over() bool {
	if q.ctx.Err() != nil {
		q.closeLocked()
	}
	return q.closed
}

// finish ends the workers once no request waits.
func (q *queue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finished = true
	for _, next := range q.idle {
		close(next)
	}
	q.idle = nil
}

// close stops the sending.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closeLocked()
}

func (q *queue) closeLocked() {
	if !q.closed {
		q.closed = true
		q.unsentFrom, q.unsentTo, q.head = q.head, q.tail, q.tail
	}
}
