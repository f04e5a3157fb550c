package accesslog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

func jsonFormat(t *testing.T, config Config) Format {
	t.Helper()
	format, err := newJSON(config)
	require.NoError(t, err)
	return format
}

// What is written as JSON is read back, nested or not.
func FuzzJSONRoundTrip(f *testing.F) {
	f.Add(int64(1431857103), "frank", "192.0.2.1", "GET /", true)
	f.Add(int64(0), "\"\\\n\x00", "é\u2028", "", false)
	f.Fuzz(func(t *testing.T, second int64, user, ip, more string, nested bool) {
		clean := func(s string) string { return strings.ToValidUTF8(s, "?") }
		second, user, ip = mod(second, 1e10), clean(user), clean(ip)
		object := map[string]any{"user": user, "client.ip": ip, "time": time.Unix(second, 0).UTC(), "x" + clean(more): []string{user}}
		if nested {
			delete(object, "client.ip")
			object["client"] = map[string]any{"x": 1, "ip": ip}
		}
		line, err := json.Marshal(object)
		require.NoError(t, err)
		at, values, err := jsonFormat(t, Config{Fields: []string{"client.ip", "user"}}).Parse(string(line))
		require.NoError(t, err, "%s", line)
		require.Equal(t, second, at.Unix())
		require.Equal(t, []string{ip, user}, values)
	})
}

// find returns the values at the path, by looking at all of the object; null is none.
func find(object map[string]jsontext.Value, path string) (found []jsontext.Value) {
	for name, value := range object {
		if name == path && value.Kind() != 'n' {
			found = append(found, value)
		}
		rest, further := strings.CutPrefix(path, name+".")
		var inner map[string]jsontext.Value
		if further && value.Kind() == '{' && json.Unmarshal(value, &inner) == nil {
			found = append(found, find(inner, rest)...)
		}
	}
	return found
}

// slowField is a second reading of a field.
func slowField(line, path string) (string, error) {
	var object map[string]jsontext.Value
	if err := json.Unmarshal([]byte(line), &object); err != nil {
		return "", err
	}
	values := find(object, path)
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1 || values[0].Kind() == '{' || values[0].Kind() == '[':
		return "", fmt.Errorf("%d values", len(values))
	case values[0].Kind() != '"':
		return string(values[0]), nil
	}
	var text string
	return text, json.Unmarshal(values[0], &text)
}

// Any line is read as a second implementation reads it.
func FuzzJSON(f *testing.F) {
	f.Add(`{"time": "2015-05-17T10:05:03Z", "a": {"b": "x"}, "a.b": null}`)
	f.Add(`{"time": 5, "a": "y", "a.b": 1e5}`)
	f.Add(`{"time": 5, "a": {"b": {"c": 1}}}`)
	f.Add(`{"time": 5, "a": {"b": 1}, "a.b": 2} x`)
	f.Add(`{"a.b":1,"a":{"b":2}}`)
	for _, line := range []string{
		`{"time": null, "ts": 5}`, `{"time": true, "c": 1}`, `{"time": 5, "c": 1.50e3}`, `{"time": 5, "\u0063": "\"\u00e9\n"}`,
		`{"x": {"c": "no"}, "time": 5, "c": "yes", "b": [{"c": "no"}]}`, `{"time": 5, "a": {"b": "::1", "b.x": {"b": "no"}}} `,
		`{"time": 5, "c": "x", "c": "x"}`, `{"time": 5, "c": ["x"]}`, "{\"time\": 5, \"c\": \"x\xff\"}", `{"time": 5,}`, `[{"time": 5}]`, `{"time": 5, "c": "x`, ``,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		at, values, err := jsonFormat(t, Config{TimeField: "time", Fields: []string{"a.b", "c"}}).Parse(line)
		moment, timeErr := slowField(line, "time")
		ab, abErr := slowField(line, "a.b")
		c, cErr := slowField(line, "c")
		want, layoutErr := Layout("").Parse(moment)
		bad := timeErr != nil || abErr != nil || cErr != nil || layoutErr != nil || strings.HasPrefix(strings.TrimLeft(line, " \t\r\n"), "null")
		if bad {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		require.NoError(t, err)
		require.True(t, want.Equal(at))
		require.Equal(t, []string{ab, c}, values)
	})
}

// A line that nginx has written without escape=json says how to mend the log_format.
func TestJSONOfNginxWithoutEscapeJSON(t *testing.T) {
	const line = `{"time":"2026-11-21T04:52:30+00:00","ip":"192.0.2.1","agent":"a \x22b\x22"}`
	_, _, err := jsonFormat(t, Config{Fields: []string{"ip"}}).Parse(line)
	require.ErrorIs(t, err, ErrMalformed)
	require.ErrorContains(t, err, "log_format NAME escape=json")
	_, _, err = jsonFormat(t, Config{Fields: []string{"ip"}}).Parse(`{"time":`)
	require.ErrorIs(t, err, ErrMalformed)
	require.NotContains(t, err.Error(), "escape")
}
