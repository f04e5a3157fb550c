package compare

import "context"

// fixed counts what it admits in windows that begin at multiples of their length since
// 1970, as most limiters do that have one counter with an expiry.
type fixed struct {
	limit
	cells[fixedState]
}

type fixedState struct {
	number int64 // of the window
	count  int64
}

func newFixed(l limit) *fixed { return &fixed{l, newCells[fixedState]()} }

func (f *fixed) decide(_ context.Context, feature string, now, cost int64) (bool, error) {
	s := f.read(feature)
	if number := now / f.window; s.number != number {
		s = fixedState{number: number}
	}
	if s.count+cost > f.n {
		return false, nil
	}
	s.count += cost
	f.write(feature, s)
	return true, nil
}

func (f *fixed) items(feature string) (n, value int) { return f.numbers(feature, 2) }
