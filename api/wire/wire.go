// Package wire holds the bodies of counterd's HTTP contract: what the server of
// package api writes and reads, and the client of package api/client reads and
// writes. Times are RFC 3339 in UTC on the way out; on the way in Unix seconds
// do as well. Hits of both wait for their turns in Turns.
package wire

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Media types of bodies.
const (
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
)

// Bounds of bodies.
const (
	MaxHits     = 1000               // hits of a Batch
	MaxFeatures = maxKinds * MaxHits // features of a body, those of all hits together
	maxKinds    = 16                 // features of a hit
)

// Increment asks to add to the counters of an event.
type Increment struct {
	Features map[string]string `json:"features"`
	By       *int64            `json:"by,omitempty"` // 1 to 1,000,000; nil: 1
	At       Moment            `json:"at,omitzero"`  // zero: now
}

// Incremented answers Increment.
type Incremented struct {
	Event    string   `json:"event"`
	At       Moment   `json:"at"`
	By       int64    `json:"by"`
	Counters []string `json:"counters"` // the features that were counted, combinations included
}

// Count is the sum of a window.
type Count struct {
	Event   string  `json:"event"`
	Feature string  `json:"feature"`
	Window  string  `json:"window"`
	From    Moment  `json:"from"` // first second of the window
	To      Moment  `json:"to"`   // last second of the window
	Count   int64   `json:"count"`
	Exact   *bool   `json:"exact,omitempty"`  // present if false
	Buckets Buckets `json:"buckets,omitzero"` // of counters that are kept in buckets
}

// Buckets are the numbers of buckets that were summed, by level.
type Buckets struct {
	Second int `json:"second"`
	Minute int `json:"minute"`
	Hour   int `json:"hour"`
	Day    int `json:"day,omitzero"`
	Total  int `json:"total"`
}

// History is a counter's buckets at one level, in the order of time.
type History struct {
	Event   string   `json:"event"`
	Feature string   `json:"feature"`
	Level   string   `json:"level"`
	Outcome string   `json:"outcome,omitempty"` // denied, if its hits were
	From    Moment   `json:"from"`              // first second of the first bucket
	To      Moment   `json:"to"`                // last second of the last bucket
	Exact   *bool    `json:"exact,omitempty"`   // present if false
	Buckets []Bucket `json:"buckets"`
}

// Bucket is one bucket of a history.
type Bucket struct {
	Start Moment `json:"start"`
	Count int64  `json:"count"`
}

// Events are the rules in force.
type Events struct {
	Events []Event `json:"events"`
}

// Event is one event of the rules in force.
type Event struct {
	Name      string   `json:"name"`
	Retention string   `json:"retention"`         // how long its counters are remembered
	Methods   []string `json:"methods,omitempty"` // the HTTP methods of requests that are hits; none: all
	Rules     []Rule   `json:"rules"`
}

// Rule is one rule of an event.
type Rule struct {
	Per        []string           `json:"per"`
	Limits     []Limit            `json:"limits"`
	Overrides  map[string][]Limit `json:"overrides,omitempty"` // by value
	Allow      []string           `json:"allow,omitempty"`
	Deny       []string           `json:"deny,omitempty"`
	IPv6Prefix int                `json:"ipv6_prefix,omitzero"` // of rules per ip
	Precision  string             `json:"precision"`
	Count      string             `json:"count"`
	Throttle   string             `json:"throttle"`
	OnError    string             `json:"on_error"`
	Shadow     bool               `json:"shadow,omitzero"`
}

// Limit is one limit of a rule.
type Limit struct {
	Name   string `json:"name"`
	Limit  int64  `json:"limit"`
	Window string `json:"window"`
	// Algorithm is how it counts; empty: by a sliding window.
	Algorithm string `json:"algorithm,omitzero"`
	// Calendar is the time zone in whose calendar windows are units; empty: they are in none.
	Calendar string `json:"calendar,omitzero"`
	// Burst is how many a token bucket admits at once; of a leaky bucket one more than its queue.
	Burst int64 `json:"burst,omitzero"`
}

// Hit asks to add to the counters of an event that its rules name, and to decide.
type Hit struct {
	Features map[string]string `json:"features"`
	Cost     *int64            `json:"cost,omitempty"` // 0 to 1,000,000; nil: 1
	// Reserve is a duration, up to 24h: the cost is an estimate, to be settled within that time; nil: it
	// is the true cost.
	Reserve *string `json:"reserve,omitempty"`
}

// Settle asks to settle a reservation, by its true cost or by a renewal of its leases. One of the two is
// given.
type Settle struct {
	Reservation string `json:"reservation"`
	Cost        *int64 `json:"cost,omitempty"` // 0 to 1,000,000
	// Renew is a duration, at most that of a lease.
	Renew *string `json:"renew,omitempty"`
}

// Settled answers Settle: a cost, or a reservation in place of the one before.
type Settled struct {
	Settled     bool   `json:"settled,omitzero"`
	Cost        *int64 `json:"cost,omitempty"`
	Reservation string `json:"reservation,omitzero"`
}

// Decision is the answer to a hit or a check.
type Decision struct {
	Allowed    bool   `json:"allowed"`
	Event      string `json:"event"`
	At         Moment `json:"at"`          // the second in which the hit was stamped
	RetryAfter *int64 `json:"retry_after"` // seconds until all limits admit it; nil: never
	// RetryAfterMS is RetryAfter in milliseconds, if it is less than a second, or a queue is full; else 0.
	RetryAfterMS int64 `json:"retry_after_ms,omitzero"`
	// MayFitAfter is after how many seconds it may be admitted as open reservations or leases end or are given back, if
	// that is before RetryAfter; else 0.
	MayFitAfter int64 `json:"may_fit_after,omitzero"`
	// Wait is how many seconds an allowed hit waits for its turn, with milliseconds; 0: it does not.
	Wait float64 `json:"wait,omitzero"`
	// Reservation names what was reserved, the leases, or the turn, for Settle; empty: there is nothing.
	Reservation string       `json:"reservation,omitzero"`
	Limits      []LimitState `json:"limits"`
}

// LimitState is the state of one limit after a hit.
type LimitState struct {
	Name      string `json:"name"`
	Feature   string `json:"feature"` // the kind of feature that it counts by; empty: the event as a whole
	Limit     int64  `json:"limit"`
	Window    string `json:"window"`
	Algorithm string `json:"algorithm,omitzero"` // empty: a sliding window
	Count     int64  `json:"count"`              // the hits in the window
	Remaining int64  `json:"remaining"`          // never below 0
	Reset     *int64 `json:"reset"`              // seconds until it admits a hit of this cost; nil: never
	Allowed   bool   `json:"allowed"`
	// Exact is nil, for true, or false: then Count is an upper bound.
	Exact      *bool  `json:"exact,omitzero"`
	Shadow     bool   `json:"shadow,omitzero"`     // its no is reported, not enforced
	Over       bool   `json:"over,omitzero"`       // Count is above Limit, and the throttle lets it be
	Incomplete bool   `json:"incomplete,omitzero"` // the counter has not been kept for a whole window yet, or a part of it was lost
	Unreserved bool   `json:"unreserved,omitzero"` // an admitted hit has reserved nothing on its counter, or taken no lease: what it costs stays
	OnError    string `json:"on_error,omitzero"`   // the store could not be asked, and this was done: allow, deny or local
}

// IsExact reports whether Count is exact, not an upper bound.
func (s LimitState) IsExact() bool { return s.Exact == nil || *s.Exact }

// Explained is the decision of a check, and what it was computed from.
type Explained struct {
	Decision
	Limits []ExplainedLimit `json:"limits"`
	// Overrides are the temporary overrides of the hit's features.
	Overrides []Override `json:"overrides,omitempty"`
}

// ExplainedLimit is the state of one limit, and what its count consists of.
type ExplainedLimit struct {
	LimitState
	Sum   []Part  `json:"sum"`   // sum up to Count, the oldest first
	Frees []Freed `json:"frees"` // the next moments at which room returns, if nothing else comes
	Rule  string  `json:"rule"`  // where it is in its file
	// Listing is allow or deny, where a list of the rule or a temporary override decides; else empty.
	Listing    string `json:"listing,omitempty"`
	Overridden bool   `json:"overridden,omitzero"` // a temporary override has set Listing, or the rate
}

// Part is what was counted from the first second to the last, both included.
type Part struct {
	Level string `json:"level"` // of the bucket, or second
	From  Moment `json:"from"`
	To    Moment `json:"to"`
	Count int64  `json:"count"`
}

// Freed is how much room returns at a moment.
type Freed struct {
	At    Moment `json:"at"`
	Count int64  `json:"count"`
}

// SetOverride asks for a temporary override of one feature of an event.
type SetOverride struct {
	Features map[string]string `json:"features"` // one
	// Verdict is allow or deny; empty: Rates hold, such as 100/m, each instead of the limit's of its window.
	Verdict string   `json:"verdict,omitempty"`
	Rates   []string `json:"rates,omitempty"`
	// Until is when it ends, or For how long it holds: one of them, up to 30 days.
	Until Moment `json:"until,omitzero"`
	For   string `json:"for,omitempty"`
}

// Override is a temporary override in force.
type Override struct {
	Event   string   `json:"event"`
	Feature string   `json:"feature"`
	Verdict string   `json:"verdict,omitempty"` // allow or deny; empty: Rates hold
	Rates   []string `json:"rates,omitempty"`
	Until   Moment   `json:"until"`
	Set     Moment   `json:"set"`
	By      string   `json:"by,omitempty"`  // the name of the token that set it
	Idle    bool     `json:"idle,omitzero"` // it has no effect: the rules have no limit for it
}

// Overrides are all temporary overrides in force.
type Overrides struct {
	Overrides []Override `json:"overrides"`
}

// RemovedOverride answers the removal of an override.
type RemovedOverride struct {
	Removed bool `json:"removed"` // false: there was none
}

// Top has the features with the most hits.
type Top struct {
	Features []TopFeature `json:"features"` // those with the highest counts first
	Rest     int64        `json:"rest"`     // the most hits that a feature may have had that is not among them
	// Processes is how many processes have said what they know, if there are peers; else 0.
	Processes  int      `json:"processes,omitzero"`
	Unanswered []string `json:"unanswered,omitempty"` // the peers that have not
	// Process is a random id of the process, if it answers alone: it may have several URLs.
	Process string `json:"process,omitempty"`
}

// TopFeature is how many hits of a feature were admitted, or denied: at most Count, and at least Count - Error.
type TopFeature struct {
	Event   string `json:"event"`
	Feature string `json:"feature"`
	// Features are its kinds with their values, as in a Hit.
	Features map[string]string `json:"features"`
	Count    int64             `json:"count"`
	Error    int64             `json:"error"`
	Limits   []TopLimit        `json:"limits,omitempty"` // that denied
}

// TopLimit is how many hits of a feature a limit has denied at the least.
type TopLimit struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// Batch asks for several hits at once.
type Batch struct {
	Hits []BatchHit `json:"hits"` // 1 to 1,000
}

// BatchHit is one hit of a Batch.
type BatchHit struct {
	Event    string            `json:"event"`
	Features map[string]string `json:"features"`
	Cost     *int64            `json:"cost,omitempty"` // 0 to 1,000,000; nil: 1
	Reserve  *string           `json:"reserve,omitempty"`
}

// StoreFailed is the detail of the problem of a hit that a rule refuses because the store fails.
const StoreFailed = "The store did not answer, or not in time."

// Results answers Batch.
type Results struct {
	Results []Result `json:"results"` // in the order of the hits
}

// Result is what became of one hit of a Batch: a decision, or what was wrong with
// the hit. One of the two is nil.
type Result struct {
	Status    int `json:"status"` // what the hit alone would have been answered with
	*Decision     // of 200, 429 and 503
	*Problem      // of 400 and 404; its status is the one above
}

// Health answers healthz and readyz.
type Health struct {
	Status string            `json:"status"`
	Store  map[string]string `json:"store,omitempty"` // each server's state, by its name
	Clock  string            `json:"clock,omitempty"` // how it differs from those of other processes
}

// Index answers GET /.
type Index struct {
	Service       string  `json:"service"`
	Documentation string  `json:"documentation"` // where the routes are explained
	Routes        []Route `json:"routes"`
}

// Route is one of an Index.
type Route struct {
	Path    string   `json:"path"`
	Methods []string `json:"methods"` // "*": any
}

// Problem is an error, as RFC 9457 has it.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Errors []Fault `json:"errors,omitempty"` // where several things can be wrong, each
}

// TypeQuotaExceeded is the type of the problem that a denial is, as
// draft-ietf-httpapi-ratelimit-headers registers it.
const TypeQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Denial is the problem document of a hit that was not admitted, with the
// decision's fields beside those of the problem.
type Denial struct {
	Problem
	ViolatedPolicies []string `json:"violated-policies,omitempty"` // names of the limits that deny
	Decision
}

// Fault is one thing wrong with a request. It names its place by a JSON pointer
// into the body or by the parameter of the query.
type Fault struct {
	Detail    string `json:"detail"`
	Pointer   string `json:"pointer,omitempty"`
	Parameter string `json:"parameter,omitempty"`
}

// Moment is a time in whole seconds.
type Moment struct{ time.Time }

// ErrMoment is returned for what is not a time.
var ErrMoment = errors.New("a time is RFC 3339, as in 2006-01-02T15:04:05Z, or whole Unix seconds")

// rfc3339 is its grammar, to which time.Parse does not keep: it takes 3:30:33, a
// fraction behind a comma and offsets of more than a day, but no t and z in lower case.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// utc is the form in which a Moment is written.
const utc = "2006-01-02T15:04:05Z"

// ParseMoment reads RFC 3339, or Unix seconds: digits, behind a minus sign or not.
// Fractions of a second are cut off.
func ParseMoment(s string) (Moment, error) {
	if len(s) == len(utc) {
		if t, err := time.Parse(utc, s); err == nil { // as it is written here
			return unixMoment(t.Unix())
		}
	}
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil && s[0] != '+' {
		return unixMoment(seconds)
	}
	if !rfc3339.MatchString(s) {
		return Moment{}, ErrMoment
	}
	t, err := time.Parse(time.RFC3339, strings.ToUpper(s))
	if err != nil {
		return Moment{}, ErrMoment
	}
	return unixMoment(t.Unix())
}

func unixMoment(seconds int64) (Moment, error) {
	const year1, year9999 = -62135596800 + 1, 253402300799
	if seconds < year1 || seconds > year9999 {
		return Moment{}, ErrMoment
	}
	return Moment{time.Unix(seconds, 0).UTC()}, nil
}

// UnmarshalJSON reads a string or a number.
func (m *Moment) UnmarshalJSON(text []byte) (err error) {
	switch text[0] {
	case '"':
		var value string
		if err := json.Unmarshal(text, &value); err != nil {
			return err
		}
		*m, err = ParseMoment(value)
		return err
	case 'n':
		*m = Moment{}
		return nil
	case 't', 'f', '{', '[':
		return ErrMoment
	}
	seconds, err := ParseInteger(string(text))
	if err != nil {
		return ErrMoment
	}
	*m, err = unixMoment(seconds)
	return err
}

// ErrNotWhole is the error of ParseInteger for a number with a fraction.
var ErrNotWhole = errors.New("the number is not whole")

// maxExponent bounds the exponents that ParseInteger computes with.
const maxExponent = 1 << 24

// ParseInteger reads a JSON number that is whole, also with a fraction of zeros or an exponent: 1.0 and 1e2. If it is too
// large, the error wraps strconv.ErrRange.
func ParseInteger(number string) (int64, error) {
	mantissa, power, _ := strings.Cut(strings.ToLower(number), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits, sign := strings.TrimLeft(strings.TrimPrefix(whole, "-")+fraction, "0"), ""
	if strings.HasPrefix(whole, "-") {
		sign = "-"
	}
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return 0, nil
	}
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil || exponent > maxExponent || exponent < -maxExponent {
			exponent = maxExponent
			if power[0] == '-' {
				exponent = -maxExponent
			}
		}
	}
	zeros := len(digits) - len(significant) - len(fraction) + exponent
	switch {
	case zeros < 0:
		return 0, ErrNotWhole
	case len(significant)+zeros > len("9223372036854775807"):
		return 0, strconv.ErrRange
	}
	return strconv.ParseInt(sign+significant+strings.Repeat("0", zeros), 10, 64)
}

// MarshalJSON returns RFC 3339 in UTC.
func (m Moment) MarshalJSON() ([]byte, error) {
	return m.UTC().AppendFormat(nil, `"`+time.RFC3339+`"`), nil
}
