package run

import "github.com/counterd/counterd/loadtest/arrival"

const (
	precise    = 0.05 // distance of the bounds of the knee, as a part of the lower
	lowest     = 1    // rate
	failedLead = 3    // of failed trials: the rate is too high
	judgedBy   = 9    // trials of one rate at most, an odd number
	maxTrials  = 100
)

// search looks for the knee among rates whose trials fail at random, too. It judges a rate by
// several trials, doubles and bisects, and judges both bounds again at the end, since a busy
// spell of the machine fails trials in a row. A refuted bound moves to the other side.
//
// The first lead of passed trials decides: noise makes latencies longer, hardly ever shorter.
// A borne rate whose trials fail with a probability p looks too high with a probability of
// 0.1% (p = 0.1), 1.2% (0.2) or 5.4% (0.3), and the same once more at the bounds.
type search struct {
	borne, tooHigh []float64 // the last one of each is the bound
	confirmed      map[float64]bool
	rate           float64 // on trial; 0: the search is over
	passed, failed int     // trials of the present rate
	trials         int     // in all
}

func newSearch(start float64) *search {
	return &search{confirmed: map[float64]bool{}, rate: start}
}

// bound returns the last rate; 0: none.
func bound(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	return rates[len(rates)-1]
}

// tried takes a trial of the present rate, and chooses the next one.
func (s *search) tried(failed bool) {
	s.trials++
	if failed {
		s.failed++
	} else {
		s.passed++
	}
	switch lead := s.failed - s.passed; {
	case lead < 0:
		s.judged(false)
	case lead >= failedLead || s.failed+s.passed == judgedBy:
		s.judged(true)
	}
	if s.trials >= maxTrials {
		s.rate = 0
	}
}

// judged takes the judgment on the present rate.
func (s *search) judged(tooHigh bool) {
	of, other := &s.borne, &s.tooHigh
	if tooHigh {
		of, other = other, of
	}
	switch s.rate {
	case bound(*of):
		s.confirmed[s.rate] = true
	case bound(*other):
		*other = (*other)[:len(*other)-1]
		*of = append(*of, s.rate)
		delete(s.confirmed, s.rate)
	default:
		*of = append(*of, s.rate)
	}
	s.passed, s.failed = 0, 0
	s.rate = s.next()
}

// next returns the rate to judge next; 0: both bounds are confirmed.
func (s *search) next() float64 {
	low, high := bound(s.borne), bound(s.tooHigh)
	switch {
	case high == 0 && low < arrival.MaxRate:
		return min(2*low, arrival.MaxRate)
	case low == 0 && high > lowest:
		return max(high/2, lowest)
	case low > 0 && high-low > precise*low:
		return (low + high) / 2
	case high > 0 && !s.confirmed[high]:
		return high
	case low > 0 && !s.confirmed[low]:
		return low
	}
	return 0
}

// settled reports whether the search has found its end.
func (s *search) settled() bool { return s.rate == 0 && s.next() == 0 }
