package top

import "slices"

// slot counts the hits of one minute by the Space-Saving algorithm: it has so many counters, the lowest of which a new
// key takes over with its count, as its error.
type slot struct {
	minute   int64 // since the Unix epoch
	counters []counter
	at       map[Key]int32 // in counters
	heap     []int32       // of counters, the lowest first
	denials  map[limit]int64
}

// limit names a limit. The zero limit is all that have no count of their own.
type limit struct{ event, name string }

// counter is what a slot knows of a key: it had at most count hits, and at least count - error.
type counter struct {
	key          Key
	count, error int64
	limits       limits // by limits, without the error
	place        int    // in the heap
}

// limits are the hits by the names of the limits that denied them.
type limits []LimitCount

// add counts hits of a limit.
func (l *limits) add(name string, count int64) {
	at := slices.IndexFunc(*l, func(one LimitCount) bool { return one.Limit == name })
	if at < 0 {
		at = len(*l)
		*l = append(*l, LimitCount{Limit: name})
	}
	(*l)[at].Count += count
}

// begin empties the slot, for another minute.
func (s *slot) begin(minute int64) {
	clear(s.counters) // the keys are forgotten
	s.minute, s.counters, s.heap = minute, s.counters[:0], s.heap[:0]
	clear(s.at)
	clear(s.denials)
}

// deny counts a hit that the limits of an event denied.
func (s *slot) deny(event string, names []string) {
	if s.denials == nil && len(names) > 0 {
		s.denials = map[limit]int64{}
	}
	for _, name := range names {
		key := limit{event, name}
		if _, known := s.denials[key]; !known && len(s.denials) >= maxLimits {
			key = limit{}
		}
		s.denials[key]++
	}
}

// add counts a hit, which those limits denied.
func (s *slot) add(key Key, denying []string, size int) {
	at, known := s.at[key]
	if !known {
		at = s.take(key, size)
	}
	s.raise(at)
	for _, name := range denying {
		s.counters[at].limits.add(name, 1)
	}
}

// take gives a counter to a new key, which is the lowest one if none is left.
func (s *slot) take(key Key, size int) int32 {
	at := int32(len(s.counters))
	if len(s.counters) < size {
		s.counters, s.heap = append(s.counters, counter{key: key, place: len(s.heap)}), append(s.heap, at)
		s.rise(at)
	} else {
		at = s.heap[0]
		c := &s.counters[at]
		delete(s.at, c.key)
		c.key, c.error, c.limits = key, c.count, c.limits[:0]
	}
	s.at[key] = at
	return at
}

// floor returns the most hits that a key without a counter has had.
func (s *slot) floor(size int) int64 {
	if len(s.counters) < size {
		return 0
	}
	return s.counters[s.heap[0]].count
}

// rise moves a counter of 0 to the top of the heap.
func (s *slot) rise(at int32) {
	for i := s.counters[at].place; i > 0; i = (i - 1) / 2 {
		s.swap(i, (i-1)/2)
	}
}

// raise counts a hit of a counter, and moves it down to its place.
func (s *slot) raise(at int32) {
	c := &s.counters[at]
	c.count++
	for {
		i, least := c.place, c.place
		for child := 2*i + 1; child <= 2*i+2 && child < len(s.heap); child++ {
			if s.counters[s.heap[child]].count < s.counters[s.heap[least]].count {
				least = child
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
	}
}

func (s *slot) swap(i, j int) {
	s.heap[i], s.heap[j] = s.heap[j], s.heap[i]
	s.counters[s.heap[i]].place, s.counters[s.heap[j]].place = i, j
}
