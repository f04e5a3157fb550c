package top

import (
	"cmp"
	"slices"
	"time"
)

// Denials are the hits of the last hour that a limit denied, exactly. A hit that several limits denied counts for each.
type Denials struct {
	Event, Limit string // empty: of all limits beyond the most frequent 64
	Sum          int64
	Minutes      [slots]int64 // the current one last
}

// Denials returns what each limit denied in the hour up to now, the most first, and last what has no limit of its own.
// If more than 64 limits deny in one minute, a part of what they deny is there.
func (t *Top) Denials(now time.Time) []Denials {
	last := now.Unix() / 60
	sums := map[limit]*Denials{}
	for i := range t.shards {
		t.shards[i].sumDenials(sums, last)
	}
	other := sums[limit{}]
	delete(sums, limit{})
	list := make([]Denials, 0, len(sums))
	for _, sum := range sums {
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b Denials) int {
		return cmp.Or(cmp.Compare(b.Sum, a.Sum), cmp.Compare(a.Event, b.Event), cmp.Compare(a.Limit, b.Limit))
	})
	for n := min(len(list), maxLimits); n < len(list); list = list[:len(list)-1] {
		if other == nil {
			other = &Denials{}
		}
		other.Add(&list[len(list)-1])
	}
	if other != nil {
		list = append(list, *other)
	}
	return list
}

// Add adds the denials of another limit.
func (d *Denials) Add(other *Denials) {
	d.Sum += other.Sum
	for i, count := range other.Minutes {
		d.Minutes[i] += count
	}
}

// sumDenials adds what the shard has counted in the hour up to the last minute.
func (s *shard) sumDenials(sums map[limit]*Denials, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slots[Denied] {
		at := &s.slots[Denied][i]
		if at.minute <= last-slots || at.minute > last {
			continue
		}
		for key, count := range at.denials {
			sum := sums[key]
			if sum == nil {
				sum = &Denials{Event: key.event, Limit: key.name}
				sums[key] = sum
			}
			sum.Sum += count
			sum.Minutes[at.minute-last+slots-1] += count
		}
	}
}
