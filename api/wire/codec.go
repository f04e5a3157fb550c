package wire

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Most bodies are plain: nothing in them is escaped or beyond ASCII, nothing is
// null or given twice, and no number has a sign, a fraction or an exponent. Those
// are read here in a fraction of the time that json.Unmarshal takes. json.Unmarshal reads
// every other body, so that one reader alone reports faults. The tests compare the two.

// ReadPlain reads a plain body, and reports whether it was one. What it keeps is its own.
func (h *Hit) ReadPlain(text []byte) bool {
	var in Hit
	p := plain{text: text}
	if !p.object(func(name []byte) bool { return p.hit(name, &in.Features, &in.Cost) }) || !p.ends() {
		return false
	}
	*h = in
	return true
}

// ReadPlain reads a plain body, and reports whether it was one. What it keeps is its own.
func (b *Batch) ReadPlain(text []byte) bool {
	var in Batch
	p := plain{text: text}
	if !p.object(func(name []byte) bool { return string(name) == "hits" && in.Hits == nil && p.hits(&in.Hits) }) || !p.ends() {
		return false
	}
	*b = in
	return true
}

// ReadPlain reads a plain answer as AppendTo writes it, and reports whether it was one. What it keeps is its own.
func (d *Decision) ReadPlain(text []byte) bool {
	in := Result{Decision: new(Decision)}
	p := plain{text: text}
	if !members(&p, resultMembers[1:], &in, &Result{Decision: new(Decision)}) || !p.ends() {
		return false
	}
	*d = *in.Decision
	return true
}

// ReadPlain reads a plain answer that has decisions alone, as AppendTo writes it, and reports whether it was one. What it
// keeps is its own.
func (r *Results) ReadPlain(text []byte) bool {
	var in Results
	p := plain{text: text}
	if !p.object(func(name []byte) bool {
		return string(name) == "results" && in.Results == nil && p.results(&in.Results)
	}) || !p.ends() {
		return false
	}
	*r = in
	return true
}

// plain is a text, and how far it is read. Its methods report whether what they
// read was there, and plain.
type plain struct {
	text []byte
	next int // place in the text

	moment  Moment // the last one
	was     []byte // its text
	feature string // the last one of a limit
}

// minPlain is how many bytes of text a decision and a limit have at least: their values take no more memory than a few
// times that.
const minPlain = 64

// results reads a list of decisions with their statuses.
func (p *plain) results(results *[]Result) bool {
	*results = []Result{}
	like := &Result{Decision: new(Decision)}
	return p.list(func() bool {
		began := p.next
		*results = append(*results, Result{Decision: new(Decision)})
		in := &(*results)[len(*results)-1]
		if !members(p, resultMembers, in, like) || in.Event == "" {
			return false
		}
		if len(*results) == 1 { // the others are about as long
			*results = slices.Grow(*results, min(MaxHits, (len(p.text)-p.next)/(p.next-began)))
		}
		like = in
		return true
	})
}

// member is a member of an object whose members are in order, and what reads it. like is an object that was read before:
// a text that comes again is kept once.
type member[T any] struct {
	name   string
	read   func(p *plain, to, like *T) bool
	needed bool // an object without it is not plain
}

// The members of decisions, behind their statuses, and of limits, as far as they are plain, in their order.
var (
	resultMembers = []member[Result]{
		{name: "status", read: func(p *plain, r, _ *Result) bool {
			var status int64
			read := p.integer(&status)
			r.Status = int(status)
			return read
		}},
		{name: "allowed", needed: true, read: func(p *plain, r, _ *Result) bool { return p.boolean(&r.Allowed) }},
		{name: "event", read: func(p *plain, r, like *Result) bool { return p.str(&r.Event, like.Event) }},
		{name: "at", read: func(p *plain, r, _ *Result) bool { return p.time(&r.At) }},
		{name: "retry_after", needed: true, read: func(p *plain, r, _ *Result) bool { return p.number(&r.RetryAfter) }},
		{name: "retry_after_ms", read: func(p *plain, r, _ *Result) bool { return p.integer(&r.RetryAfterMS) }},
		{name: "may_fit_after", read: func(p *plain, r, _ *Result) bool { return p.integer(&r.MayFitAfter) }},
		{name: "reservation", read: func(p *plain, r, like *Result) bool { return p.str(&r.Reservation, like.Reservation) }},
		{name: "limits", read: func(p *plain, r, like *Result) bool { return p.limits(&r.Limits, like.Limits) }},
	}
	limitMembers = []member[LimitState]{
		{name: "name", read: func(p *plain, s, like *LimitState) bool { return p.str(&s.Name, like.Name) }},
		{name: "feature", read: func(p *plain, s, _ *LimitState) bool {
			read := p.str(&p.feature, p.feature) // mostly that of the limit in front
			s.Feature = p.feature
			return read
		}},
		{name: "limit", read: func(p *plain, s, _ *LimitState) bool { return p.integer(&s.Limit) }},
		{name: "window", read: func(p *plain, s, like *LimitState) bool { return p.str(&s.Window, like.Window) }},
		{name: "algorithm", read: func(p *plain, s, like *LimitState) bool { return p.str(&s.Algorithm, like.Algorithm) }},
		{name: "count", read: func(p *plain, s, _ *LimitState) bool { return p.integer(&s.Count) }},
		{name: "remaining", read: func(p *plain, s, _ *LimitState) bool { return p.integer(&s.Remaining) }},
		{name: "reset", read: func(p *plain, s, _ *LimitState) bool { return p.number(&s.Reset) }},
		{name: "allowed", read: func(p *plain, s, _ *LimitState) bool { return p.boolean(&s.Allowed) }},
		{name: "exact", read: func(p *plain, s, _ *LimitState) bool {
			s.Exact = new(bool)
			return p.boolean(s.Exact)
		}},
		{name: "shadow", read: func(p *plain, s, _ *LimitState) bool { return p.boolean(&s.Shadow) }},
		{name: "over", read: func(p *plain, s, _ *LimitState) bool { return p.boolean(&s.Over) }},
		{name: "incomplete", read: func(p *plain, s, _ *LimitState) bool { return p.boolean(&s.Incomplete) }},
		{name: "unreserved", read: func(p *plain, s, _ *LimitState) bool { return p.boolean(&s.Unreserved) }},
		{name: "on_error", read: func(p *plain, s, like *LimitState) bool { return p.str(&s.OnError, like.OnError) }},
	}
)

// limits reads a list of limits, each much like the one in its place before, or the one in front of it.
func (p *plain) limits(limits *[]LimitState, before []LimitState) bool {
	all := []LimitState{}
	read := p.list(func() bool {
		i := len(all)
		if i == 0 {
			all = make([]LimitState, 0, len(before))
		}
		all = append(all, LimitState{})
		like := &all[max(i-1, 0)]
		if i < len(before) {
			like = &before[i]
		}
		return members(p, limitMembers, &all[i], like)
	})
	if cap(all) > 2*len(all) { // less than half as many as before
		all = slices.Clone(all)
	}
	*limits = all
	return read
}

// members reads an object of at least minPlain bytes that has its members in order, each once or not, and no white
// space around their names.
func members[T any](p *plain, all []member[T], to, like *T) bool {
	began := p.next
	if !p.skip('{') {
		return false
	}
	for {
		for len(all) > 0 && !p.names(all[0].name) {
			if all[0].needed {
				return false
			}
			all = all[1:]
		}
		if len(all) == 0 || !all[0].read(p, to, like) {
			return false
		}
		all = all[1:]
		if !p.skip(',') {
			return p.skip('}') && p.next-began >= minPlain
		}
	}
}

// names reads the name of a member, if it is that one.
func (p *plain) names(name string) bool {
	text, quoted := p.text[p.next:], len(name)+2
	if len(text) <= quoted || text[0] != '"' || string(text[1:1+len(name)]) != name || text[quoted-1] != '"' || text[quoted] != ':' {
		return false
	}
	p.next += quoted + 1
	return true
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
	before := "" // the event of the hit in front
	return p.list(func() bool {
		var in BatchHit
		read := len(*hits) < MaxHits && p.object(func(name []byte) bool {
			if string(name) == "event" {
				return in.Event == "" && p.str(&in.Event, before) && in.Event != ""
			}
			return p.hit(name, &in.Features, &in.Cost)
		})
		before = in.Event
		*hits = append(*hits, in)
		return read
	})
}

// hit reads a member of a hit.
func (p *plain) hit(name []byte, features *map[string]string, cost **int64) bool {
	switch string(name) {
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
	return p.object(func(kind []byte) bool {
		if _, twice := in[string(kind)]; twice || len(in) == maxKinds {
			return false
		}
		value, read := p.token()
		in[string(kind)] = string(value)
		return read
	})
}

// object reads an object, the value of each of its members by a call.
func (p *plain) object(member func(name []byte) bool) bool {
	if !p.skip('{') {
		return false
	}
	if p.skip('}') {
		return true
	}
	for {
		name, read := p.token()
		if !read || !p.skip(':') || !member(name) {
			return false
		}
		if !p.skip(',') {
			return p.skip('}')
		}
	}
}

// str reads a string. What it keeps is like, if that is the same, or a copy.
func (p *plain) str(s *string, like string) bool {
	p.space()
	if text := p.text[p.next:]; len(text) > len(like)+1 && text[0] == '"' && text[1+len(like)] == '"' && string(text[1:1+len(like)]) == like {
		p.next += len(like) + 2
		*s = like
		return true
	}
	text, read := p.token()
	*s = string(text)
	return read
}

// token reads a string, which is of the text.
func (p *plain) token() (text []byte, read bool) {
	if !p.skip('"') {
		return nil, false
	}
	for i := p.next; i < len(p.text); i++ {
		if c := p.text[i]; !plainBytes[c] {
			text, p.next = p.text[p.next:i], i+1
			return text, c == '"'
		}
	}
	return nil, false
}

// plainBytes are the bytes that a JSON string holds unescaped.
var plainBytes = func() (plain [256]bool) {
	for c := ' '; c <= '~'; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// time reads a time.
func (p *plain) time(m *Moment) bool {
	text, read := p.token()
	if !read {
		return false
	}
	var err error
	if p.was == nil || !bytes.Equal(p.was, text) {
		p.was = text
		p.moment, err = ParseMoment(string(text))
	}
	*m = p.moment
	return err == nil
}

// boolean reads true or false.
func (p *plain) boolean(b *bool) bool {
	p.space()
	rest := p.text[p.next:]
	*b = len(rest) >= 4 && string(rest[:4]) == "true"
	if !*b && (len(rest) < 5 || string(rest[:5]) != "false") {
		return false
	}
	p.next += len(strconv.FormatBool(*b))
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
	i := p.next
	for ; i < len(p.text) && '0' <= p.text[i] && p.text[i] <= '9'; i++ {
		value = value*10 + int64(p.text[i]-'0')
		if i == p.next+digits {
			return false
		}
	}
	if i == p.next || i > p.next+1 && p.text[p.next] == '0' {
		return false
	}
	p.next = i
	*n = value
	return true
}

// skip reads over a character, if it is the next one behind white space.
func (p *plain) skip(c byte) bool {
	p.space()
	if p.next == len(p.text) || p.text[p.next] != c {
		return false
	}
	p.next++
	return true
}

func (p *plain) space() {
	for p.next < len(p.text) && p.text[p.next] <= ' ' && strings.IndexByte(" \n\r\t", p.text[p.next]) >= 0 {
		p.next++
	}
}

// ends reports whether nothing is left.
func (p *plain) ends() bool {
	p.space()
	return p.next == len(p.text)
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
	b = w.problem(b, &d.Problem)
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

// AppendTo appends what json.Marshal gives.
func (p *Problem) AppendTo(b []byte) ([]byte, error) {
	var w writer
	b = w.problem(b, p)
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

// problem appends a problem, but not its end.
func (w *writer) problem(b []byte, p *Problem) []byte {
	b = w.str(b, `{"type":`, p.Type)
	b = w.str(b, `,"title":`, p.Title)
	b = integer(b, `,"status":`, int64(p.Status))
	return w.explanation(b, p)
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
	if d.MayFitAfter != 0 {
		b = integer(b, `,"may_fit_after":`, d.MayFitAfter)
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
	if !utf8.ValidString(value) {
		w.err = errNotUTF8
	}
	b = append(b, '"')
	for i := range len(value) {
		switch c := value[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		default:
			b = appendControl(b, c)
		}
	}
	return append(b, '"')
}

var errNotUTF8 = errors.New("wire: a string is not UTF-8")

// appendControl appends the escape of a control character.
func appendControl(b []byte, c byte) []byte {
	const short = "btn.fr" // from \b on, without \v
	if c >= '\b' && c <= '\r' && c != '\v' {
		return append(b, '\\', short[c-'\b'])
	}
	return fmt.Appendf(b, "\\u%04x", c)
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
