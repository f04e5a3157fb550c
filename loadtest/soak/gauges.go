package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// gauge is what a process says of itself.
type gauge struct {
	goroutines int
	live       int64 // bytes of heap, and of what else the collector looks at, that its last run left
}

// ask returns what a process answers.
func ask(addr, path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s is answered with %s: %s", path, answer.Status, text)
	}
	return string(text), err
}

// measure reads a process's gauges.
func measure(addr string) (gauge, error) {
	text, err := ask(addr, "/metrics")
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
