package accesslog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// common is the common and the combined log format, as Parse reads them.
type common struct {
	vhost bool // a virtual host and its port are in front
	names []string
	cut   []func(*Entry) string
}

// commonField is a field by its name.
type commonField struct {
	name string
	of   func(*Entry) string
}

func commonFields() []commonField {
	return []commonField{
		{"host", func(e *Entry) string { return e.Host }},
		{"ident", func(e *Entry) string { return e.Ident }},
		{"user", func(e *Entry) string { return e.User }},
		{"request", func(e *Entry) string { return e.Request }},
		{"method", func(e *Entry) string { return e.Method() }},
		{"path", func(e *Entry) string { return e.Path() }},
		{"status", func(e *Entry) string { return fmt.Sprintf("%03d", e.Status) }},
		{"bytes", func(e *Entry) string { return e.size() }},
		{"referer", func(e *Entry) string { return e.Referer }},
		{"agent", func(e *Entry) string { return e.UserAgent }},
	}
}

// NewCommon returns the common and the combined log format: what the combined one has
// beyond the other may be missing. It is an error to ask for a field that it does not
// have; the error names those that it has.
func NewCommon(fields ...string) (Format, error) {
	return newCombined(&common{}, commonFields(), fields)
}

// NewVhostCombined returns Apache's vhost_combined format: the combined one behind the name of
// the virtual host and its port, which are the fields vhost and port.
func NewVhostCombined(fields ...string) (Format, error) {
	known := append(commonFields(),
		commonField{"vhost", func(e *Entry) string { return e.Vhost }},
		commonField{"port", func(e *Entry) string { return e.Port }})
	return newCombined(&common{vhost: true}, known, fields)
}

func newCombined(format *common, known []commonField, fields []string) (Format, error) {
	for _, name := range fields {
		i := slices.IndexFunc(known, func(f commonField) bool { return f.name == name })
		if i < 0 {
			var names []string
			for _, f := range known {
				names = append(names, f.name)
			}
			return nil, fmt.Errorf("accesslog: the %s format has no field %q, but %s", format.name(), name, strings.Join(names, ", "))
		}
		format.names = append(format.names, name)
		format.cut = append(format.cut, known[i].of)
	}
	return format, nil
}

func (f *common) Parse(line string) (Record, error) {
	entry, err := f.entry(line)
	if err != nil {
		return Record{}, err
	}
	values := make([]string, len(f.cut))
	for i, cut := range f.cut {
		values[i] = cut(&entry)
	}
	return Record{entry.Time, f.names, values}, nil
}

func (f *common) entry(line string) (Entry, error) {
	if !f.vhost {
		return Parse(line)
	}
	front, rest, found := cutVhost(line)
	if !found {
		return Entry{}, malformed(0, "no virtual host and port in front")
	}
	entry, err := Parse(rest)
	colon := strings.LastIndexByte(front, ':')
	entry.Vhost, entry.Port = front[:colon], front[colon+1:]
	return entry, err
}

// cutVhost cuts a line behind its first word, which is a host and a port.
func cutVhost(line string) (vhost, rest string, found bool) {
	vhost, rest, _ = strings.Cut(line, " ")
	colon := strings.LastIndexByte(vhost, ':')
	if colon < 1 {
		return "", "", false
	}
	_, err := strconv.ParseUint(vhost[colon+1:], 10, 16)
	return vhost, rest, err == nil
}

func (f *common) name() string {
	if f.vhost {
		return "vhost_combined"
	}
	return "combined"
}

func (f *common) String() string {
	if f.vhost {
		return "the vhost_combined log format"
	}
	return "the common or combined log format"
}

// Method returns the first word of a request that has three; "" of another one.
func (e *Entry) Method() string {
	method, _, _ := e.splitRequest()
	return method
}

// Path returns what the request was for, without what stands behind a question mark; ""
// where the request has not three words.
func (e *Entry) Path() string {
	_, target, _ := e.splitRequest()
	path, _, _ := strings.Cut(target, "?")
	return path
}

func (e *Entry) splitRequest() (method, target string, fine bool) {
	method, rest, _ := strings.Cut(e.Request, " ")
	target, protocol, fine := strings.Cut(rest, " ")
	if !fine || strings.Contains(protocol, " ") {
		return "", "", false
	}
	return method, target, true
}

// size returns the bytes as the log has them.
func (e *Entry) size() string {
	if e.Bytes < 0 {
		return "-"
	}
	return strconv.FormatInt(e.Bytes, 10)
}
