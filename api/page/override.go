package page

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/counterd/counterd/events"
)

// overrideView is a temporary override in force.
type overrideView struct {
	Event, Feature, Link string
	Says                 string // what it decides
	Until, Set, By       string
	Kind, Query          string // of the form that ends it
}

// overrideForm is a form of the feature page that sets an override.
type overrideForm struct {
	ID, Text, Kind, Query string
	Rates                 string // of the limits that have windows, as they are; empty: there are none
}

// changedOverride is an override that a form has set or ended.
type changedOverride struct {
	Feature, At string
	Says, Until string // of one that was set
}

// overrideTimes are for how long the form offers an override.
var overrideTimes = []struct{ Value, Text string }{
	{"15m", "15 minutes"}, {"1h", "1 hour"}, {"2h", "2 hours"}, {"8h", "8 hours"}, {"24h", "1 day"}, {"168h", "7 days"},
}

func (p *pages) overrideViews(all []events.Override) (views []overrideView) {
	now := p.Clock()
	for _, o := range all {
		query := url.Values{"event": {o.Event}, "feature": {o.Feature()}}
		view := overrideView{
			Event: o.Event, Feature: brief(shown(o.Feature())), Link: p.linkTo(o.Event, events.Features{o.Kind: o.Value}),
			Until: momentAt(o.Until, now), Set: momentAt(o.Set, now), By: cmp.Or(o.By, "a program"),
			Kind: o.Kind, Query: query.Encode(),
		}
		switch o.Listing {
		case events.Allowed:
			view.Says = "always allowed"
		case events.Denied:
			view.Says = "always denied"
		default:
			var rates []string
			for _, one := range o.Rates {
				rates = append(rates, rate(one))
			}
			view.Says = "at most " + strings.Join(rates, ", ")
		}
		if o.Idle {
			view.Says += " (without effect: the rules have no limit for it)"
		}
		views = append(views, view)
	}
	return views
}

// overrideForms returns a form for each feature of a search that a rule is per.
func (p *pages) overrideForms(s search, query url.Values) (forms []overrideForm) {
	known := s.event.Kinds()
	for i, kind := range slices.Sorted(maps.Keys(s.features)) {
		if !slices.Contains(known, kind) {
			continue
		}
		var rates []string
		for _, limit := range s.event.Overridable(kind, s.features[kind]) {
			rates = append(rates, events.FormatRate(limit))
		}
		forms = append(forms, overrideForm{
			ID: "override-" + strconv.Itoa(i), Text: brief(shown(kind + ":" + s.features[kind])), Kind: kind, Query: searched(query).Encode(),
			Rates: strings.Join(rates, " "),
		})
	}
	return forms
}

// override sets or ends an override, and leads to the page of its feature, which says so. If it is not done, the answer
// is that page with the fault.
func (p *pages) override(w http.ResponseWriter, r *http.Request) {
	fields, query, ok := p.posted(w, r)
	if !ok {
		return
	}
	if err := p.changeOverride(r, fields, query); err != nil {
		p.showFeature(w, r, query, err)
		return
	}
	moment := strconv.FormatInt(p.Clock().Unix(), 10)
	w.Header().Set("Location", to("feature", with(query, "override", moment, "kind", fields.Get("kind"))))
	w.WriteHeader(http.StatusSeeOther)
}

// changedOverrideOf returns the override whose change led to the page; nil: none did.
func (p *pages) changedOverrideOf(query url.Values, features events.Features, inForce []overrideView) *changedOverride {
	kind, at := query.Get("kind"), p.noticeOf(query, "override")
	if at == "" || features[kind] == "" {
		return nil
	}
	for _, o := range inForce {
		if o.Kind == kind {
			return &changedOverride{Feature: o.Feature, At: at, Says: o.Says, Until: o.Until}
		}
	}
	return &changedOverride{Feature: brief(shown(kind + ":" + features[kind])), At: at}
}

func (p *pages) changeOverride(r *http.Request, fields, query url.Values) error {
	features, err := events.ParseFeaturesOf(query.Get("event"), given(query))
	if err != nil {
		return err
	}
	o := events.Override{Event: query.Get("event")}
	o.Kind = fields.Get("kind")
	o.Value = features[o.Kind]
	verdict, rates := fields.Get("verdict"), strings.TrimSpace(fields.Get("rates"))
	if rates != "" {
		verdict = cmp.Or(verdict, "rates")
	}
	if rates != "" && verdict != "rates" {
		return &events.OverrideError{
			Reason: "Rates were typed: set these rates, or empty the field to allow or to deny always",
		}
	}
	switch verdict {
	case "end":
		_, err := p.Service.RemoveOverride(r.Context(), o.Event, o.Kind, o.Value)
		return err
	case "allow":
		o.Listing = events.Allowed
	case "deny":
		o.Listing = events.Denied
	case "rates":
		for _, text := range strings.FieldsFunc(rates, func(r rune) bool { return r == ' ' || r == ',' }) {
			rate, err := events.ParseRate(text)
			if err != nil {
				return &events.OverrideError{Reason: "a rate is written N/s, N/m, N/h, N/d or N/duration, as in 5/m or 100/15m"}
			}
			o.Rates = append(o.Rates, rate)
			if len(o.Rates) > events.MaxOverrideRates {
				break // SetOverride returns the error
			}
		}
	default:
		return &events.OverrideError{Reason: "an override allows, denies, or has rates"}
	}
	if o.For, err = events.ParseDuration(fields.Get("for")); err != nil {
		return &events.OverrideError{Reason: "it holds for a duration in whole seconds, such as 15m or 24h"}
	}
	_, err = p.Service.SetOverride(r.Context(), o)
	return err
}
