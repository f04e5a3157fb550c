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
	"sort"
	"sync"
	"sync/atomic"
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
	Do       func(Arrival)               // sends a request and waits for its answer; several goroutines call it at once
	Drain    time.Duration               // the longest wait for a place after the last arrival; 0: any
	Pause    func(time.Duration)         // sleeps; nil: time.Sleep
}

// Tally is the result of the arrivals.
type Tally struct {
	Arrived int64         // all, unless the context ended
	Sent    int64         // the first of these; the others waited in vain
	Stopped time.Duration // the last arrival, or the end of the context
	Elapsed time.Duration // the last answer
}

// Run returns when all sent requests are answered. When the context ends no further request
// arrives or is sent. Do ends by itself, by no other context: that of a parent ends earlier.
func (o Open) Run(ctx context.Context) Tally {
	w := &workers{Open: o, began: time.Now(), turn: make(chan int64, 1)}
	w.turn <- 0
	w.start(ctx)
	w.working.Wait()
	due := sort.Search(int(o.Arrivals), func(i int) bool { return o.Due(int64(i)) >= w.closed })
	last := o.Due(max(o.Arrivals-1, 0))
	return Tally{max(int64(due), w.sent), w.sent, min(w.closed, last), time.Since(w.began)}
}

// workers send requests in their order. One worker at a time has the turn: it waits until the
// next request is due, gives the turn to another worker, and sends the request. Without an idle
// worker the next one that gets idle has the turn.
type workers struct {
	Open
	began   time.Time
	turn    chan int64 // the number of the next request; closed: no further one is sent
	working sync.WaitGroup
	started int           // workers
	closed  time.Duration // since the beginning
	sent    int64         // until then
	busy    atomic.Int64  // workers with a request
	freed   atomic.Int64  // since the beginning: when a place got free while all were taken
}

// start starts a worker. Only the one that has the turn calls it.
func (w *workers) start(ctx context.Context) {
	w.started++
	w.working.Go(func() { w.work(ctx) })
}

// work sends one request after the other.
func (w *workers) work(ctx context.Context) {
	for i := range w.turn {
		due := w.Due(i)
		if i == w.Arrivals || !w.await(ctx, w.began.Add(due)) || w.drained() {
			w.sent, w.closed = i, time.Since(w.began)
			close(w.turn)
			return
		}
		waited := int64(due) < w.freed.Load()
		if w.busy.Add(1) == int64(w.started) && w.started < w.InFlight {
			w.start(ctx)
		}
		w.turn <- i + 1
		w.Do(Arrival{N: i, Due: w.began.Add(due), Waited: waited})
		if w.busy.Load() == int64(w.InFlight) {
			w.freed.Store(int64(time.Since(w.began)))
		}
		w.busy.Add(-1)
	}
}

// drained reports whether the wait for places after the last arrival is over.
func (w *workers) drained() bool {
	return w.Drain > 0 && time.Since(w.began) > w.Due(w.Arrivals-1)+w.Drain
}

// await waits for a moment, and reports whether the context still goes on.
func (w *workers) await(ctx context.Context, moment time.Time) bool {
	const nap = 5 * time.Millisecond // the longest uninterruptible Pause
	ahead := time.Until(moment)
	if ahead > 0 {
		runtime.Gosched() // goroutines that were just woken up would wait behind this sleep
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
		if w.Pause == nil {
			time.Sleep(ahead)
		} else {
			w.Pause(ahead)
		}
	}
	return ctx.Err() == nil
}
