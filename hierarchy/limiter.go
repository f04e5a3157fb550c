package hierarchy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
)

const (
	// DefaultTimeout is the longest wait for the store in one decision.
	DefaultTimeout = 100 * time.Millisecond
	// MaxCost is the most that one hit costs.
	MaxCost = 1_000_000
	// MaxHits is the most hits that are decided together.
	MaxHits = 1000

	// maxTries is how often a hit that was denied for what may have been of the
	// moment looks again; within the timeout it gets to fewer.
	maxTries = 40
	maxPause = 16 * time.Millisecond

	// tripsAtOnce bounds the trips of one decision that are under way at a time.
	tripsAtOnce = 64
)

// LimiterConfig sets up a Limiter. Only Store is needed.
type LimiterConfig struct {
	Store Store
	// Local decides where the store cannot be asked and a rule says so
	// (events.OnErrorLocal); nil: such a rule denies then. It is of this process
	// alone.
	Local Store
	Clock func() time.Time // nil: time.Now
	Grace time.Duration    // 0: DefaultGrace; processes that share a store need the same
	// Timeout is the longest wait for the store in one decision, what has to be taken
	// back aside, which has as long again; where so many hits are decided together
	// that their trips have to queue, for each 64 of them. 0: DefaultTimeout; at most
	// half the grace.
	Timeout time.Duration
	// Report is told of each trip to the store that failed, and of each take-back
	// that did: what it should have taken stays counted. nil: nobody is.
	Report func(error)
}

// Limiter decides hits: it adds them to their counters and admits those that fit
// the limits of all their rules. However many Limiters decide at once on one
// store, in however many processes, no window of a limit ever holds more
// admitted cost than the limit allows, as long as their clocks agree within a
// quarter of the grace and the store keeps what it acknowledged. docs/design.md
// has the proof.
//
// It is safe for concurrent use. Its counters are those of Counters.
type Limiter struct {
	store   Store
	local   Store
	now     func() time.Time
	grace   time.Duration
	timeout time.Duration
	report  func(error)
	stamp   atomic.Int64 // the last one given
	denials denials
	random  func(below time.Duration) time.Duration
	// What the simulation breaks to see that it finds it broken.
	ahead  int64
	spanOf func(now int64, length time.Duration, finest Level, ahead int64) span
}

// NewLimiter returns a Limiter on the store of the config.
func NewLimiter(config LimiterConfig) (*Limiter, error) {
	l := &Limiter{
		store:   config.Store,
		local:   config.Local,
		now:     config.Clock,
		grace:   cmp.Or(config.Grace, DefaultGrace),
		timeout: cmp.Or(config.Timeout, DefaultTimeout),
		report:  config.Report,
		random:  rand.N[time.Duration],
		spanOf:  spanOf,
	}
	if l.report == nil {
		l.report = func(error) {}
	}
	if l.now == nil {
		l.now = time.Now
	}
	l.ahead = ceilSeconds(l.grace)
	if l.store == nil {
		return nil, errors.New("hierarchy: a limiter needs a store")
	}
	if l.timeout < 0 || l.timeout > l.grace/2 {
		return nil, fmt.Errorf("hierarchy: the timeout, %s, is more than half the grace, %s", l.timeout, l.grace)
	}
	return l, nil
}

// Hit is what is to be decided: somebody does an event.
type Hit struct {
	Event    *events.Event
	Features events.Features
	Cost     int64 // 1 to MaxCost
}

// Result is what became of one of several hits: a decision, or why there is none.
type Result struct {
	Decision Decision
	Err      error
}

// Hit adds the hit to its counters and decides it. Where it is denied its adds
// are taken back, unless a rule counts all hits. A fault of the hit is an error
// that wraps events.ErrInvalid or ErrOutOfRange; a store that fails is a decision
// by the rules' OnError, not an error.
func (l *Limiter) Hit(ctx context.Context, h Hit) (Decision, error) {
	results, err := l.Hits(ctx, []Hit{h})
	if err != nil {
		return Decision{}, err
	}
	return results[0].Decision, results[0].Err
}

// Hits decides several hits, at most MaxHits, as Hit does each of them, those on
// the same counter in their order and in one trip. The error is that of the
// context, if it had ended before anything was done.
func (l *Limiter) Hits(ctx context.Context, hits []Hit) ([]Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(hits) > MaxHits {
		return nil, outOfRange(ArgHits, "%d of them, at most %d are decided together", len(hits), MaxHits)
	}
	hits = slices.Clone(hits)
	results := make([]Result, len(hits))
	places := make([]int, len(hits)) // of the flush's hits in the results
	for i := range places {
		places[i] = i
	}
	crowds := make([]crowd, len(hits)) // of the results
	began, until := l.now(), time.Now().Add(l.timeout*time.Duration(1+len(hits)/tripsAtOnce))
	for try := 0; ; try++ {
		f := l.newFlush(ctx, hits, until)
		if try > 0 {
			f.lookAgain()
		}
		f.look()
		f.add()
		f.decide()
		f.takeBack()
		goOn := try < maxTries && l.now().Sub(began) < l.timeout && ctx.Err() == nil
		f.leaveUnsettled(goOn, func(i int) *crowd { return &crowds[places[i]] })
		f.findResets()
		f.remember()
		var open []int
		for i, result := range f.results() {
			// Where the store has failed since, the denial that it gave stands.
			if !f.hits[i].stale {
				results[places[i]] = result
			}
			if f.hits[i].unsettled {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			return results, nil
		}
		for i, at := range open {
			hits[i], places[i] = hits[at], places[at]
		}
		hits, places = hits[:len(open)], places[:len(open)]
		l.pause(ctx, try)
	}
}

// pause lets those go first who are in each other's way: not at all the first
// time, then for a random time that grows to maxPause.
func (l *Limiter) pause(ctx context.Context, try int) {
	if try == 0 {
		return
	}
	timer := time.NewTimer(l.random(min(time.Millisecond<<try, maxPause)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Check returns the decision that the hit would get, with exact counts, and adds
// nothing.
func (l *Limiter) Check(ctx context.Context, h Hit) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	f := l.newFlush(ctx, nil, time.Now().Add(l.timeout))
	f.checkOnly = true
	f.hits = []*hit{f.resolve(h)}
	f.look()
	f.decide()
	f.findResets()
	result := f.results()[0]
	return result.Decision, result.Err
}

// nextStamp returns the second of the moment, or the last one given where that is
// later: stamps never go back.
func (l *Limiter) nextStamp(now time.Time) int64 {
	for {
		last := l.stamp.Load()
		if now.Unix() <= last {
			return last
		}
		if l.stamp.CompareAndSwap(last, now.Unix()) {
			return now.Unix()
		}
	}
}

// trusted reports whether a hit that began at the moment, with that stamp, may
// still be admitted: on the monotonic clock and on the wall's no more than half
// the grace has passed since, and the stamp is not far ahead of the wall's.
func (l *Limiter) trusted(began time.Time, stamp int64) bool {
	now := l.now()
	if elapsed := now.Sub(began); elapsed > l.grace/2 {
		return false
	}
	stamped := began.Round(0)
	if second := time.Unix(stamp, 0); second.After(stamped) {
		stamped = second
	}
	wall := now.Round(0).Sub(stamped)
	return wall >= -l.grace/4 && wall <= l.grace/2
}

// sideBySide calls do for each of the claims, a bounded number at a time, and
// waits for all.
func sideBySide(claims []*claim, do func(*claim)) {
	if len(claims) == 1 {
		do(claims[0])
		return
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, tripsAtOnce)
	for _, c := range claims {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			do(c)
		})
	}
	running.Wait()
}
