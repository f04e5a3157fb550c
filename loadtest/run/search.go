package run

import "github.com/counterd/counterd/loadtest/arrival"

const (
	// precise is how near the bounds of the knee come to each other, as a part of the lower.
	precise = 0.05
	// lowest is the least rate that is tried.
	lowest = 1
	// failedLead is by how many trials those that fail lead those that pass before a rate is
	// believed too high. The first lead of those that pass is believed at once: noise makes
	// latencies longer, hardly ever shorter.
	failedLead = 3
	// judgedBy is how many trials one judgment takes at most. It is odd: one side leads.
	judgedBy = 9
	// maxTrials bounds the trials of a search.
	maxTrials = 100
)

// search looks for the knee among rates whose trials fail at random, too. It judges a rate by
// several trials, doubles and bisects, and judges both bounds anew when they are near each
// other: a busy spell of the machine fails trials in a row, and is over by then. A bound that
// does not hold moves to the other side, and the search goes on from there.
//
// A trial of a borne rate that fails with a probability p makes the rate look too high with a
// probability of 0.1% (p = 0.1), 1.2% (0.2) or 5.4% (0.3), and the same once more at the bounds.
type search struct {
	borne, tooHigh []float64 // of both the last one is the bound; all that are borne are lower
	confirmed      map[float64]bool
	rate           float64 // on trial; 0: the search is over
	passed, failed int     // trials of the judgment that is under way
	trials         int     // in all
}

func newSearch(start float64) *search {
	return &search{confirmed: map[float64]bool{}, rate: start}
}

// bound returns the last of a list; 0: there is none.
func bound(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	return rates[len(rates)-1]
}

// tried takes a trial of the rate that was on trial, and decides on the next one.
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

// judged takes what is so of the rate that was on trial.
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

// next returns the rate to judge next; 0: both bounds are known, and were judged twice.
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

// settled reports whether the search came to its end by itself.
func (s *search) settled() bool { return s.rate == 0 && s.next() == 0 }
