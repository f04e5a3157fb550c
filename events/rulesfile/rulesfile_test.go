package rulesfile

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

const exampleFile = "testdata/rules.yaml"

// ratesOf returns the rates of limits, as a rules file has them.
func ratesOf(limits []events.Limit) []string {
	var rates []string
	for _, limit := range limits {
		rates = append(rates, events.FormatRate(limit))
	}
	return rates
}

// Each line of the example has its case, in order. The line says what got returns;
// with another line instead, got returns another thing, or the file has a fault.
func TestEachLineOfTheExample(t *testing.T) {
	names := func(r *events.Rules) any { return slices.Sorted(maps.Keys(r.Events)) }
	all := []string{"export", "login_failed", "url_shorten"}
	per := func(event string, i int) func(r *events.Rules) any {
		return func(r *events.Rules) any { return strings.Join(r.Events[event].Rules[i].Per, "+") }
	}
	rates := func(event string, i int) func(r *events.Rules) any {
		return func(r *events.Rules) any { return ratesOf(r.Events[event].Rules[i].Limits) }
	}
	rulesOf := func(event string) func(r *events.Rules) any {
		return func(r *events.Rules) any { return len(r.Events[event].Rules) }
	}
	source := func(kind string) func(r *events.Rules) any {
		return func(r *events.Rules) any { return r.Events["url_shorten"].Source(kind).String() }
	}
	byIP := func(r *events.Rules) *events.Rule { return &r.Events["login_failed"].Rules[1] }
	listed := func(ip string) func(r *events.Rules) any {
		return func(r *events.Rules) any { return byIP(r).Listed(events.Features{"ip": ip}) }
	}
	byUser := func(r *events.Rules) *events.Rule { return &r.Events["export"].Rules[1] }

	type fault struct{}
	cases := []struct {
		line    string
		got     func(r *events.Rules) any
		want    any
		instead string
		changed any
	}{
		{"events:", names, all, "", fault{}},
		{"  url_shorten:", names, all, "  shorten:", []string{"export", "login_failed", "shorten"}},
		{"    retention: 48h", func(r *events.Rules) any { return r.Events["url_shorten"].Remembered() }, 48 * time.Hour, "", 24 * time.Hour},
		{"    limits:", rulesOf("url_shorten"), 2, "", fault{}},
		{"      - per: ip", per("url_shorten", 0), "ip", "      - per: host", "host"},
		{"        rate: [2/s, 5/m, 10/h, 100/d]", rates("url_shorten", 0), []string{"2/s", "5/m", "10/h", "100/d"}, "        rate: 1/s", []string{"1/s"}},
		{"      - per: [ip, user]", per("url_shorten", 1), "ip+user", "      - per: user", "user"},
		{"        rate: 50/d", rates("url_shorten", 1), []string{"50/d"}, "", fault{}},
		{"    from:", source("ip"), "peer", "", fault{}},
		{"      ip: peer", source("ip"), "peer", "      ip: forwarded", "forwarded"},
		{"      user: bearer", source("user"), "bearer", "      user: header x-user", "header X-User"},
		{"  login_failed:", names, all, "  login:", []string{"export", "login", "url_shorten"}},
		{"    limits:", rulesOf("login_failed"), 2, "", fault{}},
		{"      - per: email", per("login_failed", 0), "email", "      - per: user", "user"},
		{"        rate: 3/d", rates("login_failed", 0), []string{"3/d"}, "", fault{}},
		{"        name: login-email", func(r *events.Rules) any { return r.Events["login_failed"].Rules[0].Limits[0].Name }, "login-email", "", "email-3-per-24h"},
		{"      - per: ip", per("login_failed", 1), "ip", "      - per: []", fault{}},
		{"        rate: 20/d", rates("login_failed", 1), []string{"20/d"}, "        rate: 0/d", []string{"0/d"}},
		{"        ipv6_prefix: 64", func(r *events.Rules) any {
			counter, err := r.Events["login_failed"].Counter(events.Features{"ip": "2001:db8:1:2::3"})
			require.NoError(t, err)
			return counter.Feature.String()
		}, "ip:2001:db8:1:2::/64", "        ipv6_prefix: 48", "ip:2001:db8:1::/48"},
		{`        overrides: {"198.51.100.7": 1000/d}`, func(r *events.Rules) any {
			counter, err := r.Events["login_failed"].Counter(events.Features{"ip": "198.51.100.7"})
			require.NoError(t, err)
			return ratesOf(byIP(r).LimitsOf(counter.Feature))
		}, []string{"1000/d"}, "", []string{"20/d"}},
		{"        allow: [10.0.0.0/8]", listed("10.1.2.3"), events.Allowed, "", events.Unlisted},
		{"        deny: [203.0.113.0/24]", listed("203.0.113.255"), events.Denied, "", events.Unlisted},
		{"  export:", names, all, "  import:", []string{"import", "login_failed", "url_shorten"}},
		{"    limits:", rulesOf("export"), 2, "", fault{}},
		{"      - per: []", per("export", 0), "", "      - per: ip", "ip"},
		{"        rate: 10000/m", rates("export", 0), []string{"10000/m"}, "", fault{}},
		{"      - per: user", per("export", 1), "user", "      - per: email", "email"},
		{"        rate: 100/15m", rates("export", 1), []string{"100/15m"}, "", fault{}},
		{"        throttle: soft 10%", func(r *events.Rules) any { return byUser(r).Throttle.Ceiling(100) }, int64(110), "", int64(100)},
		{"        count: all", func(r *events.Rules) any { return byUser(r).Count }, events.CountAll, "", events.CountAdmitted},
		{"        precision: minute", func(r *events.Rules) any {
			counter, err := r.Events["export"].Counter(events.Features{"user": "42"})
			require.NoError(t, err)
			return counter.Precision
		}, events.Minute, "", events.Second},
		{"        on_error: allow", func(r *events.Rules) any { return byUser(r).OnError }, events.OnErrorAllow, "        on_error: deny", events.OnErrorDeny},
		{"        shadow: true", func(r *events.Rules) any { return byUser(r).Shadow }, true, "", false},
		{"    methods: [POST, PUT, DELETE]", func(r *events.Rules) any { return r.Events["export"].HasMethod("GET") }, false, "", true},
		{`trusted_proxies: [127.0.0.0/8, "::1"]`, func(r *events.Rules) any {
			return r.TrustedProxies.Contains(netip.MustParseAddr("127.1.2.3")) && r.TrustedProxies.Contains(netip.IPv6Loopback())
		}, true, "", false},
		{`nat64: ["2001:db8:64::/96"]`, listed("2001:db8:64::203.0.113.255"), events.Denied, "", events.Unlisted},
		{"headers: [ratelimit]", func(r *events.Rules) any { return r.Sends(events.HeaderRateLimit) }, true, "headers: [x-ratelimit]", false},
	}

	data, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	rules, err := Parse(data)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	require.Len(t, lines, len(cases), "a case for each line")
	for i, c := range cases {
		text, _, _ := strings.Cut(lines[i], " #")
		require.Equal(t, c.line, strings.TrimRight(text, " "), "line %d", i+1)
		assert.Equal(t, c.want, c.got(rules), "line %d: %s", i+1, c.line)

		edited := slices.Clone(lines)
		edited[i] = c.instead
		changed, err := Parse([]byte(strings.Join(edited, "\n")))
		if c.changed == (any)(fault{}) {
			assert.Error(t, err, "line %d: %q instead of %s", i+1, c.instead, c.line)
			continue
		}
		if assert.NoError(t, err, "line %d: %q instead of %s", i+1, c.instead, c.line) {
			assert.Equal(t, c.changed, c.got(changed), "line %d: %q instead of %s", i+1, c.instead, c.line)
		}
	}
}

// Each file in testdata/busted says in its "# want: " comments all its faults,
// and nothing else is reported.
func TestBustedFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/busted/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 32)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var want []string
			for line := range strings.Lines(string(data)) {
				if fault, found := strings.CutPrefix(line, "# want: "); found {
					want = append(want, strings.TrimSuffix(fault, "\n"))
				}
			}
			require.NotEmpty(t, want, "the file says what is wanted")

			rules, err := Parse(data)
			require.Error(t, err)
			assert.Nil(t, rules)
			assert.Equal(t, want, strings.Split(err.Error(), "\n"))
			requireFaults(t, err)
		})
	}
}

// requireFaults checks what holds for the faults of any file.
func requireFaults(t *testing.T, err error) {
	t.Helper()
	faults, ok := errors.AsType[events.Faults](err)
	require.True(t, ok, "%T", err)
	require.NotEmpty(t, faults)
	require.ErrorIs(t, err, events.ErrInvalid)
	for i, fault := range faults {
		require.ErrorIs(t, fault, events.ErrInvalid)
		require.NotEmpty(t, fault.Reason)
		require.NotContains(t, fault.Error(), "\n")
		if i > 0 {
			require.GreaterOrEqual(t, fault.Line, faults[i-1].Line)
		}
	}
}

func TestDefaults(t *testing.T) {
	rules, err := Parse([]byte("events:\n  bare:\n  braces: {}\n  none: {limits: []}\n  some: {limits: {}}\n"))
	require.ErrorContains(t, err, "line 5")
	require.Nil(t, rules)

	rules, err = Parse([]byte("events:\n  bare:\n  braces: {}\n  kept: {limits: [], retention: 7d}\n"))
	require.NoError(t, err)
	assert.Equal(t, &events.Event{Name: "bare"}, rules.Events["bare"])
	assert.Equal(t, events.DefaultRetention, rules.Events["braces"].Remembered())
	assert.Equal(t, 7*24*time.Hour, rules.Events["kept"].Remembered())
	assert.True(t, rules.Sends(events.HeaderRateLimit))
	assert.False(t, rules.Sends(events.HeaderXRateLimit))
	assert.False(t, rules.TrustedProxies.Contains(netip.IPv6Loopback()))

	rules, err = Parse([]byte("events: {e: {limits: [{per: user, rate: 5/m}]}}"))
	require.NoError(t, err)
	assert.Equal(t, []events.Rule{{
		Per:    []string{"user"},
		Limits: []events.Limit{{Name: "user-5-per-1m", Series: "user-per-1m", N: 5, Window: time.Minute}}, Revision: rules.Revision, Place: "line 1: events.e.limits[0]",
	}}, rules.Events["e"].Rules)
}

func TestLimitNames(t *testing.T) {
	for _, c := range []struct {
		rule string
		want []string
	}{
		{"per: ip, rate: [5/m, 100/d]", []string{"ip-5-per-1m", "ip-100-per-24h"}},
		{"per: [user, ip], rate: 50/d", []string{"ip+user-50-per-24h"}},
		{"per: [], rate: 10000/m", []string{"all-10000-per-1m"}},
		{"per: ip, rate: 0/90s", []string{"ip-0-per-90s"}},
		{"per: ip, rate: 5/m, name: login", []string{"login"}},
		{"per: ip, rate: [5/m], name: 42", []string{"42"}},
		{"per: ip, rate: [5/m, 100/d], name: login", []string{"login-5-per-1m", "login-100-per-24h"}},
		{"per: ip, rate: 5/m, overrides: {192.0.2.1: 6/m}", []string{"ip-5-per-1m", "ip-6-per-1m"}},
		{"per: ip, rate: 5/m, name: x, overrides: {192.0.2.1: 6/m, 192.0.2.2: [7/m, 8/h]}", []string{"x", "x", "x-7-per-1m", "x-8-per-1h"}},
		{"per: ip, rate: 30/h, burst: 60, overrides: {192.0.2.1: 6/m}", []string{"ip-30-per-1h-burst-60", "ip-6-per-1m-burst-60"}},
		{"per: ip, rate: 30/h, queue: 60", []string{"ip-30-per-1h-queue-60"}},
		{"per: ip, rate: 30/h, queue: 0, name: x", []string{"x"}},
		{"per: ip, concurrent: 30, lease: 1h", []string{"ip-30-concurrent"}},
	} {
		rules, err := Parse([]byte("events: {e: {limits: [{" + c.rule + "}]}}"))
		require.NoError(t, err, c.rule)
		rule := rules.Events["e"].Rules[0]
		var names []string
		for _, limits := range (&ruleFields{Rule: rule}).all() {
			for _, limit := range limits {
				names = append(names, limit.Name)
			}
		}
		assert.Equal(t, c.want, names, c.rule)
	}
}

// What is not faulted where it might be taken for a fault.
func TestAcceptedRules(t *testing.T) {
	for _, file := range []string{
		"events: {e: {limits: [{per: ip, rate: 5/m, throttle: elastic}, {per: [], rate: 9/m}]}}",
		"events: {e: {limits: [{per: ip, rate: 5/m, throttle: elastic, shadow: true}, {per: [], rate: 9/m, shadow: true}]}}",
		"events: {e: {limits: [{per: ip, rate: 5/90m, precision: hour}]}}",
		"events: {e: {limits: [{per: ip, rate: 5/m}, {per: ip, rate: 5/m, name: trial, shadow: true, ipv6_prefix: 64}]}}",
		"events: {e: {limits: [{per: ip, rate: 5/30d}], retention: 30d}}",
		"events: {e: {limits: [{per: ip, rate: 5/m}]}, f: {limits: [{per: ip, rate: 5/m, count: all}]}}",
		"events: {e: {limits: [{per: [ip, user], rate: 5/m, allow: [10.0.0.0/8, alice], deny: [10.0.0.1x]}]}}",
		"events: {e: {from: {ip: forwarded}}}\ntrusted_proxies: 10.0.0.1",
		"\ufeffevents: {e: }\r\nheaders: none\r\n",
		"---\nevents: {e: }\n...\n",
	} {
		_, err := Parse([]byte(file))
		assert.NoError(t, err, file)
	}
}

func TestParseRulesBoundsItsInput(t *testing.T) {
	fill := func(n int) []byte { return append([]byte("events: {e: }\n"), strings.Repeat("#", n)...) }
	_, err := Parse(fill(MaxSize - 14))
	require.NoError(t, err)
	_, err = Parse(fill(MaxSize - 13))
	require.EqualError(t, err, "the file has more than 1048576 bytes")
	requireFaults(t, err)
}

// Files of a mebibyte that are cheap to write and could be dear to read.
func TestParseRulesOutlastsBombs(t *testing.T) {
	const in = "events: {e: {limits: [{per: ip, rate: 5/m"
	half := strings.Repeat("k", MaxSize/2)
	for name, file := range map[string]string{
		"depth":      strings.Repeat("[", MaxSize),
		"tags":       "%TAG !! " + half + "\n---\n" + strings.Repeat("- !!a b\n", 60_000),
		"paths":      "events: {? " + half + " : {limits: [" + strings.Repeat("{},", 50_000) + "]}}",
		"rates":      "events: {e: {limits: [{per: ip, rate: [" + strings.Repeat("5/1s,", 50_000) + "]}]}}",
		"kinds":      "events: {e: {limits: [{per: [" + strings.Repeat("ip,", 100_000) + "], rate: 5/m}]}}",
		"same rules": in + strings.Repeat("}, {per: ip, rate: 5/m", 20_000) + "}]}}",
		"elastic":    in + strings.Repeat("}, {per: ip, rate: 5/m, throttle: elastic", 10_000) + "}]}}",
		"keys":       "events: {" + strings.Repeat("event: 1, ", 30_000) + "}",
		"unknown":    strings.Repeat("event: 1\nheader: 2\n", 15_000),
		"allow":      in + ", allow: [" + strings.Repeat("10.0.0.0/8,", 15_000) + "], deny: [" + strings.Repeat("10.0.0.0/8,", 15_000) + "]}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(file), MaxSize)
			_, err := Parse([]byte(file))
			require.Error(t, err)
			requireAnyFaults(t, err)
		})
	}
}

// requireAnyFaults is requireFaults for faults that are too many to look at.
func requireAnyFaults(t *testing.T, err error) {
	t.Helper()
	faults, ok := errors.AsType[events.Faults](err)
	require.True(t, ok, "%T", err)
	require.NotEmpty(t, faults)
}

func TestRead(t *testing.T) {
	rules, err := Read(exampleFile)
	require.NoError(t, err)
	assert.Len(t, rules.All(), 3)

	_, err = Read("testdata/busted/two_documents.yaml")
	requireFaults(t, err)
	assert.EqualError(t, err, "testdata/busted/two_documents.yaml:\nline 2, column 1: a second document begins here: rules are one document")

	_, err = Read("testdata/none.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.NotErrorIs(t, err, events.ErrInvalid)

	_, err = Read("testdata")
	require.Error(t, err, "a directory")

	large := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(large, make([]byte, 2*MaxSize), 0o600))
	_, err = Read(large)
	require.ErrorContains(t, err, "more than 1048576 bytes")
}

// FuzzParse: no file makes it panic, faults are faults, and rules that parse
// can be used.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/busted/*.yaml")
	require.NoError(f, err)
	for _, file := range append(files, exampleFile) {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := Parse(data)
		if err != nil {
			requireFaults(t, err)
			return
		}
		require.NotEmpty(t, rules.Events)
		for _, event := range rules.All() {
			requireUsable(t, event)
		}
	})
}

// requireUsable checks what holds for any event of a rules file.
func requireUsable(t *testing.T, event *events.Event) {
	t.Helper()
	require.True(t, events.ValidName(event.Name))
	require.LessOrEqual(t, event.Remembered(), events.MaxWindow)
	owners := make(map[string]int)
	for i := range event.Rules {
		rule := &event.Rules[i]
		require.True(t, slices.IsSorted(rule.Per))
		requireCounted(t, event, rule)
		throttle, reason := parseThrottle(rule.Throttle.String())
		require.Empty(t, reason)
		require.Equal(t, rule.Throttle, throttle)
		for _, limits := range (&ruleFields{Rule: *rule}).all() {
			require.NotEmpty(t, limits)
			for _, limit := range limits {
				requireLimit(t, event, rule, limit)
				owner, taken := owners[limit.Name]
				require.True(t, !taken || owner == i, "%q is the name of one rule's limits", limit.Name)
				owners[limit.Name] = i
			}
		}
	}
	for kind, source := range event.From {
		again, reason := parseSource(kind, source.String())
		require.Empty(t, reason)
		require.Equal(t, source, again)
	}
}

func requireLimit(t *testing.T, event *events.Event, rule *events.Rule, limit events.Limit) {
	t.Helper()
	require.True(t, validLimitName(limit.Name), "%q", limit.Name)
	require.GreaterOrEqual(t, rule.Throttle.Ceiling(limit.N), limit.N)
	require.LessOrEqual(t, limit.Window, event.Remembered())
	require.GreaterOrEqual(t, limit.Window, rule.Precision.Length())
	again, err := events.ParseRate(events.FormatRate(limit))
	require.NoError(t, err)
	again.Name, again.Series = limit.Name, limit.Series
	require.Equal(t, limit, again)
}

// requireCounted checks the counters of a hit to which the rule applies.
func requireCounted(t *testing.T, event *events.Event, rule *events.Rule) {
	t.Helper()
	values := slices.Sorted(maps.Keys(rule.Overrides))
	for _, value := range append(values, "2001:db8::1") {
		features := make(events.Features)
		for _, kind := range rule.Per {
			features[kind] = value
		}
		counter, err := event.Counter(features)
		require.NoError(t, err)
		require.Equal(t, rule.Precision, counter.Precision)
		require.True(t, slices.Equal(rule.Per, counter.Feature.Kinds()))
		counters, err := event.Counters(features)
		require.NoError(t, err)
		require.Contains(t, counters, counter)
		applied, err := event.Apply(nil, features)
		require.NoError(t, err)
		at := slices.IndexFunc(applied, func(a events.Applied) bool { return a.Rule == rule })
		require.GreaterOrEqual(t, at, 0)
		require.Equal(t, counter.ID(), applied[at].ID)
		require.Equal(t, counter.ID(), applied[at].Counter.ID())
		require.Equal(t, counter.Retention, applied[at].Counter.Retention)
		require.Equal(t, counter.Precision, applied[at].Counter.Precision)
		require.Equal(t, rule.Listed(features), applied[at].Listing)
		if limits, found := rule.Overrides[value]; found {
			require.Equal(t, limits, rule.LimitsOf(counter.Feature))
		}
	}
}

// A hit has no more counters than a reservation names.
func TestCountersOfAnEvent(t *testing.T) {
	rules := func(n int) string {
		text := "events:\n  e:\n    limits:\n"
		for i := range n {
			text += fmt.Sprintf("      - {per: k%d, rate: 5/m}\n", i)
		}
		return text + "      - {per: k0, rate: 9/h}\n"
	}
	_, err := Parse([]byte(rules(events.MaxCounters)))
	require.NoError(t, err)
	_, err = Parse([]byte(rules(events.MaxCounters + 1)))
	require.ErrorContains(t, err, "line 68, column 9: events.e.limits[64]: the limits of an event are on at most 64 counters")
	_, err = Parse([]byte(rules(events.MaxCounters) + "      - {per: k0, rate: 5/m, burst: 9}\n"))
	require.ErrorContains(t, err, "line 69, column 9: events.e.limits[65]: the limits of an event are on at most 64 counters", "a log is another one")
}
