package bench

import (
	"math"
	"slices"
	"time"
)

// Spread is the median of several figures, with the least and the greatest.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// spreadOf returns the spread of the figures, of which there is at least one. The
// median of an even number is the mean of the two in the middle.
func spreadOf(figures []float64) Spread {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// ratios returns the spread of the ratios of a row's figures to those of another,
// each to the one of the same round.
func ratios(of, to []float64) Spread {
	list := make([]float64, len(of))
	for i := range list {
		list[i] = of[i] / to[i]
	}
	return spreadOf(list)
}

// percentile returns the least of the sorted times that the given part of them does
// not exceed (nearest rank); part is above 0, to 1.
func percentile(sorted []time.Duration, part float64) time.Duration {
	// A hair less, so that 0.99 of 100 is the 99th though 0.99*100 is not 99.
	rank := int(math.Ceil(part*float64(len(sorted)) - 1e-9))
	return sorted[max(rank, 1)-1]
}
