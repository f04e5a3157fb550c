package hierarchy

import (
	"sync/atomic"
	"time"
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

// isTrusted reports whether a hit that began at the moment, with that stamp, may still be
// admitted now: on the monotonic clock and on the wall's no more than half the grace has passed
// since, and the stamp is not far ahead of the wall's.
func isTrusted(began time.Time, stamp int64, now time.Time, grace time.Duration) bool {
	if elapsed := now.Sub(began); elapsed > grace/2 {
		return false
	}
	stamped := began.Round(0)
	if second := time.Unix(stamp, 0); second.After(stamped) {
		stamped = second
	}
	wall := now.Round(0).Sub(stamped)
	return wall >= -grace/4 && wall <= grace/2
}
