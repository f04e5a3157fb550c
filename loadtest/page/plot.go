package page

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// Plot has lines over two axes, and a legend.
type Plot struct {
	Title string
	X, Y  Axis
	Lines []Line
}

// Axis is one direction of a plot. A vertical axis without negative values begins at zero,
// unless it is logarithmic or of moments.
type Axis struct {
	Label string
	Log   bool
	Unit  Unit
}

// Line goes through its points in their order, as many as both X and Y have. With Steps each
// value holds until the next one.
type Line struct {
	Name  string
	X, Y  []float64
	Steps bool
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

// draw draws the plot.
func (p *Plot) draw(id string) *drawing {
	x, y := p.X.scaleOf(p.Lines, false), p.Y.scaleOf(p.Lines, true)
	d := &drawing{ID: id, Title: p.Title, Description: fmt.Sprintf("%s over %s.", cmp.Or(p.Y.Label, "values"), cmp.Or(p.X.Label, "values"))}
	across := func(v float64) float64 { return left + x.place(v)*(right-left) }
	up := func(v float64) float64 { return bottom - y.place(v)*(bottom-top) }
	for _, v := range y.marks() {
		d.path("grid", point{left, up(v)}, point{right, up(v)})
		d.text("mark", "end", left-8, up(v)+4, y.label(v))
	}
	d.path("axis", point{left, bottom}, point{right, bottom})
	for _, v := range x.marks() {
		d.path("axis", point{across(v), bottom}, point{across(v), bottom + 5})
		d.text("mark", "middle", across(v), bottom+18, x.label(v))
	}
	empty := true
	for i, l := range p.Lines {
		if l.Name != "" {
			d.Legend = append(d.Legend, legendEntry{"line " + classOf(i), l.Name})
		}
		least, most := math.Inf(1), math.Inf(-1)
		for _, segment := range l.segments(x, y) {
			for j, at := range segment {
				least, most = min(least, at.y), max(most, at.y)
				segment[j] = point{across(at.x), up(at.y)}
			}
			d.line(classOf(i), segment)
		}
		values := "no points"
		if least <= most {
			empty, values = false, fmt.Sprintf("from %s to %s", p.Y.Unit.text(least), p.Y.Unit.text(most))
		}
		d.Description += fmt.Sprintf(" %s: %s.", cmp.Or(l.Name, fmt.Sprintf("Line %d", i+1)), values)
	}
	d.text("name", "start", 0, 13, p.Y.Label)
	d.text("name", "end", 952, 356, p.X.Label)
	if empty {
		d.text("name", "middle", 480, 180, "no values")
	}
	return d
}

type point struct{ x, y float64 }

// segments returns the points of a line, and cuts it at its gaps.
func (l Line) segments(x, y scale) (list [][]point) {
	open := false
	for i := range min(len(l.X), len(l.Y)) {
		if !x.has(l.X[i]) || !y.has(l.Y[i]) {
			open = false
			continue
		}
		if !open {
			list, open = append(list, nil), true
		} else if l.Steps {
			list[len(list)-1] = append(list[len(list)-1], point{l.X[i], l.Y[i-1]})
		}
		list[len(list)-1] = append(list[len(list)-1], point{l.X[i], l.Y[i]})
	}
	return list
}

// classOf returns a line's colour and, beyond the eighth line, its dashes.
func classOf(line int) string {
	const colours, dashes = 8, 3
	return fmt.Sprintf("c%d d%d", line%colours, line/colours%dashes)
}

// line draws a segment of a line; a single point is a dot.
func (d *drawing) line(class string, segment []point) {
	if len(segment) == 1 {
		d.path("dot "+class, segment[0], segment[0])
		return
	}
	d.path("line "+class, segment...)
}

func (d *drawing) path(class string, points ...point) {
	var path strings.Builder
	for i, at := range points {
		fmt.Fprintf(&path, "%c%.1f,%.1f", "ML"[min(i, 1)], at.x, at.y)
	}
	d.Paths = append(d.Paths, svgPath{class, path.String()})
}

func (d *drawing) text(class, anchor string, x, y float64, text string) {
	d.Texts = append(d.Texts, svgText{class, anchor, text, fmt.Sprintf("%.1f", x), fmt.Sprintf("%.1f", y)})
}
