package events_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/eventlog/footprint"
)

const overriddenRules = `
events:
  login:
    limits:
      - {per: ip, rate: [5/m, 100/d], deny: [192.0.2.0/24], overrides: {"198.51.100.7": [9/m]}}
      - {per: [ip, user], rate: 3/m, name: both}
      - {per: user, rate: 10/h, name: mine, allow: [alice]}
      - {per: key, rate: 6/m, burst: 3, algorithm: token-bucket}
  logged:
    limits:
      - {per: user, rate: 10/h, algorithm: sliding-log}
  shadowy:
    limits:
      - {per: ip, rate: 5/m, shadow: true}
  plain:
    limits:
      - {per: user, rate: 10/h}
`

func parse(t *testing.T, text string) *events.Rules {
	t.Helper()
	rules, err := rulesfile.Parse([]byte(text))
	require.NoError(t, err)
	return rules
}

func rates(t *testing.T, texts ...string) (list []events.Limit) {
	t.Helper()
	for _, text := range texts {
		rate, err := events.ParseRate(text)
		require.NoError(t, err)
		list = append(list, rate)
	}
	return list
}

// decided says what the rules of an event have for a hit: on which list it is, and the names of the limits.
func decided(t *testing.T, rules *events.Rules, event string, features events.Features) (said []string) {
	t.Helper()
	applied, err := rules.Events[event].Apply(nil, features)
	require.NoError(t, err)
	for _, a := range applied {
		text := [...]string{events.Unlisted: "", events.Allowed: "allow ", events.Denied: "deny "}[a.Listing]
		for _, limit := range a.Rule.LimitsOf(a.Counter.Feature) {
			text += limit.Name + " "
		}
		said = append(said, text)
	}
	return said
}

func TestOverrides(t *testing.T) {
	base := parse(t, overriddenRules)
	one, both := events.Features{"ip": "203.0.113.1"}, events.Features{"ip": "203.0.113.1", "user": "bob"}
	with := func(o ...events.Override) *events.Rules {
		return base.With(map[string][]events.Override{"login": o}, 0)
	}
	t.Run("none", func(t *testing.T) {
		assert.Equal(t, []string{"ip-5-per-1m ip-100-per-24h "}, decided(t, base, "login", one))
	})
	t.Run("a value is allowed, with others too", func(t *testing.T) {
		rules := with(events.Override{Kind: "ip", Value: "203.0.113.1", Listing: events.Allowed})
		assert.Equal(t, []string{"allow ip-5-per-1m ip-100-per-24h ", "allow both ", "mine "}, decided(t, rules, "login", both))
		assert.Equal(t, []string{"ip-5-per-1m ip-100-per-24h "}, decided(t, rules, "login", events.Features{"ip": "203.0.113.2"}))
		assert.Equal(t, []string{"ip-5-per-1m ip-100-per-24h "}, decided(t, base, "login", one), "the rules themselves have changed")
	})
	t.Run("a value on the rules' own list", func(t *testing.T) {
		listed := events.Features{"ip": "192.0.2.1"}
		assert.Equal(t, []string{"deny ip-5-per-1m ip-100-per-24h "}, decided(t, base, "login", listed))
		rules := with(events.Override{Kind: "ip", Value: "192.0.2.1", Listing: events.Allowed})
		assert.Equal(t, []string{"allow ip-5-per-1m ip-100-per-24h "}, decided(t, rules, "login", listed))
		rules = with(events.Override{Kind: "user", Value: "alice", Rates: rates(t, "1/h")})
		assert.Equal(t, []string{"mine "}, decided(t, rules, "login", events.Features{"user": "alice"}))
	})
	t.Run("denied outranks allowed", func(t *testing.T) {
		rules := with(events.Override{Kind: "ip", Value: "203.0.113.1", Listing: events.Allowed}, events.Override{Kind: "user", Value: "bob", Listing: events.Denied})
		assert.Equal(t, []string{"allow ip-5-per-1m ip-100-per-24h ", "deny both ", "deny mine "}, decided(t, rules, "login", both))
	})
	t.Run("rates of one window", func(t *testing.T) {
		rules := with(events.Override{Kind: "ip", Value: "203.0.113.1", Rates: rates(t, "50/m")})
		assert.Equal(t, []string{"ip-5-per-1m ip-100-per-24h ", "both ", "mine "}, decided(t, rules, "login", both))
		limits := rules.Events["login"].Rules[0].LimitsOf(counterOf(t, rules, one).Feature)
		assert.Equal(t, []int64{50, 100}, []int64{limits[0].N, limits[1].N})
	})
	t.Run("rates instead of those of the rules' override", func(t *testing.T) {
		rules := with(events.Override{Kind: "ip", Value: "198.51.100.7", Rates: rates(t, "2/m")})
		limits := rules.Events["login"].Rules[0].LimitsOf(counterOf(t, rules, events.Features{"ip": "198.51.100.7"}).Feature)
		require.Len(t, limits, 1)
		assert.EqualValues(t, 2, limits[0].N)
		assert.Equal(t, "ip-9-per-1m", limits[0].Name, "the name stays: metrics and dashboards know it")
	})
	t.Run("an address by its network", func(t *testing.T) {
		o, err := base.Events["login"].CheckOverride(events.Override{Kind: "ip", Value: "2001:db8::1", Listing: events.Denied})
		require.NoError(t, err)
		assert.Equal(t, "2001:db8::/64", o.Value)
		assert.Equal(t, []string{"deny ip-5-per-1m ip-100-per-24h "}, decided(t, with(o), "login", events.Features{"ip": "2001:db8::abcd"}))
	})
	t.Run("one that the rules do not know has no effect", func(t *testing.T) {
		rules := with(
			events.Override{Kind: "session", Value: "1", Listing: events.Denied},
			events.Override{Kind: "ip", Value: "203.0.113.1", Rates: rates(t, "1/h")},
			events.Override{Kind: "key", Value: "1", Rates: rates(t, "1/m")},
		)
		assert.Equal(t, []string{"ip-5-per-1m ip-100-per-24h "}, decided(t, rules, "login", one))
		assert.Equal(t, []string{"key-6-per-1m-burst-3 "}, decided(t, rules, "login", events.Features{"key": "1"}))
	})
}

// The hash by which a value is counted, which top shows, names the value's counter and its overrides.
func TestTheHashOfAValue(t *testing.T) {
	base := parse(t, overriddenRules)
	for kind, value := range map[string]string{"user": strings.Repeat("x", 1025), "key": strings.Repeat("k", 4000), "ip": "no address"} {
		applied, err := base.Events["login"].Apply(nil, events.Features{kind: events.Countable(kind, value)})
		require.NoError(t, err)
		features, err := events.ParseFeatures([]string{applied[0].Counter.Feature.String()})
		require.NoError(t, err)
		counter, err := base.Events["login"].Counter(features)
		require.NoError(t, err)
		assert.Equal(t, applied[0].Counter.ID(), counter.ID())
		set, err := base.Events["login"].CheckOverride(events.Override{Event: "login", Kind: kind, Value: features[kind], Listing: events.Denied})
		require.NoError(t, err)
		rules := base.With(map[string][]events.Override{"login": {set}}, 0)
		applied, err = rules.Events["login"].Apply(nil, events.Features{kind: events.Countable(kind, value)})
		require.NoError(t, err)
		assert.Equal(t, events.Denied, applied[0].Listing, kind)
	}
}

// A limit is overridden where an override has set its listing or its rate, and no other limit of the rule is.
func TestWhatAnOverrideDecides(t *testing.T) {
	base := parse(t, overriddenRules)
	visitor := events.Features{"ip": "203.0.113.1", "user": "bob"}
	by := func(o events.Override) *events.Rules {
		return base.With(map[string][]events.Override{"login": {o}}, 0)
	}
	allow := events.Override{Kind: "ip", Value: "203.0.113.1", Listing: events.Allowed}
	for name, test := range map[string]struct {
		rules    *events.Rules
		features events.Features
		want     []bool // of ip's two limits, both's, and mine's
	}{
		"none":                {base, visitor, []bool{false, false, false, false}},
		"the rule's own list": {base, events.Features{"ip": "192.0.2.1"}, []bool{false, false}},
		"a verdict":           {by(allow), visitor, []bool{true, true, true, false}},
		"of another value":    {by(allow), events.Features{"ip": "203.0.113.2"}, []bool{false, false}},
		"the rate of a window": {
			by(events.Override{Kind: "ip", Value: "203.0.113.1", Rates: rates(t, "50/m")}), visitor, []bool{true, false, false, false},
		},
		"the rate of the rules' override": {
			by(events.Override{Kind: "ip", Value: "198.51.100.7", Rates: rates(t, "2/m")}),
			events.Features{"ip": "198.51.100.7"}, []bool{true},
		},
		"a list that it puts aside": {
			by(events.Override{Kind: "user", Value: "alice", Rates: rates(t, "1/h")}),
			events.Features{"user": "alice"}, []bool{true},
		},
	} {
		applied, err := test.rules.Events["login"].Apply(nil, test.features)
		require.NoError(t, err)
		var got []bool
		for _, a := range applied {
			for _, limit := range a.Rule.LimitsOf(a.Counter.Feature) {
				got = append(got, a.Overrides(limit))
			}
		}
		assert.Equal(t, test.want, got, name)
	}
}

func counterOf(t *testing.T, rules *events.Rules, features events.Features) events.Counter {
	t.Helper()
	counter, err := rules.Events["login"].Counter(features)
	require.NoError(t, err)
	return counter
}

func TestFaultsOfOverrides(t *testing.T) {
	rules := parse(t, overriddenRules)
	event := rules.Events["login"]
	_, err := rules.Events["shadowy"].CheckOverride(events.Override{Kind: "ip", Value: "203.0.113.1", Listing: events.Denied})
	require.ErrorIs(t, err, events.ErrInvalid)
	assert.ErrorContains(t, err, "all limits of shadowy per ip are in shadow")
	for name, test := range map[string]struct {
		override events.Override
		want     string
	}{
		"another kind":          {events.Override{Kind: "session", Value: "1", Listing: events.Denied}, "no limit of login is per this kind"},
		"no value":              {events.Override{Kind: "user", Listing: events.Denied}, "the value is empty"},
		"no address":            {events.Override{Kind: "ip", Value: "x", Listing: events.Denied}, "address"},
		"nothing":               {events.Override{Kind: "user", Value: "bob"}, "it allows, denies, or has 1 to 8 rates"},
		"both":                  {events.Override{Kind: "user", Value: "bob", Listing: events.Allowed, Rates: rates(t, "1/h")}, "has no rates"},
		"another window":        {events.Override{Kind: "ip", Value: "203.0.113.1", Rates: rates(t, "1/h")}, "no limit per ip has the window 1h: there are 1m, 24h"},
		"a window twice":        {events.Override{Kind: "user", Value: "bob", Rates: rates(t, "1/h", "2/h")}, "two rates of the window 1h"},
		"rates of token bucket": {events.Override{Kind: "key", Value: "1", Rates: rates(t, "1/m")}, "allow or deny the value instead"},
		"below zero":            {events.Override{Kind: "user", Value: "bob", Rates: []events.Limit{{N: -1, Window: time.Hour}}}, "N is 0 to"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := event.CheckOverride(test.override)
			require.ErrorIs(t, err, events.ErrInvalid)
			assert.ErrorContains(t, err, test.want)
		})
	}
}

// Logs are judged by the limits of the newest rules that they know: so overrides are newer ones.
func TestOverridesOfLogs(t *testing.T) {
	base := parse(t, overriddenRules)
	revision := events.RevisionOf(time.Unix(1_800_000_000, 0), 7)
	require.Greater(t, revision, base.Revision)
	rules := base.With(map[string][]events.Override{"logged": {{Kind: "user", Value: "bob", Rates: rates(t, "20/h")}}}, revision)
	assert.Equal(t, revision, rules.Events["logged"].Rules[0].Revision)
	assert.Equal(t, base.Revision, rules.Events["plain"].Rules[0].Revision, "it keeps no log")
	assert.Equal(t, base.Revision, base.Events["logged"].Rules[0].Revision)
	assert.Equal(t, revision, base.With(nil, revision).Events["logged"].Rules[0].Revision, "the override has ended, and logs know it")

	newer := *base
	newer.Revision = revision + 1
	assert.Equal(t, base.Events["logged"].Rules[0].Revision, newer.With(nil, revision).Events["logged"].Rules[0].Revision)

	large := base.With(map[string][]events.Override{"logged": {{Kind: "user", Value: "bob", Rates: rates(t, "1000000/h")}}}, 0)
	assert.ErrorContains(t, footprint.CheckRules(large, events.DefaultGrace), "a log of the 1000000 hits")
}
