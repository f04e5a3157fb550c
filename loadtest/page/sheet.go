package page

import (
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// sheet is what a plot is drawn on: paths and texts for the template, which writes them as
// SVG. Its colours are classes of the stylesheet, which knows light and dark.
type sheet struct {
	vg.Canvas // nil: nothing else than what is below is asked for

	ID, Name      string
	Width, Height float64
	Strokes       []svgPath
	Letters       []svgText
	class         class
}

type svgPath struct{ Class, Path string }

type svgText struct{ Class, X, Y, Anchor, Text string }

// class is a colour by its name in the stylesheet.
type class string

func (class) RGBA() (r, g, b, a uint32) { return 0, 0, 0, math.MaxUint16 }

func (s *sheet) SetColor(c color.Color) {
	s.class, _ = c.(class)
}

func (s *sheet) SetLineWidth(vg.Length) {}

func (s *sheet) SetLineDash([]vg.Length, vg.Length) {}

// Stroke takes moves and lines only.
func (s *sheet) Stroke(path vg.Path) {
	var d strings.Builder
	for _, part := range path {
		letter := "L"
		if part.Type == vg.MoveComp {
			letter = "M"
		}
		d.WriteString(letter + s.x(part.Pos.X) + "," + s.y(part.Pos.Y))
	}
	s.Strokes = append(s.Strokes, svgPath{string(s.class), d.String()})
}

func (s *sheet) x(x vg.Length) string { return coordinate(float64(x)) }

// y is counted from the bottom in a plot, and from the top in SVG.
func (s *sheet) y(y vg.Length) string { return coordinate(s.Height - float64(y)) }

func coordinate(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// letters measures texts as the plot does, and leaves their alignment to the browser, whose
// font may be another one.
type letters struct {
	text.Plain
	sheet *sheet
}

// Draw takes the text of a mark: one below the horizontal axis hangs from its place, one
// beside the vertical axis has it at its middle.
func (l letters) Draw(_ vg.Canvas, txt string, style text.Style, at vg.Point) {
	anchor, below := "middle", vg.Length(letterSize)
	if style.XAlign == text.XRight {
		anchor, below = "end", letterSize/3
	}
	at.Y -= style.FontExtents().Descent + below // the plot adds the descent
	l.sheet.Letters = append(l.sheet.Letters, svgText{"mark", l.sheet.x(at.X), l.sheet.y(at.Y), anchor, txt})
}

// Sizes in pixels. A text is measured in a larger size than it has: in a font that is wider
// than the measured one it still finds its place.
const (
	letterSize   = 12
	measuredSize = 14
	headRoom     = 22 // above the plot, for the name of the vertical axis
	footRoom     = 18 // below its marks, for that of the horizontal one
	sideRoom     = 6
)

// draw draws the axes and the lines.
func (s *sheet) draw(p *Plot, x, y scale, lines []stroke) {
	made := plot.New()
	made.BackgroundColor = nil
	s.setAxis(&made.X, x, int(s.Width/90))
	s.setAxis(&made.Y, y, int(s.Height/50))
	made.Y.LineStyle.Width, made.Y.Tick.Length = 0, 0
	made.Add(grid{})
	for _, l := range lines {
		made.Add(l)
	}
	made.Draw(draw.Crop(draw.NewCanvas(s, vg.Length(s.Width), vg.Length(s.Height)), 0, -sideRoom, footRoom, -headRoom))
	s.Letters = append(s.Letters,
		svgText{"name", "0", coordinate(letterSize), "start", p.Y.Label},
		svgText{"name", coordinate(s.Width - sideRoom), coordinate(s.Height - letterSize/3), "end", p.X.Label})
}

func (s *sheet) setAxis(axis *plot.Axis, of scale, count int) {
	axis.Min, axis.Max = of.low, of.high
	if of.Log {
		axis.Scale = plot.LogScale{}
	}
	axis.Padding = 0
	axis.LineStyle.Color, axis.Tick.LineStyle.Color = class("axis"), class("axis")
	axis.Tick.Length = 5
	axis.Tick.Marker = plot.ConstantTicks(of.marks(count))
	axis.Tick.Label.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: measuredSize}
	axis.Tick.Label.Handler = letters{text.Plain{Fonts: font.DefaultCache}, s}
}

// grid draws a line across the plot at each mark of the vertical axis.
type grid struct{}

func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	for _, mark := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		at := y(mark.Value)
		c.StrokeLine2(draw.LineStyle{Color: class("grid"), Width: 1}, c.Min.X, at, c.Max.X, at)
	}
}

// stroke draws one line, in as many segments as its gaps leave.
type stroke struct {
	class    class
	steps    bool
	segments [][]point
}

func (l stroke) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, segment := range l.segments {
		name := "line " + l.class
		if len(segment) == 1 {
			name = "dot " + l.class
			segment = append(segment, segment[0])
		}
		var path []vg.Point
		for i, at := range segment {
			next := vg.Point{X: x(at.x), Y: y(at.y)}
			if l.steps && i > 0 {
				path = append(path, vg.Point{X: next.X, Y: path[len(path)-1].Y})
			}
			path = append(path, next)
		}
		c.StrokeLines(draw.LineStyle{Color: name, Width: 1}, path)
	}
}

// segmentsOf cuts a line where a point has no place.
func segmentsOf(points []point, x, y scale) (list [][]point) {
	var current []point
	for _, p := range points {
		if x.has(p.x) && y.has(p.y) {
			current = append(current, p)
			continue
		}
		if len(current) > 0 {
			list = append(list, current)
		}
		current = nil
	}
	if len(current) > 0 {
		list = append(list, current)
	}
	return list
}
