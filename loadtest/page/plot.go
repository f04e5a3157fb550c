package page

import (
	"fmt"
	"slices"
	"strings"
)

// Plot has lines over two axes, and a legend.
type Plot struct {
	Title string
	X, Y  Axis
	Lines []Line
}

// Axis is one direction of a plot. It begins at zero, unless it is logarithmic or of moments.
type Axis struct {
	Label string
	Log   bool
	Unit  Unit
}

// Line goes through its points, one at least. Each value of Y holds until the next X.
type Line struct {
	Name string
	X, Y []float64
}

// drawing is a plot as the template takes it: paths and texts of SVG in a box of 960 by 360,
// whose colours are the stylesheet's.
type drawing struct {
	ID, Title, Description string
	Legend                 []legendEntry
	Paths                  []svgPath
	Texts                  []svgText
}

type (
	legendEntry struct{ Class, Name string }
	svgPath     struct{ Class, Path string }
	svgText     struct{ Class, Anchor, Text, X, Y string }
)

// The ends of the axes in the box. Beside them the longest marks have room.
const (
	left, right = 90, 890
	top, bottom = 26, 316
)

// draw draws a plot, the i-th of its page.
func draw(i int, p *Plot) *drawing {
	var allX, allY []float64
	for _, l := range p.Lines {
		allX, allY = append(allX, l.X...), append(allY, l.Y...)
	}
	x, y := p.X.scaleOf(allX, 6), p.Y.scaleOf(allY, 5)
	across := func(v float64) float64 { return left + x.place(v)*(right-left) }
	up := func(v float64) float64 { return bottom - y.place(v)*(bottom-top) }
	d := &drawing{ID: fmt.Sprintf("plot-%d", i), Title: p.Title, Description: fmt.Sprintf("%s over %s.", p.Y.Label, p.X.Label)}
	for _, v := range y.marks() {
		d.path("grid", left, up(v), right, up(v))
		d.text("mark", "end", left-8, up(v)+4, y.label(v))
	}
	d.path("axis", left, bottom, right, bottom)
	for _, v := range x.marks() {
		d.path("axis", across(v), bottom, across(v), bottom+5)
		d.text("mark", "middle", across(v), bottom+18, x.label(v))
	}
	for i, l := range p.Lines {
		d.Legend = append(d.Legend, legendEntry{"line " + classOf(i), l.Name})
		d.Description += fmt.Sprintf(" %s: from %s to %s.", l.Name, p.Y.Unit.text(slices.Min(l.Y)), p.Y.Unit.text(slices.Max(l.Y)))
		points := []float64{across(l.X[0]), up(l.Y[0])}
		for i := 1; i < len(l.X); i++ {
			points = append(points, across(l.X[i]), up(l.Y[i-1]), across(l.X[i]), up(l.Y[i]))
		}
		if len(l.X) == 1 {
			d.path("dot "+classOf(i), points[0], points[1], points[0], points[1])
		} else {
			d.path("line "+classOf(i), points...)
		}
	}
	d.text("name", "start", 0, 13, p.Y.Label)
	d.text("name", "end", 952, 356, p.X.Label)
	return d
}

// classOf returns a line's colour and, beyond the eighth line, its dashes.
func classOf(line int) string {
	const colours, dashes = 8, 3
	return fmt.Sprintf("c%d d%d", line%colours, line/colours%dashes)
}

// path draws a line through points, the x and the y of each.
func (d *drawing) path(class string, points ...float64) {
	var path strings.Builder
	for i := 0; i < len(points); i += 2 {
		fmt.Fprintf(&path, "%c%.1f,%.1f", "ML"[min(i, 1)], points[i], points[i+1])
	}
	d.Paths = append(d.Paths, svgPath{class, path.String()})
}

func (d *drawing) text(class, anchor string, x, y float64, text string) {
	d.Texts = append(d.Texts, svgText{class, anchor, text, fmt.Sprintf("%.1f", x), fmt.Sprintf("%.1f", y)})
}
