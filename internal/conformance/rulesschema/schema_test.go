// Package rulesschema_test holds docs/rules.schema.json to the parser of rules files.
package rulesschema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/yamlfile"
)

const (
	schemaFile  = "../../../docs/rules.schema.json"
	exampleFile = "../../../events/rulesfile/testdata/rules.yaml"
	bustedFiles = "../../../events/rulesfile/testdata/busted/*.yaml"
)

func readSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(schemaFile)
	require.NoError(t, err)
	return schema
}

// instance returns what an editor holds against a schema: the document as JSON
// has it. Some of YAML's notation has no place in it.
func instance(node *yaml.Node) (value any, ok bool) {
	if node.Anchor != "" || node.Style&yaml.TaggedStyle != 0 {
		return nil, false
	}
	switch node.Kind {
	case yaml.MappingNode:
		object := map[string]any{}
		for i := 0; i < len(node.Content); i += 2 {
			key := node.Content[i]
			_, twice := object[key.Value]
			if _, ok := instance(key); !ok || twice || key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null" {
				return nil, false
			}
			if object[key.Value], ok = instance(node.Content[i+1]); !ok {
				return nil, false
			}
		}
		return object, true
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range node.Content {
			value, ok := instance(item)
			if !ok {
				return nil, false
			}
			list = append(list, value)
		}
		return list, true
	case yaml.ScalarNode:
		return scalar(node)
	}
	return nil, false
}

func scalar(node *yaml.Node) (value any, ok bool) {
	switch node.ShortTag() {
	case "!!null":
		return nil, true
	case "!!bool":
		return strings.EqualFold(node.Value, "true"), true
	case "!!int":
		if n, err := strconv.ParseInt(strings.ReplaceAll(node.Value, "_", ""), 0, 64); err == nil {
			return json.Number(strconv.FormatInt(n, 10)), true
		}
		return json.Number("1e99"), true
	case "!!float":
		if f, err := strconv.ParseFloat(node.Value, 64); err == nil && f-f == 0 {
			text, err := json.Marshal(f)
			return json.Number(text), err == nil
		}
		return json.Number("1e99"), true
	case "!!merge":
		return nil, false
	}
	return node.Value, true
}

// instanceOf returns the instance that a file holds.
func instanceOf(data []byte) (value any, ok bool) {
	root, fault := yamlfile.Decode(data, yamlfile.Format{Tag: "%"})
	if fault != nil {
		return nil, false
	}
	return instance(root)
}

// text writes an instance as JSON that is YAML too.
func text(t testing.TB, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	var b strings.Builder
	for _, r := range string(data) {
		if r >= 0x7f && r < 0x10000 {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return []byte(b.String())
}

// beyond names the faults that the schema cannot see. Each has an example with
// that fault alone.
var beyond = []struct {
	name    string
	reason  string // of the fault, a regular expression
	value   string // of what is at fault; empty: any
	example string // the value of events
}{
	{"a window below a second", `^a window: it is at least 1s$`, "", "{e: {limits: [{per: ip, rate: 5/0s}]}}"},
	{"a window of broken seconds", `^a window: it is in whole seconds$`, "", "{e: {limits: [{per: ip, rate: 5/1.5s}]}}"},
	{"a window above 30 days", `^a window is at most 30d$`, "", "{e: {limits: [{per: ip, rate: 5/721h}]}}"},
	{"a window above all bounds", `^a window: it is written like`, `\d{7}`, "{e: {limits: [{per: ip, rate: 5/9999999h}]}}"},
	{"a retention below a second", `^a retention: it is at least 1s$`, "", "{e: {retention: 5ms}}"},
	{"a retention of broken seconds", `^a retention: it is in whole seconds$`, "", "{e: {retention: 1500ms}}"},
	{"a retention above 32 days", `^a retention is at most 32d$`, "", "{e: {retention: 769h}}"},
	{"a retention above all bounds", `^a retention: it is written like`, `\d{7}`, "{e: {retention: 9999999h}}"},
	{"an unknown time zone", `has no such zone`, "", "{e: {limits: [{per: ip, rate: 5/d, calendar: Europe/Atlantis}]}}"},
	{"a calendar that turns within a step of the precision", `^the calendar turns within`, "", "{e: {limits: [{per: ip, rate: 5/d, calendar: Asia/Kathmandu, precision: hour}]}}"},
	{"a fixed window that is no multiple of the precision", `^a fixed window is a multiple`, "", "{e: {limits: [{per: ip, rate: 5/90s, precision: minute, algorithm: fixed-window}]}}"},
	{"a retention below a window", `^it is shorter than the window of`, "", "{e: {retention: 1h, limits: [{per: ip, rate: 5/d}]}}"},
	{"a precision above a window", `^it is longer than the window of`, "", "{e: {limits: [{per: ip, rate: 5/s, precision: minute}]}}"},
	{"two rates for one window", `^a second rate for the window of`, "", "{e: {limits: [{per: ip, rate: [5/m, 6/60s]}]}}"},
	{"rules that share a counter and differ", `^it differs from the limit in line`, "", "{e: {limits: [{per: ip, rate: 5/m}, {per: ip, rate: 6/m, count: all}]}}"},
	{"a log that may be too large", `^a log of the \d+ hits in \w+, the retention, takes up to`, "", "{e: {limits: [{per: ip, rate: 5000/m, algorithm: sliding-log}]}}"},
	{"a limit's name given twice", `^the limit in line \d+ is named`, "", "{e: {limits: [{per: ip, rate: 5/m}, {per: ip, rate: 5/60s}]}}"},
	{"a limit's name that is long only with its rate", `^with its rate the limit's name has more than`, "",
		"{e: {limits: [{per: ip, rate: [5/m, 6/h], name: " + strings.Repeat("n", events.MaxLimitName) + "}]}}"},
	{"a kind twice, once as a boolean", `^the kind (true|false) is there twice`, "", `{e: {limits: [{per: [true, "true"], rate: 5/m}]}}`},
	{"an address that is not the first of its network", `^the address is not the first of its network`, "", "{e: {limits: [{per: ip, rate: 5/m, allow: 10.0.0.1/8}]}}"},
	{"the inside of an IPv6 address", `^it is neither an address nor a network`, ":", "{e: {limits: [{per: ip, rate: 5/m, allow: 1:2}]}}"},
	{"an address among values", `^it is neither an address nor a network`, `^[0-9.]+/`, "{e: {limits: [{per: [ip, user], rate: 5/m, allow: 10.0.0.0/33}]}}"},
	{"a feature that is allowed and denied", `^it is in allow and in deny`, "", "{e: {limits: [{per: user, rate: 5/m, allow: a, deny: a}]}}"},
	{"an override of no address", `^the value is not an IP address$`, ":", `{e: {limits: [{per: ip, rate: 5/m, overrides: {"1:2": 6/m}}]}}`},
	{"an override of more than a counter's network", `^the network is not the`, "", "{e: {limits: [{per: ip, rate: 5/m, overrides: {10.0.0.0/8: 6/m}}]}}"},
	{"two overrides for one counter", `^it is counted as .* overridden already`, "", `{e: {limits: [{per: ip, rate: 5/m, overrides: {"2001:db8::1": 6/m, "2001:db8::2": 6/m}}]}}`},
	{"bytes of a value", `^a value is 1 to 1024 bytes$`, "[^ -~]", "{e: {limits: [{per: user, rate: 5/m, allow: " + strings.Repeat("é", 600) + "}]}}"},
	{"bytes of an overridden value", `^the value has \d+ bytes`, "[^ -~]", "{e: {limits: [{per: user, rate: 5/m, overrides: {" + strings.Repeat("é", 600) + ": 6/m}}]}}"},
	{"the length of YAML's keys", `^this is not YAML`, `"[^"]{1000,}":`,
		`{"e": {"limits": [{"per": "user", "rate": "5/m", "overrides": {"` + strings.Repeat("k", events.MaxValue) + `": "6/m"}}]}}`},
}

// isBeyond reports which of the faults beyond the schema this one of the file is.
func isBeyond(data []byte, fault events.Fault) (name string, found bool) {
	for _, b := range beyond {
		if regexp.MustCompile(b.reason).MatchString(fault.Reason) &&
			(b.value == "" || regexp.MustCompile(b.value).MatchString(valueAt(data, fault))) {
			return b.name, true
		}
	}
	return "", false
}

// valueAt returns the word at which the fault is; all, where it is no YAML.
func valueAt(data []byte, fault events.Fault) string {
	root, broken := yamlfile.Decode(data, yamlfile.Format{Tag: "%"})
	if broken != nil {
		return string(data)
	}
	var find func(node *yaml.Node) string
	find = func(node *yaml.Node) string {
		if node.Kind == yaml.ScalarNode && node.Line == fault.Line && node.Column == fault.Column {
			return node.Value
		}
		for _, child := range node.Content {
			if value := find(child); value != "" {
				return value
			}
		}
		return ""
	}
	return find(root)
}

// verdict holds the schema to the parser: it rejects nothing that the parser takes,
// and takes what the parser rejects only for faults beyond it.
func verdict(t *testing.T, schema *jsonschema.Schema, value any) (taken bool) {
	t.Helper()
	data := text(t, value)
	_, err := rulesfile.Parse(data)
	bySchema := schema.Validate(value)
	if err == nil {
		require.NoError(t, bySchema, "%s", data)
		return true
	}
	if bySchema != nil {
		return false
	}
	faults, ok := errors.AsType[events.Faults](err)
	require.True(t, ok)
	for _, fault := range faults {
		_, found := isBeyond(data, fault)
		require.True(t, found, "the schema does not see %q in %s", fault.Error(), data)
	}
	return false
}

func TestFaultsBeyondTheSchema(t *testing.T) {
	schema := readSchema(t)
	for _, b := range beyond {
		data := []byte("events: " + b.example)
		_, err := rulesfile.Parse(data)
		faults, ok := errors.AsType[events.Faults](err)
		if !assert.True(t, ok, b.name) || !assert.Len(t, faults, 1, "%s: %s", b.name, err) {
			continue
		}
		name, _ := isBeyond(data, faults[0])
		assert.Equal(t, b.name, name, "%v", faults[0])
		var value any
		if json.Unmarshal([]byte(`{"events": `+b.example+`}`), &value) != nil {
			value, ok = instanceOf(data)
			require.True(t, ok, b.name)
		}
		assert.NoError(t, schema.Validate(value), "the schema does see %s: take it off the list", b.name)
	}
}

func TestTheSchemaTakesTheExample(t *testing.T) {
	data, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	value, ok := instanceOf(data)
	require.True(t, ok)
	assert.True(t, verdict(t, readSchema(t), value))
}

// The schema rejects each broken file, but those listed: their faults are all beyond
// it, or in what has no place in JSON.
func TestTheSchemaRejectsBustedFiles(t *testing.T) {
	notJSON := []string{
		"billion_laughs", "complex_keys", "control_character", "directive", "duplicate_keys", "empty", "merge_key", "not_utf8", "null_root",
		"overrides", "syntax_at", "syntax_bracket", "syntax_indent", "syntax_quote", "syntax_tab", "syntax_tab_item", "syntax_tab_later", "tags", "two_documents", "unknown_anchor",
	}
	allBeyond := []string{"disagreement", "names_twice", "precision_long", "rate_twice", "retention_short"}
	schema := readSchema(t)
	files, err := filepath.Glob(bustedFiles)
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		value, ok := instanceOf(data)
		assert.Equal(t, !slices.Contains(notJSON, name), ok, "%s can be written in JSON", name)
		if !ok {
			continue
		}
		verdict(t, schema, value)
		err = schema.Validate(value)
		assert.Equal(t, slices.Contains(allBeyond, name), err == nil, "the schema takes %s", name)
	}
}

// Bounds and spellings, each with whether they are taken.
func TestTheSchemaHasTheBoundsOfTheParser(t *testing.T) {
	schema := readSchema(t)
	long := func(n int) string { return strings.Repeat("x", n) }
	rule := func(fields string) string { return "events: {e: {limits: [{" + fields + "}]}}" }
	var kinds []string
	for i := range events.MaxFeatureKinds {
		kinds = append(kinds, fmt.Sprintf("k%d", i))
	}
	for file, taken := range map[string]bool{
		"events: {" + long(events.MaxEventName) + ": }":                    true,
		"events: {" + long(events.MaxEventName+1) + ": }":                  false,
		"events: {a.b_c-9: }":                                              true,
		"events: {9: }":                                                    false,
		rule("rate: 5/m, per: " + long(events.MaxKind)):                    true,
		rule("rate: 5/m, per: " + long(events.MaxKind+1)):                  false,
		rule("rate: 5/m, per: [" + strings.Join(kinds, ", ") + "]"):        true,
		rule("rate: 5/m, per: [z, " + strings.Join(kinds, ", ") + "]"):     false,
		rule("rate: 5/m, per: true"):                                       true,
		rule("rate: 5/m, per: 7"):                                          false,
		rule("per: user, rate: 5/m, allow: " + long(events.MaxValue)):      true,
		rule("per: user, rate: 5/m, allow: " + long(events.MaxValue+1)):    false,
		rule("per: user, rate: 5/m, allow: [7, 1.5, true], deny: []"):      true,
		rule("per: user, rate: 5/m, allow: ~"):                             false,
		rule("per: user, rate: 5/m, name: " + long(events.MaxLimitName)):   true,
		rule("per: user, rate: 5/m, name: " + long(events.MaxLimitName+1)): false,
		rule("per: user, rate: 5/m, name: 7"):                              true,
		rule("per: user, rate: 5/m, name: '~'"):                            true,
		rule(`per: user, rate: 5/m, name: "\x7f"`):                         false,
		rule("per: ip, rate: 5/m, ipv6_prefix: 0"):                         false,
		rule("per: ip, rate: 5/m, ipv6_prefix: 1"):                         true,
		rule("per: ip, rate: 5/m, ipv6_prefix: 128"):                       true,
		rule("per: ip, rate: 5/m, ipv6_prefix: 129"):                       false,
		rule("per: ip, rate: 5/m, ipv6_prefix: 1.5"):                       false,
		rule(fmt.Sprintf("per: ip, rate: %d/m", events.MaxN)):              true,
		rule(fmt.Sprintf("per: ip, rate: 000%d/m", events.MaxN)):           true,
		rule(fmt.Sprintf("per: ip, rate: %d/m", events.MaxN+1)):            false,
		rule("per: ip, rate: 0/m"):                                         true,
		rule("per: ip, rate: 5/30d"):                                       true,
		rule("per: ip, rate: 5/07d"):                                       true,
		rule("per: ip, rate: 5/31d"):                                       false,
		rule("per: ip, rate: 5/0d"):                                        false,
		rule("per: ip, rate: [5/1h30m, 5/+1.5m, 5/.5m, 5/5.s, 5/1000ms, 5/2000000us, 5/3000000µs, 5/4000000μs, 5/6000000000ns]"): true,
		rule("per: ip, rate: 5/-1m"):                                    false,
		rule("per: ip, rate: 5/1m30"):                                   false,
		rule("per: ip, rate: 5/1d12h"):                                  false,
		rule("per: ip, rate: 5/m, throttle: soft 1000%"):                true,
		rule("per: ip, rate: 5/m, throttle: soft 10"):                   true,
		rule("per: ip, rate: 5/m, throttle: soft 1001"):                 false,
		rule("per: ip, rate: 5/m, throttle: soft 1001%"):                false,
		rule(`per: ip, rate: 5/m, throttle: "soft \t\u2003 007% \x85"`): true,
		rule("per: ip, rate: 5/m, throttle: soft 000%"):                 false,
		rule("per: ip, rate: 5/m, throttle: soft 10 %"):                 false,
		rule("per: ip, rate: 5/m, allow: [255.1.0.0, 10.0.0.0/8, 0.0.0.0/0, '::1', '2001:db8::/32', '::ffff:10.0.0.1']"): true,
		rule("per: ip, rate: 5/m, allow: ['fe80::1%eth0']"):                                                              false,
		rule("per: ip, rate: 5/m, overrides: {'fe80::1%eth0': 6/m}"):                                                     false,
		rule("per: ip, rate: 5/m, overrides: {'10.0.0.1/32': 6/m, '2001:db8::/64': 7/m}"):                                true,
		rule("per: ip, rate: 5/m, allow: 256.1.1.1"):                                                                     false,
		rule("per: ip, rate: 5/m, allow: 10.0.0.0/33"):                                                                   false,
		rule("per: ip, rate: 5/m, allow: 10.0.0.0/08"):                                                                   false,
		rule("per: ip, rate: 5/m, allow: 10.0.0.01"):                                                                     false,
		rule("per: ip, rate: 5/m, allow: '2001:db8::/129'"):                                                              false,
		rule("per: ip, rate: 5/m, allow: alice"):                                                                         false,
		rule("per: [ip, user], rate: 5/m, allow: alice"):                                                                 true,
		rule("per: [ip, user, email], rate: 5/m, allow: alice"):                                                          false,
		rule("per: [ip, user, email], rate: 5/m, allow: [10.0.0.1]"):                                                     true,
		rule("per: [user, email], rate: 5/m, allow: []"):                                                                 true,
		rule("per: [user, email], rate: 5/m, deny: a"):                                                                   false,
		rule("per: [], rate: 5/m, deny: []"):                                                                             false,
		rule("per: [], rate: 5/m, overrides: {}"):                                                                        false,
		rule("per: [user], rate: 5/m, overrides: {}"):                                                                    true,
		rule("per: ip, rate: 10/s, burst: 20"):                                                                           true,
		rule("per: ip, rate: [10/s], burst: 20, algorithm: gcra, count: all, throttle: soft 10%"):                        true,
		rule("per: ip, rate: 10/s, burst: 0"):                                                                            false,
		rule("per: ip, rate: 10/s, burst: 1000001"):                                                                      false,
		rule("per: ip, rate: 10/s, algorithm: token-bucket"):                                                             false,
		rule("per: ip, rate: 10/s, algorithm: gcra"):                                                                     false,
		rule("per: ip, rate: 10/s, burst: 20, algorithm: sliding-window"):                                                false,
		rule("per: ip, rate: 10/s, burst: 20, algorithm: leaky-bucket"):                                                  false,
		rule("per: ip, rate: 10/s, burst: 20, queue: 1"):                                                                 false,
		rule("per: ip, rate: 10/s, burst: 20, precision: second"):                                                        false,
		rule("per: ip, rate: [10/s, 5/m], burst: 20"):                                                                    false,
		rule("per: ip, rate: 10/s, burst: 20, overrides: {'::1': 9/s}"):                                                  true,
		rule("per: ip, rate: 10/s, burst: 20, overrides: {'::1': [9/s, 90/m]}"):                                          false,
		rule("per: ip, rate: 5/s, queue: 10"):                                                                            true,
		rule("per: ip, rate: 5/s, queue: 0, algorithm: leaky-bucket"):                                                    true,
		rule("per: ip, rate: 5/s, queue: -1"):                                                                            false,
		rule("per: ip, rate: 5/s, algorithm: leaky-bucket"):                                                              false,
		rule("per: ip, rate: 5/s, queue: 1, algorithm: gcra"):                                                            false,
		"events: {e: {limits: [{per: ip, rate: 5/s, queue: 1, throttle: elastic}, {per: [], rate: 5/s}]}}":               false,
		"events: {e: {from: {ip: header  X-Real-IP , user: none, tenant: header x}}}":                                    true,
		"events: {e: {from: {ip: header X Y}}}":                                                                          false,
		"events: {e: {from: {ip: headerX}}}":                                                                             false,
		"events: {e: {from: {user: peer}}}":                                                                              false,
		"{events: {e: {from: {ip: forwarded}}}, trusted_proxies: 10.0.0.1}":                                              true,
		"{events: {e: {from: {ip: forwarded}}}, trusted_proxies: []}":                                                    false,
		"events: {e: {methods: [POST, PROPFIND, M-SEARCH]}}":                                                             true,
		"events: {e: {methods: PUT}}":                                                                                    true,
		"events: {e: {methods: 'TRUE'}}":                                                                                 true,
		"events: {e: {methods: TRUE}}":                                                                                   false,
		"events: {e: {methods: []}}":                                                                                     false,
		"events: {e: {methods: [POST, POST]}}":                                                                           false,
		"events: {e: {methods: [post]}}":                                                                                 false,
		"events: {e: {methods: ['A B']}}":                                                                                false,
		"events: {e: {methods: 7}}":                                                                                      false,
		"{events: {e: }, headers: [x-ratelimit, ratelimit]}":                                                             true,
		"{events: {e: }, headers: [x-ratelimit, none]}":                                                                  false,
		"{events: {e: }, headers: ~}":                                                                                    false,
	} {
		value, ok := instanceOf([]byte(file))
		if assert.True(t, ok, file) {
			assert.Equal(t, taken, verdict(t, schema, value), file)
			assert.Equal(t, taken, schema.Validate(value) == nil, "the schema on %s", file)
		}
	}
}

// words are what mutations put in the place of values and keys.
var words = []any{
	nil, true, false, json.Number("0"), json.Number("1"), json.Number("64"), json.Number("129"), json.Number("1.5"), "", " ", "true",
	"ip", "user", "email", "IP", "peer", "forwarded", "bearer", "none", "header X-User", "header", "5/m", "6/60s", "7/1h30m", "0/d", "5/0s", "5/40d",
	"5", "/m", "5/day", "30", "soft 10", "1000000000001/s", "90s", "24h", "7d", "31d", "1500ms", "hard", "soft 10%", "soft 0%", "elastic", "soft", "all", "admitted", "sliding-log", "fixed-window", "5/month", "6/week", "calendar", "UTC", "Asia/Kathmandu",
	"second", "minute", "hour", "day", "allow", "deny", "local", "ratelimit", "x-ratelimit", "10.0.0.0/8", "10.0.0.1/8", "10.0.0.1", "::1", "2001:db8::/32",
	"fe80::1%eth0", "1:2", "alice", "größe", "a\u2028b",
	"per", "rate", "name", "ipv6_prefix", "overrides", "throttle", "count", "precision", "on_error", "shadow", "retention", "limits", "from",
	"events", "trusted_proxies", "headers", "methods", "POST", "GET", "PSOT", []any{"GET", "POST"},
	[]any{}, []any{"ip"}, []any{"ip", "user"}, []any{"user", "email"}, []any{"ip", "user", "email"}, []any{"5/m", "6/h"}, map[string]any{},
	map[string]any{"per": "ip", "rate": "5/m"}, map[string]any{"per": []any{}, "rate": "9/m"}, map[string]any{"per": "user", "rate": "5/m", "throttle": "elastic"},
	map[string]any{"alice": "5/m"}, map[string]any{"192.0.2.1": "5/m"}, map[string]any{"ip": "peer"}, map[string]any{"ip": "forwarded"},
}

func word(rng *rand.Rand) any { return clone(words[rng.IntN(len(words))]) }

func wordKey(rng *rand.Rand) string {
	for {
		if key, ok := word(rng).(string); ok {
			return key
		}
	}
}

func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		object := map[string]any{}
		for key, child := range value {
			object[key] = clone(child)
		}
		return object
	case []any:
		list := make([]any, len(value))
		for i, child := range value {
			list[i] = clone(child)
		}
		return list
	}
	return value
}

// mutate returns the value with one thing changed in it or below.
func mutate(rng *rand.Rand, value any) any {
	if rng.IntN(6) == 0 {
		return word(rng)
	}
	switch value := value.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(value))
		if len(keys) == 0 || rng.IntN(8) == 0 {
			value[wordKey(rng)] = word(rng)
			return value
		}
		key := keys[rng.IntN(len(keys))]
		switch rng.IntN(10) {
		case 0:
			delete(value, key)
		case 1:
			value[wordKey(rng)] = value[key]
			delete(value, key)
		default:
			value[key] = mutate(rng, value[key])
		}
		return value
	case []any:
		if len(value) == 0 || rng.IntN(8) == 0 {
			return append(value, word(rng))
		}
		i := rng.IntN(len(value))
		switch rng.IntN(10) {
		case 0:
			return slices.Delete(value, i, i+1)
		case 1:
			return append(value, clone(value[i]))
		default:
			value[i] = mutate(rng, value[i])
		}
		return value
	case string:
		// A character less, or another one more.
		if at := rng.IntN(len(value) + 1); at < len(value) && rng.IntN(2) == 0 {
			return strings.ToValidUTF8(value[:at]+value[at+1:], "")
		}
		const characters = "0159smhd/%.:-+_ aA[\"\\\u00e9\u2003"
		letters := []rune(characters)
		return value + string(letters[rng.IntN(len(letters))])
	}
	return word(rng)
}

// Whatever is changed in a valid file, and in what is broken already: the schema and
// the parser agree, but for what is beyond the schema.
func TestTheSchemaIsTheParserOnMutations(t *testing.T) {
	schema := readSchema(t)
	var valid, broken []any
	files, err := filepath.Glob(bustedFiles)
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		if value, ok := instanceOf(data); ok {
			broken = append(broken, value)
		}
	}
	example, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	for _, file := range []string{
		string(example),
		"events: {e: {limits: [{per: ip, rate: 5/m, throttle: elastic}, {per: [], rate: 9/m}]}}",
		"events: {e: {limits: [{per: ip, rate: 5/m, throttle: elastic, shadow: true}, {per: [], rate: 9/m, shadow: true}]}}",
		"events: {e: {limits: [{per: ip, rate: 5/m, algorithm: sliding-log, throttle: soft 5%}, {per: ip, rate: 9/h, precision: minute}]}}",
		"events: {e: {limits: [{per: [ip, user], rate: 5/m, allow: [10.0.0.0/8, alice], deny: bob}]}}",
		"events: {e: {limits: [{per: user, rate: [5/m, 6/h], overrides: {a: 7/d}}]}, f: }",
		"{events: {e: {from: {ip: forwarded, user: header X}}}, trusted_proxies: [10.0.0.0/8], headers: none}",
	} {
		value, ok := instanceOf([]byte(file))
		require.True(t, ok)
		valid = append(valid, value)
	}
	rng := rand.New(rand.NewPCG(5, 1))
	taken := map[bool]int{}
	for range 6_000 {
		value := clone(valid[rng.IntN(len(valid))])
		if rng.IntN(4) == 0 {
			value = clone(broken[rng.IntN(len(broken))])
		}
		for range 1 + rng.IntN(3) {
			value = mutate(rng, value)
		}
		if value == nil {
			continue
		}
		taken[verdict(t, schema, value)]++
	}
	assert.Greater(t, taken[true], 100)
	assert.Greater(t, taken[false], 1000)
}

// FuzzSchema: the schema and the parser agree on any document that JSON can hold.
func FuzzSchema(f *testing.F) {
	files, err := filepath.Glob(bustedFiles)
	require.NoError(f, err)
	for _, file := range append(files, exampleFile) {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	schema := readSchema(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if value, ok := instanceOf(data); ok && value != nil {
			verdict(t, schema, value)
		}
	})
}
