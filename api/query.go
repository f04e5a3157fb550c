package api

import (
	"github.com/counterd/counterd/internal/httpdecision"

	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

// query reads the parameters of a request and gathers their faults.
type query struct {
	values url.Values
	faults []error
}

// newQuery parses the query, in which only the parameters named may stand. Each
// but feature is given once at the most.
func newQuery(r *http.Request, names ...string) (*query, error) {
	if r.URL.RawQuery == "" {
		return &query{}, nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, httpdecision.RequestError{{Detail: "the query is not well-formed, or too long: percent-encode what is not a letter or a digit"}}
	}
	q := &query{values: values}
	unknown := 0
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(names, name):
			unknown++
		case name != "feature" && len(values[name]) > 1:
			q.fault(name, "the parameter is given twice")
		}
	}
	if unknown > 0 {
		// An unknown name may be a feature that was not encoded.
		q.faults = append(q.faults, httpdecision.RequestError{{Detail: unknownParameters(unknown, names)}})
	}
	if len(names) == 0 {
		return q, q.err()
	}
	return q, nil
}

func unknownParameters(n int, known []string) string {
	text := "a parameter is unknown"
	if n > 1 {
		text = fmt.Sprintf("%d parameters are unknown", n)
	}
	if len(known) == 0 {
		return text + ": this route takes none"
	}
	return fmt.Sprintf("%s: this route takes %q", text, known)
}

func (q *query) fault(name, detail string) {
	q.faults = append(q.faults, httpdecision.RequestError{{Parameter: name, Detail: detail}})
}

// err returns all faults that were found.
func (q *query) err() error { return errors.Join(q.faults...) }

// counter returns the one counter that the features name.
func (q *query) counter(event service.Event) (counter events.Counter) {
	features, err := events.ParseFeaturesOf(event.Name, q.values["feature"])
	if err == nil {
		counter, err = event.Counter(features)
	}
	if err != nil {
		q.faults = append(q.faults, err)
	}
	return counter
}

// features returns the features that are given, of an event of that name.
func (q *query) features(event string) events.Features {
	parse := events.ParseCountable
	if events.IsDomain(event) {
		parse = func(list []string) (events.Features, error) { return events.ParseFeaturesOf(event, list) }
	}
	features, err := parse(q.values["feature"])
	if err != nil {
		q.faults = append(q.faults, err)
	}
	return features
}

// cost returns 1 where the parameter is missing.
func (q *query) cost() int64 {
	if !q.values.Has("cost") {
		return 1
	}
	cost, err := strconv.ParseUint(q.values.Get("cost"), 10, 32)
	if err != nil {
		cost = limiter.MaxCost + 1 // what is no number is no cost either
	}
	if err := limiter.CheckCost(int64(cost)); err != nil {
		q.faults = append(q.faults, err)
	}
	return int64(cost)
}

// required returns a parameter that must be there.
func (q *query) required(name string) string {
	if !q.values.Has(name) {
		q.fault(name, "the parameter is missing")
	}
	return q.values.Get(name)
}

func (q *query) level() engine.Level {
	level, err := engine.ParseLevel(q.required("level"))
	if err != nil && q.values.Has("level") {
		q.fault("level", "it is second, minute, hour or day")
	}
	return level
}

func (q *query) duration(name string) time.Duration {
	s := q.required(name)
	if s == "" && !q.values.Has(name) {
		return 0
	}
	d, err := events.ParseDuration(s)
	if e, ok := errors.AsType[*events.DurationError](err); ok {
		q.fault(name, e.Reason)
	}
	return d
}

// moment returns the zero time where the parameter is missing.
func (q *query) moment(name string) time.Time {
	if !q.values.Has(name) {
		return time.Time{}
	}
	m, err := wire.ParseMoment(q.values.Get(name))
	if err != nil {
		q.fault(name, err.Error()+"; a + is written %2B in a query")
	}
	return m.Time
}

// topQuery returns the parameters of a top, and whether it is of this process alone.
func topQuery(r *http.Request) (p top.Query, alone bool, err error) {
	q, err := newQuery(r, "outcome", "event", "limit", "window", "peers")
	if err != nil {
		return p, false, err
	}
	p = top.Query{Outcome: top.Denied, Event: q.values.Get("event"), N: 20, Window: top.Longest}
	switch q.values.Get("outcome") {
	case "", "denied":
	case "admitted":
		p.Outcome = top.Admitted
	default:
		q.fault("outcome", "it is denied or admitted")
	}
	if q.values.Has("limit") {
		if p.N, err = strconv.Atoi(q.values.Get("limit")); err != nil || p.N < 1 || p.N > client.MaxTop {
			q.fault("limit", fmt.Sprintf("it is 1 to %d", client.MaxTop))
		}
	}
	if q.values.Has("window") {
		p.Window = q.duration("window")
		if p.Window < time.Minute || p.Window > top.Longest || p.Window%time.Minute != 0 {
			q.fault("window", "it is 1m to 1h, in whole minutes")
		}
	}
	switch q.values.Get("peers") {
	case "", "true":
	case "false":
		alone = true
	default:
		q.fault("peers", "it is true or false")
	}
	return p, alone, q.err()
}

// checkQuery returns the parameters of a check.
func checkQuery(r *http.Request, event string) (features events.Features, cost int64, err error) {
	q, err := newQuery(r, "feature", "cost")
	if err != nil {
		return nil, 0, err
	}
	features, cost = q.features(event), q.cost()
	return features, cost, q.err()
}

// counterQuery returns the counter that the parameters name, which are all there may be.
func counterQuery(r *http.Request, event service.Event) (events.Counter, error) {
	q, err := newQuery(r, "feature")
	if err != nil {
		return events.Counter{}, err
	}
	return q.counter(event), q.err()
}

// countParameters are those of a count.
type countParameters struct {
	counter events.Counter
	window  time.Duration
	at      time.Time
}

func countQuery(r *http.Request, event service.Event) (p countParameters, err error) {
	q, err := newQuery(r, "feature", "window", "at")
	if err != nil {
		return p, err
	}
	p = countParameters{q.counter(event), q.duration("window"), q.moment("at")}
	return p, q.err()
}

// historyParameters are those of a history.
type historyParameters struct {
	counter  events.Counter
	level    engine.Level
	from, to time.Time
	outcome  string // outcomeDenied, or empty
}

const outcomeDenied = "denied"

// outcome returns outcomeDenied, or nothing for admitted hits.
func (q *query) outcome() string {
	switch outcome := q.values.Get("outcome"); {
	case outcome == outcomeDenied:
		return outcome
	case q.values.Has("outcome") && outcome != "admitted":
		q.fault("outcome", "it is admitted or denied")
	}
	return ""
}

func historyQuery(r *http.Request, event service.Event) (p historyParameters, err error) {
	q, err := newQuery(r, "feature", "level", "from", "to", "outcome")
	if err != nil {
		return p, err
	}
	p = historyParameters{q.counter(event), q.level(), q.moment("from"), q.moment("to"), q.outcome()}
	return p, q.err()
}
