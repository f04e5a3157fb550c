// Package memcached reads the statistics of a Memcached server.
package memcached

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	question   = "stats\r\nquit\r\n"
	askTimeout = 30 * time.Second
)

// Stats are figures of a Memcached server since its start.
type Stats struct {
	CPU       time.Duration
	Bytes     int64 // read and written
	Gets      int64 // keys
	Adds      int64 // increments that found their item, and new items
	Evictions int64
	Items     int64

	reading int64 // bytes of this reading that the next one finds in Bytes
}

// Read reads the statistics of the server at an address.
func Read(addr string) (Stats, error) {
	conn, err := net.DialTimeout("tcp", addr, askTimeout)
	if err != nil {
		return Stats{}, fmt.Errorf("memcached's stats: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return Stats{}, err
	}
	if _, err := io.WriteString(conn, question); err != nil {
		return Stats{}, fmt.Errorf("memcached's stats: %w", err)
	}
	answer, err := io.ReadAll(conn) // which quit ends
	if err != nil {
		return Stats{}, fmt.Errorf("memcached's stats: %w", err)
	}
	stats, err := parse(string(answer))
	stats.reading = int64(len(question) + len(answer))
	return stats, err
}

// parse reads the answer to stats. A new item is an add; an item that an increment makes longer
// by a digit is counted twice, one time in nine at most.
func parse(answer string) (Stats, error) {
	values := map[string]string{}
	for line := range strings.Lines(answer) {
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

// Minus returns the difference to the reading before, without the bytes of reading.
func (s Stats) Minus(t Stats) Stats {
	return Stats{
		CPU: s.CPU - t.CPU, Bytes: s.Bytes - t.Bytes - t.reading, Gets: s.Gets - t.Gets, Adds: s.Adds - t.Adds,
		Evictions: s.Evictions - t.Evictions, Items: s.Items - t.Items,
	}
}
