package compare

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"golang.org/x/time/rate"
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

func (r *reference[S]) items(feature string) (n, value int) {
	state, found := r.states[feature]
	if !found {
		return 0, 0
	}
	return 1, 8 * r.numbers(state)
}

func (r *reference[S]) asked() asked { return r.count }

// references returns the implementations for comparison. The last has that many processes.
func references(processes int) []contender {
	return []contender{
		{"sliding log", keeping(slidingLog, func(times []int64) int { return len(times) })},
		{"two windows", keeping(twoWindows, always[windows](3))},
		{"fixed window", keeping(fixedWindow, func(windows) int { return 2 })},
		{"token bucket", keeping(tokenBucket, always[*rate.Limiter](2))}, // the tokens, and when they were counted
		{"GCRA", keeping(gcra, always[int64](1))},
		{fmt.Sprintf("log, %d at once", processes), keeping(racing(processes), func(s race) int {
			for _, m := range s.pending {
				s.written = appendTimes(s.written, m)
			}
			return len(s.written)
		})},
	}
}

// always is the size of states that are all alike.
func always[S any](numbers int) func(S) int { return func(S) int { return numbers } }

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

// slidingLog keeps the time of each hit that it admits, as often as the hit costs, for as
// long as a window may hold it. It is exact.
func slidingLog(l limit, times []int64, now, cost int64) ([]int64, bool) {
	for len(times) > 0 && times[0] <= now-l.window {
		times = times[1:]
	}
	if int64(len(times))+cost > l.n {
		return nil, false
	}
	return appendTimes(times, moment{now, cost}), true
}

type moment struct{ at, cost int64 }

func appendTimes(times []int64, m moment) []int64 {
	for range m.cost {
		times = append(times, m.at)
	}
	return times
}

// race is a sliding log with hits that are admitted, and not written yet, the oldest first.
type race struct {
	written []int64
	pending []moment
}

// racing is a log that several processes read, decide on, and write afterwards: of each
// feature as many hits are under way at once as there are processes, as long as they come in
// the same second. A hit does not see what the others under way have admitted.
func racing(processes int) func(limit, race, int64, int64) (race, bool) {
	return func(l limit, s race, now, cost int64) (race, bool) {
		for len(s.pending) > 0 && (len(s.pending) >= processes || s.pending[0].at/second != now/second) {
			s.written = appendTimes(s.written, s.pending[0])
			s.pending = s.pending[1:]
		}
		for len(s.written) > 0 && s.written[0] <= now-l.window {
			s.written = s.written[1:]
		}
		s.pending = append(s.pending, moment{now, cost})
		return s, int64(len(s.written))+cost <= l.n
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
