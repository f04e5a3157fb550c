package rlsimport_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/rls/rlsimport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t *testing.T, text string) *rlsconfig.Config {
	t.Helper()
	config, err := rlsconfig.Parse([]rlsconfig.File{{Name: "f.yaml", Text: []byte(text)}})
	require.NoError(t, err)
	return config
}

// imported returns the events of the rules, as written.
func imported(t *testing.T, text string) string {
	t.Helper()
	rules, summary, err := rlsimport.Rules(parse(t, text))
	require.NoError(t, err)
	_, written, found := strings.Cut(string(rules), "\nevents:\n")
	require.True(t, found)
	assert.Equal(t, strings.Count(written, ", is not limited: "), summary.LeftOut)
	assert.Equal(t, strings.Count(written, "; serve it with -rls-config\n"), summary.Differences)
	assert.Equal(t, strings.Count(written, "      - per: "), summary.Limits)
	return written
}

const unnamed = "rate_limit: {unit: minute, requests_per_unit: 5}"

func TestRules(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ config, want string }{
		"nothing": {"domain: d", "  d:\n    limits: []\n"},
		"a bare key": {"domain: d\ndescriptors:\n- {key: a, " + unnamed + "}", `  d:
    limits:
      - per: a
        rate: 5/m
        name: "a"
`},
		"a path, in shadow, with a name": {`domain: d
descriptors:
- key: b
  descriptors:
  - {key: a, shadow_mode: true, rate_limit: {unit: day, unit_multiplier: 2, requests_per_unit: 5, name: mine}}`, `  d:
    limits:
      - per: [a, b]
        rate: 5/48h
        name: "mine"
        shadow: true
`},
		"values alone": {"domain: d\ndescriptors:\n- {key: a, value: \"y\\n\", " + unnamed + "}\n- {key: a, value: x}", `  d:
    limits:
      - per: a
        rate: 1000000000000/s # other values are not limited
        name: "a"
        overrides:
          "x": 1000000000000/s # not limited
          "y\n": 5/m
`},
		"values beside a bare key": {"domain: d\ndescriptors:\n- {key: a, value: y, quota_mode: true, " + unnamed + "}\n- {key: a, value: x, rate_limit: {unlimited: true}}\n- {key: a, " + unnamed + "}", `  d:
    limits:
      # f.yaml:3: d.a_y, 5/m, is not limited: rules have no quota_mode; serve it with -rls-config
      - per: a
        rate: 5/m
        name: "a"
        overrides:
          "x": 1000000000000/s # not limited
          "y": 1000000000000/s # not limited
`},
		"addresses": {"domain: d\ndescriptors:\n- {key: ip, value: '2001:DB8::1', " + unnamed + "}\n- {key: ip, value: '2001:db8::2', " + unnamed + "}", `  # Values of ip are addresses: others are refused.
  d:
    limits:
      # f.yaml:3: d.ip_2001:DB8::1, 5/m, is not limited: the value is too long, or no address as rules have it; serve it with -rls-config
      - per: ip
        rate: 1000000000000/s # other values are not limited
        name: "ip"
        ipv6_prefix: 128
        overrides:
          "2001:db8::2": 5/m
`},
		"names": {"domain: Größe\ndescriptors:\n- {key: 'null', " + unnamed + "}\n- {key: 'NULL', " + unnamed + "}\n- {key: _id, " + unnamed + "}", `  # Send the domain "Größe" as gr____e.
  # Send the key "NULL" as null-2.
  # Send the key "_id" as x_id.
  gr____e:
    limits:
      - per: "null"
        rate: 5/m
        name: "null"
      - per: null-2
        rate: 5/m
        name: "null-2"
      - per: x_id
        rate: 5/m
        name: "x_id"
`},
		"a value behind another key": {"domain: d\ndescriptors:\n- {key: b, value: x, " + unnamed + "}\n- {key: a, descriptors: [{key: b, " + unnamed + "}]}", `  d:
    limits:
      - per: b
        rate: 1000000000000/s # other values are not limited
        name: "b"
        overrides:
          "x": 5/m
      # f.yaml:4: d.a.b has further limits here, per b; serve it with -rls-config
      - per: [a, b]
        rate: 5/m
        name: "a+b"
`},
		"what goes further": {`domain: d
descriptors:
- key: a
  ` + unnamed + `
  descriptors:
  - {key: b, ` + unnamed + `}
  - {key: a, ` + unnamed + `}
- {key: a, value: x}
- key: b
  descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 7, replaces: [{name: z}]}}
  - {key: c, value: v, ` + unnamed + `}`, `  d:
    limits:
      - per: a
        rate: 5/m
        name: "a"
        overrides:
          "x": 1000000000000/s # not limited
      # f.yaml:6: d.a.b has further limits here, per a; serve it with -rls-config
      - per: [a, b]
        rate: 5/m
        name: "a+b"
      # f.yaml:7: d.a.a is refused: a hit has each kind once, and at most 16; serve it with -rls-config
      # f.yaml:8: d.a_x with further entries has the limits per a+b; serve it with -rls-config
      # f.yaml:11: d.b.a, 7/h, has the limits per a, a+b instead: kinds have no order; serve it with -rls-config
      # f.yaml:11: d.b.a replaces no other limit: rules have no replaces; serve it with -rls-config
      # f.yaml:12: d.b.c_v, 5/m, is not limited: only rules per one kind have limits of values; serve it with -rls-config
`},
		"unlimited": {`domain: d
descriptors:
- {key: a, rate_limit: {unlimited: true}}
- {key: b, value: x, rate_limit: {unlimited: true}}
- {key: c, value: x*, rate_limit: {unlimited: true}}
- {key: c, ` + unnamed + `}`, `  d:
    limits:
      # f.yaml:3: d.a is unlimited, and without a rule: a status has no limit_remaining; serve it with -rls-config
      # f.yaml:4: d.b_x is unlimited, and without a rule: a status has no limit_remaining; serve it with -rls-config
      # f.yaml:5: d.c_x* has further limits here, per c; serve it with -rls-config
      - per: c
        rate: 5/m
        name: "c"
`},
		"metadata": {`domain: d
descriptors:
- {key: a, metadata: {team: core}, ` + unnamed + `}
- {key: b, metadata: {team: core}}
- {key: c, metadata: {team: core}, rate_limit: {unlimited: true}}`, `  d:
    limits:
      # f.yaml:3: d.a answers without its metadata: rules have none; serve it with -rls-config
      - per: a
        rate: 5/m
        name: "a"
      # f.yaml:5: d.c is unlimited, and without a rule: a status has no limit_remaining; serve it with -rls-config
      # f.yaml:5: d.c answers without its metadata: rules have none; serve it with -rls-config
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, imported(t, test.config))
		})
	}
}

// An event has room for a number of counters, and a file for a number of bytes.
func TestRulesHaveBounds(t *testing.T) {
	t.Parallel()
	var config strings.Builder
	config.WriteString("domain: d\ndescriptors:\n")
	for i := range events.MaxCounters + 1 {
		fmt.Fprintf(&config, "- {key: k%d, %s}\n", i, unnamed)
	}
	written := imported(t, config.String())
	assert.Equal(t, events.MaxCounters, strings.Count(written, "- per:"))
	assert.Contains(t, written, "f.yaml:67: d.k64, 5/m, is not limited: the limits of an event have 64 lists of kinds at most")

	long := "domain: d\ndescriptors: [{key: a, value: \"" + strings.Repeat(`\x01`, 300) + "\", " + unnamed + "}]"
	assert.Contains(t, imported(t, long), "5/m, is not limited: the value is too long")

	value := strings.Repeat("v", 900)
	var files []rlsconfig.File
	for _, domain := range []string{"d", "e"} {
		config.Reset()
		fmt.Fprintf(&config, "domain: %s\ndescriptors:\n", domain)
		for i := range 900 {
			fmt.Fprintf(&config, "- {key: a, value: '%d%s', %s}\n", i, value, unnamed)
		}
		imported(t, config.String())
		files = append(files, rlsconfig.File{Name: domain, Text: []byte(config.String())})
	}
	both, err := rlsconfig.Parse(files)
	require.NoError(t, err)
	_, _, err = rlsimport.Rules(both)
	assert.ErrorContains(t, err, "import fewer files at once: the file has more than 1048576 bytes")
}

// FuzzRules has any configuration imported: the rules are valid, the same each time, and have no warning.
func FuzzRules(f *testing.F) {
	f.Add("domain: d\ndescriptors: [{key: a, value: 'x*'}, {key: A, value: \"\\0\\n\\\"\", " + unnamed + "}, {key: a_, " + unnamed + "}]")
	f.Add("domain: ''''\ndescriptors: [{key: ip, value: 10.0.0.0/8, " + unnamed + "}, {key: ip, value: '::ffff:1.2.3.4', " + unnamed + "}]")
	f.Add("domain: 1\ndescriptors: [{key: 'true', value: ~, rate_limit: {unit: month, requests_per_unit: 0, name: 'a\"'}, shadow_mode: on}]")
	f.Add("domain: d\ndescriptors: &d [{key: a, " + unnamed + ", descriptors: [{key: b, " + unnamed + "}]}, {key: b, descriptors: [{key: a, " + unnamed + "}]}]")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := rlsconfig.Parse([]rlsconfig.File{{Name: "f\n.yaml", Text: []byte(text)}})
		if err != nil {
			return
		}
		written, _, err := rlsimport.Rules(config)
		if err != nil { // aliases stand for much
			require.ErrorContains(t, err, "import fewer files at once: the file has more than")
			return
		}
		rules, err := rulesfile.Parse(written)
		require.NoError(t, err)
		require.Empty(t, rules.Warnings)
		require.Len(t, rules.Events, len(config.Domains()))
		again, _, err := rlsimport.Rules(config)
		require.NoError(t, err)
		require.Equal(t, string(written), string(again))
	})
}
