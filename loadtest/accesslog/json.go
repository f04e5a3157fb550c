package accesslog

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DefaultTimeFields are where a time is looked for.
func DefaultTimeFields() []string { return []string{"time", "timestamp", "@timestamp", "ts"} }

// jsonLines is a JSON object in each line.
type jsonLines struct {
	times  []string
	layout Layout
	names  []string
}

func newJSON(config Config) (Format, error) {
	times := DefaultTimeFields()
	if config.TimeField != "" {
		times = []string{config.TimeField}
	}
	for _, path := range slices.Concat(times, config.Fields) {
		if slices.Contains(strings.Split(path, "."), "") {
			return nil, fmt.Errorf("accesslog: %q is not the name of a field", path)
		}
	}
	return &jsonLines{times, config.Layout, config.Fields}, nil
}

func (f *jsonLines) String() string {
	return "JSON lines with the time in " + strings.Join(f.times, " or ") + ", as " + f.layout.String()
}

func (f *jsonLines) Parse(line string) (at time.Time, values []string, err error) {
	object := map[string]jsontext.Value{}
	if !strings.HasPrefix(strings.TrimLeft(line, " \t\r"), "{") || json.Unmarshal([]byte(line), &object) != nil {
		if strings.Contains(line, `\x`) {
			return at, nil, malformed(`it is not a JSON object: \x is an escape of nginx, not of JSON; set log_format NAME escape=json '...' in nginx`)
		}
		return at, nil, malformed("it is not a JSON object")
	}
	values = make([]string, len(f.names))
	for i, path := range f.names {
		if values[i], _, err = field(object, path); err != nil {
			return at, nil, err
		}
	}
	moment, found := "", false
	for _, path := range f.times {
		value, has, err := field(object, path)
		if err != nil {
			return at, nil, err
		}
		if has && !found {
			moment, found = value, true
		}
	}
	if !found {
		return at, nil, malformed("no time in " + strings.Join(f.times, " or "))
	}
	at, err = f.layout.Parse(moment)
	return at, values, err
}

// field returns the value of the field that a path leads to, and reports whether there is one.
func field(object map[string]jsontext.Value, path string) (text string, found bool, err error) {
	values := valuesAt(nil, object, path)
	switch {
	case len(values) == 0:
		return "", false, nil
	case len(values) > 1:
		return "", false, malformed("the field " + path + " is there twice")
	case values[0].Kind() == '{' || values[0].Kind() == '[':
		return "", false, malformed("the field " + path + " is an object or a list")
	case values[0].Kind() != '"':
		return string(values[0]), true, nil
	}
	unquoted, err := jsontext.AppendUnquote(nil, values[0])
	return string(unquoted), true, err
}

// valuesAt adds the values that a path leads to, but null.
func valuesAt(values []jsontext.Value, object map[string]jsontext.Value, path string) []jsontext.Value {
	if value, has := object[path]; has && value.Kind() != 'n' {
		values = append(values, value)
	}
	for i, c := range path {
		if c != '.' {
			continue
		}
		value := object[path[:i]]
		var inner map[string]jsontext.Value
		if len(value) > 0 && value.Kind() == '{' && json.Unmarshal(value, &inner) == nil {
			values = valuesAt(values, inner, path[i+1:])
		}
	}
	return values
}
