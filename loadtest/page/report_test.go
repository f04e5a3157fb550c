package page_test

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/counterd/counterd/loadtest/page"
)

// report is a page as loadtest run and loadtest replay write them.
func report() page.Page {
	rng := rand.New(rand.NewPCG(1, 2))
	var seconds, rate, median, tail, worst []float64
	for i := range 300 {
		seconds = append(seconds, float64(i))
		rate = append(rate, 1000+30*rng.NormFloat64())
		median = append(median, 0.4+0.05*rng.Float64())
		tail = append(tail, 1.4+0.5*rng.Float64())
		stalled := 4 * math.Exp(0.5*rng.NormFloat64())
		if i > 120 && i < 130 {
			stalled = 900
		}
		worst = append(worst, stalled)
	}
	var sizes, latency, days, events []float64
	for i := range 41 {
		sizes = append(sizes, math.Pow(10, float64(i)/8))
		latency = append(latency, 0.3*math.Pow(sizes[i], 0.6))
	}
	for i := range 97 {
		days = append(days, 1431849600+float64(i)*1800)
		events = append(events, math.Round(50+40*math.Sin(float64(i)/10)))
	}
	since := page.Axis{Label: "since the start", Unit: page.Seconds}
	var many []page.Line
	for i := range 10 {
		many = append(many, page.Line{Name: "store " + strings.Repeat("I", i+1), X: []float64{1, 2000}, Y: []float64{float64(i) * 1e6, float64(i) * 1.3e6}})
	}
	return page.Page{
		Title:    "loadtest run",
		Subtitle: "1,000/s for 5 minutes at http://127.0.0.1:8080, seed 42",
		Sections: []page.Section{
			{
				Title: "What was sent",
				Text:  "300,000 requests were sent, 1,000 a second.\n\nEach latency is counted from the moment at which the request was due.",
				Table: &page.Table{
					Head: []string{"call", "asked", "reached", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "p99.99 ms", "max ms", "200", "429", "503"},
					Rows: [][]string{
						{"hit", "700/s", "700.0/s", "0.41", "0.82", "1.51", "8.24", "44.1", "901.3", "150,000", "60,000", "0"},
						{"check", "200/s", "200.0/s", "0.39", "0.71", "1.42", "7.91", "40.3", "900.9", "60,000", "0", "0"},
						{"increment", "100/s", "100.0/s", "0.45", "0.84", "1.63", "9.02", "46.0", "902.1", "30,000"},
					},
				},
			},
			{Title: "Throughput", Plot: &page.Plot{
				Title: "Requests a second", X: since, Y: page.Axis{Label: "requests", Unit: page.PerSecond},
				Lines: []page.Line{{Name: "answered", X: seconds, Y: rate}, {Name: "asked for", X: []float64{0, 299}, Y: []float64{1000, 1000}}},
			}},
			{Title: "Latency", Plot: &page.Plot{
				Title: "Latency of each second", X: since, Y: page.Axis{Label: "latency", Unit: page.Milliseconds, Log: true},
				Lines: []page.Line{{Name: "p50", X: seconds, Y: median}, {Name: "p99", X: seconds, Y: tail}, {Name: "max", X: seconds, Y: worst}},
			}},
			{Plot: &page.Plot{
				Title: "Latency over size", X: page.Axis{Label: "size", Log: true}, Y: page.Axis{Label: "latency", Unit: page.Milliseconds},
				Lines: []page.Line{{Name: "all calls", X: sizes, Y: latency, Steps: true}},
			}},
			{Title: "The log", Plot: &page.Plot{
				Title: "Events each half an hour", X: page.Axis{Label: "UTC", Unit: page.Moment}, Y: page.Axis{Label: "events"},
				Lines: []page.Line{{Name: "all", X: days, Y: events}, {Name: "the busiest feature, once", X: days[5:6], Y: events[5:6]}},
			}},
			{Title: "Sizes", Plot: &page.Plot{
				Title: "Memory", X: page.Axis{Label: "features", Log: true}, Y: page.Axis{Label: "memory", Unit: page.Plain}, Lines: many,
			}},
			{Title: "Rules file", Code: "events:\n  url_shorten:\n    limits:\n      - ip: 10/s 100/m # at most 0.1% of features are denied, which is what was asked for, in a line that is long\n"},
			{Title: "Nothing was seen", Plot: &page.Plot{Title: "No lines", X: since, Y: page.Axis{Label: "requests"}}},
		},
	}
}

// attacks are names that an attacker may choose.
var attacks = []string{
	`<script>console.error("x")</script>`,
	`"><img src="http://127.0.0.1:9/x.png" onerror="console.error(1)">`,
	`</title></style></svg></script><script src=http://127.0.0.1:9/></script>`,
	`<link rel=stylesheet href=http://127.0.0.1:9/x.css>`,
	`' onload='console.error(1)`,
	`{{.}} {{template "table" .}}`,
	`<!-- `, `]]>`, `&lt;b&gt;`, "\x00\x01\x7f", "\xff\xfe", "\u202egpj.exe", "a\u0000b", "line\nbreak", "  ",
	strings.Repeat("unbreakable", 40),
	strings.Repeat("long words ", 40),
}

// hostile has the attacks wherever there is a string.
func hostile() page.Page {
	all := strings.Join(attacks[:len(attacks)-2], " ")
	p := page.Page{Title: all, Subtitle: all}
	table := &page.Table{Head: []string{all, "short"}, Rows: [][]string{{all, all}}}
	plot := &page.Plot{Title: all, X: page.Axis{Label: "x"}, Y: page.Axis{Label: "y"}}
	for i, attack := range attacks {
		table.Rows = append(table.Rows, []string{attack, attack})
		plot.Lines = append(plot.Lines, page.Line{Name: attack, X: []float64{0, 1}, Y: []float64{float64(i), float64(i)}})
	}
	p.Sections = []page.Section{{Title: all, Text: all, Table: table, Plot: plot}}
	for _, attack := range attacks {
		p.Sections = append(p.Sections, page.Section{Title: attack, Text: attack, Code: attack, Table: &page.Table{Head: []string{attack}, Rows: [][]string{{attack}}}})
	}
	return p
}

// axes has a plot for each unit, with ranges from small to large, to look whether their marks
// have room.
func axes() page.Page {
	var p page.Page
	for i, unit := range units {
		for _, end := range []float64{0.003, 7, 59, 4_000, 200_000, 98_765_432} {
			axis := page.Axis{Label: "axis", Unit: unit, Log: i%2 == 0 && end > 10 && unit != page.Moment}
			from := end / 123
			if unit == page.Moment {
				from, end = 1431849600, 1431849600+end
			}
			line := page.Line{Name: "line", X: []float64{from, end}, Y: []float64{end, from}}
			p.Sections = append(p.Sections, page.Section{Plot: &page.Plot{Title: string(unit), X: axis, Y: axis, Lines: []page.Line{line}}})
		}
	}
	return p
}
