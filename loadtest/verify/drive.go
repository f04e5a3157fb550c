package verify

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/verify/contract"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

const (
	maxQuiet   = 120                    // calls for a quiet user
	burstEvery = 700 * time.Millisecond // from one burst to the next
	maxBurst   = 48                     // hits of a burst
)

// driver has clients call until the context ends or the log is full.
type driver struct {
	*caller
	config  Config
	length  time.Duration
	running sync.WaitGroup
}

// worker is one client.
type worker struct {
	*driver
	ctx    context.Context // until it ends the worker calls
	calls  context.Context // of its calls, so that none is cut short by the end of the run: its outcome counts
	client int
	rng    *rand.Rand
	pace   *rate.Limiter // of all its kind; calls that it is late for are not made up for
}

// start has the clients begin. A quarter as many beside them call each for one user alone, and one
// makes bursts.
func (d *driver) start(ctx, calls context.Context) {
	client := 0
	start := func(n int, do func(worker)) {
		pace := rate.NewLimiter(rate.Inf, 1)
		if d.config.Rate > 0 {
			pace.SetLimit(rate.Limit(d.config.Rate * float64(n) / float64(d.config.Clients)))
		}
		for range n {
			w := worker{d, ctx, calls, client, rand.New(rand.NewPCG(d.config.Seed, uint64(client))), pace}
			d.running.Go(func() { do(w) })
			client++
		}
	}
	start(d.config.Clients, worker.busy)
	start(max(1, d.config.Clients/4), worker.quiet)
	start(1, worker.bursts)
}

// next waits for the worker's turn, or until there is none. It reports whether there is one.
func (w worker) next() bool {
	if w.pace.Wait(w.ctx) != nil {
		<-w.ctx.Done() // it knows beforehand that the next turn would be too late
	}
	return w.sleep(0)
}

// sleep waits. It reports whether there is time left.
func (w worker) sleep(long time.Duration) bool {
	fleet.Sleep(w.ctx, long)
	return w.ctx.Err() == nil && !w.log.Full()
}

// to is a call to a target.
func (w worker) to(target int) judge.Call {
	return judge.Call{Client: uint16(w.client), Target: uint16(target)}
}

func (w worker) any() judge.Call { return w.to(w.rng.IntN(len(w.hosts))) }

// cost is 1 in most calls.
func (w worker) cost() int64 { return int64(max(1, w.rng.IntN(8)-4)) }

// limit draws a limit, and the counter of a user that it counts by.
func (w worker) limit(user int32) (contract.Limit, int32) {
	l := w.Limits[w.rng.IntN(len(w.Limits))]
	return l, w.log.User(user).Counters[l.Index]
}

// busy calls for the users of all clients. It releases some leases later, and renews some.
func (w worker) busy() {
	var held []lease
	for w.next() {
		if len(held) > 0 && w.rng.IntN(2) == 0 {
			l := held[0]
			if held = held[1:]; w.rng.IntN(3) == 0 {
				if l = w.renewed(l); l.reservation != "" {
					held = append(held, l)
				}
			} else {
				w.settle(w.calls, w.any(), l, 0)
			}
		}
		to, user, cost := w.any(), w.busyUser(), w.cost()
		n := w.rng.IntN(100)
		if len(w.rls) > 0 { // which has hits and checks alone
			n = w.rng.IntN(86)
		}
		switch {
		case len(w.rls) == 0 && w.rng.IntN(200) == 0:
			w.forget(to, user)
		case n < 78:
			if _, l := w.settled(to, user, cost); l.reservation != "" && w.rng.IntN(4) > 0 {
				held = append(held, l)
			}
		case n < 86:
			w.check(w.calls, to, user, cost)
		case n < 91:
			users, costs := []int32{user}, []int64{cost}
			for range 1 + w.rng.IntN(6) {
				users, costs = append(users, w.busyUser()), append(costs, w.cost())
			}
			w.batch(w.calls, to, users, costs)
		case n < 92:
			w.increment(w.calls, to, user, cost, 0)
		case n < 93:
			w.late(to, user)
		default:
			l, id := w.limit(user)
			w.count(w.calls, to, id, min(l.Length, w.Retention), 0)
		}
	}
}

// busyUser draws a busy user, in half of the calls one of the first few.
func (w worker) busyUser() int32 {
	n := w.config.Features
	if w.rng.IntN(2) == 0 {
		n = max(1, n/8)
	}
	return int32(w.rng.IntN(n))
}

// settled hits, and settles some hits at once: what they return is no lease.
func (w worker) settled(to judge.Call, user int32, cost int64) (judge.Entry, lease) {
	e, l := w.hit(w.calls, to, user, cost, w.rng.IntN(6) == 0)
	if l.reserved {
		w.settle(w.calls, w.any(), l, w.rng.Int64N(2*cost+1))
		l = lease{}
	}
	return e, l
}

// renewed renews a lease for a second at the least.
func (w worker) renewed(l lease) lease {
	return w.renew(w.calls, w.any(), l, 1+w.rng.Int64N(contract.Seconds(w.ShortestLease())))
}

// late adds to the past of a user, where that is remembered for long enough, and counts the
// window of a limit then.
func (w worker) late(to judge.Call, user int32) {
	l, id := w.limit(user)
	if !w.RemembersLate() {
		w.increment(w.calls, to, user, w.cost(), 0)
		return
	}
	at := time.Now().Unix() - 1 - w.rng.Int64N(min(l.Length+5, w.Past/2-contract.Margin))
	if w.increment(w.calls, to, user, w.cost(), at).Outcome == judge.Admitted {
		w.count(w.calls, to, id, min(l.Length, w.Retention/2), at)
	}
}

// forget resets one of a user's counters, but for that of the whole event.
func (w worker) forget(to judge.Call, user int32) {
	if l, id := w.limit(user); !l.Whole() && !w.mayNotReset.Load() {
		w.reset(w.calls, to, id)
	}
}

// quiet calls for one user after another, each call when the one before was answered: up to what
// fits, once more too early, and once more when retry_after is over.
func (w worker) quiet() {
	for w.sleep(0) {
		user := w.log.NewUser(judge.Quiet)
		if len(w.rls) == 0 && w.rng.IntN(3) == 0 && w.next() {
			w.increment(w.calls, w.any(), user, 1+w.rng.Int64N(2), 0)
		}
		var changed judge.Call // the past, by a target: until then others may not know of it
		var until time.Time
		// Some are called for so shortly that others begin at all times.
		for n := w.rng.IntN(maxQuiet); n < maxQuiet && w.next(); n++ {
			to, cost := w.any(), w.cost()
			if time.Now().Before(until) {
				to = changed
			}
			past := w.late
			switch kind := w.rng.IntN(96); {
			case kind < 8:
				w.check(w.calls, to, user, cost)
				continue
			case len(w.rls) > 0:
			case kind < 16:
				w.batch(w.calls, to, []int32{user, user}, []int64{cost, 1})
				continue
			case kind == 18:
				past = w.forget
				fallthrough
			case kind < 18:
				past(to, user)
				changed, until = to, time.Now().Add(judge.Closed+10*time.Millisecond)
				w.check(w.calls, to, user, cost)
				if len(w.hosts) > 1 && w.rng.IntN(4) == 0 {
					w.sleep(time.Until(until))
				}
				continue
			}
			e, l := w.settled(to, user, cost)
			if l.reservation != "" && w.rng.IntN(4) == 0 {
				l = w.renewed(l)
			}
			if w.rng.IntN(4) > 0 {
				w.settle(w.calls, to, l, 0)
			}
			if e.Outcome == judge.Unknown || e.Outcome == judge.Denied && !w.again(e) {
				break
			}
		}
	}
}

// again comes again when retry_after is over, and in between. It reports whether there was time
// for it.
func (w worker) again(told judge.Entry) bool {
	if told.RetryAfter == contract.Never {
		return true
	}
	due := w.log.Began.Add(time.Duration(told.Answered)).Add(time.Duration(told.RetryAfter) * time.Second)
	if due.Sub(w.log.Began) > w.length {
		return false
	}
	to := w.to(int(told.Target))
	if !w.CountsAll() { // else what comes too early makes the wait longer
		if !w.sleep(time.Duration(w.rng.Float64() * float64(time.Until(due)))) {
			return false
		}
		if e, _ := w.hit(w.calls, to, told.User, int64(told.Cost), false); e.Outcome == judge.Denied {
			atomic.AddInt64(&w.findings.Checked.Early, 1)
		}
	}
	// A moment more: it is what was sent after it that is not denied.
	if !w.sleep(time.Until(due) + time.Millisecond) {
		return false
	}
	if e, _ := w.hit(w.calls, to, told.User, int64(told.Cost), false); e.Outcome == judge.Admitted {
		atomic.AddInt64(&w.findings.Checked.Retries, 1)
	}
	return true
}

// bursts has many clients hit one feature at the same moment, again and again another one.
func (w worker) bursts() {
	size := maxBurst
	for _, l := range w.Limits {
		if l.N > 0 {
			size = min(size, int(min(l.Most()*3+8, maxBurst)))
		}
	}
	for more := true; more; more = w.sleep(burstEvery) {
		user, start := w.log.NewUser(judge.Burst), make(chan struct{})
		var all sync.WaitGroup
		for i := range size {
			to := w.any()
			to.Client += uint16(i)
			all.Go(func() {
				<-start
				w.hit(w.calls, to, user, 1, false)
			})
		}
		close(start)
		all.Wait()
	}
}
