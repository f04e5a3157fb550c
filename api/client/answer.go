package client

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api/wire"
)

// Kinds of errors, for errors.Is. An *Error wraps the one of its status.
var (
	ErrInvalid     = errors.New("client: invalid request")           // 4xx but those below
	ErrRefused     = errors.New("client: refused")                   // 401, 403: the token is missing, unknown, or not good for this
	ErrUnknown     = errors.New("client: unknown event")             // 404
	ErrConflict    = errors.New("client: conflict")                  // 409: settled with another cost, or no room for an override
	ErrEnded       = errors.New("client: the reservation has ended") // 410
	ErrUnavailable = errors.New("client: unavailable")               // 5xx: the store, a proxy or the server does not answer in time; or 429 of a proxy
	ErrUnexpected  = errors.New("client: unexpected answer")         // not one of counterd's
)

// Error is an answer that is not a success. Callers of hits that went together may share it: do not modify it.
type Error struct {
	wire.Problem
	RequestID string // the server's log has it; empty: it said none

	foreign bool // there is no problem document: a proxy in between says it
}

func (e *Error) Error() string {
	text := fmt.Sprintf("counterd: %d %s", e.Status, e.Title)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error {
	switch {
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return ErrRefused
	// A 429 that is an error comes from a proxy in between, not from counterd.
	case e.Status >= 500, e.Status == http.StatusTooManyRequests:
		return ErrUnavailable
	case e.Status < 400, e.foreign:
		return ErrUnexpected
	case e.Status == http.StatusNotFound:
		return ErrUnknown
	case e.Status == http.StatusConflict:
		return ErrConflict
	case e.Status == http.StatusGone:
		return ErrEnded
	}
	return ErrInvalid
}

// answer is what came back, until it is freed.
type answer struct {
	*http.Response
	body *bytes.Buffer
}

// buffers have the bodies of answers.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// free gives the memory of the body to a later answer.
func (a answer) free() {
	if a.body.Cap() <= maxKept {
		a.body.Reset()
		buffers.Put(a.body)
	}
}

func (a answer) succeeds() bool { return a.StatusCode >= 200 && a.StatusCode <= 299 }

func (a answer) requestID() string { return a.Header.Get("X-Request-Id") }

// decode reads the body of a 200 into out. If out is nil, a 204 is the success. Any other
// answer is an error.
func (a answer) decode(out any) error {
	if !a.succeeds() {
		return a.problem()
	}
	if out == nil {
		if a.StatusCode != http.StatusNoContent || a.body.Len() > 0 {
			return a.unexpected()
		}
		return nil
	}
	if a.StatusCode != http.StatusOK || !a.isOf(wire.TypeJSON) || a.unmarshal(out) != nil || !isOfContract(out) {
		// What json says repeats what it cannot read.
		return a.unexpected()
	}
	return nil
}

func (a answer) unexpected() error {
	return fmt.Errorf("%w: a %d with a body of %d bytes is not what the contract has", ErrUnexpected, a.StatusCode, a.body.Len())
}

// isOfContract reports whether a success that was read has what each answer of counterd has.
func isOfContract(out any) bool {
	switch out := out.(type) {
	case *wire.Decision:
		return isDecision(out)
	case *wire.Explained:
		d := out.Decision
		d.Limits = make([]wire.LimitState, len(out.Limits))
		for i, limit := range out.Limits {
			d.Limits[i] = limit.LimitState
		}
		return out.Limits != nil && isDecision(&d)
	case *wire.Incremented:
		return out.Event != ""
	case *wire.Count:
		return out.Count >= 0
	}
	return true
}

// isDecision reports whether all that a decision has is there, and its numbers are in their ranges.
func isDecision(d *wire.Decision) bool {
	least := min(orZero(d.RetryAfter), d.RetryAfterMS, d.MayFitAfter)
	for i := range d.Limits {
		s := &d.Limits[i]
		if s.Name == "" {
			return false
		}
		least = min(least, s.Limit, s.Count, s.Remaining, orZero(s.Reset))
	}
	return d.Event != "" && !d.At.IsZero() && d.Limits != nil && least >= 0 && d.Wait >= 0 && d.Wait < math.MaxInt64
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// isOfHit reports whether a hit is answered by that decision, with that status.
func isOfHit(d *wire.Decision, status int) bool {
	switch status {
	case http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return isDecision(d) && d.Allowed == (status == http.StatusOK)
	}
	return false
}

const (
	// smallAnswer is the length, in bytes, up to which any answer may be decoded.
	smallAnswer = 64 << 10
	// memoryPerByte bounds the memory that the values of a longer answer take, per byte of
	// its text. Those of the contract take less than 3.
	memoryPerByte = 4
)

var (
	errDense   = errors.New("client: the answer holds more values than the contract has")
	errLacking = errors.New("client: the answer is no object, or its decision lacks members")
)

// unmarshal decodes the body into out.
func (a answer) unmarshal(out any) error {
	// By their types, not by the method: types that embed a Decision have it, too, and more members.
	plain := false
	switch out := out.(type) {
	case *wire.Decision:
		plain = out.ReadPlain(a.body.Bytes())
	case *wire.Results:
		plain = out.ReadPlain(a.body.Bytes())
	}
	if plain {
		return nil
	}
	if err := a.unmarshalAny(out); err != nil {
		return err
	}
	if !a.isDecided(out) {
		return errLacking
	}
	return nil
}

// isDecided reports whether each decision that was read of the body has the members whose absence it does not show.
func (a answer) isDecided(out any) bool {
	type decided struct {
		Allowed    *bool          `json:"allowed"`
		RetryAfter jsontext.Value `json:"retry_after"`
	}
	var one decided
	var all struct {
		Results []decided `json:"results"`
	}
	switch out := out.(type) {
	case *wire.Decision, *wire.Denial, *wire.Explained:
		return json.Unmarshal(a.body.Bytes(), &one) == nil && one.Allowed != nil && one.RetryAfter != nil
	case *wire.Results:
		if json.Unmarshal(a.body.Bytes(), &all) != nil {
			return false
		}
		for i, result := range out.Results {
			if one = all.Results[i]; result.Decision != nil && (one.Allowed == nil || one.RetryAfter == nil) {
				return false
			}
		}
	}
	return true
}

// unmarshalAny decodes the body into out. It stops where the values take far more memory
// than their text, as a list of a million empty objects does.
func (a answer) unmarshalAny(out any) error {
	if jsontext.Value(a.body.Bytes()).Kind() != jsontext.KindBeginObject {
		return errLacking // null would leave out as it is
	}
	if a.body.Len() <= smallAnswer {
		return json.Unmarshal(a.body.Bytes(), out)
	}
	left := memoryPerByte * a.body.Len()
	return json.Unmarshal(a.body.Bytes(), out, json.WithUnmarshalers(json.UnmarshalFromFunc(func(_ *jsontext.Decoder, v any) error {
		if left -= int(reflect.TypeOf(v).Elem().Size()); left < 0 {
			return errDense
		}
		return errors.ErrUnsupported // the usual way
	})))
}

// results returns the results of a batch of so many hits. Each is a decision or a problem.
func (a answer) results(hits int) ([]wire.Result, error) {
	var out wire.Results
	if err := a.decode(&out); err != nil {
		return nil, err
	}
	if len(out.Results) != hits {
		return nil, fmt.Errorf("%w: %d results for %d hits", ErrUnexpected, len(out.Results), hits)
	}
	for i, result := range out.Results {
		fits := result.Status >= 400
		if result.Decision != nil {
			fits = isOfHit(result.Decision, result.Status)
		}
		if !fits || (result.Decision == nil) == (result.Problem == nil) {
			return nil, fmt.Errorf("%w: result %d is neither a decision nor a problem", ErrUnexpected, i)
		}
	}
	return out.Results, nil
}

// refusesBatches reports whether the server takes no batches, or none of this size: no hit of the batch was counted.
func (a answer) refusesBatches() bool {
	switch a.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		return !a.problem().foreign // a proxy may have passed it on
	}
	return false
}

// denial returns the decision of a denied hit. A proxy in between may send a 429
// of its own: that is none.
func (a answer) denial() (decision wire.Decision, denied bool) {
	if a.StatusCode != http.StatusTooManyRequests || !a.isOf(wire.TypeProblem) {
		return wire.Decision{}, false
	}
	var denial wire.Denial
	if err := a.unmarshal(&denial); err != nil || denial.Type != wire.TypeQuotaExceeded || !isOfHit(&denial.Decision, a.StatusCode) {
		return wire.Decision{}, false
	}
	return denial.Decision, true
}

// problem makes an error of the answer. An answer of a proxy in between is not a problem
// document.
func (a answer) problem() *Error {
	e := &Error{foreign: !a.isOf(wire.TypeProblem)}
	if !e.foreign {
		if err := a.unmarshal(&e.Problem); err != nil {
			e.Problem, e.foreign = wire.Problem{}, true
		}
	}
	e.Status = a.StatusCode
	e.RequestID = a.requestID()
	if e.Title == "" {
		e.Title = http.StatusText(a.StatusCode)
	}
	return e
}

// isOf reports whether the body is of that media type, whatever its parameters.
func (a answer) isOf(media string) bool {
	given, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(given), media)
}
