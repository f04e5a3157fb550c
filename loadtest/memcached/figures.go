package memcached

import (
	"fmt"
	"strconv"
	"strings"
)

// figures are what a server answers to stats, by name.
type figures map[string]float64

func parseFigures(lines []string) figures {
	found := figures{}
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "STAT" {
			continue
		}
		if value, err := strconv.ParseFloat(fields[2], 64); err == nil {
			found[fields[1]] = value
		}
	}
	return found
}

// need is an error where one of them is missing.
func (f figures) need(names ...string) error {
	for _, name := range names {
		if _, found := f[name]; !found {
			return fmt.Errorf("memcached's stats have no figure %s", name)
		}
	}
	return nil
}

// whole returns the sum of those.
func (f figures) whole(names ...string) (sum int64) {
	for _, name := range names {
		sum += int64(f[name])
	}
	return sum
}
