package compare

import "context"

// slidingLog keeps the time of each hit that it admits, as often as the hit costs, for as
// long as a window may hold it. It is exact.
type slidingLog struct {
	limit
	cells[[]int64]
}

func newSlidingLog(l limit) *slidingLog { return &slidingLog{l, newCells[[]int64]()} }

func (s *slidingLog) decide(_ context.Context, feature string, now, cost int64) (bool, error) {
	log := s.since(s.read(feature), now)
	if int64(len(log))+cost > s.n {
		return false, nil
	}
	s.write(feature, appendTimes(log, now, cost))
	return true, nil
}

// since returns what of the log is in the window that ends now.
func (l limit) since(log []int64, now int64) []int64 {
	gone := 0
	for gone < len(log) && log[gone] <= now-l.window {
		gone++
	}
	return log[gone:]
}

func appendTimes(log []int64, now, cost int64) []int64 {
	for range cost {
		log = append(log, now)
	}
	return log
}

func (s *slidingLog) items(feature string) (n, value int) {
	return s.numbers(feature, len(s.states[feature]))
}
