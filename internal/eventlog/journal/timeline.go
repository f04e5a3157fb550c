package journal

import "sort"

// timeline sums costs by time. Its times ascend, and sums[i] is the cost of all times up to
// times[i].
type timeline struct {
	times, sums []int64
}

func (t *timeline) clear() { t.times, t.sums = t.times[:0], t.sums[:0] }

// push adds a cost at a time that is not before any other.
func (t *timeline) push(time, cost int64) {
	n := len(t.times)
	if n == 0 {
		t.times, t.sums = append(t.times, time), append(t.sums, cost)
		return
	}
	if t.times[n-1] == time {
		t.sums[n-1] += cost
		return
	}
	t.times, t.sums = append(t.times, time), append(t.sums, t.sums[n-1]+cost)
}

// add adds a cost, which is negative if it was added before. Most times are near the end.
func (t *timeline) add(time, cost int64) {
	i := len(t.times)
	for i > 0 && t.times[i-1] > time {
		i--
	}
	if i == len(t.times) {
		t.push(time, cost)
		return
	}
	if i > 0 && t.times[i-1] == time {
		i--
	} else {
		t.times, t.sums = append(t.times, 0), append(t.sums, 0)
		copy(t.times[i+1:], t.times[i:])
		copy(t.sums[i+1:], t.sums[i:])
		t.times[i], t.sums[i] = time, t.upTo(i)
	}
	for ; i < len(t.sums); i++ {
		t.sums[i] += cost
	}
}

// upTo returns the cost of the first i times.
func (t *timeline) upTo(i int) int64 {
	if i == 0 {
		return 0
	}
	return t.sums[i-1]
}

func (t *timeline) total() int64 { return t.upTo(len(t.sums)) }

// later returns the cost of the times after edge.
func (t *timeline) later(edge int64) int64 { return t.total() - t.upTo(t.search(edge)) }

// after returns how many times are not after edge, beginning to look at the i-th: the times of
// consecutive entries are close to each other.
func (t *timeline) after(edge int64, i int) int {
	i = min(i, len(t.times))
	for i > 0 && t.times[i-1] > edge {
		i--
	}
	for i < len(t.times) && t.times[i] <= edge {
		i++
	}
	return i
}

// search returns how many times are not after edge.
func (t *timeline) search(edge int64) int {
	return sort.Search(len(t.times), func(i int) bool { return t.times[i] > edge })
}
