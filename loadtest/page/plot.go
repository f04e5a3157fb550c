package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
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

// figure is a plot as the template takes it.
type figure struct {
	Title, Description string
	Legend             []legendEntry
	Sheets             []*sheet
}

type legendEntry struct{ Class, Name string }

// sheet is a plot in one size: paths and texts of SVG, whose colours are the stylesheet's.
type sheet struct {
	ID, Name      string
	Width, Height float64
	Strokes       []svgPath
	Letters       []svgText
}

type svgPath struct{ Class, Path string }

type svgText struct{ Class, X, Y, Anchor, Text string }

// Sizes in pixels.
const (
	letterSize = 13 // also in the stylesheet
	headRoom   = 26 // above the plot, for the name of the vertical axis
	footRoom   = 44 // below it, for marks and the name of the horizontal axis
	sideRoom   = 8
	tickLength = 5
)

// figure draws the plot for a screen and for a phone, of which the stylesheet shows one: the
// letters of a scaled plot would be illegible.
func (p *Plot) figure(id string) *figure {
	x, y := p.X.scaleOf(false, p.Lines), p.Y.scaleOf(true, p.Lines)
	made := &figure{Title: p.Title, Description: p.describe()}
	for i, l := range p.Lines {
		if l.Name != "" {
			made.Legend = append(made.Legend, legendEntry{"line " + classOf(i), l.Name})
		}
	}
	for _, s := range []*sheet{{Name: "wide", Width: 960, Height: 360}, {Name: "narrow", Width: 360, Height: 270}} {
		s.ID = id + "-" + s.Name
		s.draw(p, x, y)
		made.Sheets = append(made.Sheets, s)
	}
	return made
}

// classOf returns a line's colour and, beyond the eighth line, its dashes.
func classOf(line int) string {
	const colours, dashes = 8, 3
	name := fmt.Sprintf("c%d", line%colours)
	if dash := line / colours % dashes; dash > 0 {
		name += fmt.Sprintf(" d%d", dash)
	}
	return name
}

// describe describes the plot in words.
func (p *Plot) describe() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s over %s.", cmp.Or(p.Y.Label, "values"), cmp.Or(p.X.Label, "values"))
	for i, l := range p.Lines {
		name := cmp.Or(l.Name, fmt.Sprintf("Line %d", i+1))
		finite := slices.DeleteFunc(slices.Clone(l.Y), func(v float64) bool { return !isFinite(v) })
		if len(finite) == 0 {
			fmt.Fprintf(&text, " %s: no points.", name)
			continue
		}
		fmt.Fprintf(&text, " %s: from %s to %s.", name, p.Y.Unit.text(slices.Min(finite)), p.Y.Unit.text(slices.Max(finite)))
	}
	return text.String()
}

// widthOf returns more than the width of a text of digits and a unit, in any common font.
func widthOf(text string) float64 { return 4 + 8*float64(utf8.RuneCountInString(text)) }

// draw draws the axes and the lines.
func (s *sheet) draw(p *Plot, x, y scale) {
	rows := y.marks(verticalMarks)
	left, top, bottom := 0.0, float64(headRoom), s.Height-footRoom
	for _, row := range rows {
		left = max(left, widthOf(row.label)+sideRoom)
	}
	columns, left, right := s.fitting(x, left)
	placeX := func(v float64) float64 { return left + x.place(v)*(right-left) }
	placeY := func(v float64) float64 { return bottom - y.place(v)*(bottom-top) }
	for _, row := range rows {
		at := placeY(row.value)
		s.stroke("grid", point{left, at}, point{right, at})
		s.text("mark", left-sideRoom, at+letterSize/3, "end", row.label)
	}
	s.stroke("axis", point{left, bottom}, point{right, bottom})
	for _, column := range columns {
		at := placeX(column.value)
		s.stroke("axis", point{at, bottom}, point{at, bottom + tickLength})
		s.text("mark", at, bottom+tickLength+letterSize, "middle", column.label)
	}
	before := len(s.Strokes)
	for i, l := range p.Lines {
		for _, segment := range segmentsOf(thin(l.X, l.Y), x, y) {
			s.line(classOf(i), segment, l.Steps, placeX, placeY)
		}
	}
	s.text("name", 0, letterSize, "start", p.Y.Label)
	s.text("name", s.Width-sideRoom, s.Height-letterSize/3, "end", p.X.Label)
	if len(s.Strokes) == before {
		s.text("name", s.Width/2, s.Height/2, "middle", "no values")
	}
}

// fitting returns the marks of the horizontal axis that fit beside one another, and the ends
// of the axis, right of the given one.
func (s *sheet) fitting(x scale, from float64) (marks []mark, left, right float64) {
	for count := max(5, int(s.Width/100)); ; count-- {
		marks = x.marks(count)
		left, right = from, s.Width-2*sideRoom
		for _, m := range marks {
			left, right = max(left, widthOf(m.label)/2*(1-x.place(m.value))), min(right, s.Width-widthOf(m.label)/2*x.place(m.value))
		}
		fit := true
		for i := 1; i < len(marks); i++ {
			distance := (x.place(marks[i].value) - x.place(marks[i-1].value)) * (right - left)
			fit = fit && distance >= (widthOf(marks[i-1].label)+widthOf(marks[i].label))/2
		}
		if fit || count == 2 {
			return marks, left, right
		}
	}
}

// line draws a segment of a line; a single point is a dot.
func (s *sheet) line(class string, segment []point, steps bool, placeX, placeY func(float64) float64) {
	var path []point
	for i, at := range segment {
		next := point{placeX(at.x), placeY(at.y)}
		if steps && i > 0 {
			path = append(path, point{next.x, path[len(path)-1].y})
		}
		path = append(path, next)
	}
	if len(path) == 1 {
		s.stroke("dot "+class, path[0], path[0])
		return
	}
	s.stroke("line "+class, path...)
}

func (s *sheet) stroke(class string, path ...point) {
	var d strings.Builder
	letter := "M"
	for _, at := range path {
		d.WriteString(letter + coordinate(at.x) + "," + coordinate(at.y))
		letter = "L"
	}
	s.Strokes = append(s.Strokes, svgPath{class, d.String()})
}

func (s *sheet) text(class string, x, y float64, anchor, text string) {
	s.Letters = append(s.Letters, svgText{class, coordinate(x), coordinate(y), anchor, text})
}

func coordinate(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

// point is a point of a line.
type point struct{ x, y float64 }

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// segmentsOf cuts a line at its gaps.
func segmentsOf(points []point, x, y scale) (list [][]point) {
	open := false
	for _, p := range points {
		if !x.has(p.x) || !y.has(p.y) {
			open = false
			continue
		}
		if !open {
			list, open = append(list, nil), true
		}
		list[len(list)-1] = append(list[len(list)-1], p)
	}
	return list
}

// MaxPoints is the largest number of points of a drawn line.
const MaxPoints = 2000

// thin returns a line's points, at most MaxPoints. It divides a longer line into buckets, and
// keeps of each the first, the lowest, the highest and the last point, and a gap.
func thin(x, y []float64) (points []point) {
	n := min(len(x), len(y))
	const buckets = MaxPoints / 5
	for i := 0; i < n && n <= MaxPoints; i++ {
		points = append(points, point{x[i], y[i]})
	}
	for b := 0; b < buckets && n > MaxPoints; b++ {
		from, to := b*n/buckets, (b+1)*n/buckets
		for _, i := range pick(x[from:to], y[from:to]) {
			points = append(points, point{x[from+i], y[from+i]})
		}
	}
	return points
}

// pick returns the indexes of a bucket's points to keep, in their order.
func pick(x, y []float64) []int {
	lowest, highest, gap := -1, -1, -1
	for i := range y {
		if !isFinite(x[i]) || !isFinite(y[i]) {
			gap = i
			continue
		}
		if lowest < 0 || y[i] < y[lowest] {
			lowest = i
		}
		if highest < 0 || y[i] > y[highest] {
			highest = i
		}
	}
	kept := []int{0, lowest, highest, gap, len(y) - 1}
	slices.Sort(kept)
	return slices.DeleteFunc(slices.Compact(kept), func(i int) bool { return i < 0 })
}
