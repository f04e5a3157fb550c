package page

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/top"
)

const (
	rowsShown = 20
	// featuresSummed is of how many features the denials are summed by limit, at the most.
	featuresSummed = 1000
	// refreshSeconds is how often a live list is asked for.
	refreshSeconds = 5
)

// form is the search for a feature, as it was filled in.
type form struct {
	Events   []string
	Event    string
	Features []string // one field each
	Cost     string
}

// newForm returns the form, with the fields of a query.
func (p *pages) newForm(query url.Values) form {
	f := form{Event: valid(query.Get("event")), Cost: valid(cmp.Or(query.Get("cost"), "1"))}
	for _, event := range p.Service.Rules().All() {
		f.Events = append(f.Events, event.Name)
	}
	for _, feature := range given(query) {
		f.Features = append(f.Features, valid(feature))
	}
	f.Features = append(f.Features, "")
	if len(f.Features) == 1 {
		f.Features = append(f.Features, "")
	}
	f.Features = f.Features[:min(len(f.Features), events.MaxFeatureKinds)]
	return f
}

// valid returns the text with U+FFFD for what is not UTF-8: pages are.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// Known reports whether the event is one of those to choose from.
func (f form) Known() bool { return f.Event == "" || slices.Contains(f.Events, f.Event) }

// Unknown returns the name of an event that is none of those.
func (f form) Unknown() string { return brief(shown(f.Event)) }

// given returns the features of a query, without fields that are empty. White space is part of a value.
func given(query url.Values) (list []string) {
	for _, feature := range query["feature"] {
		if feature != "" {
			list = append(list, feature)
		}
	}
	return list
}

// link is one of several to choose from.
type link struct {
	Text, To string
	Current  bool
}

// to returns the address of a page, relative to those below /ui/.
func to(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// with returns the query with some values set; an empty one is taken out.
func with(query url.Values, pairs ...string) url.Values {
	changed := url.Values{}
	for name, values := range query {
		changed[name] = values
	}
	for i := 0; i < len(pairs); i += 2 {
		if changed.Del(pairs[i]); pairs[i+1] != "" {
			changed.Set(pairs[i], pairs[i+1])
		}
	}
	return changed
}

// linkTo returns the address of a feature's page; empty: it has none, since the rules in force do not have it.
func (p *pages) linkTo(event string, features events.Features) string {
	found, err := p.Service.EventOrDomain(event)
	if err != nil {
		return ""
	}
	if _, err := found.Counter(features); err != nil {
		return ""
	}
	query := url.Values{"event": {event}}
	for _, kind := range slices.Sorted(maps.Keys(features)) {
		query.Add("feature", kind+":"+features[kind])
	}
	return to("feature", query)
}

// loudest is a list of features with the most hits.
type loudest struct {
	Name       string   // of the hits: denied or admitted
	Unanswered []string // processes whose hits are missing
	Limit      bool     // rows have one
	Rows       []topRow
}

type topRow struct {
	Event, Feature, Limit, Link string
	Most, Least                 string // Least is empty where the count is exact
	Share                       int64  // of that of the first row, in percent
}

// loudestOf returns the features with the most hits.
func (p *pages) loudestOf(r *http.Request, q top.Query) loudest {
	list := loudest{Name: q.Outcome.String(), Limit: q.Outcome == top.Denied}
	found := p.Top(r, q)
	list.Unanswered = found.Unanswered
	for _, e := range found.Features {
		var limits []string
		for _, limit := range e.Limits {
			limits = append(limits, shown(limit.Name))
		}
		row := topRow{
			Event: shown(e.Event), Feature: brief(shown(e.Feature)), Limit: strings.Join(limits, ", "), Link: p.linkTo(e.Event, e.Features),
			Most: grouped(e.Count), Share: e.Count * 100 / max(found.Features[0].Count, 1),
		}
		if e.Error > 0 {
			row.Least = grouped(e.Count - e.Error)
		}
		list.Rows = append(list.Rows, row)
	}
	return list
}

// windows are the lengths of time to choose from.
var windows = []time.Duration{time.Minute, 5 * time.Minute, time.Hour}

// windowOf returns the window that a query names, or the longest.
func windowOf(query url.Values) time.Duration {
	d, err := events.ParseDuration(query.Get("window"))
	if err != nil || !slices.Contains(windows, d) {
		return top.Longest
	}
	return d
}

// choices are the filters of lists of features.
type choices struct {
	Window  string
	Windows []link
	Events  []link
}

// choicesOf returns the filters, and the query that they make.
func (p *pages) choicesOf(path string, query url.Values) (c choices, q top.Query) {
	q.Window, q.N = windowOf(query), rowsShown
	c.Window = length(q.Window)
	for _, d := range windows {
		c.Windows = append(c.Windows, link{"last " + length(d), to(path, with(query, "window", events.FormatDuration(d))), d == q.Window})
	}
	q.Event = query.Get("event")
	c.Events = []link{{"all", to(path, with(query, "event", "")), q.Event == ""}}
	for _, event := range p.Service.Rules().All() {
		c.Events = append(c.Events, link{event.Name, to(path, with(query, "event", event.Name)), q.Event == event.Name})
	}
	return c, q
}

// filter returns what of a query filters lists, without what else strangers put there.
func filter(query url.Values) url.Values {
	kept := url.Values{}
	for _, name := range []string{"event", "window", "live"} {
		if value := query.Get(name); value != "" {
			kept.Set(name, value)
		}
	}
	return kept
}

// known has the page say that the event of the query, if any, is unknown.
func (p *pages) known(f *frame, q top.Query) {
	if q.Event != "" {
		if _, err := p.Service.EventOrDomain(q.Event); err != nil {
			p.fail(f, err)
		}
	}
}

// overview answers with the search, and with the features that have the most hits.
func (p *pages) overview(w http.ResponseWriter, r *http.Request) {
	query := filter(r.URL.Query())
	view := struct {
		*frame
		Form form
		choices
		Lists []loudest
		Plots []denialsPlot
		Live  bool
		Turn  string // the address with and without Live
	}{frame: p.newFrame("Overview", "./"), Form: p.newForm(query), Live: query.Get("live") == "on"}
	var q top.Query
	view.choices, q = p.choicesOf("./", query)
	p.known(view.frame, q)
	if view.Live {
		view.Refresh, view.Turn = refreshSeconds, to("./", with(query, "live", ""))
	} else {
		view.Turn = to("./", with(query, "live", "on"))
	}
	for _, q.Outcome = range []top.Outcome{top.Denied, top.Admitted} {
		view.Lists = append(view.Lists, p.loudestOf(r, q))
	}
	view.Plots = p.denialsPlots(q.Event)
	p.write(w, "overview", view.frame, view)
}

// limitRow is how many hits a limit denied.
type limitRow struct {
	Event, Limit, Link string
	Most, Least        string // Least is empty where the count is exact
	Features           string // how many have been denied
	count, error       int64
	features           int64
	Share              int64 // of that of the first row, in percent
}

// limits answers with the limits that denied hits.
func (p *pages) limits(w http.ResponseWriter, r *http.Request) {
	query := with(filter(r.URL.Query()), "live", "")
	view := struct {
		*frame
		choices
		Rows       []limitRow
		Unanswered []string // processes whose hits are missing
		List       *loudest
	}{frame: p.newFrame("Denials by limit", "limits")}
	var q top.Query
	view.choices, q = p.choicesOf("limits", query)
	p.known(view.frame, q)
	q.Outcome, q.N = top.Denied, featuresSummed
	found := p.Top(r, q)
	view.Rows, view.Unanswered = byLimit(found.Features), found.Unanswered
	if q.N = rowsShown; q.Event != "" {
		list := p.loudestOf(r, q)
		view.List = &list
	}
	for i := range view.Rows {
		view.Rows[i].Link = to("limits", with(query, "event", view.Rows[i].Event))
	}
	p.write(w, "limits", view.frame, view)
}

// byLimit sums denials by the limits that denied, the most first.
func byLimit(list []wire.TopFeature) (rows []limitRow) {
	at := map[[2]string]int{}
	for _, of := range list {
		for _, limit := range of.Limits {
			key := [2]string{of.Event, limit.Name}
			i, found := at[key]
			if !found {
				i = len(rows)
				at[key] = i
				rows = append(rows, limitRow{Event: shown(of.Event), Limit: shown(limit.Name)})
			}
			rows[i].count, rows[i].error, rows[i].features = rows[i].count+limit.Count+of.Error, rows[i].error+of.Error, rows[i].features+1
		}
	}
	slices.SortStableFunc(rows, func(a, b limitRow) int { return cmp.Compare(b.count, a.count) })
	for i := range rows {
		row := &rows[i]
		row.Most, row.Features, row.Share = grouped(row.count), grouped(row.features), row.count*100/max(rows[0].count, 1)
		if row.error > 0 {
			row.Least = grouped(row.count - row.error)
		}
	}
	return rows[:min(len(rows), 200)]
}
