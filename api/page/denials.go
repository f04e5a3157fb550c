package page

import (
	"fmt"
	"net/url"

	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// denialsHeight is that of a plot of denials, in pixels.
const denialsHeight = 28

// denialsPlot is what a limit denied in the last hour, by the minute.
type denialsPlot struct {
	Event, Limit, Link string
	From, To           string // the first minute, and the last
	Title              string
	Height             int64
	Bars               []bar
	Most, Sum          string
}

// denialsPlots returns the plots of the limits that denied the most hits, of an event, or of all, and of the rest.
func (p *pages) denialsPlots(event string) (list []denialsPlot) {
	var rest top.Denials
	now := p.Clock()
	last := engine.Minute.Of(now.Unix()) * engine.Minute.Seconds()
	for _, of := range p.Denials(now) {
		switch {
		case event != "" && of.Event != event: // the rest is of any event
		case of.Limit == "" || len(list) == rowsShown:
			rest.Add(&of)
		default:
			plot := plotOfDenials(&of, last)
			if _, err := p.Service.EventOrDomain(of.Event); err == nil {
				plot.Link = to("limits", url.Values{"event": {of.Event}})
			}
			list = append(list, plot)
		}
	}
	if rest.Sum > 0 {
		list = append(list, plotOfDenials(&rest, last))
	}
	return list
}

// plotOfDenials draws denials up to the minute that begins with the last second.
func plotOfDenials(of *top.Denials, last int64) denialsPlot {
	plot := denialsPlot{Event: shown(of.Event), Limit: shown(of.Limit), Height: denialsHeight, Sum: grouped(of.Sum)}
	if of.Limit == "" {
		plot.Limit = "other limits"
	}
	n := len(of.Minutes)
	minute := func(i int) string { return mark(last-int64(n-1-i)*engine.Minute.Seconds(), engine.Minute) }
	most, at := int64(1), 0
	for i, count := range of.Minutes {
		if count >= most {
			most, at = count, i
		}
	}
	width := 1 / float64(n)
	for i, count := range of.Minutes {
		if count == 0 {
			continue
		}
		high := max(float64(count)*denialsHeight/float64(most), 1)
		plot.Bars = append(plot.Bars, bar{
			X: percent(float64(i) * width), Width: percent(width * 0.9),
			DeniedY: pixels(denialsHeight - high), Denied: pixels(high),
			Title: fmt.Sprintf("%s UTC: %s denied", minute(i), grouped(count)),
		})
	}
	plot.From, plot.To, plot.Most = minute(0), minute(n-1), grouped(most)
	plot.Title = fmt.Sprintf("%s denied in %d of %d minutes, most in the minute of %s UTC: %s",
		plot.Sum, len(plot.Bars), n, minute(at), plot.Most)
	return plot
}
