package accesslog

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// JSONConfig sets up a format of JSON lines.
type JSONConfig struct {
	// Time is the field that holds the time; "": the first of DefaultTimeFields that a
	// line has.
	Time   string
	Layout Layout
	Fields []string
}

// DefaultTimeFields are where a time is looked for.
func DefaultTimeFields() []string { return []string{"time", "timestamp", "@timestamp", "ts"} }

// jsonLines is a JSON object in each line.
type jsonLines struct {
	times  []string
	layout Layout
	names  []string
	paths  []string // times and names
}

// NewJSON returns the format of JSON lines, an object each. A field is named by its way,
// with a dot at each step into an object: client.ip is that of {"client": {"ip": "…"}},
// and of {"client.ip": "…"} too. Numbers and booleans are taken as they are written, null
// is nothing, and an object or a list in the place of a field is a fault of the line.
func NewJSON(config JSONConfig) (Format, error) {
	times := DefaultTimeFields()
	if config.Time != "" {
		times = []string{config.Time}
	}
	paths := slices.Concat(times, config.Fields)
	for _, path := range paths {
		if path == "" || slices.Contains(strings.Split(path, "."), "") {
			return nil, fmt.Errorf("accesslog: %q is not the name of a field", path)
		}
	}
	return &jsonLines{times, config.Layout, config.Fields, paths}, nil
}

func (f *jsonLines) String() string {
	return "JSON lines with the time in " + strings.Join(f.times, " or ") + ", as " + f.layout.String()
}

func (f *jsonLines) Parse(line string) (Record, error) {
	in := jsontext.NewDecoder(strings.NewReader(line))
	found := make([]*string, len(f.paths))
	if in.PeekKind() != '{' {
		return Record{}, malformed(0, "it is not a JSON object")
	}
	if err := f.object(in, "", found); err != nil {
		return Record{}, err
	}
	if _, err := in.ReadToken(); err != io.EOF {
		return Record{}, malformed(1, "there is more behind the JSON object")
	}
	i := slices.IndexFunc(found[:len(f.times)], func(value *string) bool { return value != nil })
	if i < 0 {
		return Record{}, malformed(3, "no time in "+strings.Join(f.times, " or "))
	}
	at, err := f.layout.Parse(*found[i])
	if err != nil {
		return Record{}, err
	}
	values := make([]string, len(f.names))
	for i, value := range found[len(f.times):] {
		if value != nil {
			values[i] = *value
		}
	}
	return Record{at, f.names, values}, nil
}

// object reads an object to its end. What it finds of the paths it puts into their places.
func (f *jsonLines) object(in *jsontext.Decoder, prefix string, found []*string) error {
	if _, err := in.ReadToken(); err != nil {
		return notJSON()
	}
	for in.PeekKind() == '"' {
		name, err := in.ReadToken()
		if err != nil {
			return notJSON()
		}
		path := prefix + name.String()
		switch {
		case slices.Contains(f.paths, path):
			err = f.value(in, path, found)
		case in.PeekKind() == '{' && f.leadsOn(path):
			err = f.object(in, path+".", found)
		default:
			if in.SkipValue() != nil {
				err = notJSON()
			}
		}
		if err != nil {
			return err
		}
	}
	if _, err := in.ReadToken(); err != nil {
		return notJSON()
	}
	return nil
}

// leadsOn reports whether a field is wanted behind the path.
func (f *jsonLines) leadsOn(path string) bool {
	return slices.ContainsFunc(f.paths, func(wanted string) bool {
		rest, found := strings.CutPrefix(wanted, path)
		return found && strings.HasPrefix(rest, ".")
	})
}

// value reads the value of a field.
func (f *jsonLines) value(in *jsontext.Decoder, path string, found []*string) error {
	kind := in.PeekKind()
	if kind == '{' || kind == '[' {
		return malformed(2, "the field "+path+" is an object or a list")
	}
	token, err := in.ReadToken()
	if err != nil {
		return notJSON()
	}
	if kind == 'n' {
		return nil
	}
	text := token.String()
	for i, wanted := range f.paths {
		if wanted != path {
			continue
		}
		if found[i] != nil {
			return malformed(2, "the field "+path+" is there twice")
		}
		found[i] = &text
	}
	return nil
}

func notJSON() error { return malformed(1, "it is not valid JSON") }
