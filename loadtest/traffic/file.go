package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/counterd/counterd/events"
)

// Bounds of a population in a file.
const (
	MaxLines = 4_000_000 // values
	MaxBytes = 256 << 20 // of different values together
)

// ErrPopulation is what is wrong with a population in a file. It names the line, not the value.
var ErrPopulation = errors.New("traffic: wrong list of features")

// ReadPopulation reads a population, one value a line. Each line calls as often as any other: a
// value that is there twice calls twice as often. Empty lines are left out.
func ReadPopulation(r io.Reader, kind string, rng *rand.Rand) (Population, error) {
	values, err := readValues(r, kind, MaxLines, MaxBytes)
	if err != nil {
		return nil, err
	}
	return population{
		kind:  kind,
		value: func(i uint64) string { return values[i] },
		pick:  func() uint64 { return rng.Uint64N(uint64(len(values))) },
	}, nil
}

func readValues(r io.Reader, kind string, maxLines, maxBytes int) ([]string, error) {
	var (
		values []string
		seen   = map[string]string{}
		size   int
		line   int
		in     = bufio.NewScanner(r)
	)
	in.Buffer(nil, 2*events.MaxValue)
	for in.Scan() {
		line++
		value := strings.TrimSpace(in.Text())
		if value == "" {
			continue
		}
		known, again := seen[value]
		if !again {
			if err := (events.Features{kind: value}).Validate(); err != nil {
				return nil, fmt.Errorf("%w: line %d: %w", ErrPopulation, line, err)
			}
			known, seen[value] = value, value
			size += len(value)
		}
		if values = append(values, known); len(values) > maxLines || size > maxBytes {
			return nil, fmt.Errorf("%w: it has more than %d lines, or %d bytes of values", ErrPopulation, maxLines, maxBytes)
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%w: line %d: it is longer than %d bytes", ErrPopulation, line+1, events.MaxValue)
	} else if err != nil {
		return nil, fmt.Errorf("traffic: reading the list of features: %w", err)
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrPopulation)
	}
	return values, nil
}
