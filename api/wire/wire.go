// Package wire holds the bodies of counterd's HTTP contract: what the server of
// package api writes and reads, and the client of package api/client reads and
// writes. Times are RFC 3339 in UTC on the way out; on the way in Unix seconds
// do as well.
package wire

import (
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Media types of bodies.
const (
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
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

// Count is the exact sum of a window.
type Count struct {
	Event   string  `json:"event"`
	Feature string  `json:"feature"`
	Window  string  `json:"window"`
	From    Moment  `json:"from"` // first second of the window
	To      Moment  `json:"to"`   // last second of the window
	Count   int64   `json:"count"`
	Buckets Buckets `json:"buckets"`
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
	From    Moment   `json:"from"` // first second of the first bucket
	To      Moment   `json:"to"`   // last second of the last bucket
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
	Name      string `json:"name"`
	Retention string `json:"retention"` // how long its counters are remembered
	Rules     []Rule `json:"rules"`
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
}

// Health answers healthz and readyz.
type Health struct {
	Status string            `json:"status"`
	Store  map[string]string `json:"store,omitempty"` // each server's state, by its name
}

// Problem is an error, as RFC 9457 has it.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Errors []Fault `json:"errors,omitempty"` // where several things can be wrong, each
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

// ParseMoment reads RFC 3339 or Unix seconds. Fractions of a second are cut off.
func ParseMoment(s string) (Moment, error) {
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil {
		return unixMoment(seconds)
	}
	t, err := time.Parse(time.RFC3339, s)
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

// UnmarshalJSONFrom reads a string or a number.
func (m *Moment) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch token.Kind() {
	case jsontext.KindString, jsontext.KindNumber:
		*m, err = ParseMoment(token.String())
		return err
	case jsontext.KindNull:
		*m = Moment{}
		return nil
	}
	return ErrMoment
}

// MarshalJSONTo writes RFC 3339 in UTC.
func (m Moment) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteToken(jsontext.String(m.UTC().Format(time.RFC3339)))
}

var (
	_ json.UnmarshalerFrom = (*Moment)(nil)
	_ json.MarshalerTo     = Moment{}
)
