package page

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// columns is how many intervals of each level a history shows: those of the next coarser one.
var columns = [engine.Levels]int64{engine.Second: 60, engine.Minute: 60, engine.Hour: 24, engine.Day: 30}

// history is the past of a counter at one level.
type history struct {
	Level         string
	Levels        []link
	Range         string
	Earlier, Wide string // addresses; empty: there is none
	Later, Latest string
	Chart         *chart
	Rows          []pastRow
	Note          string // why there is none
	Lossy         bool   // the moments of some events are not exact
}

type pastRow struct{ When, Counted, Denied string }

// levelsOf returns the levels that a counter has.
func levelsOf(counter events.Counter) (list []engine.Level) {
	for level := engine.Level(counter.Precision); level <= engine.Day; level++ {
		if len(list) == 0 || time.Duration(level.Seconds())*time.Second <= counter.Remembered() {
			list = append(list, level)
		}
	}
	return list
}

// remembers returns the first second that the counter remembers.
func (p *pages) remembers(counter events.Counter, now time.Time) int64 {
	return now.Add(-counter.Remembered()).Unix() + 1
}

// past is what was counted and denied in some intervals.
type past struct {
	engine.History
	denied []int64 // of each interval; nil: it is not known
}

// pastOf reads the past of a counter from one second to another.
func (p *pages) pastOf(r *http.Request, counter events.Counter, level engine.Level, first, last int64) (got past, deniedErr, err error) {
	from, to := time.Unix(first, 0), time.Unix(last, 0)
	if got.History, err = p.Service.History(r.Context(), counter, level, from, to); err != nil {
		return got, nil, err
	}
	if level == engine.Second {
		return got, nil, nil
	}
	denied, err := p.Service.DeniedHistory(r.Context(), counter, level, from, to)
	if err != nil {
		return got, err, nil
	}
	of := make(map[int64]int64, len(denied.Intervals))
	for _, one := range denied.Intervals {
		of[one.First] = one.Count
	}
	got.denied = make([]int64, len(got.Intervals))
	for i, one := range got.Intervals {
		got.denied[i] = of[one.First]
	}
	return got, nil, nil
}

// history shows the past at the level that the request names, or by the minute.
func (p *pages) history(view *featureView, r *http.Request, query url.Values, counter events.Counter) {
	now := p.Clock().UTC()
	levels := levelsOf(counter)
	level := levels[min(1, len(levels)-1)]
	if levels[0] >= engine.Minute {
		level = levels[0]
	}
	if name := query.Get("level"); name != "" {
		named, err := engine.ParseLevel(name)
		if err != nil {
			p.fail(view.frame, engine.OutOfRange(engine.ArgLevel, "it is second, minute, hour or day"))
			return
		}
		level = named
	}
	h := &history{Level: level.String()}
	base := searched(query)
	for _, one := range levels {
		h.Levels = append(h.Levels, link{"by the " + one.String(), to("feature", with(base, "level", one.String())) + "#past", one == level})
	}
	view.History = h
	step := level.Seconds()
	span := columns[level] * step
	first := (level.Of(now.Unix())+1)*step - span
	if text := query.Get("from"); text != "" {
		from, err := time.Parse(time.RFC3339, text)
		if err != nil {
			p.fail(view.frame, engine.OutOfRange(engine.ArgFrom, "it is a moment such as 2026-03-14T23:00:00Z"))
			return
		}
		first = level.Of(from.Unix()) * step
	}
	kept, last := p.remembers(counter, now), min(first+span-1, now.Unix())
	asked := first
	if first < kept && kept <= last {
		asked = kept
	}
	got, deniedErr, err := p.pastOf(r, counter, level, asked, last)
	if err != nil {
		// A counter that remembers nothing is no fault of the request.
		ranged, isRange := errors.AsType[*engine.RangeError](err)
		if h.Note = "There is no history."; isRange {
			h.Note = sentence(ranged.Reason)
		}
		if !isRange || query.Get("from") != "" || !slices.Contains(levels, level) {
			p.fail(view.frame, err)
		}
		return
	}
	if deniedErr != nil {
		_, words := p.faultOf(deniedErr)
		h.Note = "Denied hits are not shown: " + words
	}
	h.Lossy = !got.Exact
	at := func(level engine.Level, first int64) string {
		return to("feature", with(base, "level", level.String(), "from", time.Unix(first, 0).UTC().Format(time.RFC3339))) + "#past"
	}
	if first > kept {
		h.Earlier = at(level, first-span)
	}
	if first+span <= now.Unix() {
		h.Later = at(level, first+span)
		h.Latest = to("feature", with(base, "level", level.String())) + "#past"
	}
	if coarser := level + 1; coarser <= levels[len(levels)-1] {
		h.Wide = at(coarser, widened(coarser, first))
	}
	intervals := got.Intervals
	h.Range = interval(intervals[0].First, intervals[len(intervals)-1].Last, now)
	zoom := func(first int64) string { return "" }
	if level > levels[0] {
		zoom = func(first int64) string { return at(level-1, first) }
	}
	h.Chart = chartOf(got, level, zoom)
	for i, one := range intervals {
		row := pastRow{When: mark(one.First, level), Counted: grouped(one.Count)}
		if got.denied != nil {
			row.Denied = grouped(got.denied[i])
		}
		h.Rows = append(h.Rows, row)
	}
}

// widened returns where the history at a level begins that shows the second: with the interval of the next coarser level, or, of days, some days before.
func widened(level engine.Level, second int64) int64 {
	if level == engine.Day {
		return second - (columns[engine.Day]-1)*level.Seconds()
	}
	return (level + 1).Of(second) * (level + 1).Seconds()
}

// mark writes the beginning of an interval.
func mark(first int64, level engine.Level) string {
	layout := [engine.Levels]string{"15:04:05", "15:04", "2 Jan 15:04", "2 Jan"}[level]
	return time.Unix(first, 0).UTC().Format(layout)
}

const (
	heatHours   = 24
	heatMinutes = 60
	heatSteps   = 5 // of its colour
)

// heat is a map of a day, with a row for each hour and a cell for each minute.
type heat struct {
	ID, Title, Class string
	Rows             []heatRow
	Legend           []heatStep
}

type heatRow struct {
	ID, Hour, Link, Title string
	Sum                   string
	Cells                 []heatCell
	sum, most             int64
}

type heatCell struct{ X, Class, Title string }

type heatStep struct{ Class, Text string }

// heatMaps shows the last day by the minute, as far as the counter remembers it.
func (p *pages) heatMaps(view *featureView, r *http.Request, query url.Values, counter events.Counter) {
	now := p.Clock().UTC()
	levels := levelsOf(counter)
	if levels[0] > engine.Minute || levels[len(levels)-1] < engine.Minute {
		view.HeatNote = fmt.Sprintf("There is no map: the counter is kept by the %s, for %s.", levels[0], length(counter.Remembered()))
		return
	}
	begin := (engine.Hour.Of(now.Unix()) - heatHours + 1) * engine.Hour.Seconds()
	got, deniedErr, err := p.pastOf(r, counter, engine.Minute, max(begin, p.remembers(counter, now)), now.Unix())
	if err != nil {
		view.HeatNote = "There is no map."
		if !isRange(err) {
			p.fail(view.frame, err)
		}
		return
	}
	if deniedErr != nil {
		_, words := p.faultOf(deniedErr)
		view.HeatNote = "Denied hits are not shown: " + words
	}
	base := searched(query)
	view.Heat = append(view.Heat, heatOf("Counted", "counted", got.Intervals, nil, base))
	if got.denied != nil {
		view.Heat = append(view.Heat, heatOf("Denied", "denied", got.Intervals, got.denied, base))
	}
}

// heatOf makes a map of minutes: of their counts, or of these instead.
func heatOf(title, unit string, minutes []engine.Interval, instead []int64, base url.Values) heat {
	h := heat{ID: "heat-" + unit, Title: title, Class: unit}
	counts := make([]int64, len(minutes))
	var most int64
	for i, minute := range minutes {
		if counts[i] = minute.Count; instead != nil {
			counts[i] = instead[i]
		}
		most = max(most, counts[i])
	}
	for i, minute := range minutes {
		hour := engine.Hour.Of(minute.First) * engine.Hour.Seconds()
		begins := time.Unix(hour, 0).UTC()
		if n := len(h.Rows); n == 0 || h.Rows[n-1].Hour != begins.Format("15:04") {
			h.Rows = append(h.Rows, heatRow{
				ID: fmt.Sprintf("%s-%d", h.ID, n), Hour: begins.Format("15:04"),
				Link: to("feature", with(base, "level", "minute", "from", begins.Format(time.RFC3339))) + "#past",
			})
		}
		if counts[i] <= 0 {
			continue
		}
		row := &h.Rows[len(h.Rows)-1]
		at := mark(minute.First, engine.Minute)
		row.Cells = append(row.Cells, heatCell{
			X:     percent(float64(minute.First-hour) / float64(engine.Hour.Seconds())),
			Class: fmt.Sprintf("h%d", stepOfHeat(counts[i], most)), Title: fmt.Sprintf("%s UTC: %s %s", at, grouped(counts[i]), unit),
		})
		row.sum += counts[i]
		if counts[i] > row.most {
			row.most = counts[i]
			row.Title = fmt.Sprintf(", most in the minute of %s: %s", at, grouped(counts[i]))
		}
	}
	for i := range h.Rows {
		row := &h.Rows[i]
		row.Sum = grouped(row.sum)
		row.Title = fmt.Sprintf("%s %s in %d of %d minutes%s", row.Sum, unit, len(row.Cells), heatMinutes, row.Title)
	}
	h.Legend = legendOf(most)
	return h
}

// stepOfHeat returns the step of a count's colour, 1 to heatSteps.
func stepOfHeat(count, most int64) int64 {
	if most <= heatSteps {
		return count + heatSteps - most
	}
	return (count*heatSteps + most - 1) / most
}

// legendOf says what the steps mean.
func legendOf(most int64) (list []heatStep) {
	low := int64(1)
	for high := int64(1); high <= most && len(list) < heatSteps; {
		step := stepOfHeat(low, most)
		high = low
		if most > heatSteps {
			high = step * most / heatSteps
		}
		text := grouped(low)
		if high > low {
			text += "–" + grouped(high)
		}
		list = append(list, heatStep{fmt.Sprintf("h%d", step), text})
		low = high + 1
		high = low
	}
	return list
}
