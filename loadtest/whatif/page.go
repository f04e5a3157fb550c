package whatif

import (
	"fmt"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/page"
)

// Page returns the report as a page, with what was admitted and denied over time.
func (r *Report) Page() page.Page {
	p := page.Page{
		Title:    "What these rules would have done: " + r.Event,
		Subtitle: fmt.Sprintf("%d hits from %s to %s", r.All.Hits, moment(r.From), moment(r.To)),
		Sections: []page.Section{
			{Title: "Limits", Text: strings.Join(r.leftOut(), "\n"), Table: &page.Table{Head: limitsHead(), Rows: r.limitRows()}},
			{Title: "Over time", Plot: r.Timeline.plot("Admitted and denied", []page.Line{
				{Name: "admitted", Y: floats(r.Timeline.Admitted)}, {Name: "denied", Y: floats(r.Timeline.Denied)},
			})},
		},
	}
	if len(r.Limits) > 1 {
		var lines []page.Line
		for i := range r.Limits {
			lines = append(lines, page.Line{Name: r.Limits[i].title(), Y: floats(r.Limits[i].DeniedAt)})
		}
		p.Sections = append(p.Sections, page.Section{Title: "Denied, by limit", Plot: r.Timeline.plot("Denied by each limit", lines)})
	}
	p.Sections = append(p.Sections, r.All.section("Most denied, all limits together"))
	if len(r.Limits) > 1 {
		for i := range r.Limits {
			p.Sections = append(p.Sections, r.Limits[i].Score.section("Most denied by "+r.Limits[i].title()))
		}
	}
	return p
}

func (s *Score) section(title string) page.Section {
	if s.LongestDenial == nil {
		return page.Section{Title: title, Text: "Nothing was denied."}
	}
	return page.Section{
		Title: title, Text: "Longest denial: " + s.LongestDenial.String(),
		Table: &page.Table{Head: featuresHead(), Rows: s.featureRows()},
	}
}

// plot draws lines whose values are those of the steps.
func (t *Timeline) plot(title string, lines []page.Line) *page.Plot {
	x := make([]float64, len(t.Admitted)+1)
	for i := range x {
		x[i] = float64(t.time(i).Unix())
	}
	for i := range lines {
		lines[i].X, lines[i].Steps = x, true
		// The last step is as long as the others.
		lines[i].Y = append(lines[i].Y, lines[i].Y[len(lines[i].Y)-1])
	}
	return &page.Plot{
		Title: title,
		X:     page.Axis{Label: "time (UTC)", Unit: page.Moment},
		Y:     page.Axis{Label: fmt.Sprintf("hits in %s", events.FormatDuration(time.Duration(t.Step)*time.Second))},
		Lines: lines,
	}
}

func floats(values []int64) []float64 {
	list := make([]float64, len(values), len(values)+1)
	for i, v := range values {
		list[i] = float64(v)
	}
	return list
}
