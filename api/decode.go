package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

// decodeBody reads the request's JSON body into v. Unknown and repeated fields,
// invalid UTF-8 and anything behind the value are faults.
func decodeBody(r *http.Request, v any) error {
	if _, err := newQuery(r); err != nil {
		return err
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != wire.TypeJSON || r.Header.Get("Content-Encoding") != "" {
		return errMediaType
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return err
		}
		return &requestError{[]wire.Fault{{Detail: "the body does not arrive whole"}}}
	}
	if err := json.Unmarshal(data, v, json.RejectUnknownMembers(true)); err != nil {
		return &requestError{[]wire.Fault{bodyFault(err)}}
	}
	return nil
}

// bodyFault says what is wrong with a body and where. What it says holds nothing
// of the values.
func bodyFault(err error) wire.Fault {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return wire.Fault{Detail: "the field is given twice", Pointer: string(e.JSONPointer)}
		}
		return wire.Fault{
			Detail:  fmt.Sprintf("the body is not one JSON value in UTF-8: fault at byte %d", e.ByteOffset),
			Pointer: string(e.JSONPointer),
		}
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case !ok:
		return wire.Fault{Detail: "the body is not one JSON value in UTF-8"}
	case errors.Is(err, json.ErrUnknownName):
		return wire.Fault{Detail: "the field is unknown", Pointer: string(e.JSONPointer)}
	case errors.Is(err, wire.ErrMoment):
		return wire.Fault{Detail: wire.ErrMoment.Error(), Pointer: string(e.JSONPointer)}
	}
	return wire.Fault{Detail: fmt.Sprintf("a JSON %s does not fit here", kindName(e.JSONKind)), Pointer: string(e.JSONPointer)}
}

func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNumber:
		return "number of this size or form"
	case jsontext.KindBeginObject:
		return "object"
	case jsontext.KindBeginArray:
		return "array"
	case jsontext.KindString:
		return "string"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "boolean"
	}
	return k.String()
}

// query reads the parameters of a request and gathers their faults.
type query struct {
	values url.Values
	faults []error
}

// newQuery parses the query, in which only the parameters named may stand. Each
// but feature is given once at the most.
func newQuery(r *http.Request, names ...string) (*query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &requestError{[]wire.Fault{{Detail: "the query is not well-formed: percent-encode what is not a letter or a digit"}}}
	}
	q := &query{values: values}
	for name, list := range values {
		switch {
		case !slices.Contains(names, name):
			// What stands for a name may be a feature that was not encoded.
			q.faults = append(q.faults, &requestError{[]wire.Fault{{Detail: unknownParameter(names)}}})
		case name != "feature" && len(list) > 1:
			q.fault(name, "the parameter is given twice")
		}
	}
	if len(names) == 0 {
		return q, q.err()
	}
	return q, nil
}

func unknownParameter(names []string) string {
	if len(names) == 0 {
		return "a parameter is unknown: this route takes none"
	}
	return fmt.Sprintf("a parameter is unknown: this route takes %q", names)
}

func (q *query) fault(name, detail string) {
	q.faults = append(q.faults, &requestError{[]wire.Fault{{Parameter: name, Detail: detail}}})
}

// err returns all faults that were found.
func (q *query) err() error { return errors.Join(q.faults...) }

// counter returns the one counter that the features name.
func (q *query) counter(event *events.Event) (counter events.Counter) {
	features, err := events.ParseFeatures(q.values["feature"])
	if err == nil {
		counter, err = event.Counter(features)
	}
	if err != nil {
		q.faults = append(q.faults, err)
	}
	return counter
}

// required returns a parameter that must be there.
func (q *query) required(name string) string {
	if !q.values.Has(name) {
		q.fault(name, "the parameter is missing")
	}
	return q.values.Get(name)
}

func (q *query) duration(name string) time.Duration {
	s := q.required(name)
	if s == "" && !q.values.Has(name) {
		return 0
	}
	d, err := events.ParseDuration(s)
	if err != nil {
		q.fault(name, err.Error())
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
