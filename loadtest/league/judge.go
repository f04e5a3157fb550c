package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/exactlog"
)

// Promise is the rule by which a contender says that it limits.
type Promise int

// Promises.
const (
	Sliding  Promise = iota // no window of the length holds more than N
	Seconds                 // none that begins with a second of the clock does
	Log                     // Sliding below a minute, else Seconds
	Aligned                 // none that begins at a multiple of its length since 1970 does
	Anchored                // a window begins with a hit after the end of the one before
	Stepped                 // windows follow one another from the first hit on
	Bucket                  // no t seconds hold more than N and what returns in t, N in a window
)

// String returns the name of the algorithm that promises it.
func (p Promise) String() string {
	switch p {
	case Sliding:
		return "sliding window"
	case Seconds:
		return "sliding window, whole seconds"
	case Log:
		return "sliding window, from a minute on in whole seconds"
	case Aligned:
		return "fixed window"
	case Anchored:
		return "window from a first hit"
	case Stepped:
		return "windows from the first hit on"
	default:
		return "token bucket"
	}
}

// slack allows for times that a contender cuts to milliseconds.
const slack = int64(time.Millisecond)

// Call is a hit: it was decided after its start and before its end, Unix nanoseconds.
type Call struct {
	Start, End int64
	Outcome    Outcome
}

// Outcome is what became of a hit.
type Outcome int

// Outcomes.
const (
	Undecided Outcome = iota // an error: it may count, or not
	Admitted
	Denied
)

// Judgment is what the exact log says of all hits.
type Judgment struct {
	Hits, Admitted, Denied, Undecided int
	Most                              int64   // hits that surely lay in one window
	Worst                             float64 // that, in parts of the limit
	Broken                            int64   // hits beyond the contender's own promise, at the most in any window
	FalseDenials                      int     // the log had room, whatever was under way
}

// add adds the judgment of another feature.
func (j *Judgment) add(k Judgment) {
	j.Hits, j.Admitted = j.Hits+k.Hits, j.Admitted+k.Admitted
	j.Denied, j.Undecided = j.Denied+k.Denied, j.Undecided+k.Undecided
	j.Most, j.Worst, j.Broken = max(j.Most, k.Most), max(j.Worst, k.Worst), max(j.Broken, k.Broken)
	j.FalseDenials += k.FalseDenials
}

// span is an exact log of calls whose moment lies between their start and their end.
type span struct{ starts, ends exactlog.Log }

func spanOf(calls []Call, keep func(Outcome) bool) *span {
	var s span
	kept := slices.DeleteFunc(slices.Clone(calls), func(c Call) bool { return !keep(c.Outcome) })
	slices.SortFunc(kept, func(a, b Call) int { return cmp.Compare(a.Start, b.Start) })
	for _, c := range kept {
		s.starts.Add(c.Start, 1)
	}
	slices.SortFunc(kept, func(a, b Call) int { return cmp.Compare(a.End, b.End) })
	for _, c := range kept {
		s.ends.Add(c.End, 1)
	}
	return &s
}

// surely returns how many calls lie in [from, to) at the least.
func (s *span) surely(from, to int64) int64 {
	return s.ends.Sum(math.MinInt64, to-1) - s.starts.Sum(math.MinInt64, from-1)
}

// possibly returns how many calls lie in [from, to] at the most.
func (s *span) possibly(from, to int64) int64 {
	return s.starts.Sum(math.MinInt64, to) - s.ends.Sum(math.MinInt64, from-1)
}

// judge holds all calls of one feature to the limit and to the promise.
func judge(limit Limit, promise Promise, calls []Call) (found Judgment) {
	found.Hits = len(calls)
	for _, c := range calls {
		switch c.Outcome {
		case Admitted:
			found.Admitted++
		case Denied:
			found.Denied++
		default:
			found.Undecided++
		}
	}
	admitted := spanOf(calls, func(o Outcome) bool { return o == Admitted })
	counted := spanOf(calls, func(o Outcome) bool { return o != Denied })
	denied := spanOf(calls, func(o Outcome) bool { return o == Denied })
	window := int64(limit.Window)
	var begins, ends []int64
	for _, c := range calls {
		if c.Outcome == Admitted {
			begins, ends = append(begins, c.Start), append(ends, c.End)
		}
	}
	slices.Sort(begins)
	slices.Sort(ends)
	for _, from := range begins {
		found.Most = max(found.Most, admitted.surely(from, from+window-slack))
	}
	found.Worst = float64(found.Most) / float64(limit.N)
	found.Broken = promise.broken(limit, admitted, begins, ends)
	for _, c := range calls {
		// A denial in flight may have taken its place for a moment, and the denial itself is one of them.
		if c.Outcome == Denied && counted.possibly(c.Start-window-slack, c.End)+denied.possibly(c.Start, c.End)-1 < limit.N {
			found.FalseDenials++
		}
	}
	return found
}

// broken returns by how many hits a window surely holds more than promised.
func (p Promise) broken(limit Limit, admitted *span, begins, ends []int64) (most int64) {
	if p == Log {
		if p = Seconds; limit.Window < time.Minute {
			p = Sliding
		}
	}
	window := int64(limit.Window)
	exceeds := func(from, to, n int64) { most = max(most, admitted.surely(from, to)-n) }
	free := int64(math.MinInt64) // when a window from the first hit is over
	for i, begin := range begins {
		switch p {
		case Sliding:
			exceeds(begin, begin+window-slack, limit.N)
		case Seconds:
			from := begin - begin%int64(time.Second)
			exceeds(from, from+window, limit.N)
		case Aligned:
			from := begin - begin%window
			exceeds(from, from+window, limit.N)
		case Anchored:
			if begin < free {
				continue
			}
			exceeds(begin, begin+window-slack, limit.N)
			if free = ends[i] + window; admitted.possibly(begin+window-slack, free+slack) > 0 {
				return most // one hit lies in this window, or begins the next
			}
		case Stepped:
			steps := (begin - ends[0] + window - 1) / window // the first hit was decided before the first end
			exceeds(ends[0]+steps*window, begins[0]+(steps+1)*window-slack, limit.N)
			if i == 0 {
				exceeds(begin, begin+window-slack, limit.N)
			}
		case Bucket:
			for _, end := range ends[i:] {
				returned := (end - begin + slack) * limit.N / window
				exceeds(begin, end+1, limit.N+returned)
			}
		}
	}
	return most
}
