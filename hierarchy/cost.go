package hierarchy

import (
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// itemBytes is what a bucket takes in Memcached: its smallest chunk.
const itemBytes = 96

// Footprint is what one counter costs at the most, when an event comes every second.
type Footprint struct {
	Finest, Coarsest Level // the levels that each event is added to
	Reads            int   // buckets in the cover of the longest window
	Bytes            int64 // memory of its buckets in Memcached, until they expire
}

// FootprintOf returns the cost of a counter. It depends on its retention and its
// precision.
func FootprintOf(counter events.Counter, grace time.Duration) Footprint {
	finest, coarsest := levels(counter)
	cost := Footprint{Finest: finest, Coarsest: coarsest, Reads: mostReads(engine.CeilSeconds(counter.Remembered()), finest, coarsest)}
	for l := finest; l <= coarsest; l++ {
		life := BucketAt(l, 0).Expires(counter.Remembered(), grace)
		cost.Bytes += (life/l.Seconds() + 1) * itemBytes
	}
	return cost
}

// SpreadBytes returns the memory of a counter's buckets in Memcached if so many events come at equal
// distances in the time for which they are remembered.
func SpreadBytes(counter events.Counter, hits int64, grace time.Duration) (bytes int64) {
	finest, coarsest := levels(counter)
	remembered := engine.CeilSeconds(counter.Remembered())
	for l := finest; l <= coarsest; l++ {
		life := BucketAt(l, 0).Expires(counter.Remembered(), grace)
		events := min(hits, 1<<31)*life/remembered + 1
		bytes += min(events, life/l.Seconds()+1) * itemBytes
	}
	return bytes
}

// FarReads is what a hit reads, of each level, that is far from its limits: on the average
// over all moments of a day, with calendars of 32 days, beside the buckets that it adds to.
type FarReads struct {
	// Closed are buckets that no hit changes any more: a process remembers for a second
	// what they hold, and reads none of them again meanwhile.
	Closed [Levels]float64
	Open   [Levels]float64 // ended just now, or ahead
}

// FarReadsOf returns the reads of a hit on the counter with those limits.
func FarReadsOf(counter events.Counter, limits []events.Limit, grace time.Duration) FarReads {
	finest, _ := levels(counter)
	var far FarReads
	const day, from = 86400, 20_454 * 86400 // 2026, with the offsets that zones have now
	step := int64(1)
	sliding, _ := events.AlgorithmByName(events.DefaultAlgorithm)
	windows := make([]events.Windows, len(limits))
	for i, limit := range limits {
		windows[i] = limit.Windows()
		if windows[i].Algorithm.Log {
			windows[i].Algorithm = sliding // as it would be in buckets
		}
		if limit.Calendar != nil {
			step = 32
		}
	}
	for now := int64(from); now < from+day*step; now += step {
		// All that sliding limits of one rank read is what the widest of them reads.
		var widest [Levels]BucketRange
		for _, w := range windows {
			s := spanOf(w, now, finest, engine.CeilSeconds(grace))
			if w.Algorithm.Tiles {
				for _, run := range s.row() {
					far.add(run, now, grace)
				}
				continue
			}
			if row := &widest[s.rank]; *row == (BucketRange{}) {
				*row = s.tiles[0]
			} else {
				row.First, row.Last = min(row.First, s.tiles[0].First), max(row.Last, s.tiles[0].Last)
			}
		}
		for _, row := range widest {
			if row != (BucketRange{}) {
				far.add(row, now, grace)
			}
		}
	}
	for l := range far.Open {
		far.Closed[l] /= day
		far.Open[l] /= day
	}
	return far
}

// add adds the reads of the buckets by a hit of the second now.
func (f *FarReads) add(row BucketRange, now int64, grace time.Duration) {
	reads := int64(row.Len())
	if head := BucketAt(row.Level, now).Number; row.First <= head && head <= row.Last {
		reads--
	}
	// The head's own bucket has not ended.
	ended := max(min(BucketAt(row.Level, now-openSeconds(grace)).Number, row.Last+1)-row.First, 0)
	f.Closed[row.Level] += float64(ended)
	f.Open[row.Level] += float64(reads - ended)
}

// mostReads returns the length of the longest cover of a window of that many
// seconds, wherever in a bucket of the coarsest level it begins. With a finest
// level above the second that is one that does not begin with a bucket of it.
func mostReads(seconds int64, finest, coarsest Level) int {
	most := 0
	for first := min(1, finest.Seconds()-1); first < coarsest.Seconds(); first += finest.Seconds() {
		most = max(most, CoverOf(Window{first, first + seconds - 1}, finest, coarsest).Len())
	}
	return most
}
