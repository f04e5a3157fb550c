package contract

import (
	"slices"

	"github.com/counterd/counterd/api/wire"
)

// Span is when a call may have been, by the target's clock, in Unix seconds.
type Span struct{ Earliest, Latest int64 }

// IncrementFaults holds the answer to an increment to its cost, its time (0: now) and the names of its
// counters.
func (c *Contract) IncrementFaults(got wire.Incremented, by, at int64, counters []string) (f Faults) {
	f.add(got.Event != c.Event || got.By != by, "the answer to an increment by %d is by %d", by, got.By)
	f.add(at != 0 && got.At.Unix() != at, "the answer to an increment at %d is at %d", at, got.At.Unix())
	for _, name := range counters {
		f.add(name != "" && !slices.Contains(got.Counters, name), "an increment is not counted by %s", name)
	}
	return f
}

// CountFaults holds a count to the counter, the window in seconds, and when its end was: a moment
// that was asked for, or some second of the call. A window that slides by milliseconds begins a second
// sooner, except in the last millisecond.
func (c *Contract) CountFaults(got wire.Count, counter string, step, window int64, slides bool, end Span) (f Faults) {
	f.add(got.Event != c.Event || got.Feature != counter, "it is a count of another counter than %s", counter)
	from, to, right := got.From.Unix(), got.To.Unix(), false
	for at := end.Earliest; at <= end.Latest; at++ {
		first, last := Outward(at-window+1, at, step)
		right = right || to == last && (from == first || slides && from == first-1)
	}
	f.add(!right, "the window of %ds is that of %d to %d, and it ends at %d to %d", window, from, to, end.Earliest, end.Latest)
	b := got.Buckets
	f.add(b.Total != b.Second+b.Minute+b.Hour+b.Day, "buckets: the total is %d", b.Total)
	return f
}

// HistoryFaults holds a history to the counter, the level, and the seconds that it was asked for.
func (c *Contract) HistoryFaults(got wire.History, counter string, level Level, from, to int64) (f Faults) {
	length := level.Length
	f.add(got.Event != c.Event || got.Feature != counter || got.Level != level.Name, "it is a history of another counter than %s", counter)
	first, last := Outward(from, to, length)
	f.add(got.From.Unix() != first || got.To.Unix() != last, "the history is of %d to %d, not %d to %d", got.From.Unix(), got.To.Unix(), first, last)
	f.add(int64(len(got.Buckets)) != (last-first+1)/length, "there are %d buckets of %d to %d", len(got.Buckets), first, last)
	for i, bucket := range got.Buckets {
		start := first + int64(i)*length
		f.add(bucket.Start.Unix() != start, "bucket %d begins at %d, not %d", i, bucket.Start.Unix(), start)
	}
	return f
}
