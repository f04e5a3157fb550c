package wire

import (
	"iter"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The bodies that are written on every hit append themselves, in a fraction of the
// time that json.Marshal takes to look at their fields. They append what it would
// give, by the tags of the fields; the tests hold the two against each other.
//
// Methods are called AppendTo, not MarshalJSONTo: a type that has the latter and is
// embedded would be all that is written of the type around it.

// AppendTo appends what json.Marshal gives.
func (d *Decision) AppendTo(b []byte) ([]byte, error) {
	var w writer
	b = append(b, '{')
	b = w.decision(b, d)
	return append(b, '}'), w.err
}

// AppendTo appends what json.Marshal gives.
func (d *Denial) AppendTo(b []byte) ([]byte, error) {
	var w writer
	b = w.str(b, `{"type":`, d.Type)
	b = w.str(b, `,"title":`, d.Title)
	b = integer(b, `,"status":`, int64(d.Status))
	b = w.explanation(b, &d.Problem)
	if len(d.ViolatedPolicies) > 0 {
		b = append(b, `,"violated-policies":`...)
		for i, name := range d.ViolatedPolicies {
			b = w.str(b, opening(i), name)
		}
		b = append(b, ']')
	}
	b = append(b, ',')
	b = w.decision(b, &d.Decision)
	return append(b, '}'), w.err
}

// ResultSeq are Results that are made one after the other, as they are written.
type ResultSeq iter.Seq[Result]

// AppendTo appends what json.Marshal gives for Results of them.
func (s ResultSeq) AppendTo(b []byte) ([]byte, error) {
	var w writer
	b = append(b, `{"results":[`...)
	separator := `{"status":`
	for result := range s {
		b = integer(b, separator, int64(result.Status))
		if result.Decision != nil {
			b = append(b, ',')
			b = w.decision(b, result.Decision)
		}
		if result.Problem != nil {
			b = w.str(b, `,"type":`, result.Problem.Type)
			b = w.str(b, `,"title":`, result.Problem.Title)
			b = w.explanation(b, result.Problem)
		}
		b = append(b, '}')
		separator = `,{"status":`
	}
	return append(b, `]}`...), w.err
}

// writer appends JSON. What is to be said before a value, be it a comma, its name
// or both, is given with it.
type writer struct {
	err error // of a string that is not UTF-8
}

// explanation appends the members of a problem behind its status.
func (w *writer) explanation(b []byte, p *Problem) []byte {
	b = w.strIfAny(b, `,"detail":`, p.Detail)
	if len(p.Errors) == 0 {
		return b
	}
	b = append(b, `,"errors":`...)
	for i := range p.Errors {
		fault := &p.Errors[i]
		b = append(b, opening(i)...)
		b = w.str(b, `{"detail":`, fault.Detail)
		b = w.strIfAny(b, `,"pointer":`, fault.Pointer)
		b = w.strIfAny(b, `,"parameter":`, fault.Parameter)
		b = append(b, '}')
	}
	return append(b, ']')
}

// decision appends the members of a decision.
func (w *writer) decision(b []byte, d *Decision) []byte {
	b = boolean(b, `"allowed":`, d.Allowed)
	b = w.str(b, `,"event":`, d.Event)
	b = append(b, `,"at":"`...)
	b = d.At.UTC().AppendFormat(b, time.RFC3339)
	b = append(b, '"')
	b = seconds(b, `,"retry_after":`, d.RetryAfter)
	b = append(b, `,"limits":`...)
	for i := range d.Limits {
		b = append(b, opening(i)...)
		b = w.limit(b, &d.Limits[i])
	}
	if len(d.Limits) == 0 {
		b = append(b, '[')
	}
	return append(b, ']')
}

func (w *writer) limit(b []byte, s *LimitState) []byte {
	b = w.str(b, `{"name":`, s.Name)
	b = w.str(b, `,"feature":`, s.Feature)
	b = integer(b, `,"limit":`, s.Limit)
	b = w.str(b, `,"window":`, s.Window)
	b = integer(b, `,"count":`, s.Count)
	b = integer(b, `,"remaining":`, s.Remaining)
	b = seconds(b, `,"reset":`, s.Reset)
	b = boolean(b, `,"allowed":`, s.Allowed)
	if s.Exact != nil {
		b = boolean(b, `,"exact":`, *s.Exact)
	}
	b = boolIfTrue(b, `,"shadow":`, s.Shadow)
	b = boolIfTrue(b, `,"over":`, s.Over)
	b = boolIfTrue(b, `,"incomplete":`, s.Incomplete)
	b = w.strIfAny(b, `,"on_error":`, s.OnError)
	return append(b, '}')
}

// opening is the delimiter before the i-th element of a list.
func opening(i int) string {
	if i == 0 {
		return "["
	}
	return ","
}

func (w *writer) str(b []byte, before, value string) []byte {
	b = append(b, before...)
	if isPlain(value) {
		b = append(b, '"')
		b = append(b, value...)
		return append(b, '"')
	}
	b, err := jsontext.AppendQuote(b, value)
	if err != nil {
		w.err = err
	}
	return b
}

// isPlain reports whether nothing in a string has to be escaped.
func isPlain(s string) bool {
	for i := range len(s) {
		if !plainBytes[s[i]] {
			return false
		}
	}
	return true
}

func (w *writer) strIfAny(b []byte, before, value string) []byte {
	if value == "" {
		return b
	}
	return w.str(b, before, value)
}

func integer(b []byte, before string, value int64) []byte {
	return strconv.AppendInt(append(b, before...), value, 10)
}

// seconds appends null for nil.
func seconds(b []byte, before string, value *int64) []byte {
	if value == nil {
		return append(append(b, before...), "null"...)
	}
	return integer(b, before, *value)
}

func boolean(b []byte, before string, value bool) []byte {
	return strconv.AppendBool(append(b, before...), value)
}

func boolIfTrue(b []byte, before string, value bool) []byte {
	if !value {
		return b
	}
	return boolean(b, before, true)
}
