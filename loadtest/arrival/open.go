package arrival

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Arrival is a request that is sent now.
type Arrival struct {
	N      int64     // its number, from 0 on
	Due    time.Time // latencies are counted from here
	Waited bool      // when it was due as many were in flight as may be
}

// Open has requests arrive. All but Drain and Pause is needed.
type Open struct {
	Due      func(i int64) time.Duration // when the i-th is due, after the beginning
	Arrivals int64                       // how many there are
	InFlight int                         // the most that are sent and not answered
	// Do sends a request and waits for its answer. Several goroutines call it at once, each
	// with a number of its own below InFlight.
	Do func(worker int, a Arrival)
	// Drain is for how long after the last arrival those that wait are still sent; 0: all of
	// them are, however long that takes.
	Drain time.Duration
	Pause func(time.Duration) // sleeps; nil: time.Sleep
}

// Tally is what became of the arrivals.
type Tally struct {
	Arrived int64 // fewer than there are only if the context ended
	// From UnsentFrom on, before UnsentTo, they waited in vain.
	UnsentFrom, UnsentTo int64
	Began                time.Time     // the moment 0
	Elapsed              time.Duration // from then to the last answer
}

// Run returns when all who were sent are answered. When the context ends nobody arrives any
// more, and nobody is sent; Do has to end by itself.
func (o Open) Run(ctx context.Context) Tally {
	q := &queue{run: o.Do, due: o.Due, most: o.InFlight, began: time.Now()}
	stop := context.AfterFunc(ctx, q.close)
	defer stop()
	arrived := int64(0)
	for ; arrived < o.Arrivals && o.await(ctx, q.dueAt(arrived)); arrived++ {
		q.arrive(arrived)
	}
	if o.Drain > 0 {
		defer time.AfterFunc(o.Drain, q.close).Stop()
	}
	q.finish()
	q.working.Wait()
	return Tally{arrived, q.unsentFrom, q.unsentTo, q.began, time.Since(q.began)}
}

// nap is the longest that Pause is asked for: it cannot be interrupted.
const nap = 5 * time.Millisecond

// await waits for a moment, and reports whether the context still goes on.
func (o Open) await(ctx context.Context, moment time.Time) bool {
	ahead := time.Until(moment)
	if ahead > 0 {
		// Those who were just told to send would wait behind this goroutine's sleep.
		runtime.Gosched()
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

// queue gives arrivals to workers: to one that is idle, else to a new one, else to the
// first that gets free. Those that wait are in their order, and numbers follow one
// another: two numbers are all of them.
type queue struct {
	run     func(worker int, a Arrival)
	due     func(i int64) time.Duration
	most    int
	began   time.Time
	working sync.WaitGroup

	mu         sync.Mutex
	workers    int
	idle       []chan int64
	head, tail int64 // who waits: head to tail-1
	finished   bool  // nobody arrives any more
	closed     bool  // nobody is sent any more

	unsentFrom, unsentTo int64 // who waited when it closed
}

func (q *queue) dueAt(i int64) time.Time { return q.began.Add(q.due(i)) }

// arrive has a request sent, or wait.
func (q *queue) arrive(i int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch last := len(q.idle) - 1; {
	case q.closed:
	case last >= 0:
		// The one that was used last has a connection that is still warm.
		q.idle[last] <- i
		q.idle = q.idle[:last]
	case q.workers < q.most:
		number, told := q.workers, make(chan int64, 1)
		q.workers++
		q.working.Go(func() { q.work(number, told, i) })
	case q.head == q.tail:
		q.head, q.tail = i, i+1
	default:
		q.tail = i + 1
	}
}

// work sends one request after the other, as long as there are any.
func (q *queue) work(number int, told chan int64, i int64) {
	for waited, more := false, true; more; i, waited, more = q.next(told) {
		q.run(number, Arrival{N: i, Due: q.dueAt(i), Waited: waited})
	}
}

// next returns the next request for a worker.
func (q *queue) next(told chan int64) (i int64, waited, more bool) {
	q.mu.Lock()
	if q.head < q.tail {
		defer q.mu.Unlock()
		q.head++
		return q.head - 1, true, true
	}
	if q.finished {
		q.mu.Unlock()
		return 0, false, false
	}
	q.idle = append(q.idle, told)
	q.mu.Unlock()
	i, more = <-told
	return i, false, more
}

// finish lets the workers end when nobody waits any more.
func (q *queue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finished = true
	for _, told := range q.idle {
		close(told)
	}
	q.idle = nil
}

// close lets nobody be sent any more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	q.unsentFrom, q.unsentTo = q.head, q.tail
	q.head = q.tail
}
