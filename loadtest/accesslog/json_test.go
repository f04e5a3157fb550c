package accesslog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func jsonFormat(t *testing.T, config Config) Format {
	t.Helper()
	format, err := newJSON(config)
	require.NoError(t, err)
	return format
}

func TestJSON(t *testing.T) {
	format := jsonFormat(t, Config{Fields: []string{"user", "client.ip"}})
	for name, c := range map[string]struct{ line, user, ip string }{
		"flat":               {`{"time": "2015-05-17T10:05:03Z", "user": "a", "client.ip": "192.0.2.1"}`, "a", "192.0.2.1"},
		"nested":             {`{"client": {"port": 1, "ip": "192.0.2.1"}, "time": 1431857103}`, "", "192.0.2.1"},
		"timestamp":          {`{"timestamp": "2015-05-17T10:05:03.5Z", "user": 42}`, "42", ""},
		"@timestamp":         {`{"@timestamp": "2015-05-17T10:05:03.5Z", "user": true}`, "true", ""},
		"ts":                 {`{"ts": 1431857103.25, "user": null, "client": null}`, "", ""},
		"the first has it":   {`{"ts": 1, "time": 1431857103, "timestamp": "now"}`, "", ""},
		"null is none":       {`{"time": null, "ts": 1431857103}`, "", ""},
		"number as written":  {`{"ts": 1431857103, "user": 1.50e3}`, "1.50e3", ""},
		"escapes":            {`{"ts": 1431857103, "\u0075ser": "\"\u00e9\n"}`, "\"é\n", ""},
		"null and a value":   {`{"ts": 1431857103, "client": {"ip": "192.0.2.1"}, "client.ip": null}`, "", "192.0.2.1"},
		"objects around":     {`{"a": {"user": "no"}, "ts": 1431857103, "user": "yes", "b": [{"user": "no"}]}`, "yes", ""},
		"of another kind":    {`{"ts": 1431857103, "client": "192.0.2.1"}`, "", ""},
		"longer, and behind": {`{"ts": 1431857103, "client": {"ip": "::1", "ip.x": {"ip": "no"}}, "users": 1} `, "", "::1"},
	} {
		t.Run(name, func(t *testing.T) {
			at, values, err := format.Parse(c.line)
			require.NoError(t, err)
			assert.EqualValues(t, 1431857103, at.Unix())
			assert.Equal(t, []string{c.user, c.ip}, values)
		})
	}
}

func TestJSONMalformed(t *testing.T) {
	format := jsonFormat(t, Config{Fields: []string{"user", "client.ip"}})
	for name, line := range map[string]string{
		"empty":             ``,
		"a list":            `[{"time": 1431857103}]`,
		"a text":            `"secret"`,
		"common":            front + `"GET / HTTP/1.1" 200 1`,
		"cut off":           `{"time": 1431857103, "user": "secret"`,
		"cut off in a name": `{"time": 1431857103, "user`,
		"cut off in a text": `{"time": 1431857103, "user": "secret`,
		"cut off deeper":    `{"time": 1431857103, "client": {"ip": "secret"`,
		"behind":            `{"time": 1431857103} {"user": "secret"}`,
		"a name twice":      `{"time": 1431857103, "user": "secret", "user": "secret"}`,
		"a field twice":     `{"time": 1431857103, "client": {"ip": "secret"}, "client.ip": "secret"}`,
		"an object":         `{"time": 1431857103, "user": {"secret": 1}}`,
		"a list of users":   `{"time": 1431857103, "user": ["secret"]}`,
		"not UTF-8":         "{\"time\": 1431857103, \"user\": \"secret\xff\"}",
		"no time":           `{"user": "secret"}`,
		"no such time":      `{"time": "secret"}`,
		"time is true":      `{"time": true}`,
		"comma at the end":  `{"time": 1431857103,}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := format.Parse(line)
			require.ErrorIs(t, err, ErrMalformed)
			assert.NotContains(t, err.Error(), "secret")
			assert.NotContains(t, err.Error(), "1431857103")
		})
	}
}

func TestJSONConfig(t *testing.T) {
	format := jsonFormat(t, Config{TimeField: "event.at", Layout: "2006-01-02 15:04:05", Fields: []string{"user", "user"}})
	at, values, err := format.Parse(`{"time": "no", "event": {"at": "1970-01-01 00:00:05"}, "user": "a"}`)
	require.NoError(t, err)
	assert.EqualValues(t, 5, at.Unix())
	assert.Equal(t, []string{"a", "a"}, values)
	assert.Equal(t, "JSON lines with the time in event.at, as 2006-01-02 15:04:05", format.String())
	for _, path := range []string{"", ".", "a..b", ".a", "a."} {
		_, err := newJSON(Config{Fields: []string{path}})
		assert.Error(t, err, path)
	}
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
