package wire

import (
	"iter"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Most bodies are plain: nothing in them is escaped or beyond ASCII, nothing is
// null or given twice, and no number has a sign, a fraction or an exponent. Those
// are read here in a fraction of the time that json.Unmarshal takes. json.Unmarshal reads
// every other body, so that one reader alone reports faults. The tests compare the two.

// ReadPlain reads a plain body, and reports whether it was one. What it keeps is
// of the text.
func (h *Hit) ReadPlain(text string) bool {
	var in Hit
	p := plain{text: text}
	if !p.object(func(name string) bool { return p.hit(name, &in.Features, &in.Cost) }) || !p.ends() {
		return false
	}
	*h = in
	return true
}

// ReadPlain reads a plain body, and reports whether it was one. What it keeps is
// of the text.
func (b *Batch) ReadPlain(text string) bool {
	var in Batch
	p := plain{text: text}
	if !p.object(func(name string) bool { return name == "hits" && in.Hits == nil && p.hits(&in.Hits) }) || !p.ends() {
		return false
	}
	*b = in
	return true
}

// plain is the text that is left to read. Its methods report whether what they
// read was there, and plain.
type plain struct{ text string }

// hits reads a list of hits.
func (p *plain) hits(hits *[]BatchHit) bool {
	*hits = []BatchHit{}
	if !p.skip('[') {
		return false
	}
	if p.skip(']') {
		return true
	}
	for len(*hits) < MaxHits {
		var in BatchHit
		if !p.object(func(name string) bool {
			if name == "event" {
				return in.Event == "" && p.str(&in.Event) && in.Event != ""
			}
			return p.hit(name, &in.Features, &in.Cost)
		}) {
			return false
		}
		*hits = append(*hits, in)
		if !p.skip(',') {
			return p.skip(']')
		}
	}
	return false
}

// hit reads a member of a hit.
func (p *plain) hit(name string, features *map[string]string, cost **int64) bool {
	switch name {
	case "features":
		return *features == nil && p.features(features)
	case "cost":
		return *cost == nil && p.number(cost)
	}
	return false
}

func (p *plain) features(features *map[string]string) bool {
	in := map[string]string{}
	*features = in
	return p.object(func(kind string) bool {
		var value string
		if _, twice := in[kind]; twice || len(in) == maxKinds || !p.str(&value) {
			return false
		}
		in[kind] = value
		return true
	})
}

// object reads an object, the value of each of its members by a call.
func (p *plain) object(member func(name string) bool) bool {
	if !p.skip('{') {
		return false
	}
	if p.skip('}') {
		return true
	}
	for {
		var name string
		if !p.str(&name) || !p.skip(':') || !member(name) {
			return false
		}
		if !p.skip(',') {
			return p.skip('}')
		}
	}
}

// str reads a string.
func (p *plain) str(s *string) bool {
	if !p.skip('"') {
		return false
	}
	for i := range len(p.text) {
		if c := p.text[i]; !plainBytes[c] {
			*s, p.text = p.text[:i], p.text[i+1:]
			return c == '"'
		}
	}
	return false
}

// plainBytes are the bytes that a JSON string holds unescaped.
var plainBytes = func() (plain [256]bool) {
	for c := ' '; c <= '~'; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// number reads a whole number that cannot be too large.
func (p *plain) number(n **int64) bool {
	p.space()
	const digits = 18
	var value int64
	i := 0
	for ; i < len(p.text) && '0' <= p.text[i] && p.text[i] <= '9'; i++ {
		value = value*10 + int64(p.text[i]-'0')
		if i == digits {
			return false
		}
	}
	if i == 0 || i > 1 && p.text[0] == '0' {
		return false
	}
	p.text = p.text[i:]
	*n = &value
	return true
}

// skip reads over a character, if it is the next one behind white space.
func (p *plain) skip(c byte) bool {
	p.space()
	if p.text == "" || p.text[0] != c {
		return false
	}
	p.text = p.text[1:]
	return true
}

func (p *plain) space() {
	for p.text != "" && (p.text[0] == ' ' || p.text[0] == '\n' || p.text[0] == '\r' || p.text[0] == '\t') {
		p.text = p.text[1:]
	}
}

// ends reports whether nothing is left.
func (p *plain) ends() bool {
	p.space()
	return p.text == ""
}

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
	if d.RetryAfterMS != 0 {
		b = integer(b, `,"retry_after_ms":`, d.RetryAfterMS)
	}
	b = w.strIfAny(b, `,"reservation":`, d.Reservation)
	if d.Wait != 0 {
		b = strconv.AppendFloat(append(b, `,"wait":`...), d.Wait, 'f', -1, 64)
	}
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
	b = w.strIfAny(b, `,"algorithm":`, s.Algorithm)
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
	b = boolIfTrue(b, `,"unreserved":`, s.Unreserved)
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
