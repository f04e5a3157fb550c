package page_test

import (
	"fmt"
	"math"
	"strings"

	"github.com/counterd/counterd/loadtest/page"
)

// report is a page as loadtest replay writes them.
func report() page.Page {
	var counts, shares, moments, admitted, denied []float64
	for i := range 33 {
		counts = append(counts, math.Round(math.Pow(10, float64(i)/8)))
		shares = append(shares, 100*math.Pow(0.75, float64(i)))
	}
	for i := range 97 {
		moments = append(moments, 1431849600+float64(i)*1800)
		admitted = append(admitted, math.Round(50+40*math.Sin(float64(i)/10)))
		denied = append(denied, math.Round(5+5*math.Cos(float64(i)/5)))
	}
	var many []page.Line
	for i := range 10 {
		many = append(many, page.Line{Name: "user " + strings.Repeat("I", i+1), X: []float64{1431849600, 1431849660}, Y: []float64{float64(i) * 1e6, float64(i) * 1.3e6}})
	}
	return page.Page{
		Title:    "Limits suggested by access.log",
		Subtitle: "300000 lines from 2015-05-17T10:05:00Z to 2015-05-20T21:05:59Z",
		Sections: []page.Section{
			{
				Title: "Per ip",
				Text:  "1753 features with 300000 hits; the largest count of each in any of these windows:\n\nTogether the limits deny 17 of 1753 features.",
				Table: &page.Table{
					Head: []string{"", "p50", "p90", "p99", "p99.9", "max", "limit alone", "denies", "of the features", "together", "attack", "of it"},
					Rows: [][]string{
						{"second", "1", "2", "3", "5", "7", "3", "7", "0.40%", "3/s", "-", "-"},
						{"minute", "2", "7", "33", "75", "108", "33", "17", "0.97%", "-", "-", "-"},
						{"hour", "2", "7", "33", "75", "110", "33", "17", "0.97%"},
					},
				},
				Plot: &page.Plot{
					Title: "Share of features that exceed a count", X: page.Axis{Label: "largest count", Log: true},
					Y: page.Axis{Label: "share of features above it", Log: true, Unit: page.Percent},
					Lines: []page.Line{
						{Name: "in any hour", X: counts, Y: shares}, {Name: "limit 33/h", X: []float64{33, 33}, Y: []float64{0.05, 100}},
						{Name: "one feature", X: counts[5:6], Y: shares[5:6]},
					},
				},
			},
			{Title: "Over time", Plot: &page.Plot{
				Title: "Admitted and denied", X: page.Axis{Label: "time (UTC)", Unit: page.Moment}, Y: page.Axis{Label: "hits in 30m"},
				Lines: []page.Line{{Name: "admitted", X: moments, Y: admitted}, {Name: "denied", X: moments, Y: denied}},
			}},
			{Title: "Many", Plot: &page.Plot{
				Title: "Many lines", X: page.Axis{Label: "time (UTC)", Unit: page.Moment}, Y: page.Axis{Label: "hits in 1m"}, Lines: many,
			}},
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
		p.Sections = append(p.Sections, page.Section{Title: attack, Text: attack, Table: &page.Table{Head: []string{attack}, Rows: [][]string{{attack}}}})
	}
	return p
}

// axes has a plot for each kind of axis, with ranges from small to large, to look whether their
// marks have room.
func axes() page.Page {
	var p page.Page
	for _, axis := range kinds {
		for _, end := range []float64{0.003, 7, 59, 4_000, 200_000, 98_765_432} {
			from := end / 123
			switch axis.Unit {
			case page.Moment:
				from, end = 1431849600, 1431849600+end
			case page.Percent:
				from, end = min(from, 1), min(end, 100)
			}
			line := page.Line{Name: "line", X: []float64{from, end}, Y: []float64{end, from}}
			title := fmt.Sprint(axis, end)
			p.Sections = append(p.Sections, page.Section{Plot: &page.Plot{Title: title, X: axis, Y: axis, Lines: []page.Line{line}}})
		}
	}
	return p
}
