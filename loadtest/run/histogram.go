package run

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds of histograms. Longer times are counted as the longest.
const (
	shortest = 100 * time.Nanosecond
	longest  = 2 * time.Hour
)

// histogram is a distribution of latencies.
type histogram struct {
	counts *hdrhistogram.Histogram
	max    time.Duration // exactly
}

// newHistogram returns one to so many significant digits: to 3 it takes 230 kB, to 2 28.
func newHistogram(digits int) *histogram {
	return &histogram{counts: hdrhistogram.New(int64(shortest), int64(longest), digits)}
}

func (h *histogram) record(latency time.Duration) {
	latency = max(latency, 0)
	h.max = max(h.max, latency)
	if err := h.counts.RecordValue(int64(min(latency, longest))); err != nil {
		panic(err) // never: it is within the bounds
	}
}

// add adds another one.
func (h *histogram) add(other *histogram) {
	h.counts.Merge(other.counts)
	h.max = max(h.max, other.max)
}

// Latency is a distribution in milliseconds. Percentiles are exact to a thousandth.
type Latency struct {
	Requests int64   `json:"requests"`
	P50      float64 `json:"p50"`
	P90      float64 `json:"p90"`
	P99      float64 `json:"p99"`
	P999     float64 `json:"p99_9"`
	P9999    float64 `json:"p99_99"`
	Max      float64 `json:"max"`
}

func (h *histogram) latency() Latency {
	return Latency{
		h.counts.TotalCount(), h.percentile(50), h.percentile(90), h.percentile(99), h.percentile(99.9), h.percentile(99.99), milliseconds(h.max),
	}
}

func (h *histogram) percentile(percent float64) float64 {
	return milliseconds(min(time.Duration(h.counts.ValueAtPercentile(percent)), h.max))
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
