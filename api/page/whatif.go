package page

import (
	"cmp"
	"context"
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
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/insight/dryrun"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter/engine"
)

const (
	// tried is of how many features the page finds out what a rule would have denied, of each of both lists.
	tried = 10
	// trying bounds the time for that.
	trying = 5 * time.Second
	// tryingAtOnce is how many requests may do it at the same time.
	tryingAtOnce = 2
	maxRuleText  = 4 << 10
)

var errBusy = events.Fault{Reason: "others are trying rules right now: ask again in some seconds"}

// whatIf is what a rule would have done.
type whatIf struct {
	*frame
	Form    form
	Event   string
	Rule    string // its text
	Number  string // of the rule in force that it began as
	Rules   []link
	Rows    []whatIfRow
	Left    string // how many features were left out, as the time was over
	Coarse  bool   // seconds of some hits are not known
	Note    string // why nothing is known
	Decided bool
	// Unanswered are the processes whose hits are missing.
	Unanswered []string
}

type whatIfRow struct {
	Feature, Link      string
	Hits, Then, Denied string
	Share              int64 // of its hits, in percent
	coarse             bool
}

// whatIf answers with what a rule would have denied, of the hits of the last day, of the features with the most hits of
// the last hour.
func (p *pages) whatIf(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	view := &whatIf{frame: p.newFrame("What if", "rules"), Number: valid(query.Get("rule")), Rule: shown(strings.Join(strings.Fields(valid(query.Get("text"))), " "))}
	view.Form = p.newForm(url.Values{"event": query["event"]})
	defer func() { p.write(w, "whatif", view.frame, view) }()
	event, err := p.Service.Event(query.Get("event"))
	if err != nil {
		p.fail(view.frame, err)
		return
	}
	view.Event, view.Title = event.Name, "What if, "+event.Name
	for i := range event.Event.Rules {
		rule := &event.Event.Rules[i]
		text := cmp.Or(strings.Join(rule.Per, " and "), "the event as a whole")
		number := strconv.Itoa(i)
		view.Rules = append(view.Rules, link{text + ": " + rule.Limits[0].Name, to("whatif", url.Values{"event": {event.Name}, "rule": {number}}), number == view.Number})
		if number == view.Number && view.Rule == "" {
			view.Rule = ruleText(rule)
		}
	}
	if query.Get("text") == "" {
		return
	}
	trial, err := trialOf(event.Name, view.Rule)
	if err != nil {
		p.failAll(view.frame, err)
		return
	}
	select {
	case p.trying <- struct{}{}:
		defer func() { <-p.trying }()
	default:
		p.fail(view.frame, errBusy)
		view.status = http.StatusServiceUnavailable
		return
	}
	p.try(view, r, event.Event, trial)
}

// trialOf returns the event with only the rule of a text, as a rules file has it.
func trialOf(name, text string) (*events.Event, error) {
	if len(text) > maxRuleText {
		return nil, events.Fault{Reason: fmt.Sprintf("the rule is longer than %d bytes", maxRuleText)}
	}
	rules, err := rulesfile.Parse([]byte("events:\n  " + name + ":\n    limits:\n      - " + text + "\n"))
	if err != nil {
		var faults []error
		for _, fault := range errorsOf(err) {
			fault.Line, fault.Column = 0, 0 // of a file that the reader does not have
			faults = append(faults, fault)
		}
		return nil, errors.Join(faults...)
	}
	event, err := rules.Event(name)
	if err == nil && len(event.Rules) != 1 {
		return nil, events.Fault{Reason: "one rule is wanted, such as {per: ip, rate: 5/m}"}
	}
	return event, err
}

func errorsOf(err error) (list []events.Fault) {
	if faults, ok := errors.AsType[events.Faults](err); ok {
		return faults
	}
	return []events.Fault{{Reason: err.Error()}}
}

// try has the rule decide what the features did.
func (p *pages) try(view *whatIf, r *http.Request, event, trial *events.Event) {
	ctx, cancel := context.WithTimeout(r.Context(), trying)
	defer cancel()
	view.Decided = true
	kinds := trial.Rules[0].Per
	names := map[string]bool{}
	left := 0
	for _, outcome := range []top.Outcome{top.Denied, top.Admitted} {
		n := 0
		found := p.Top(r, top.Query{Outcome: outcome, Event: event.Name, N: featuresSummed, Window: top.Longest})
		for _, peer := range found.Unanswered {
			if !slices.Contains(view.Unanswered, peer) {
				view.Unanswered = append(view.Unanswered, peer)
			}
		}
		for _, of := range found.Features {
			if names[of.Feature] || n == tried || !slices.Equal(slices.Sorted(maps.Keys(of.Features)), kinds) {
				continue
			}
			names[of.Feature], n = true, n+1
			row, err := p.tryOne(ctx, event, trial, of.Features)
			switch {
			case err == nil:
				view.Rows, view.Coarse = append(view.Rows, row), view.Coarse || row.coarse
			case isRange(err): // the counter remembers no hits
				_, view.Note = p.faultOf(err)
				return
			case ctx.Err() != nil && r.Context().Err() == nil:
				left++
			default:
				p.fail(view.frame, err)
				return
			}
		}
	}
	if left > 0 {
		view.Left = grouped(int64(left))
	}
}

func isRange(err error) bool {
	_, found := errors.AsType[*engine.RangeError](err)
	return found
}

// tryOne has the rule decide what one feature did.
func (p *pages) tryOne(ctx context.Context, event, trial *events.Event, features events.Features) (row whatIfRow, err error) {
	counter, err := event.Counter(features)
	if err != nil {
		return row, err
	}
	now := p.Clock()
	from := now.Add(-min(24*time.Hour, counter.Remembered()) + time.Minute)
	past, err := dryrun.PastOf(ctx, p.Service, counter, from, now)
	if err != nil {
		return row, err
	}
	then, err := dryrun.Decide(ctx, trial, features, past)
	if err != nil {
		return row, err
	}
	return whatIfRow{
		Feature: brief(shown(counter.Feature.String())), Link: p.linkTo(event.Name, features), coarse: past.ByMinute,
		Hits: grouped(then.Hits), Then: grouped(past.Denied), Denied: grouped(then.Denied), Share: then.Denied * 100 / max(then.Hits, 1),
	}, nil
}

// ruleText returns the rule as a rules file has it, without lists, overrides, and what it is called.
func ruleText(rule *events.Rule) string {
	first := rule.Limits[0]
	var parts []string
	add := func(key, value string) { parts = append(parts, key+": "+value) }
	add("per", "["+strings.Join(rule.Per, ", ")+"]")
	switch first.Algorithm {
	case events.Concurrency:
		add("concurrent", strconv.FormatInt(first.N, 10))
		add("lease", events.FormatDuration(first.Window))
	default:
		var rates []string
		for _, limit := range rule.Limits {
			rates = append(rates, events.FormatRate(limit))
		}
		add("rate", "["+strings.Join(rates, ", ")+"]")
	}
	switch {
	case first.Algorithm == events.LeakyBucket:
		add("queue", strconv.FormatInt(first.Burst-1, 10))
	case first.Burst > 0:
		add("burst", strconv.FormatInt(first.Burst, 10))
	case first.Algorithm != "" && first.Algorithm != events.Concurrency:
		add("algorithm", first.Algorithm)
	}
	if first.Calendar != nil {
		add("calendar", first.Calendar.String())
	}
	if rule.Throttle.Kind != events.Hard {
		add("throttle", rule.Throttle.String())
	}
	if rule.Count == events.CountAll {
		add("count", rule.Count.String())
	}
	if rule.Precision != events.Second {
		add("precision", rule.Precision.String())
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
