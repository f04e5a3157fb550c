package api

import (
	"github.com/counterd/counterd/internal/httpdecision"

	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/service"
)

var errBody = httpdecision.RequestError{{Detail: "this route takes no body: what is asked for stands in the path and the query"}}

// bodiless makes an action of one that takes no body: what a body says would
// otherwise be ignored. Of one of no known length it is read whether there is any.
func bodiless(do action) action {
	return func(x *exchange) error {
		r := x.request
		if err := checkNone(r); err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, r.Body)
		switch {
		case err != nil:
			return unreadable(err)
		case n > 0:
			return errBody
		}
		return do(x)
	}
}

// unread makes an action of one that takes neither body nor query, for anyone: the server does
// not wait for a stranger's body, not even to see that it is none.
func unread(do action) action {
	return func(x *exchange) error {
		r := x.request
		if err := checkNone(r); err != nil {
			return err
		}
		if r.ContentLength != 0 {
			return errBody
		}
		if err := noQuery(r); err != nil {
			return err
		}
		return do(x)
	}
}

// checkNone finds a body that says beforehand that it is one.
func checkNone(r *http.Request) error {
	if err := checkLength(r); err != nil {
		return err
	}
	if r.ContentLength > 0 {
		return errBody
	}
	return nil
}

// noQuery finds parameters where none are taken.
func noQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	_, err := newQuery(r)
	return err
}

// checkLength finds a body that says beforehand that it is too large, so that it
// need not be sent.
func checkLength(r *http.Request) error {
	if r.ContentLength > maxBody {
		return &http.MaxBytesError{Limit: maxBody}
	}
	return nil
}

// unreadable is what a body that cannot be read is answered with.
func unreadable(err error) error {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge || errors.Is(err, service.ErrOverload) {
		return err
	}
	return httpdecision.RequestError{{Detail: "the body does not arrive whole"}}
}

// plainBody is a body that reads itself from text without faults in its most common
// shape, and reports whether it was such a text.
type plainBody interface {
	ReadPlain(text []byte) bool
}

// decodeBody reads the request's JSON body into v. Unknown and repeated fields,
// null, invalid UTF-8 and anything behind the value are faults.
func decodeBody(r *http.Request, v any) error {
	if err := checkLength(r); err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	if !isJSON(r.Header) {
		return errMediaType
	}
	buffer := httpdecision.NewBuffer()
	defer buffer.Free()
	if err := buffer.Fill(r.Body); err != nil {
		return unreadable(err)
	}
	if p, ok := v.(plainBody); ok && p.ReadPlain(buffer.Text) {
		return nil
	}
	return decodeStrictly(buffer.Text, v)
}

// decodeStrictly decodes any body, and says what is wrong with it.
func decodeStrictly(text []byte, v any) error {
	b := bodyReaders.Get().(*bodyReader)
	defer bodyReaders.Put(b)
	b.features = 0
	if err := json.Unmarshal(text, v, json.RejectUnknownMembers(true), json.WithUnmarshalers(b.unmarshalers)); err != nil {
		return httpdecision.RequestError{bodyFault(err)}
	}
	return nil
}

// isJSON reports whether the headers say that the body is JSON in UTF-8, and not
// compressed.
func isJSON(header http.Header) bool {
	if given := header["Content-Type"]; len(given) == 1 && given[0] == wire.TypeJSON && len(header["Content-Encoding"]) == 0 {
		return true // as nearly always
	}
	for _, encoding := range header.Values("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return false
		}
	}
	if len(header.Values("Content-Type")) != 1 {
		return false
	}
	media, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || media != wire.TypeJSON {
		return false
	}
	charset, given := params["charset"]
	return len(params) == 0 || len(params) == 1 && given && strings.EqualFold(charset, "utf-8")
}

// bodyReader reads the values of one body. It stops at the first value that the body
// cannot have, so that a body takes no more memory than the largest valid one.
type bodyReader struct {
	features     int // that were read
	unmarshalers *json.Unmarshalers
}

var bodyReaders = sync.Pool{New: func() any {
	b := &bodyReader{}
	b.unmarshalers = json.JoinUnmarshalers(fitting, lists, json.UnmarshalFromFunc(b.unmarshalFeatures))
	return b
}}

// fitting refuses null everywhere: left out is one thing, null another, and
// to take it for nothing may count what was not meant. It refuses objects and lists in
// the place of single values, which json would read to their end. It reads whole numbers in all ways that JSON has to write
// them.
var fitting = json.UnmarshalFromFunc(func(d *jsontext.Decoder, v any) error {
	t := reflect.TypeOf(v).Elem()
	switch kind := d.PeekKind(); kind {
	case jsontext.KindNull:
		return &json.SemanticError{GoType: t, JSONKind: kind}
	case jsontext.KindNumber:
		n, ok := v.(*int64)
		if !ok {
			break
		}
		text, err := d.ReadValue()
		if err == nil {
			*n, err = wire.ParseInteger(string(text))
		}
		return err
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		if t.Kind() == reflect.String || t.Kind() == reflect.Int64 {
			return &json.SemanticError{GoType: t, JSONKind: kind}
		}
	}
	return errors.ErrUnsupported // the usual way
})

// bodyError is a fault that ends the reading of a body.
type bodyError wire.Fault

func (e *bodyError) Error() string { return e.Detail }

var (
	errTooManyHits     = &bodyError{Pointer: "/hits", Detail: fmt.Sprintf("a batch is of 1 to %d hits, not of more", wire.MaxHits)}
	errTooManyRates    = &bodyError{Pointer: "/rates", Detail: fmt.Sprintf("an override has at most %d rates", events.MaxOverrideRates)}
	errTooManyFeatures = &bodyError{Detail: fmt.Sprintf("a body has at most %d features", wire.MaxFeatures)}
)

// lists reads the lists of all bodies. Of one with too many elements it reads no more than one too many.
var lists = json.JoinUnmarshalers(
	unmarshalList[wire.BatchHit](wire.MaxHits, errTooManyHits),
	unmarshalList[string](events.MaxOverrideRates, errTooManyRates),
)

// unmarshalList reads a list of at most that many elements. One more is an error.
func unmarshalList[T any](most int, tooMany error) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, list *[]T) error {
		if d.PeekKind() != jsontext.KindBeginArray {
			return errors.ErrUnsupported // json says what is wrong
		}
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		*list = []T{}
		for d.PeekKind() != jsontext.KindEndArray {
			if len(*list) == most {
				return tooMany
			}
			var element T
			if err := json.UnmarshalDecode(d, &element); err != nil {
				return err
			}
			*list = append(*list, element)
		}
		_, err := d.ReadToken()
		return err
	})
}

// unmarshalFeatures reads the features of a hit, up to the limit of the body.
func (b *bodyReader) unmarshalFeatures(d *jsontext.Decoder, into *map[string]string) error {
	if d.PeekKind() != jsontext.KindBeginObject {
		return errors.ErrUnsupported
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	*into = map[string]string{}
	for d.PeekKind() != jsontext.KindEndObject {
		if b.features++; b.features > wire.MaxFeatures {
			return errTooManyFeatures
		}
		kind, err := d.ReadToken()
		if err != nil {
			return err
		}
		name, value := kind.String(), ""
		if err := json.UnmarshalDecode(d, &value); err != nil {
			return err
		}
		// One too many is enough to see that they are too many.
		if len(*into) <= events.MaxFeatureKinds {
			(*into)[name] = value
		}
	}
	_, err := d.ReadToken()
	return err
}

// bodyFault says what is wrong with a body and where. What it says holds nothing
// of the values.
func bodyFault(err error) wire.Fault {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return wire.Fault{Detail: "the field is given twice", Pointer: shown(e.JSONPointer)}
		}
		return wire.Fault{
			Detail:  fmt.Sprintf("the body is not one JSON value in UTF-8: fault at byte %d", e.ByteOffset),
			Pointer: shown(e.JSONPointer),
		}
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case !ok:
		return wire.Fault{Detail: "the body is not one JSON value in UTF-8"}
	case errors.Is(err, json.ErrUnknownName):
		return wire.Fault{Detail: "the field is unknown", Pointer: shown(e.JSONPointer)}
	case errors.Is(err, strconv.ErrRange):
		return wire.Fault{Detail: "the number is too large", Pointer: shown(e.JSONPointer)}
	case errors.Is(err, wire.ErrNotWhole):
		return wire.Fault{Detail: "a whole number is wanted", Pointer: shown(e.JSONPointer)}
	}
	if own, ok := errors.AsType[*bodyError](err); ok {
		return wire.Fault(*own)
	}
	return wire.Fault{Detail: wanted(e.GoType), Pointer: shown(e.JSONPointer)}
}

// wanted says what a body has to hold where a value of the type is read.
func wanted(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
	case t == reflect.TypeFor[wire.Moment]():
		return wire.ErrMoment.Error()
	case t.Kind() == reflect.String:
		return "a string is wanted"
	case t.Kind() == reflect.Int64:
		return "a whole number is wanted"
	case t.Kind() == reflect.Map:
		return "an object of kind: value is wanted"
	case t.Kind() == reflect.Slice:
		return "a list is wanted"
	}
	return "an object is wanted"
}

// shown returns the pointer as far as it holds names of the contract, kinds and
// places in a list. What else is a name in a body may be a value that lost its way,
// of any length.
func shown(pointer jsontext.Pointer) string {
	end, list := 0, false
	for token := range pointer.Tokens() {
		place, err := strconv.Atoi(token)
		isPlace := list && err == nil && place >= 0
		if !isPlace && (events.Features{token: "::1"}).Validate() != nil {
			break
		}
		// What is left of the tokens has nothing to escape.
		end += len("/") + len(token)
		list = token == "hits" || token == "rates"
	}
	return string(pointer[:end])
}
