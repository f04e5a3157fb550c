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
			{Title: "Over time", Plot: r.Timeline.plot()},
		},
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
	if s.Denied == 0 {
		return page.Section{Title: title, Text: "Nothing was denied."}
	}
	return page.Section{Title: title, Table: &page.Table{Head: featuresHead(), Rows: s.featureRows()}}
}

// plot draws what was admitted and denied in each step.
func (t *Timeline) plot() *page.Plot {
	line := func(name string, values []int64) page.Line {
		l := page.Line{Name: name}
		for i, v := range append(values, values[len(values)-1]) { // the last step is as long as the others
			l.X, l.Y = append(l.X, float64(t.From.Unix()+int64(i)*t.Step)), append(l.Y, float64(v))
		}
		return l
	}
	return &page.Plot{
		Title: "Admitted and denied",
		X:     page.Axis{Label: "time (UTC)", Unit: page.Moment},
		Y:     page.Axis{Label: fmt.Sprintf("hits in %s", events.FormatDuration(time.Duration(t.Step)*time.Second))},
		Lines: []page.Line{line("admitted", t.Admitted), line("denied", t.Denied)},
	}
}
