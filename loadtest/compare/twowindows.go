package compare

import (
	"context"
	"math/bits"
)

// twoWindows takes of the fixed window before the part that a sliding one would still
// touch, as if its hits had come evenly. It is the approximation that Cloudflare described
// in "How we built rate limiting capable of scaling to millions of domains" (2017).
type twoWindows struct {
	limit
	cells[twoWindowsState]
}

type twoWindowsState struct {
	number           int64 // of the present window
	count, countLast int64 // in it, and in the one before
}

func newTwoWindows(l limit) *twoWindows { return &twoWindows{l, newCells[twoWindowsState]()} }

func (t *twoWindows) decide(_ context.Context, feature string, now, cost int64) (bool, error) {
	s := t.read(feature)
	switch number := now / t.window; number - s.number {
	case 0:
	case 1:
		s = twoWindowsState{number: number, countLast: s.count}
	default:
		s = twoWindowsState{number: number}
	}
	if room := t.n - s.count - cost; room < 0 || !atMost(s.countLast, t.window-now%t.window, room, t.window) {
		return false, nil
	}
	s.count += cost
	t.write(feature, s)
	return true, nil
}

func (t *twoWindows) items(feature string) (n, value int) { return t.numbers(feature, 3) }

// atMost reports whether a times b is at most c times d, of numbers from 0 on, however
// large the products.
func atMost(a, b, c, d int64) bool {
	high, low := bits.Mul64(uint64(a), uint64(b))
	mostHigh, mostLow := bits.Mul64(uint64(c), uint64(d))
	return high < mostHigh || high == mostHigh && low <= mostLow
}
