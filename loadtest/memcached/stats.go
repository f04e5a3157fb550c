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

// Memory is the memory of the items of a server. Each number of bytes includes the one before.
type Memory struct {
	Items      int64 `json:"items"`
	ItemBytes  int64 `json:"item_bytes"`  // header, key and value
	ChunkBytes int64 `json:"chunk_bytes"` // of their chunks
	SlabBytes  int64 `json:"slab_bytes"`  // of their pages, of -m
	HashBytes  int64 `json:"hash_bytes"`  // of the hash table, beside -m
}

// figures are answers to stats, by name. Missing ones are recorded.
type figures struct {
	values  map[string]float64
	missing []string
}

func parseFigures(lines []string) *figures {
	f := &figures{values: map[string]float64{}}
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "STAT" {
			continue
		}
		if value, err := strconv.ParseFloat(fields[2], 64); err == nil {
			f.values[fields[1]] = value
		}
	}
	return f
}

// sum returns the sum of figures.
func (f *figures) sum(names ...string) (sum float64) {
	for _, name := range names {
		value, found := f.values[name]
		if !found {
			f.missing = append(f.missing, name)
		}
		sum += value
	}
	return sum
}

func (f *figures) err() error {
	if len(f.missing) > 0 {
		return fmt.Errorf("memcached's stats have no figure %s", strings.Join(f.missing, ", "))
	}
	return nil
}

// parseStats reads the answer to stats. A new item is an add; an item that an increment makes
// longer by a digit is counted twice, one time in nine at most.
func parseStats(f *figures) (Stats, error) {
	return Stats{
		CPU:       time.Duration(f.sum("rusage_user", "rusage_system") * float64(time.Second)),
		Bytes:     int64(f.sum("bytes_read", "bytes_written")),
		Gets:      int64(f.sum("get_hits", "get_misses")),
		Adds:      int64(f.sum("incr_hits", "total_items")),
		Evictions: int64(f.sum("evictions")),
		Items:     int64(f.sum("curr_items")),
	}, f.err()
}

// parseMemory reads the answers to stats and stats slabs.
func parseMemory(general, slabs *figures) (Memory, error) {
	m := Memory{
		Items: int64(general.sum("curr_items")), ItemBytes: int64(general.sum("bytes")), HashBytes: int64(general.sum("hash_bytes")),
		SlabBytes: int64(slabs.sum("total_malloced")),
	}
	for name, used := range slabs.values {
		if class, found := strings.CutSuffix(name, ":used_chunks"); found {
			m.ChunkBytes += int64(used * slabs.sum(class+":chunk_size"))
		}
	}
	if err := general.err(); err != nil {
		return Memory{}, err
	}
	return m, slabs.err()
}

// Minus returns the difference.
func (s Stats) Minus(t Stats) Stats {
	return Stats{s.CPU - t.CPU, s.Bytes - t.Bytes, s.Gets - t.Gets, s.Adds - t.Adds, s.Evictions - t.Evictions, s.Items - t.Items}
}
