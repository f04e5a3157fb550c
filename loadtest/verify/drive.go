package verify

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/counterd/counterd/loadtest/fleet"
)

const (
	// maxQuiet is how many calls are made at the most for a quiet feature.
	maxQuiet = 120
	// burstEvery is the time between two bursts.
	burstEvery = 700 * time.Millisecond
	// maxBurst bounds a burst.
	maxBurst = 48
)

// driver has clients call until the context ends or the log is full.
type driver struct {
	caller *caller
	config Config
	began  time.Time
	length time.Duration

	running sync.WaitGroup
}

// quietClients is how many of the clients call each for one feature alone.
func (c Config) quietClients() int { return max(1, c.clients()/4) }

// start has the clients begin. They call until the first context ends; the second is that of
// their calls, so that none is cut short by the end of the run: its outcome counts.
func (d *driver) start(ctx, whole context.Context) {
	for i := range d.config.clients() {
		rng := rand.New(rand.NewPCG(d.config.Seed, uint64(i)))
		d.running.Go(func() { d.busy(ctx, whole, i, rng) })
	}
	for i := range d.config.quietClients() {
		client := d.config.clients() + i
		rng := rand.New(rand.NewPCG(d.config.Seed, uint64(client)))
		d.running.Go(func() { d.quiet(ctx, whole, client, rng) })
	}
	client := d.config.clients() + d.config.quietClients()
	rng := rand.New(rand.NewPCG(d.config.Seed, uint64(client)))
	d.running.Go(func() { d.bursts(ctx, whole, client, rng) })
}

// over reports whether no more calls are to be made.
func (d *driver) over(ctx context.Context) bool { return ctx.Err() != nil || d.caller.log.isFull() }

// busy calls for the features of all clients.
func (d *driver) busy(ctx, whole context.Context, client int, rng *rand.Rand) {
	turns := d.turns(ctx, rng)
	for !d.over(ctx) {
		d.one(whole, client, rng)
		turns.await(ctx)
	}
}

// turns are when a client may call.
type turns struct {
	pause time.Duration // from one call to the next; 0: there is none
	next  time.Time
}

// turns returns those of one client, at a moment of its own.
func (d *driver) turns(ctx context.Context, rng *rand.Rand) *turns {
	t := &turns{}
	if d.config.Rate > 0 {
		t.pause = time.Duration(float64(d.config.clients()) / d.config.Rate * float64(time.Second))
		fleet.Sleep(ctx, time.Duration(rng.Float64()*float64(t.pause)))
	}
	t.next = time.Now()
	return t
}

// await waits for the next turn. Turns that are over are not made up for.
func (t *turns) await(ctx context.Context) {
	now := time.Now()
	t.next = t.next.Add(t.pause)
	if t.next.Before(now) {
		t.next = now
	}
	fleet.Sleep(ctx, t.next.Sub(now))
}

// one makes one call of the mix.
func (d *driver) one(ctx context.Context, client int, rng *rand.Rand) {
	target := rng.IntN(len(d.caller.targets))
	who := d.busyUser(rng)
	switch n := rng.IntN(100); {
	case rng.IntN(400) == 0:
		d.reset(ctx, client, target, who, rng)
	case n < 78:
		d.caller.hit(ctx, client, target, who, costOf(rng))
	case n < 86:
		d.caller.check(ctx, client, target, who, costOf(rng))
	case n < 91:
		whos, costs := make([]int32, 2+rng.IntN(6)), []int64(nil)
		for i := range whos {
			whos[i] = d.busyUser(rng)
			costs = append(costs, costOf(rng))
		}
		d.caller.batch(ctx, client, target, whos, costs)
	case n < 92:
		d.caller.increment(ctx, client, target, who, costOf(rng), 0)
	case n < 93:
		d.late(ctx, client, target, who, rng)
	default:
		d.look(ctx, client, target, who, rng)
	}
}

// busyUser draws a busy user, in half of the calls one of the first few.
func (d *driver) busyUser(rng *rand.Rand) int32 {
	n := d.config.features()
	if rng.IntN(2) == 0 {
		n = max(1, n/8)
	}
	return int32(rng.IntN(n))
}

// costOf is 1 in most calls.
func costOf(rng *rand.Rand) int64 { return int64(max(1, rng.IntN(8)-4)) }

// look counts one of a user's counters, over the window of one of its limits.
func (d *driver) look(ctx context.Context, client, target int, who int32, rng *rand.Rand) {
	l := d.caller.contract.limits[rng.IntN(len(d.caller.contract.limits))]
	id := d.caller.users.who(who).counters[l.rule]
	d.caller.count(ctx, client, target, id, d.caller.users.counterOf(id), min(l.length, d.caller.contract.retention), 0)
}

// late adds to the past of a user, where that is remembered for long enough, and counts the
// window of a limit then.
func (d *driver) late(ctx context.Context, client, target int, who int32, rng *rand.Rand) entry {
	l, longest := d.caller.contract.limits[rng.IntN(len(d.caller.contract.limits))], d.caller.contract.retention/2
	if !d.caller.contract.remembersLate() {
		return d.caller.increment(ctx, client, target, who, costOf(rng), 0)
	}
	at := time.Now().Unix() - 1 - rng.Int64N(min(l.length+5, longest-margin))
	e := d.caller.increment(ctx, client, target, who, costOf(rng), at)
	id := d.caller.users.who(who).counters[l.rule]
	if e.outcome == admitted {
		d.caller.count(ctx, client, target, id, d.caller.users.counterOf(id), min(l.length, longest), at)
	}
	return e
}

// reset forgets one of a user's counters, but for that of the whole event. It reports whether
// there was one.
func (d *driver) reset(ctx context.Context, client, target int, who int32, rng *rand.Rand) bool {
	l := d.caller.contract.limits[rng.IntN(len(d.caller.contract.limits))]
	if d.caller.contract.whole(l) || d.caller.mayNotReset.Load() {
		return false
	}
	return d.caller.reset(ctx, client, target, d.caller.users.who(who).counters[l.rule])
}

// changed is a target that has changed something of the past. The others may not know of it yet.
type changed struct {
	target int
	until  time.Time
}

// settle asks that target, which knows. It is called on until all do, or that is waited for.
func (d *driver) settle(ctx, whole context.Context, client, target int, who int32, cost int64, rng *rand.Rand) changed {
	all := time.Now().Add(closedLife + 10*time.Millisecond)
	d.caller.check(whole, client, target, who, cost)
	if len(d.caller.targets) > 1 && rng.IntN(4) == 0 {
		fleet.Sleep(ctx, time.Until(all))
	}
	return changed{target, all}
}

// quiet calls for one feature after another, each call when the one before was answered:
// up to what fits, once more too early, and once more when retry_after is over.
func (d *driver) quiet(ctx, whole context.Context, client int, rng *rand.Rand) {
	targets := len(d.caller.targets)
	turns := d.turns(ctx, rng)
	for !d.over(ctx) {
		who := d.caller.users.fresh(quiet)
		if rng.IntN(3) == 0 {
			d.caller.increment(whole, client, rng.IntN(targets), who, 1+rng.Int64N(2), 0)
			turns.await(ctx)
		}
		var past changed
		// Some are called for so shortly that others begin at all times.
		for calls := rng.IntN(maxQuiet); calls < maxQuiet && !d.over(ctx); calls++ {
			turns.await(ctx)
			target, cost := rng.IntN(targets), costOf(rng)
			if time.Now().Before(past.until) {
				target = past.target
			}
			switch rng.IntN(96) {
			case 0, 1, 2, 3, 4, 5, 6, 7:
				d.caller.check(whole, client, target, who, cost)
				continue
			case 8, 9, 10, 11, 12, 13, 14, 15:
				d.caller.batch(whole, client, target, []int32{who, who}, []int64{cost, 1})
				continue
			case 16, 17:
				d.late(whole, client, target, who, rng)
				past = d.settle(ctx, whole, client, target, who, cost, rng)
				continue
			case 18:
				d.reset(whole, client, target, who, rng)
				past = d.settle(ctx, whole, client, target, who, cost, rng)
				continue
			}
			e := d.caller.hit(whole, client, target, who, cost)
			if e.outcome == unknown || e.outcome == denied && !d.waitFor(ctx, whole, client, who, e, rng) {
				break
			}
		}
	}
}

// waitFor comes again when retry_after is over, and in between. It reports whether there
// was time for it.
func (d *driver) waitFor(ctx, whole context.Context, client int, who int32, told entry, rng *rand.Rand) bool {
	if told.retryAfter == never {
		return true
	}
	wait := time.Duration(told.retryAfter) * time.Second
	due := d.began.Add(time.Duration(told.answered)).Add(wait)
	if due.Sub(d.began) > d.length {
		return false
	}
	if !d.caller.contract.countsAll() { // else what comes too early makes the wait longer
		fleet.Sleep(ctx, time.Duration(rng.Float64()*float64(time.Until(due))))
		if d.over(ctx) {
			return false
		}
		d.caller.hit(whole, client, int(told.target), who, int64(told.cost))
	}
	// A moment more: it is what was sent after it that is not denied.
	fleet.Sleep(ctx, time.Until(due)+time.Millisecond)
	if d.over(ctx) {
		return false
	}
	d.caller.hit(whole, client, int(told.target), who, int64(told.cost))
	return true
}

// bursts has many clients hit one feature at the same moment, again and again another one.
func (d *driver) bursts(ctx, whole context.Context, client int, rng *rand.Rand) {
	size := maxBurst
	for _, l := range d.caller.contract.limits {
		if l.n > 0 {
			size = min(size, int(min(l.n*3+8, maxBurst)))
		}
	}
	for !d.over(ctx) {
		who := d.caller.users.fresh(burst)
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range size {
			target := rng.IntN(len(d.caller.targets))
			all.Go(func() {
				<-start
				d.caller.hit(whole, client+i, target, who, 1)
			})
		}
		close(start)
		all.Wait()
		fleet.Sleep(ctx, burstEvery)
	}
}
