package run

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/counterd/counterd/loadtest/page"
)

// Page returns the report as a page with plots.
func (r *Report) Page() page.Page {
	sections := append([]page.Section{summary(append(r.facts()[1:], r.costs()...))}, r.sections("Latency")...)
	return page.Page{Title: "loadtest run", Subtitle: strings.Join(r.Targets, ", "), Sections: sections}
}

func summary(facts []fact) page.Section {
	var lines []string
	for _, f := range facts {
		lines = append(lines, f.name+": "+f.text)
	}
	return page.Section{Title: "Summary", Text: strings.Join(lines, "\n")}
}

func tableOf(rows [][]string) *page.Table { return &page.Table{Head: rows[0], Rows: rows[1:]} }

// sections are the tables and the plots.
func (r *Report) sections(title string) []page.Section {
	sections := []page.Section{{
		Title: title, Table: tableOf(r.latencyTable()), Plot: r.latencyOverTime(),
		Text: "A latency counts from the moment at which a request was due. Late is the generator's own share of it.",
	}, {Title: "Throughput", Plot: r.throughput()}}
	if len(r.Limits) > 0 {
		sections = append(sections, page.Section{Title: "Limits", Table: tableOf(r.limitTable())})
	}
	return sections
}

// over returns a figure of each slot over its middle.
func (r *Report) over(name string, of func(Slot) float64) page.Line {
	line := page.Line{Name: name}
	for _, s := range r.Timeline {
		line.X = append(line.X, s.At+s.Seconds/2)
		line.Y = append(line.Y, of(s))
	}
	return line
}

var latencyAxis = page.Axis{Label: "latency", Unit: page.Milliseconds, Log: true}

func (r *Report) latencyOverTime() *page.Plot {
	plot := &page.Plot{Title: "Latency over time", X: page.Axis{Label: "time at which requests were due", Unit: page.Seconds}, Y: latencyAxis}
	for _, percentile := range []struct {
		name string
		of   func(Latency) float64
	}{
		{"max", func(l Latency) float64 { return l.Max }},
		{"p99.9", func(l Latency) float64 { return l.P999 }},
		{"p99", func(l Latency) float64 { return l.P99 }},
		{"p90", func(l Latency) float64 { return l.P90 }},
		{"p50", func(l Latency) float64 { return l.P50 }},
	} {
		plot.Lines = append(plot.Lines, r.over(percentile.name, func(s Slot) float64 {
			if s.Latency.Requests == 0 {
				return math.NaN() // a gap
			}
			return percentile.of(s.Latency)
		}))
	}
	return plot
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

// Page returns the search as a page with plots.
func (k *Knee) Page() page.Page {
	sections := []page.Section{
		summary(k.facts()[1:]),
		{Title: "Rates", Text: strings.Join(k.verdicts(), "\n"), Table: tableOf(k.rateTable()), Plot: k.latencyOverRate()},
	}
	if k.At != nil {
		sections = append(sections, k.At.sections("The trial at the knee: latency")...)
	}
	return page.Page{Title: "loadtest run -find-max", Subtitle: strings.Join(k.Targets, ", "), Sections: sections}
}

func (k *Knee) latencyOverRate() *page.Plot {
	trials := slices.Clone(k.Trials)
	slices.SortStableFunc(trials, func(a, b Trial) int { return cmp.Compare(a.Rate, b.Rate) })
	lines := []page.Line{{Name: "p99"}, {Name: "p50"}, {Name: "bound of the p99"}}
	for _, t := range trials {
		for i, latency := range []float64{t.P99, t.P50, k.Bound} {
			lines[i].X, lines[i].Y = append(lines[i].X, t.Rate), append(lines[i].Y, latency)
		}
	}
	return &page.Plot{Title: "Latency over rate", X: page.Axis{Label: "rate asked", Unit: page.PerSecond}, Y: latencyAxis, Lines: lines}
}
