package soak

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/counterd/counterd/loadtest/fleet"
)

// gauge is what a process says of itself.
type gauge struct {
	goroutines int
	live       int64 // bytes of heap, and of what else the collector looks at, that its last run left
}

// measure reads a process's gauges.
func measure(addr string) (gauge, error) {
	text, err := fleet.Ask(addr, "/metrics")
	if err != nil {
		return gauge{}, err
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			values[name] = number
		}
	}
	next, percent := values["go_memstats_next_gc_bytes"], values["go_gc_gogc_percent"]
	if next == 0 || percent == 0 || values["go_goroutines"] == 0 {
		return gauge{}, fmt.Errorf("/metrics of %s does not tell of goroutines and memory", addr)
	}
	// The collector runs when the heap has grown by so much over what it left.
	return gauge{int(values["go_goroutines"]), int64(next / (1 + percent/100))}, nil
}

// growth returns the medians of the first and of the last third.
func growth(samples []int64) (first, last int64) {
	third := max(len(samples)/3, 1)
	return median(samples[:third]), median(samples[len(samples)-third:])
}

func median(samples []int64) int64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}
