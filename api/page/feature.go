package page

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/service"
)

// partsShown is how many intervals of a count are listed at the most, the latest.
const partsShown = 150

// featureView is the page of a feature.
type featureView struct {
	*frame
	Form      form
	Event     string
	Feature   string
	Blanks    []string // remarks on white space at the ends of values
	Cost      string
	Verdict   string // empty: it is not known
	Good      string
	Undecided string // why no limit decides
	Limits    []limitView
	Counters  []link // whose past may be shown
	Counter   string // the one that is
	Changes   []change
	Overrides []overrideView // of its features
	Override  []overrideForm
	Changed   *changedOverride // by a form that led here; nil: none was
	Reset     string           // when the counter was reset, by a form that led here; empty: it was not
	Counted   string           // what counted means there
	Heat      []heat
	HeatNote  string
	History   *history
}

// limitView is the state of one limit.
type limitView struct {
	ID, Name, Usage, Good string
	Percent               int64
	Remarks               []string
	Reset                 string
	Rule                  string
	Parts                 []part
	Omitted               string // how many parts are not listed
	Timeline              timeline
	Frees                 []freed
}

type part struct{ Level, When, Count string }

type freed struct{ When, In, Count, Left string }

// search is what the form asks for.
type search struct {
	event    service.Event
	features events.Features
	cost     int64
}

// searchOf reads the form.
func (p *pages) searchOf(query url.Values) (s search, err error) {
	s.cost = 1
	if text := query.Get("cost"); text != "" {
		cost, fault := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
		if fault != nil {
			cost = limiter.MaxCost + 1 // what is no number is no cost either
		}
		s.cost = int64(cost)
		err = limiter.CheckCost(s.cost)
	}
	var fault error
	if s.features, fault = events.ParseFeaturesOf(query.Get("event"), given(query)); fault != nil {
		return s, errors.Join(fault, err)
	}
	s.event, fault = p.Service.EventOrDomain(query.Get("event"))
	return s, errors.Join(fault, err)
}

// feature answers with all there is to know of a feature.
func (p *pages) feature(w http.ResponseWriter, r *http.Request) {
	p.showFeature(w, r, r.URL.Query(), nil)
}

// showFeature answers with the page of a query, and with the fault of a change of its counter, if any.
func (p *pages) showFeature(w http.ResponseWriter, r *http.Request, query url.Values, fault error) {
	view := &featureView{frame: p.newFrame("Feature", ""), Form: p.newForm(query)}
	defer func() { p.write(w, "feature", view.frame, view) }()
	if fault != nil {
		p.failAll(view.frame, fault)
	}
	s, err := p.searchOf(query)
	if err != nil && fault != nil {
		return
	}
	if err != nil {
		p.failAll(view.frame, err)
		return
	}
	if _, err := s.event.Counter(s.features); err != nil && !events.IsDomain(s.event.Name) { // there explain says so
		p.failAll(view.frame, err)
		return
	}
	view.Event, view.Cost = s.event.Name, grouped(s.cost)
	view.Feature = cmp.Or(shown(strings.Join(given(query), " and ")), "the event as a whole")
	view.Title, view.Blanks = brief(view.Feature)+", "+view.Event, blanks(s.features)
	view.Overrides, view.Override = p.overrideViews(p.Service.OverridesOf(s.event, s.features)), p.overrideForms(s, query)
	view.Changed = p.changedOverrideOf(query, s.features, view.Overrides)
	counters := p.explain(view, r, s)
	p.past(view, r, query, s, counters)
}

// failAll is fail for each of the faults of a request that are joined.
func (p *pages) failAll(f *frame, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			p.failAll(f, one)
		}
		return
	}
	p.fail(f, err)
}

// explain shows what a hit would get, and why. It returns the features of the counters that decide.
func (p *pages) explain(view *featureView, r *http.Request, s search) (counters []events.Feature) {
	d, explained, err := p.Service.Explain(r.Context(), s.event, s.features, s.cost)
	if errors.Is(err, events.ErrInvalid) { // the features are valid: so no rule is per them
		_, view.Undecided = p.faultOf(err)
		return nil
	}
	if err != nil {
		p.fail(view.frame, err)
		return nil
	}
	view.Verdict, view.Good = verdictOf(s.event.Name, s.cost, &d)
	for i := range d.Limits {
		state := &d.Limits[i]
		if service.Unanswered(state) && view.status == http.StatusOK {
			view.status = http.StatusServiceUnavailable
		}
		view.Limits = append(view.Limits, limitViewOf(fmt.Sprintf("limit-%d", i), s.event.Name, &d, state, &explained[i]))
		if !slices.Contains(counters, state.Feature) {
			counters = append(counters, state.Feature)
		}
	}
	return counters
}

// limitViewOf returns the state of a limit as it is shown.
func limitViewOf(id, event string, d *events.Decision, s *events.LimitState, explained *limiter.Explained) limitView {
	v := limitView{
		ID: id, Name: shown(s.Name), Usage: sentence(usage(event, s)), Good: "ok", Percent: 100, Remarks: remarks(s, explained.Rule),
		Rule: cmp.Or(explained.Rule.Place, "a rule of the program"),
	}
	if s.Most() > 0 {
		v.Percent = min(s.Count*100/s.Most(), 100)
	}
	switch {
	case s.Unknown:
		v.Good, v.Percent, v.Usage = "warn", 0, sentence("an unknown part "+strings.TrimPrefix(usage(event, s), "0 "))
	case service.Denies(s):
		v.Good = "bad"
	case v.Percent >= 80 || !s.Allowed:
		v.Good = "warn"
	}
	if !s.Allowed && !s.Unknown {
		v.Reset = "This limit never has room for such a hit."
		if s.Reset != events.Never {
			v.Reset = fmt.Sprintf("Has room for the hit at %s, in %s, if nothing else comes.", momentAt(d.At.Add(s.Reset), d.At), ahead(s.Reset))
		}
	}
	sum := explained.Sum
	if more := len(sum) - partsShown; more > 0 {
		v.Omitted, sum = grouped(int64(more)), sum[more:]
	}
	for _, of := range sum {
		v.Parts = append(v.Parts, part{of.Level.String(), inUTC(interval(of.First, of.Last, d.At)), grouped(of.Count)})
	}
	v.Timeline = timelineOf(d.At, s, explained)
	left := s.Count
	for _, of := range explained.Frees {
		at := time.UnixMilli(of.At)
		left = max(left-of.Count, 0)
		v.Frees = append(v.Frees, freed{inUTC(momentAt(at, d.At)), ahead(at.Sub(d.At)), grouped(of.Count), fmt.Sprintf("%s of %s", grouped(left), grouped(s.Most()))})
	}
	return v
}

// past shows what was counted before.
func (p *pages) past(view *featureView, r *http.Request, query url.Values, s search, decided []events.Feature) {
	kinds := slices.Sorted(maps.Keys(s.features))
	chosen := query.Get("counter")
	if chosen == "" {
		chosen = counterName(kinds)
		if len(decided) > 0 && !slices.ContainsFunc(decided, func(f events.Feature) bool { return slices.Equal(f.Kinds(), kinds) }) {
			chosen = counterName(decided[0].Kinds())
		}
	}
	if len(decided) > 1 || query.Get("counter") != "" {
		for _, feature := range decided {
			name := counterName(feature.Kinds())
			of := to("feature", with(searched(query), "counter", name))
			view.Counters = append(view.Counters, link{brief(counterText(feature)), of, name == chosen})
		}
	}
	counter, err := s.counter(chosen)
	if err != nil {
		p.failAll(view.frame, err)
		return
	}
	view.Counter, view.Reset = counterText(counter.Feature), p.noticeOf(query, "reset")
	if !slices.Contains(decided, counter.Feature) {
		decided = append(decided, counter.Feature)
	}
	for _, feature := range decided {
		of := with(searched(query), "counter", counterName(feature.Kinds()))
		view.Changes = append(view.Changes, change{brief(counterText(feature)), of.Encode()})
	}
	view.Counted = "Counted is what hits cost and increments add."
	for rule := range counter.Limits() {
		if rule.Count == events.CountAll {
			view.Counted += " A rule counts denied hits, too (count: all)."
			break
		}
	}
	view.Counted += " Denied is how many hits were denied, whatever they cost."
	p.heatMaps(view, r, query, counter)
	p.history(view, r, query, counter)
}

// searched returns what of a query the form makes.
func searched(query url.Values) url.Values {
	kept := url.Values{"feature": given(query)}
	for _, name := range []string{"event", "cost", "counter"} {
		if value := query.Get(name); value != "" {
			kept.Set(name, value)
		}
	}
	return kept
}

// whole names the counter of the event as a whole; no kind is called so.
const whole = "*"

// counterName names one of the counters of a hit by its kinds, of which none has a plus sign.
func counterName(kinds []string) string { return cmp.Or(strings.Join(kinds, "+"), whole) }

// counterText writes the counter of a feature.
func counterText(f events.Feature) string { return cmp.Or(shown(f.String()), "the event as a whole") }

func kindsOf(name string) []string {
	if name == whole {
		return nil
	}
	return strings.Split(name, "+")
}
