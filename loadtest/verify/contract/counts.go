package contract

import (
	"slices"
	"time"

	"github.com/counterd/counterd/api/wire"
)

// Span is when a call may have been, by the target's clock, in Unix seconds.
type Span struct{ Earliest, Latest int64 }

// Holds reports whether a step that ends with that second can be the one of the call.
func (s Span) Holds(last, step int64) bool {
	_, earliest := Outward(0, s.Earliest, step)
	_, latest := Outward(0, s.Latest, step)
	return earliest <= last && last <= latest
}

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

// CountFaults holds a count to the counter, the window in seconds, and the moment that it was asked for
// (0: now). Of a window that ends now the target alone knows when that was: it is what the
// answer says, if it may be.
func (c *Contract) CountFaults(got wire.Count, counter string, step, window, at int64, asked Span) (f Faults) {
	f.add(got.Event != c.Event || got.Feature != counter, "it is a count of another counter than %s", counter)
	from, to := got.From.Unix(), got.To.Unix()
	first, last := Outward(at-window+1, at, step)
	if at == 0 {
		f.add(!asked.Holds(to, step), "now is %s, which is not when it was asked", got.To.UTC().Format(time.RFC3339))
		first, last = Outward(to-window+1, to, step)
		for now := asked.Earliest; now <= asked.Latest; now++ {
			if a, b := Outward(now-window+1, now, step); a == from && b == to {
				first, last = a, b
			}
		}
	}
	f.add(to != last || from != first, "the window of %ds is that of %d to %d, not %d to %d", window, from, to, first, last)
	b := got.Buckets
	f.add(b.Total != b.Second+b.Minute+b.Hour+b.Day, "buckets: the total is %d", b.Total)
	return f
}

// HistoryFaults holds a history to the counter, the level and its length, and the seconds that it was
// asked for.
func (c *Contract) HistoryFaults(got wire.History, counter, level string, length, from, to int64) (f Faults) {
	f.add(got.Event != c.Event || got.Feature != counter || got.Level != level, "it is a history of another counter than %s", counter)
	first, last := Outward(from, to, length)
	f.add(got.From.Unix() != first || got.To.Unix() != last, "the history is of %d to %d, not %d to %d", got.From.Unix(), got.To.Unix(), first, last)
	f.add(int64(len(got.Buckets)) != (last-first+1)/length, "there are %d buckets of %d to %d", len(got.Buckets), first, last)
	for i, bucket := range got.Buckets {
		start := first + int64(i)*length
		f.add(bucket.Start.Unix() != start, "bucket %d begins at %d, not %d", i, bucket.Start.Unix(), start)
	}
	return f
}
