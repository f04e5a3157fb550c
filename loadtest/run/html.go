package run

import (
	"cmp"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/counterd/counterd/loadtest/page"
)

// WriteHTML writes the report as a page with plots.
func (r *Report) WriteHTML(out io.Writer) error {
	sections := append([]page.Section{factsSection(append(r.facts()[1:], r.costs()...))}, r.sections()...)
	return page.Page{Title: "loadtest run", Subtitle: strings.Join(r.Targets, ", "), Sections: sections}.Write(out)
}

// sections are the tables and the plots.
func (r *Report) sections() []page.Section {
	sections := []page.Section{{
		Title: "Latency", Table: &page.Table{Head: latencyHead, Rows: r.latencyRows()},
		Text: "A latency counts from the moment at which a request was due. Late is the generator's own share of it.",
		Plot: r.latencyOverTime(),
	}, {
		Plot: r.latencyDistribution(),
	}, {
		Title: "Throughput", Plot: r.throughput(),
	}}
	if len(r.Limits) > 0 {
		sections = append(sections, page.Section{Title: "Limits", Table: &page.Table{Head: limitHead, Rows: r.limitRows()}})
	}
	return sections
}

func factsSection(facts []fact) page.Section {
	var lines []string
	for _, f := range facts {
		lines = append(lines, f.name+": "+f.text)
	}
	return page.Section{Title: "Summary", Text: strings.Join(lines, "\n")}
}

// over returns a figure of each slot, in which some request was due, over its middle.
func (r *Report) over(name string, of func(Slot) float64) page.Line {
	line := page.Line{Name: name}
	for _, s := range r.Timeline {
		line.X = append(line.X, s.At+s.Seconds/2)
		line.Y = append(line.Y, of(s))
	}
	return line
}

// latencyOf returns a percentile of a slot; a gap where nothing was due.
func latencyOf(pick func(Latency) float64) func(Slot) float64 {
	return func(s Slot) float64 {
		if s.Latency.Requests == 0 {
			return math.NaN()
		}
		return pick(s.Latency)
	}
}

func (r *Report) latencyOverTime() *page.Plot {
	return &page.Plot{
		Title: "Latency over time",
		X:     page.Axis{Label: "time at which requests were due", Unit: page.Seconds},
		Y:     page.Axis{Label: "latency", Unit: page.Milliseconds, Log: true},
		Lines: []page.Line{
			r.over("max", latencyOf(func(l Latency) float64 { return l.Max })),
			r.over("p99.9", latencyOf(func(l Latency) float64 { return l.P999 })),
			r.over("p99", latencyOf(func(l Latency) float64 { return l.P99 })),
			r.over("p90", latencyOf(func(l Latency) float64 { return l.P90 })),
			r.over("p50", latencyOf(func(l Latency) float64 { return l.P50 })),
		},
	}
}

func (r *Report) throughput() *page.Plot {
	plot := &page.Plot{
		Title: "Arrivals and answers",
		X:     page.Axis{Label: "time", Unit: page.Seconds},
		Y:     page.Axis{Label: "requests", Unit: page.PerSecond},
		Lines: []page.Line{
			r.over("asked", func(s Slot) float64 { return s.Asked }),
			r.over("reached", func(s Slot) float64 { return s.Reached }),
		},
	}
	if r.Failed > 0 {
		plot.Lines = append(plot.Lines, r.over("failed", func(s Slot) float64 { return float64(s.Failed) / s.Seconds }))
	}
	return plot
}

func (r *Report) latencyDistribution() *page.Plot {
	line := page.Line{Name: "all"}
	for _, q := range r.Distribution {
		if q.Part >= 1 {
			break // the greatest of all has no place on an axis of nines
		}
		line.X = append(line.X, 1/(1-q.Part))
		line.Y = append(line.Y, q.Latency)
	}
	return &page.Plot{
		Title: "Latency by percentile",
		X:     page.Axis{Label: "percentile", Unit: page.Nines, Log: true},
		Y:     page.Axis{Label: "latency", Unit: page.Milliseconds, Log: true},
		Lines: []page.Line{line},
	}
}

// WriteHTML writes what was found as a page with plots.
func (k *Knee) WriteHTML(out io.Writer) error {
	sections := []page.Section{
		factsSection(k.facts()[1:]),
		{Title: "Rates", Text: strings.Join(k.verdicts(), "\n"), Table: &page.Table{Head: rateHead, Rows: k.rateRows()}, Plot: k.latencyOverRate()},
		{Title: "Trials", Table: &page.Table{Head: trialHead, Rows: k.trialRows()}},
	}
	if k.At != nil {
		below := k.At.sections()
		below[0].Title = "The trial at the knee: latency"
		sections = append(sections, below...)
	}
	return page.Page{Title: "loadtest run -find-max", Subtitle: strings.Join(k.Targets, ", "), Sections: sections}.Write(out)
}

func (k *Knee) latencyOverRate() *page.Plot {
	trials := slices.Clone(k.Trials)
	slices.SortStableFunc(trials, func(a, b Trial) int { return cmp.Compare(a.Rate, b.Rate) })
	p50, p99, bound := page.Line{Name: "p50"}, page.Line{Name: "p99"}, page.Line{Name: "bound of the p99"}
	for _, t := range trials {
		p50.X, p50.Y = append(p50.X, t.Rate), append(p50.Y, t.P50)
		p99.X, p99.Y = append(p99.X, t.Rate), append(p99.Y, t.P99)
		bound.X, bound.Y = append(bound.X, t.Rate), append(bound.Y, k.Bound)
	}
	return &page.Plot{
		Title: "Latency over rate",
		X:     page.Axis{Label: "rate asked", Unit: page.PerSecond},
		Y:     page.Axis{Label: "latency", Unit: page.Milliseconds, Log: true},
		Lines: []page.Line{p99, p50, bound},
	}
}
