package rlsconfig

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/yamlfile"
)

// lines returns faults as line:column: path: reason, without the name of the file.
func lines(faults events.Faults) []string {
	var all []string
	for _, fault := range faults {
		fault.Path = strings.TrimPrefix(strings.TrimPrefix(fault.Path, "f.yaml"), ": ")
		all = append(all, strings.Replace(strings.TrimPrefix(fault.Error(), "line "), ", column ", ":", 1))
	}
	return all
}

// In the tables, what begins with a space is the list of descriptors of a domain, from line 2 on.
func parseText(text string) (*Config, error) {
	if strings.HasPrefix(text, " ") {
		text = "domain: d\ndescriptors:\n" + text
	}
	return Parse([]File{{"f.yaml", []byte(text)}})
}

// rate begins a rate_limit in line 4.
const rate = " - key: a\n   rate_limit: "

func TestFaults(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	for name, test := range map[string]struct {
		text string
		want []string // how each fault begins
	}{
		"not YAML":              {"domain: d\ndescriptors: [\n", []string{"2: this is not YAML: did not find expected node content"}},
		"an unclosed quote":     {"'''\n", []string{"2: this is not YAML: a quote is not closed"}},
		"an unquoted wildcard":  {" - key: a\n   value: *.png", []string{`4: this is not YAML: did not find expected alphabetic or numeric character: quote a value that begins with *, as in "*.pdf"`}},
		"an unknown anchor":     {" - key: a\n   value: *png", []string{`4: this is not YAML: an alias has no anchor: quote a value that begins with *`}},
		"not UTF-8":             {"domain: \xff", []string{"1:9: the file is not valid UTF-8"}},
		"empty":                 {"# nothing\n", []string{"1: the file is empty: it begins with domain:"}},
		"null":                  {"~", []string{"1: the file is empty"}},
		"a list":                {"- domain: d", []string{"1:1: a mapping of keys to values is wanted here"}},
		"a word":                {"domain", []string{"1:1: a mapping of keys to values is wanted here"}},
		"two documents":         {"domain: d\n---\ndomain: e", []string{"2:1: a second document begins here: make it a file of its own"}},
		"a tag directive":       {"%TAG ! tag:long\n---\ndomain: d", []string{"1:1: %TAG is not supported: remove the line"}},
		"too large":             {strings.Repeat("#", yamlfile.MaxSize+1), []string{"the file exceeds 1048576 bytes: split it"}},
		"too deep":              {"domain: d\ndescriptors: [{key: a, metadata: {a: " + deep + "}}]", []string{"2:134: more than 100 lists and mappings in each other"}},
		"an alias of itself":    {"domain: d\ndescriptors: &a [{key: a, descriptors: *a}]", []string{"2:18: more than 100 lists and mappings in each other: nest fewer, and no alias in its anchor"}},
		"a ConfigMap":           {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits}\ndata:\n  shop.yaml: |\n    domain: shop\n", []string{"2:1: this is a ConfigMap of Kubernetes, not a file in it: mount it, and name the folder"}},
		"a List":                {"items: []\nkind: List\napiVersion: v1\n", []string{"2:1: this is a List of Kubernetes"}},
		"rules":                 {"events: {login: {}}", []string{"1:1: these are rules of counterd: name the file by -rules"}},
		"no domain":             {"descriptors: []", []string{"1:1: domain is missing or empty"}},
		"a null domain":         {"domain:\ndescriptors: []", []string{"1:1: domain is missing or empty"}},
		"an empty domain":       {"domain: ''", []string{"1:1: domain is missing or empty"}},
		"a list for a domain":   {"domain: [d]", []string{"1:9: domain: a single value is wanted here"}},
		"a misspelled key":      {"domian: d", []string{`1:1: unknown key "domian": did you mean "domain"?`}},
		"an unknown key":        {"domain: d\n0.25: x", []string{"2:1: unknown key: there is domain, descriptors"}},
		"of a descriptor":       {" - key: a\n   ratelimit: {unti: day}", []string{`4:4: descriptors[0]: unknown key "ratelimit": did you mean "rate_limit"?`, `4:16: descriptors[0].rate_limit: unknown key "unti": did you mean "unit"?`}},
		"a key that is a list":  {" - key: a\n   [b]: c", []string{"4:4: descriptors[0]: a key is one word"}},
		"a key twice":           {" - key: a\n   value: x\n   value: y", []string{"5:4: descriptors[0]: the key is given twice, first in line 4: remove one"}},
		"no list":               {"domain: d\ndescriptors: {key: a}", []string{"2:14: descriptors: a list is wanted here"}},
		"an item of no mapping": {" - a\n - key: b\n -", []string{"3:4: descriptors[0]: an item of the list is a mapping", "5:3: descriptors[2]: an item of the list is a mapping"}},
		"no key":                {" - value: x", []string{"3:4: descriptors[0]: key is missing or empty"}},
		"an empty key":          {" - {key: '', value: x}\n - {key: ''}", []string{"3:4: descriptors[0]: key is missing", "4:4: descriptors[1]: key is missing"}},
		"a key of keys":         {" - key: {a: b}", []string{"3:9: descriptors[0].key: a single value is wanted here"}},
		"a descriptor twice":    {" - {key: a, value: b}\n - key: c\n - key: a\n   value: b", []string{"5:4: descriptors[2]: the list has this key and value twice, first in f.yaml, line 3: remove one"}},
		"bare twice, below":     {" - key: x\n   descriptors:\n   - key: a\n   - key: a\n     value:", []string{"6:6: descriptors[0].descriptors[1]: the list has this key and value twice, first in f.yaml, line 5: remove one"}},
		"no unit":               {rate + "{requests_per_unit: 5}", []string{"4:16: descriptors[0].rate_limit: unit is missing: it is second, minute, hour, day, week, month"}},
		"an unknown unit":       {rate + "{unit: foo, requests_per_unit: 5}", []string{"4:23: descriptors[0].rate_limit.unit: unknown unit: there is second, minute, hour, day, week, month"}},
		"a misspelled unit":     {rate + "{unit: Minutes, requests_per_unit: 5}", []string{`4:23: descriptors[0].rate_limit.unit: unknown unit: did you mean "minute"?`}},
		"the unit unknown":      {rate + "{unit: unknown, requests_per_unit: 5}", []string{`4:23: descriptors[0].rate_limit.unit: unknown unit`}},
		"a unit of two":         {rate + "{unit: [day], requests_per_unit: 5}", []string{"4:23: descriptors[0].rate_limit.unit: a single value is wanted here"}},
		"a year":                {rate + "{unit: YEAR, requests_per_unit: 5}", []string{"4:23: descriptors[0].rate_limit.unit: a year is longer than 30d, the longest window: take month or a shorter unit"}},
		"five weeks":            {rate + "{unit: week, unit_multiplier: 5, requests_per_unit: 5}", []string{"4:46: descriptors[0].rate_limit.unit_multiplier: the window is longer than 30d, the longest: at most 4 for the unit week"}},
		"long in months":        {rate + "{unit: month, unit_multiplier: 4294967295, requests_per_unit: 5}", []string{"4:47: descriptors[0].rate_limit.unit_multiplier: the window is longer than 30d, the longest: at most 1"}},
		"no multiple":           {rate + "{unit: day, unit_multiplier: 0, requests_per_unit: 5}", []string{"4:45: descriptors[0].rate_limit.unit_multiplier: it is a whole number from 1 to 4294967295"}},
		"a negative number":     {rate + "{unit: day, requests_per_unit: -1}", []string{"4:47: descriptors[0].rate_limit.requests_per_unit: it is a whole number from 0 to 4294967295, without quotes"}},
		"a number of 33 bits":   {rate + "{unit: day, requests_per_unit: 4294967296}", []string{"4:47: descriptors[0].rate_limit.requests_per_unit: it is a whole number"}},
		"a number of 70 bits":   {rate + "{unit: day, requests_per_unit: 999999999999999999999}", []string{"4:47: descriptors[0].rate_limit.requests_per_unit: it is a whole number"}},
		"a quoted number":       {rate + "{unit: day, requests_per_unit: '5'}", []string{"4:47: descriptors[0].rate_limit.requests_per_unit: it is a whole number"}},
		"a fraction":            {rate + "{unit: day, requests_per_unit: 1.5}", []string{"4:47: descriptors[0].rate_limit.requests_per_unit: it is a whole number"}},
		"a list of numbers":     {rate + "{unit: day, requests_per_unit: [5]}", []string{"4:47: descriptors[0].rate_limit.requests_per_unit: it is a whole number"}},
		"no mapping":            {rate + "5", []string{"4:16: descriptors[0].rate_limit: a mapping of keys to values is wanted here"}},
		"unlimited with a unit": {rate + "{unlimited: true, unit: day, unit_multiplier: 2}", []string{"4:40: descriptors[0].rate_limit.unit: an unlimited rate_limit has no unit", "4:62: descriptors[0].rate_limit.unit_multiplier: an unlimited rate_limit has no unit_multiplier"}},
		"unlimited in quotes":   {rate + "{unlimited: 'true', unit: day}", []string{"4:28: descriptors[0].rate_limit.unlimited: it is true or false, without quotes"}},
		"no boolean":            {" - key: a\n   shadow_mode: [true]\n   quota_mode: 1", []string{"4:17: descriptors[0].shadow_mode: it is true or false", "5:16: descriptors[0].quota_mode: it is true or false"}},
		"an unknown count":      {rate + "{unit: day, requests_per_unit: 5, count: some}", []string{"4:57: descriptors[0].rate_limit.count: count must be admitted or all"}},
		"replaces nothing":      {rate + "{unlimited: true, replaces: [{name: }, {}, {name: ''}]}", []string{"4:45: descriptors[0].rate_limit.replaces[0]: name is missing or empty", "4:55: descriptors[0].rate_limit.replaces[1]: name is missing", "4:59: descriptors[0].rate_limit.replaces[2]: name is missing"}},
		"replaces itself":       {rate + "{unlimited: true, replaces: [{name: me}], name: me}", []string{"4:52: descriptors[0].rate_limit.replaces[0].name: this is the limit's own name: a limit cannot replace itself"}},
		"replaces as words":     {rate + "{unlimited: true, replaces: [me]}", []string{"4:45: descriptors[0].rate_limit.replaces[0]: an item of the list is a mapping"}},
		"share without *":       {" - {key: a, value: b, share_threshold: true, descriptors: [{key: b, share_threshold: true}]}", []string{"3:40: descriptors[0].share_threshold: share_threshold is for a wildcard", "3:86: descriptors[0].descriptors[0].share_threshold: share_threshold is for a wildcard"}},
		"metadata of no keys":   {" - {key: a, metadata: [b]}", []string{"3:23: descriptors[0].metadata: a mapping of keys to values is wanted here"}},
		"a merge of a word":     {" - {key: a, <<: b}", []string{"3:17: descriptors[0]: a mapping of keys to values is wanted here"}},
		"all at once": {" - value: x\n   rate_limit: {unit: foo, requests_per_unit: -1}\n - key: a\n   unknown_to_all: 1", []string{
			"3:4: descriptors[0]: key is missing", "4:23: descriptors[0].rate_limit.unit: unknown unit", "4:47: descriptors[0].rate_limit.requests_per_unit: it is", "6:4: descriptors[1]: unknown key"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseText(test.text)
			var faults events.Faults
			require.ErrorAs(t, err, &faults)
			require.ErrorIs(t, err, events.ErrInvalid)
			got := lines(faults)
			require.Len(t, got, len(test.want), "%s", err)
			for i, want := range test.want {
				assert.True(t, strings.HasPrefix(got[i], want), "want %s\ngot  %s", want, got[i])
				assert.Contains(t, faults[i].Error(), "f.yaml")
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []string // how each warning begins
	}{
		"none":                  {"domain: d\ndescriptors:", nil},
		"an empty list":         {"domain: d\ndescriptors: []", nil},
		"no effect":             {" - key: a", []string{"3:4: descriptors[0]: the descriptor has no rate_limit and no descriptors: what it matches is not limited"}},
		"detailed_metric":       {" - key: a\n   detailed_metric: on\n   value_to_metric: Yes\n   rate_limit: {unlimited: true}", []string{"4:21: descriptors[0].detailed_metric: detailed_metric has no effect", "5:21: descriptors[0].value_to_metric: value_to_metric has no effect"}},
		"metrics off":           {" - key: a\n   detailed_metric: off\n   value_to_metric: n\n   rate_limit: {unlimited: true}", nil},
		"replaces no limit":     {rate + "{unlimited: true, replaces: [{name: b}, {name: c}]}\n - {key: b, rate_limit: {unit: day, requests_per_unit: 1, name: b}}", []string{"4:63: descriptors[0].rate_limit.replaces[1].name: no limit of the domain has this name"}},
		"no number":             {rate + "{unit: day}", []string{"4:16: descriptors[0].rate_limit: requests_per_unit is missing: the limit is 0 and denies each request"}},
		"zero":                  {rate + "{unit: day, requests_per_unit: 0}", nil},
		"unlimited by a number": {rate + "{unlimited: true, requests_per_unit: 5}", []string{"4:53: descriptors[0].rate_limit.requests_per_unit: requests_per_unit has no effect"}},
		"shadow of nothing":     {" - key: a\n   shadow_mode: true\n   descriptors:\n   - key: b\n     quota_mode: true", []string{"4:17: descriptors[0].shadow_mode: shadow_mode has no effect", "7:18: descriptors[0].descriptors[0].quota_mode: quota_mode has no effect"}},
		"a count of no effect":  {rate + "{unlimited: true, count: all}", []string{"4:41: descriptors[0].rate_limit.count: count has no effect: the rate_limit is unlimited"}},
		"a misplaced key":       {rate + "{unlimited: true, shadow_mode: true, descriptors: []}\n   name: x", []string{"4:34: descriptors[0].rate_limit: shadow_mode has no effect here: it is a key of a descriptor", "4:53: descriptors[0].rate_limit: descriptors has no effect here: it is a key of a descriptor", "5:4: descriptors[0]: name has no effect here: it is a key of rate_limit"}},
		"modes of unlimited":    {" - key: a\n   shadow_mode: true\n   quota_mode: true\n   rate_limit: {unlimited: true}", []string{"4:17: descriptors[0].shadow_mode: shadow_mode has no effect: the rate_limit is unlimited", "5:16: descriptors[0].quota_mode: quota_mode has no effect: the rate_limit is unlimited"}},
		"modes and metadata":    {" - key: a\n   shadow_mode: true\n   quota_mode: true\n   metadata: {a: 1}\n   descriptors: [{key: b, rate_limit: {unlimited: true}}]", []string{"4:17: descriptors[0].shadow_mode: shadow_mode has no effect: it is for", "5:16: descriptors[0].quota_mode: quota_mode has no effect: it is for", "6:14: descriptors[0].metadata: metadata has no effect: it is for"}},
		"replaces unlimited":    {rate + "{unlimited: true, replaces: [{name: b}]}\n - {key: b, rate_limit: {unlimited: true, name: b}}", []string{"4:52: descriptors[0].rate_limit.replaces[0].name: no limit of the domain has this name", "5:49: descriptors[1].rate_limit.name: name has no effect: the rate_limit is unlimited"}},
		"shadowed wildcards":    {" - {key: a, value: f*, rate_limit: {unlimited: true}}\n - {key: a, value: f/*.c, rate_limit: {unlimited: true}}\n - {key: b, value: f*, rate_limit: {unlimited: true}}\n - {key: a, value: '*c', rate_limit: {unlimited: true}}", []string{"4:20: descriptors[1].value: no value is left for this wildcard: f* in f.yaml, line 3, matches them all"}},
		"a wildcard of all":     {" - {key: a, rate_limit: {unlimited: true}}\n - {key: a, value: '*', rate_limit: {unlimited: true}}\n - {key: b, value: '**', rate_limit: {unlimited: true}}\n - {key: b, rate_limit: {unlimited: true}}", []string{"4:20: descriptors[1].value: the descriptor without a value in f.yaml, line 3, never applies: this wildcard matches all", "6:4: descriptors[3]: the descriptor never applies: the wildcard ** in f.yaml, line 5, matches all values"}},
		"an asterisk in a key":  {" - key: a*\n   rate_limit: {unlimited: true}", []string{"3:9: descriptors[0].key: a * in a key is no wildcard"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := parseText(test.text)
			require.NoError(t, err)
			got := lines(c.Warnings)
			require.Len(t, got, len(test.want), "%v", got)
			for i, want := range test.want {
				assert.True(t, strings.HasPrefix(got[i], want), "want %s\ngot  %s", want, got[i])
			}
		})
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	c := parseOne(t, `# all of a limit
domain: d
descriptors:
  - key: a
    value: 1.50
    descriptors:
      - key: b
        value: x/*
        share_threshold: true
        shadow_mode: yes
        quota_mode: true
        detailed_metric: true
        value_to_metric: true
        metadata: {name: n, list: [1, 1.5, true, null, 2001-02-03, {0x1: yes}]}
        rate_limit:
          name: mine
          unit: HOUR
          unit_multiplier: 36
          requests_per_unit: 1_000
          replaces: [{name: yours}, {name: 5}]
        descriptors:
          - key: c
            rate_limit: {unlimited: true}
`)
	require.Len(t, c.limits, 2)
	metadata, err := structpb.NewStruct(map[string]any{"name": "n", "list": []any{1, 1.5, true, nil, "2001-02-03", map[string]any{"0x1": "yes"}}})
	require.NoError(t, err)
	assert.Equal(t, Limit{
		Domain: "d", Path: of("a", "1.50", "b", "x/*"), Name: "mine", N: 1000, Unit: Hour, Multiplier: 36,
		Shadow: true, Quota: true, ShareThreshold: true, DetailedMetric: true, ValueToMetric: true, Replaces: []string{"yours", "5"},
		Metadata: metadata,
		File:     "one.yaml",
		Rule: &events.Rule{
			Per: []string{"a", "b"}, Verbatim: true, Place: "one.yaml: d.a_1.50.b_x/*",
			Shadow: true, Throttle: events.Throttle{Kind: events.Quota}, Limits: []events.Limit{{Name: "mine", N: 1000, Window: 36 * time.Hour}},
		},
	}, *c.limits[0])
	assert.Equal(t, Limit{Domain: "d", Path: of("a", "1.50", "b", "x/*", "c", ""), Multiplier: 1, Unlimited: true, File: "one.yaml"}, *c.limits[1])
	assert.Equal(t, 36*time.Hour, c.limits[0].Window())
	assert.Zero(t, c.limits[1].Window())
	named := parseOne(t, "{domain: d, descriptors: [{key: a, value: x, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]}]}")
	for _, limit := range named.limits {
		assert.Equal(t, "a_x.b", limit.Rule.Limits[0].Name)
	}
	assert.Equal(t, "d.a_1.50.b_x/*.c", c.limits[1].String())
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for unit, length := range map[Unit]time.Duration{
		Second: time.Second, Minute: time.Minute, Hour: time.Hour, Day: 24 * time.Hour,
		Week: 168 * time.Hour, Month: 720 * time.Hour, Year: 8760 * time.Hour, 0: 0,
	} {
		assert.Equal(t, length, unit.Length(), unit.String())
		assert.Equal(t, unit, parseUnit(unit.String()))
		assert.Equal(t, unit, parseUnit(strings.ToUpper(unit.String())))
	}
	assert.Equal(t, []Unit{1, 2, 3, 4, 5, 6, 7}, []Unit{Second, Minute, Hour, Day, Month, Year, Week}, "as the protocol numbers them")
}

func TestAliases(t *testing.T) {
	t.Parallel()
	c := parseOne(t, `
domain: d
descriptors:
  - &a
    key: a
    rate_limit: &rate {unit: day, requests_per_unit: 1}
    shadow_mode: true
  - <<: *a
    value: x
    <<: {key: not taken, quota_mode: true}
    rate_limit: {<<: [{requests_per_unit: 2}, *rate]}
  - {key: b, rate_limit: *rate, descriptors: [*a]}
  - {key: c, rate_limit: *rate, metadata: {name: own, <<: {name: merged, size: 1}}}
`)
	limit, _ := c.Find("d", of("c", ""))
	assert.Equal(t, map[string]any{"name": "own", "size": 1.0}, limit.Metadata.AsMap())
	var got []string
	for _, l := range c.limits {
		got = append(got, fmt.Sprintf("%s %d %s %t %t", l, l.N, l.Unit, l.Shadow, l.Quota))
	}
	assert.Equal(t, []string{"d.a 1 day true false", "d.a_x 2 day true true", "d.b 1 day false false", "d.b.a 1 day true false", "d.c 1 day false false"}, got)
}

// Lists of ten of the list before would be ten million descriptors.
func TestAliasesAreBounded(t *testing.T) {
	t.Parallel()
	text := "domain: d\ndescriptors:\n- {key: l0, metadata: &l0 {a: x}}\n"
	for i := 1; i < 8; i++ {
		text += fmt.Sprintf("- {key: l%d, metadata: &l%[1]d {a: [%s]}}\n", i, strings.Repeat(fmt.Sprintf("*l%d,", i-1), 10))
	}
	started := time.Now()
	_, err := parseText(text)
	require.ErrorContains(t, err, "the aliases of the file stand for more than 100000 values: use fewer")
	assert.Less(t, time.Since(started), 5*time.Second)
	_, err = parseText("domain: &d [*d,*d,*d,*d]")
	require.ErrorContains(t, err, "in each other")
}
