package pagetest

import (
	"math"
	"strings"

	"github.com/counterd/counterd/loadtest/page"
)

// Report returns a page as loadtest replay writes it.
func Report() page.Page {
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

// Attacks are names that an attacker may choose.
var Attacks = []string{
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

// Axes are all kinds of axes.
var Axes = []page.Axis{
	{Label: "count"}, {Label: "count", Log: true}, {Label: "share", Unit: page.Percent}, {Label: "share", Unit: page.Percent, Log: true},
	{Label: "time", Unit: page.Moment},
}
