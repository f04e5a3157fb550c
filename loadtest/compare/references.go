package compare

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"golang.org/x/time/rate"

	"github.com/counterd/counterd/loadtest/memcached"
)

// reference is a way of limiting that keeps one item for each feature: it reads the state S and,
// for a hit that it admits, writes the next one. It remembers nothing else.
type reference[S any] struct {
	limit
	admit   func(l limit, state S, now, cost int64) (next S, admitted bool)
	numbers func(S) int // that a state is made of, of 8 bytes each
	states  map[string]S
	count   asked
}

func (r *reference[S]) decide(_ context.Context, feature string, now, cost int64) (bool, error) {
	next, admitted := r.admit(r.limit, r.states[feature], now, cost)
	r.count.trips++
	r.count.reads++
	if admitted {
		r.states[feature] = next
		r.count.trips++
		r.count.writes++
	}
	return admitted, nil
}

func (r *reference[S]) bytes(feature string) int64 {
	state, found := r.states[feature]
	if !found {
		return 0
	}
	return memcached.ChunkOf(8 * r.numbers(state))
}

func (r *reference[S]) asked() asked { return r.count }

const fixedReference = "fixed window"

// references returns the implementations for comparison. The last has that many processes.
func references(processes int) []contender {
	logged := func(s log) int { return len(s.written(len(s.pending)).times) }
	return []contender{
		{"sliding log", keeping(slidingLog(1), logged), false},
		{"two windows", keeping(twoWindows, func(windows) int { return 3 }), false},
		{fixedReference, keeping(fixedWindow, func(windows) int { return 2 }), false},
		{"token bucket", keeping(tokenBucket, func(*rate.Limiter) int { return 2 }), true}, // the tokens, and when they were counted
		{"GCRA", keeping(gcra, func(int64) int { return 1 }), true},
		{fmt.Sprintf("log, %d at once", processes), keeping(slidingLog(processes), logged), false},
	}
}

func keeping[S any](admit func(limit, S, int64, int64) (S, bool), numbers func(S) int) func(limit) (algorithm, error) {
	return func(l limit) (algorithm, error) {
		return &reference[S]{limit: l, admit: admit, numbers: numbers, states: map[string]S{}}, nil
	}
}

// windows are counts of windows that begin at multiples of their length since 1970.
type windows struct {
	number, count int64 // of the present window
	last          int64 // the count of the one before
}

// at returns the windows when the present one is that of now.
func (s windows) at(l limit, now int64) windows {
	switch number := now / l.window; number - s.number {
	case 0:
		return s
	case 1:
		return windows{number: number, last: s.count}
	default:
		return windows{number: number}
	}
}

// fixedWindow is what most limiters do that have one counter with an expiry.
func fixedWindow(l limit, s windows, now, cost int64) (windows, bool) {
	s = s.at(l, now)
	s.count += cost
	return s, s.count <= l.n
}

// twoWindows takes of the fixed window before the part that a sliding one would still
// touch, as if its hits had come evenly. It is the approximation that Cloudflare described
// in "How we built rate limiting capable of scaling to millions of domains" (2017).
func twoWindows(l limit, s windows, now, cost int64) (windows, bool) {
	s = s.at(l, now)
	s.count += cost
	left := l.n - s.count
	return s, left >= 0 && atMost(s.last, l.window-now%l.window, left, l.window)
}

// atMost reports whether a times b is at most c times d, of numbers from 0 on, however
// large the products.
func atMost(a, b, c, d int64) bool {
	high, low := bits.Mul64(uint64(a), uint64(b))
	mostHigh, mostLow := bits.Mul64(uint64(c), uint64(d))
	return high < mostHigh || high == mostHigh && low <= mostLow
}

// log is the time of each admitted hit, as often as the hit costs, for as long as a window may
// hold it, and the hits that are admitted and not written yet, the oldest first.
type log struct {
	times   []int64
	pending []moment
}

type moment struct{ at, cost int64 }

// written is the log with the oldest hits that are pending written.
func (s log) written(hits int) log {
	for _, m := range s.pending[:hits] {
		for range m.cost {
			s.times = append(s.times, m.at)
		}
	}
	s.pending = s.pending[hits:]
	return s
}

// slidingLog is a log that several processes read, decide on, and write afterwards: of each
// feature as many hits are under way at once as there are processes, as long as they come in
// the same second. A hit does not see what the others under way have admitted. With one
// process it is exact.
func slidingLog(processes int) func(limit, log, int64, int64) (log, bool) {
	return func(l limit, s log, now, cost int64) (log, bool) {
		over := 0
		for over < len(s.pending) && (len(s.pending)-over >= processes || s.pending[over].at/second != now/second) {
			over++
		}
		s = s.written(over)
		for len(s.times) > 0 && s.times[0] <= now-l.window {
			s.times = s.times[1:]
		}
		s.pending = append(s.pending, moment{now, cost})
		return s, int64(len(s.times))+cost <= l.n
	}
}

// tokenBucket is that of golang.org/x/time/rate: it holds as many tokens as the limit
// allows, is full at first, and is filled evenly, whole in a window.
func tokenBucket(l limit, s *rate.Limiter, now, cost int64) (*rate.Limiter, bool) {
	if s == nil {
		s = rate.NewLimiter(rate.Limit(float64(l.n)/time.Duration(l.window).Seconds()), int(l.n))
	}
	return s, s.AllowN(time.Unix(0, now), int(cost))
}

// gcra is the generic cell rate algorithm, as virtual scheduling, of ITU-T I.371: it keeps
// one time, that at which the next hit would be due if all came evenly, and admits what is
// ahead of it by no more than a window. The interval is rounded up to a nanosecond, so that a
// window's hits are never due in less than it.
func gcra(l limit, due, now, cost int64) (int64, bool) {
	interval := (l.window + l.n - 1) / l.n
	if cost > l.n { // the product may be beyond an int64
		return 0, false
	}
	due = max(due, now) + interval*cost
	return due, due-now <= interval*l.n
}
