package page

import (
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

// Axis is what a plot says of one direction. A logarithmic one has places for positive
// values only. One that is not begins at zero where no value is negative, but that of
// moments, and where it is the horizontal one.
type Axis struct {
	Label string
	Log   bool
	Unit  Unit
}

// Line goes through its points in their order; where X and Y differ in length, the longer
// one's rest is left out. With Steps each value holds until the next one.
type Line struct {
	Name  string
	X, Y  []float64
	Steps bool
}

// Colours of the stylesheet, and its dashes for the lines behind those.
const (
	colours = 8
	dashes  = 3
)

// figure is a plot as the template takes it.
type figure struct {
	Title, Description string
	Legend             []legendEntry
	Sheets             []*sheet
}

type legendEntry struct{ Class, Name string }

// figure draws the plot twice, for a screen and for a phone: the letters of one that is
// made smaller could not be read. The stylesheet shows one of them.
func (p *Plot) figure(id string) *figure {
	x, y := p.X.scaleOf(false, p.Lines), p.Y.scaleOf(true, p.Lines)
	made := &figure{Title: p.Title, Description: p.describe()}
	var drawn []stroke
	for i, l := range p.Lines {
		drawn = append(drawn, stroke{classOf(i), l.Steps, segmentsOf(thin(l.X, l.Y), x, y)})
		if l.Name != "" {
			made.Legend = append(made.Legend, legendEntry{"line " + string(classOf(i)), l.Name})
		}
	}
	for _, size := range []struct {
		name          string
		width, height float64
	}{{"wide", 880, 340}, {"narrow", 360, 270}} {
		s := &sheet{ID: id + "-" + size.name, Name: size.name, Width: size.width, Height: size.height}
		s.draw(p, x, y, drawn)
		made.Sheets = append(made.Sheets, s)
	}
	return made
}

func classOf(line int) class {
	name := fmt.Sprintf("c%d", line%colours)
	if dash := line / colours % dashes; dash > 0 {
		name += fmt.Sprintf(" d%d", dash)
	}
	return class(name)
}

// describe says in words what is drawn.
func (p *Plot) describe() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s over %s.", nameOr(p.Y.Label, "values"), nameOr(p.X.Label, "values"))
	for i, l := range p.Lines {
		low, high := rangeOf(l.Y)
		name := nameOr(l.Name, fmt.Sprintf("Line %d", i+1))
		if low > high {
			fmt.Fprintf(&text, " %s: no points.", name)
			continue
		}
		fmt.Fprintf(&text, " %s: from %s to %s.", name, p.Y.Unit.text(low), p.Y.Unit.text(high))
	}
	return text.String()
}

func nameOr(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}

// rangeOf returns the lowest and the highest finite value, the wrong way round where there
// is none.
func rangeOf(values []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if isFinite(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	return low, high
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
