package memcached

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Stats are figures of a Memcached server since its start.
type Stats struct {
	CPU       time.Duration
	Bytes     int64 // read and written, without those of reading the stats
	Gets      int64 // keys
	Adds      int64 // increments that found their item, and new items
	Evictions int64
	Items     int64
}

// parseStats reads the answer to stats. A new item is an add; an item that an increment makes
// longer by a digit is counted twice, one time in nine at most.
func parseStats(lines []string) (Stats, error) {
	values := map[string]string{}
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "STAT" {
			values[fields[1]] = fields[2]
		}
	}
	var err error
	sum := func(names ...string) (sum float64) {
		for _, name := range names {
			value, fault := strconv.ParseFloat(values[name], 64)
			if fault != nil {
				err = fmt.Errorf("memcached's stats have no figure %s", name)
			}
			sum += value
		}
		return sum
	}
	return Stats{
		CPU:       time.Duration(sum("rusage_user", "rusage_system") * float64(time.Second)),
		Bytes:     int64(sum("bytes_read", "bytes_written")),
		Gets:      int64(sum("get_hits", "get_misses")),
		Adds:      int64(sum("incr_hits", "total_items")),
		Evictions: int64(sum("evictions")),
		Items:     int64(sum("curr_items")),
	}, err
}

// Minus returns the difference.
func (s Stats) Minus(t Stats) Stats {
	return Stats{s.CPU - t.CPU, s.Bytes - t.Bytes, s.Gets - t.Gets, s.Adds - t.Adds, s.Evictions - t.Evictions, s.Items - t.Items}
}
