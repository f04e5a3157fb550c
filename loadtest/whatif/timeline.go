package whatif

// mostSteps is how many steps a timeline has at the most.
const mostSteps = 200

// stepLengths are the steps of a timeline, in seconds.
func stepLengths() []int64 {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	return []int64{1, 2, 5, 10, 15, 30, minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute,
		hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, day, 7 * day}
}

// newTimeline returns a timeline from a second to another, both in it, in the shortest
// steps of which it has not too many. They begin at multiples of their length.
func newTimeline(first, last int64) Timeline {
	length := int64(0)
	steps := func() int64 { return last/length - first/length + 1 }
	for _, length = range stepLengths() {
		if steps() <= mostSteps {
			break
		}
	}
	for steps() > mostSteps {
		length *= 2
	}
	return Timeline{
		From: utc(first / length * length), Step: length,
		Admitted: make([]int64, steps()), Denied: make([]int64, steps()),
	}
}

// add counts a hit.
func (t *Timeline) add(second int64, admitted bool) {
	counts := t.Denied
	if admitted {
		counts = t.Admitted
	}
	counts[(second-t.From.Unix())/t.Step]++
}
