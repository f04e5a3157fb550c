package memcached

import "time"

// Stats are figures of a Memcached server, since its start.
type Stats struct {
	CPU       time.Duration
	Bytes     int64 // read and written, without those of asking for the stats
	Gets      int64 // keys asked for
	Adds      int64 // increments that found their item, and items made
	Evictions int64
	Items     int64 // that there are
}

// parseStats reads the answer to stats. A new item is an add: one that an increment made
// longer by a digit is counted twice, one time in nine at the most.
func parseStats(f figures) (Stats, error) {
	err := f.need("rusage_user", "rusage_system", "bytes_read", "bytes_written", "get_hits", "get_misses", "incr_hits",
		"total_items", "evictions", "curr_items")
	if err != nil {
		return Stats{}, err
	}
	return Stats{
		CPU:       time.Duration((f["rusage_user"] + f["rusage_system"]) * float64(time.Second)),
		Bytes:     f.whole("bytes_read", "bytes_written"),
		Gets:      f.whole("get_hits", "get_misses"),
		Adds:      f.whole("incr_hits", "total_items"),
		Evictions: f.whole("evictions"),
		Items:     f.whole("curr_items"),
	}, nil
}

// Plus returns the two together.
func (s Stats) Plus(t Stats) Stats {
	return Stats{s.CPU + t.CPU, s.Bytes + t.Bytes, s.Gets + t.Gets, s.Adds + t.Adds, s.Evictions + t.Evictions, s.Items + t.Items}
}

// Minus returns what s has more than t.
func (s Stats) Minus(t Stats) Stats {
	return Stats{s.CPU - t.CPU, s.Bytes - t.Bytes, s.Gets - t.Gets, s.Adds - t.Adds, s.Evictions - t.Evictions, s.Items - t.Items}
}
