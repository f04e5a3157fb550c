package wire

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
