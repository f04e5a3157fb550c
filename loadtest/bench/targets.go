package bench

import (
	"fmt"
	"math"
)

// Target is what a figure is meant to be, and whether it is.
type Target struct {
	Text     string `json:"text"`
	Wanted   string `json:"wanted"`
	Measured string `json:"measured"`
	Verdict  string `json:"verdict"` // met, not met, or too busy to say: the machine was
}

// target is a figure of the table, and its bound.
type target struct {
	text, row string
	against   string              // a ratio to that row; or
	figure    func(*Row) *float64 // that figure
	atLeast   bool                // else at most
	bound     float64
}

// targets are those that the figures are held against.
var targets = []target{
	// All 142 there: so the row was whose CPU times the target was set by, 139 and 149 µs.
	{text: "Hit with 16 callers against gomemcache, all 142 there", row: "A3", against: "A1", atLeast: true, bound: 10},
	{text: "Memcached's CPU time of a hit, µs", row: "A3", figure: func(r *Row) *float64 { return r.MemcachedCPU }, bound: 14},
	{text: "allocations of a hit", row: "A3", figure: func(r *Row) *float64 { return r.Allocs }, bound: 3},
	{text: "one hot counter and 64 callers against 10,000 and 16", row: "A6", against: "A3", atLeast: true, bound: 5},
	{text: "one hot counter and 64 callers against 10,000 and 64", row: "A6", against: "A5", atLeast: true, bound: 5},
	{text: "hit over HTTP against a handler that does nothing", row: "B2", against: "B1", atLeast: true, bound: 0.6},
	{text: "denied flood over HTTP against the same", row: "B3", against: "B1", atLeast: true, bound: 0.9},
	{text: "hits in batches of 100 against single ones", row: "B4", against: "B2", atLeast: true, bound: 8},
	{text: "the same, each batch on one counter", row: "B14", against: "B2", atLeast: true, bound: 8},
	{text: "p99 of a hit against the handler's", row: "B13", against: "B12", bound: 3},
	{text: "count of a day against GetMulti, 1 goroutine", row: "C2", against: "C1", atLeast: true, bound: 2},
	{text: "count of a day against GetMulti, 16 goroutines", row: "C8", against: "C7", atLeast: true, bound: 2},
	{text: "the same count repeated against GetMulti, 1 goroutine", row: "C4", against: "C3", atLeast: true, bound: 10},
	{text: "the same count repeated against GetMulti, 16 goroutines", row: "C10", against: "C9", atLeast: true, bound: 10},
}

// targetsOf holds the report against the targets of the rows that it has.
func targetsOf(r *Report) []Target {
	var list []Target
	for _, t := range targets {
		row := r.row(t.row)
		if row == nil {
			continue
		}
		figure, text := t.measured(row)
		if text == "" {
			continue
		}
		out := Target{Text: t.text, Measured: text, Verdict: "not met"}
		met := figure <= t.bound
		out.Wanted = fmt.Sprintf("at most %g", t.bound)
		if t.atLeast {
			met = figure >= t.bound
			out.Wanted = fmt.Sprintf("at least %g×", t.bound)
		} else if t.against != "" {
			out.Wanted += "×"
		}
		switch {
		case row.Latency != nil && r.busy():
			out.Verdict = "too busy to say"
		case met:
			out.Verdict = "met"
		}
		list = append(list, out)
	}
	return list
}

// measured returns the figure of the row, and how it is written; nothing where the
// row has none.
func (t target) measured(row *Row) (float64, string) {
	if t.figure != nil {
		value := t.figure(row)
		if value == nil {
			return 0, ""
		}
		// As it is printed: the runtime's own few allocations are not a hit's.
		rounded := math.Round(*value*10) / 10
		return rounded, fmt.Sprintf("%.1f", rounded)
	}
	for _, ratio := range row.Ratios {
		if ratio.Against == t.against {
			return ratio.Median, ratio.Spread.String()
		}
	}
	return 0, ""
}
