package limiter

import (
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/engine"
)

// stamps gives hits their stamps: Unix seconds that never go back.
type stamps struct{ last atomic.Int64 }

// next returns the second of the moment, or the last stamp where that is later.
func (s *stamps) next(now time.Time) int64 {
	for {
		last := s.last.Load()
		if now.Unix() <= last {
			return last
		}
		if s.last.CompareAndSwap(last, now.Unix()) {
			return now.Unix()
		}
	}
}

// isLate reports whether a hit of the moment may no longer be admitted now: on the monotonic clock
// or on the wall's more than half the grace has passed since, or the stamp is far ahead of the
// wall's.
func isLate(m engine.Moment, now time.Time, grace time.Duration) bool {
	if elapsed := now.Sub(m.Now); elapsed > grace/2 {
		return true
	}
	stamped := m.Now.Round(0)
	if second := time.Unix(m.Stamp, 0); second.After(stamped) {
		stamped = second
	}
	wall := now.Round(0).Sub(stamped)
	return wall < -grace/4 || wall > grace/2
}
