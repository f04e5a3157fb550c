package page

import (
	"fmt"
	"math"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// Plots have heights in pixels and places in percent of their width: so their texts are of one size on each screen.
const (
	plotHeight = 200
	plotMarks  = 4 // about so many, on either axis
)

// chart is bars over time: counted above the line, denied below it.
type chart struct {
	Title, Description string
	Height, Base       int64 // of the plot, and where its line is
	Columns            []bar
	Lines              []line
	Marks              []tick
	Links              bool
}

// bar is an interval. Its counts are heights in pixels.
type bar struct {
	X, Width          string
	CountedY, Counted string
	DeniedY, Denied   string // Denied is empty where there is none
	Title, Link       string
	HitX, HitWidth    string
}

type line struct{ Y, TextY, Text string }

type tick struct{ X, Anchor, Text string }

// percent writes a share of the width.
func percent(share float64) string { return fmt.Sprintf("%.3f%%", 100*share) }

func pixels(v float64) string { return fmt.Sprintf("%.1f", v) }

// roundStep returns a round number, 1, 2 or 5 of a power of ten, that is no less than the wanted one.
func roundStep(wanted int64) int64 {
	for power := int64(1); power < math.MaxInt64/100; power *= 10 {
		for _, digit := range []int64{1, 2, 5} {
			if digit*power >= wanted {
				return digit * power
			}
		}
	}
	return wanted
}

// chartOf draws the past. Bars link to what zoom returns for the beginning of their interval, if anything.
func chartOf(got past, level engine.Level, zoom func(first int64) string) *chart {
	intervals := got.Intervals
	var counted, denied, sumCounted, sumDenied int64
	for i, one := range intervals {
		counted, sumCounted = max(counted, one.Count), sumCounted+one.Count
		if got.denied != nil {
			denied, sumDenied = max(denied, got.denied[i]), sumDenied+got.denied[i]
		}
	}
	step := roundStep((max(counted, 1) + denied + plotMarks - 1) / plotMarks)
	above, below := ceilTo(max(counted, 1), step), ceilTo(denied, step)
	scale := float64(plotHeight) / float64(above+below)
	c := &chart{
		Title:  fmt.Sprintf("Hits by the %s", level),
		Height: plotHeight, Base: int64(math.Round(float64(above) * scale)),
		Description: fmt.Sprintf("From %s to %s UTC: %s counted", mark(intervals[0].First, level), mark(intervals[len(intervals)-1].First, level), grouped(sumCounted)),
	}
	if got.denied != nil {
		c.Description += fmt.Sprintf(", %s denied", grouped(sumDenied))
	}
	base := float64(c.Base)
	for v := -below; v <= above; v += step {
		y := base - float64(v)*scale
		c.Lines = append(c.Lines, line{pixels(y), pixels(min(max(y+4, 10), plotHeight)), short(max(v, -v))})
	}
	width := 1 / float64(len(intervals))
	every := (len(intervals) + plotMarks) / (plotMarks + 1)
	for i, one := range intervals {
		x := float64(i) * width
		b := bar{X: percent(x + width*0.1), Width: percent(width * 0.8), HitX: percent(x), HitWidth: percent(width)}
		if one.Count > 0 {
			high := max(float64(one.Count)*scale, 1)
			b.CountedY, b.Counted = pixels(base-high), pixels(high)
		}
		b.Title = fmt.Sprintf("%s UTC: %s counted", mark(one.First, level), grouped(one.Count))
		if got.denied != nil {
			b.Title += fmt.Sprintf(", %s denied", grouped(got.denied[i]))
			if got.denied[i] > 0 {
				b.DeniedY, b.Denied = pixels(base), pixels(max(float64(got.denied[i])*scale, 1))
			}
		}
		if b.Counted != "" || b.Denied != "" {
			if b.Link = zoom(one.First); b.Link != "" {
				c.Links = true
			}
			c.Columns = append(c.Columns, b)
		}
		if i%every == 0 {
			c.Marks = append(c.Marks, tick{percent(x), "start", mark(one.First, level)})
		}
	}
	return c
}

// ceilTo rounds up to a multiple of the step.
func ceilTo(v, step int64) int64 { return (v + step - 1) / step * step }

// timeline is where in its window a count lies.
type timeline struct {
	From, To, Title, Description string
	Parts                        []bar
}

const timelineHeight = 48

// timelineOf draws what a count consists of.
func timelineOf(at time.Time, s *events.LimitState, explained *limiter.Explained) (t timeline) {
	sum := explained.Sum
	if len(sum) == 0 || s.Burst > 0 { // a bucket has a level alone
		return t
	}
	first, last := at.Unix()-int64(s.Window/time.Second)+1, at.Unix()
	for _, limit := range explained.Rule.LimitsOf(s.Feature) {
		if w := limit.Windows(); limit.Name == s.Name && w.Algorithm.Tiles {
			first, last = w.Around(at.Unix())
		}
	}
	for _, part := range sum {
		first, last = min(first, part.First), max(last, part.First)
	}
	// As in a histogram the areas are the counts: an interval is as high as what it has in each second.
	density := func(part engine.Part) float64 {
		return float64(part.Count) / float64(min(part.Last, last)-part.First+1)
	}
	most := 0.0
	for _, part := range sum {
		most = max(most, density(part))
	}
	span := float64(last - first + 1)
	for _, part := range sum {
		high := max(timelineHeight*density(part)/most, 2)
		x, width := float64(part.First-first)/span, max(float64(min(part.Last, last)-part.First+1)/span, 0.003)
		t.Parts = append(t.Parts, bar{
			X: percent(min(x, 1-width)), Width: percent(width), CountedY: pixels(timelineHeight - high), Counted: pixels(high),
			Title: fmt.Sprintf("%s: %s", interval(part.First, part.Last, at), grouped(part.Count)),
		})
	}
	t.From, t.To = momentAt(time.Unix(first, 0), at), momentAt(time.Unix(last, 0), at)
	t.Title = "Where the count lies in its window"
	t.Description = fmt.Sprintf("%s in %d intervals between %s and %s.", grouped(s.Count), len(sum), t.From, t.To)
	return t
}
