package compare

import "context"

// racing is a log that several processes read, decide on, and write afterwards, with
// nothing to keep them from doing so at the same time: of each feature as many hits are
// under way at once as there are processes, as long as they come in the same second. A
// hit does not see what the others under way have admitted.
type racing struct {
	limit
	cells[racingState]
	processes int
}

type racingState struct {
	log   []int64  // what was written
	going []moment // what was admitted, and is not written yet, the oldest first
}

type moment struct{ at, cost int64 }

func newRacing(l limit, processes int) *racing { return &racing{l, newCells[racingState](), processes} }

func (r *racing) decide(_ context.Context, feature string, now, cost int64) (bool, error) {
	s := r.read(feature)
	for len(s.going) > 0 && (len(s.going) >= r.processes || s.going[0].at/second != now/second) {
		s.log = appendTimes(s.log, s.going[0].at, s.going[0].cost)
		s.going = s.going[1:]
	}
	s.log = r.since(s.log, now)
	if int64(len(s.log))+cost > r.n {
		return false, nil
	}
	s.going = append(s.going, moment{now, cost})
	r.write(feature, s)
	return true, nil
}

func (r *racing) items(feature string) (n, value int) {
	s := r.states[feature]
	count := len(s.log)
	for _, m := range s.going {
		count += int(m.cost)
	}
	return r.numbers(feature, count)
}
