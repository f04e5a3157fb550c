package wire

import (
	"iter"
	"strconv"
	"strings"
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

// ReadPlain reads a plain answer, with its members in the order in which AppendTo writes them, and reports whether it was
// one. What it keeps is its own.
func (d *Decision) ReadPlain(text string) bool {
	var in Decision
	p := plain{text: text, keeps: true}
	if !p.decision(&in, nil) || !p.ends() {
		return false
	}
	*d = in
	return true
}

// ReadPlain reads a plain answer that has decisions alone, with their members in the order in which AppendTo writes them,
// and reports whether it was one. What it keeps is its own.
func (r *Results) ReadPlain(text string) bool {
	var in Results
	p := plain{text: text, keeps: true}
	if !p.object(func(name string) bool { return name == "results" && in.Results == nil && p.results(&in.Results) }) || !p.ends() {
		return false
	}
	*r = in
	return true
}

// plain is the text that is left to read. Its methods report whether what they
// read was there, and plain.
type plain struct {
	text  string
	keeps bool // strings are copies: the text is not kept for them

	kept  [16]string // the last copies: most strings of an answer come again
	turn  int        // which of them is the oldest, modulo their number
	at    Moment     // the last one
	atWas string     // its text
}

// minPlain is how many bytes of text a decision and a limit have at least: their values take no more memory than a few
// times that.
const minPlain = 64

// results reads a list of decisions with their statuses.
func (p *plain) results(results *[]Result) bool {
	*results = []Result{}
	return p.list(func() bool {
		var status int64
		in := Result{Decision: new(Decision)}
		read := p.decision(in.Decision, &status) && in.Decision.Event != ""
		in.Status = int(status)
		*results = append(*results, in)
		return read
	})
}

// The members of decisions and limits, as far as they are plain, in their order.
var (
	decisionMembers = []string{"status", "allowed", "event", "at", "retry_after", "retry_after_ms", "reservation", "limits"}
	limitMembers    = []string{
		"name", "feature", "limit", "window", "algorithm", "count", "remaining", "reset", "allowed", "exact",
		"shadow", "over", "incomplete", "unreserved", "on_error",
	}
)

// decision reads a decision, with a status if that is not nil.
func (p *plain) decision(d *Decision, status *int64) bool {
	return p.members(decisionMembers, func(name string) bool {
		switch name {
		case "status":
			return status != nil && p.integer(status)
		case "allowed":
			return p.boolean(&d.Allowed)
		case "event":
			return p.str(&d.Event)
		case "at":
			return p.moment(&d.At)
		case "retry_after":
			return p.number(&d.RetryAfter)
		case "retry_after_ms":
			return p.integer(&d.RetryAfterMS)
		case "reservation":
			return p.str(&d.Reservation)
		}
		d.Limits = []LimitState{}
		return p.list(func() bool {
			if len(d.Limits) == 0 {
				d.Limits = make([]LimitState, 0, 4) // few have more
			}
			d.Limits = append(d.Limits, LimitState{})
			return p.limit(&d.Limits[len(d.Limits)-1])
		})
	})
}

// limit reads the state of a limit.
func (p *plain) limit(s *LimitState) bool {
	return p.members(limitMembers, func(name string) bool {
		switch name {
		case "name":
			return p.str(&s.Name)
		case "feature":
			return p.str(&s.Feature)
		case "limit":
			return p.integer(&s.Limit)
		case "window":
			return p.str(&s.Window)
		case "algorithm":
			return p.str(&s.Algorithm)
		case "count":
			return p.integer(&s.Count)
		case "remaining":
			return p.integer(&s.Remaining)
		case "reset":
			return p.number(&s.Reset)
		case "allowed":
			return p.boolean(&s.Allowed)
		case "exact":
			s.Exact = new(bool)
			return p.boolean(s.Exact)
		case "shadow":
			return p.boolean(&s.Shadow)
		case "over":
			return p.boolean(&s.Over)
		case "incomplete":
			return p.boolean(&s.Incomplete)
		case "unreserved":
			return p.boolean(&s.Unreserved)
		}
		return p.str(&s.OnError)
	})
}

// members reads an object of at least minPlain bytes that has its members in that order, each once or not.
func (p *plain) members(names []string, member func(name string) bool) bool {
	left, at := len(p.text), 0
	return p.object(func(name string) bool {
		for at < len(names) && names[at] != name {
			at++
		}
		at++
		return at <= len(names) && member(name)
	}) && left-len(p.text) >= minPlain
}

// list reads a list, each of its values by a call.
func (p *plain) list(value func() bool) bool {
	if !p.skip('[') {
		return false
	}
	if p.skip(']') {
		return true
	}
	for value() {
		if !p.skip(',') {
			return p.skip(']')
		}
	}
	return false
}

// hits reads a list of hits.
func (p *plain) hits(hits *[]BatchHit) bool {
	*hits = []BatchHit{}
	return p.list(func() bool {
		var in BatchHit
		read := len(*hits) < MaxHits && p.object(func(name string) bool {
			if name == "event" {
				return in.Event == "" && p.str(&in.Event) && in.Event != ""
			}
			return p.hit(name, &in.Features, &in.Cost)
		})
		*hits = append(*hits, in)
		return read
	})
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
		if !p.token(&name) || !p.skip(':') || !member(name) {
			return false
		}
		if !p.skip(',') {
			return p.skip('}')
		}
	}
}

// str reads a string.
func (p *plain) str(s *string) bool {
	read := p.token(s)
	if p.keeps && *s != "" {
		*s = p.keep(*s)
	}
	return read
}

// keep returns a copy of the text.
func (p *plain) keep(text string) string {
	for _, known := range p.kept {
		if known == text {
			return known
		}
	}
	text = strings.Clone(text)
	p.kept[p.turn%len(p.kept)] = text
	p.turn++
	return text
}

// token reads a string, of the text.
func (p *plain) token(s *string) bool {
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

// moment reads a time.
func (p *plain) moment(m *Moment) bool {
	var text string
	if !p.token(&text) {
		return false
	}
	var err error
	if p.atWas == "" || p.atWas != text {
		p.atWas = text
		p.at, err = ParseMoment(text)
	}
	*m = p.at
	return err == nil
}

// boolean reads true or false.
func (p *plain) boolean(b *bool) bool {
	p.space()
	*b = strings.HasPrefix(p.text, "true")
	if !*b && !strings.HasPrefix(p.text, "false") {
		return false
	}
	p.text = p.text[len(strconv.FormatBool(*b)):]
	return true
}

// number reads a whole number that cannot be too large, into memory of its own.
func (p *plain) number(n **int64) bool {
	var value int64
	if !p.integer(&value) {
		return false
	}
	*n = &value
	return true
}

// integer reads a whole number that cannot be too large.
func (p *plain) integer(n *int64) bool {
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
	*n = value
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

// AppendTo appends what json.Marshal gives, with the features in any order.
func (h *BatchHit) AppendTo(b []byte) ([]byte, error) {
	var w writer
	b = w.str(b, `{"event":`, h.Event)
	b = append(b, `,"features":`...)
	before := "{"
	for kind, value := range h.Features {
		b = w.str(b, before, kind)
		b = w.str(b, ":", value)
		before = ","
	}
	if len(h.Features) == 0 {
		b = append(b, '{')
	}
	b = append(b, '}')
	if h.Cost != nil {
		b = integer(b, `,"cost":`, *h.Cost)
	}
	if h.Reserve != nil {
		b = w.strIfAny(b, `,"reserve":`, *h.Reserve)
	}
	return append(b, '}'), w.err
}

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
