package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// stats are figures of a Memcached server, since its start.
type stats struct {
	cpu       time.Duration
	bytes     int64 // read and written, without those of asking for the stats
	gets      int64 // keys asked for
	adds      int64 // increments that found their item, and items made
	evictions int64
	items     int64 // that there are
}

// statNames are the figures that stats is made of. A new item is an add: one that
// an increment made longer by a digit is counted twice, one time in nine at the most.
var statNames = []string{
	"rusage_user", "rusage_system", "bytes_read", "bytes_written", "get_hits", "get_misses", "incr_hits", "total_items",
	"evictions", "curr_items",
}

// parseStats reads the lines of Memcached's answer to stats.
func parseStats(lines []string) (stats, error) {
	figures := map[string]float64{}
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "STAT" {
			continue
		}
		if value, err := strconv.ParseFloat(fields[2], 64); err == nil {
			figures[fields[1]] = value
		}
	}
	for _, name := range statNames {
		if _, found := figures[name]; !found {
			return stats{}, fmt.Errorf("memcached's stats have no figure %s", name)
		}
	}
	whole := func(names ...string) (sum int64) {
		for _, name := range names {
			sum += int64(figures[name])
		}
		return sum
	}
	return stats{
		cpu:       time.Duration((figures["rusage_user"] + figures["rusage_system"]) * float64(time.Second)),
		bytes:     whole("bytes_read", "bytes_written"),
		gets:      whole("get_hits", "get_misses"),
		adds:      whole("incr_hits", "total_items"),
		evictions: whole("evictions"),
		items:     whole("curr_items"),
	}, nil
}

func (s stats) plus(t stats) stats {
	return stats{s.cpu + t.cpu, s.bytes + t.bytes, s.gets + t.gets, s.adds + t.adds, s.evictions + t.evictions, s.items + t.items}
}

func (s stats) minus(t stats) stats {
	return stats{s.cpu - t.cpu, s.bytes - t.bytes, s.gets - t.gets, s.adds - t.adds, s.evictions - t.evictions, s.items - t.items}
}
